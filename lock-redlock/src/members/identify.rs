//! Which server is which member of the deployment: found out when a client connects, and whenever a server says that it is
//! not the member that it was asked as.
//!
//! A server without data on its disk forgets its votes and its stamp when it restarts. It becomes the member that it was
//! again only when a majority of the members still has the record: by that the client knows that its own idea of the
//! deployment is the present one. Where a majority has lost its data, nobody can know which locks were held and who the
//! members were, so an operator has to say it again, by `init`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lock_core::Error;
use lock_redis::node::ScriptCall;

use crate::{
    config::read_address,
    members::init::mark,
    nodes::{
        quorum::{Quorum, unavailable},
        scripts::{advance, mark_member, read_status, status},
    },
    protocol::deployment::{Deployment, ServerStatus, common},
};

/// For how long after one look nobody looks again which server is which.
const IDENTIFIED: Duration = Duration::from_millis(100);

/// What an operator does about servers that are no members.
pub(crate) const MARK: &str = "mark them with `lock redlock init`";

/// What a server with this stamp is called in messages.
pub(crate) fn stranger(stamp: &str) -> String {
    match stamp {
        "" => "it was never marked as a member, or has lost its data".to_owned(),
        stamp => format!("it is marked as another member, {stamp:?}"),
    }
}

/// What the nodes say of themselves, of those that answer; and why the others do not.
pub(crate) async fn ask_all(quorum: &Arc<Quorum>) -> (BTreeMap<usize, ServerStatus>, Vec<(usize, String)>) {
    ask(quorum, |_| true).await
}

async fn ask(
    quorum: &Arc<Quorum>,
    of: impl Fn(usize) -> bool,
) -> (BTreeMap<usize, ServerStatus>, Vec<(usize, String)>) {
    let mut replies = quorum.ask(|node| of(node).then(|| status().into()), read_status);
    let (mut statuses, mut failed) = (BTreeMap::new(), Vec::new());
    while let Some((node, answer)) = replies.next_of_any().await {
        match answer {
            Ok(status) => {
                statuses.insert(node, status);
            }
            Err(no_reply) => failed.push((node, no_reply.reason())),
        }
    }
    (statuses, failed)
}

/// Refuses two addresses that lead to one server.
pub(crate) fn refuse_same_server(quorum: &Quorum, statuses: &BTreeMap<usize, ServerStatus>) -> Result<(), Error> {
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (node, status) in statuses {
        if let Some(other) = met.insert(&status.run_id, *node) {
            let twice = format!("{},{}", quorum.address(other.min(*node)), quorum.address(other.max(*node)));
            return Err(Error::config("host", twice, "different servers: these two are one and the same"));
        }
    }
    Ok(())
}

/// Connects to all nodes, as far as they answer, and finds out which deployment they are and whether this client takes part
/// in it. A majority is enough, but the others are given their time, so that what is wrong with one of them is found out.
///
/// # Errors
/// [`Error::Config`] with what differs; [`Error::Unavailable`] when no majority answers, or none knows the deployment.
pub(crate) async fn connect(quorum: &Arc<Quorum>) -> Result<Deployment, Error> {
    let (statuses, failed) = ask_all(quorum).await;
    refuse_same_server(quorum, &statuses)?;
    let named = statuses.iter().map(|(node, status)| (quorum.address(*node), status));
    let deployment = common(named)?;
    if statuses.len() < quorum.majority() {
        return Err(unavailable(quorum, "answers", failed));
    }
    let Some(deployment) = deployment else {
        let addresses = quorum.config.addresses();
        return Err(Error::config(
            "host",
            addresses,
            format!("servers of a deployment; these are of none yet, {MARK}"),
        ));
    };
    deployment.admit(&quorum.config)?;
    let replaced = |node: usize, status: Option<&ServerStatus>| {
        status.is_some_and(|status| deployment.was_replaced(&status.stamp))
            || (status.is_none_or(ServerStatus::is_unmarked) && deployment.has_replaced(&quorum.address(node)))
    };
    for (node, status) in &statuses {
        if status.is_unmarked() && !replaced(*node, Some(status)) {
            refuse_another_server(quorum, &deployment, *node, &statuses)?;
        }
    }
    record_members(quorum, &deployment, &statuses);
    let is_vacant = |node: &usize| replaced(*node, statuses.get(node));
    let vacant = quorum.members.unknown().into_iter().filter(is_vacant).collect();
    let statuses = fill_vacant_places(quorum, &deployment, vacant, statuses).await;
    if !deployment.is_known_to_a_majority(statuses.values()) {
        let unmarked = statuses.iter().filter(|(_, status)| status.is_unmarked());
        let reasons = unmarked.map(|(node, _)| (*node, stranger(""))).chain(failed);
        return Err(unavailable(quorum, &format!("knows the deployment any more; {MARK}"), reasons));
    }
    readmit(quorum, &deployment, &statuses).await;
    Ok(deployment)
}

/// Refuses an unmarked server that is no member by its address, where addresses tell: the members are reached by those that
/// an operator gave them. Elsewhere, behind a translation of addresses, such a server may be a member without its data; it is
/// not counted, and the client goes on without it.
fn refuse_another_server(
    quorum: &Quorum,
    deployment: &Deployment,
    node: usize,
    statuses: &BTreeMap<usize, ServerStatus>,
) -> Result<(), Error> {
    let address = quorum.address(node);
    let tells = |(node, status): (&usize, &ServerStatus)| {
        deployment.member(&status.stamp).is_none_or(|member| deployment.name(member) == quorum.address(*node))
    };
    if deployment.named(&address).is_none() && statuses.iter().all(tells) {
        return Err(not_a_member(deployment, address));
    }
    Ok(())
}

/// That the server at this address is none of the deployment's.
pub(crate) fn not_a_member(deployment: &Deployment, address: String) -> Error {
    let members = format!("the members of the deployment {}: {}", deployment.id, deployment.list());
    Error::config("host", address, members)
}

impl Quorum {
    /// Finds out in the background which members the servers are that are not known as any, unless somebody is at it or
    /// has just been.
    pub(crate) fn identify(self: &Arc<Self>) {
        if self.members.unknown().is_empty() {
            return;
        }
        let Some(flight) = self.identifying.try_begin() else { return };
        let quorum = Arc::clone(self);
        self.context.spawn(async move {
            identify(&quorum).await;
            quorum.clock().sleep(IDENTIFIED).await;
            drop(flight);
        });
    }
}

/// Asks the servers that are not known as members what they are, goes on with another generation or deployment if that is
/// what they are now, and makes those that have lost their data members again.
async fn identify(quorum: &Arc<Quorum>) {
    let Some(deployment) = quorum.deployment() else { return };
    let unknown = quorum.members.unknown();
    let (statuses, _) = ask(quorum, |node| unknown.contains(&node)).await;
    record_members(quorum, &deployment, &statuses);
    if statuses.values().any(|status| deployment.member(&status.stamp).is_none()) {
        let (statuses, _) = ask_all(quorum).await;
        let (deployment, statuses) = follow(quorum, deployment, statuses).await;
        readmit(quorum, &deployment, &statuses).await;
    }
}

fn record_members(quorum: &Quorum, deployment: &Deployment, statuses: &BTreeMap<usize, ServerStatus>) {
    for (node, status) in statuses {
        match deployment.member(&status.stamp) {
            Some(member) => quorum.members.set_member(*node, deployment, member),
            None => quorum.members.set_unknown(*node, stranger(&status.stamp)),
        }
    }
}

/// What the servers are now: an operator may have replaced a member, or made another deployment of them after all had lost
/// their data. A client that could connect to it goes on with it. What it holds counts for as long as a majority of the
/// members says that they keep it, by value and number, whatever they were when they granted it; what a member has kept that
/// was replaced since counts for as long as had been promised before.
async fn follow(
    quorum: &Arc<Quorum>,
    known: Arc<Deployment>,
    statuses: BTreeMap<usize, ServerStatus>,
) -> (Arc<Deployment>, BTreeMap<usize, ServerStatus>) {
    if known.is_known_to_a_majority(statuses.values()) {
        return (known, statuses);
    }
    let mut others = statuses.values().filter_map(ServerStatus::marked_for);
    let is_next = |other: &&Deployment| {
        (other.id != known.id || other.generation > known.generation) && other.is_known_to_a_majority(statuses.values())
    };
    let Some(other) = others.find(is_next).cloned() else { return (known, statuses) };
    if let Err(error) = other.admit(&quorum.config) {
        tracing::warn!(%error, "the servers were made another deployment, which this client is no part of");
        return (known, statuses);
    }
    tracing::info!(deployment = %other, "the servers are another deployment, or have another member");
    let other = Arc::new(other);
    let was_replaced = |(node, member)| (known.replaced_in(&other, member)).then_some(node);
    let vacant = quorum.members.roster().members().enumerate().filter_map(was_replaced).collect();
    quorum.set_deployment(Arc::clone(&other));
    quorum.members.reset_for(&known, &other);
    record_members(quorum, &other, &statuses);
    let statuses = fill_vacant_places(quorum, &other, vacant, statuses).await;
    (other, statuses)
}

/// Gives the places of servers that are no members any more to the members that have none, and asks these what they are.
async fn fill_vacant_places(
    quorum: &Arc<Quorum>,
    deployment: &Deployment,
    vacant: Vec<usize>,
    mut statuses: BTreeMap<usize, ServerStatus>,
) -> BTreeMap<usize, ServerStatus> {
    let seated: Vec<u32> = quorum.members.roster().members().collect();
    let addresses: Vec<String> = (0..quorum.len()).map(|node| quorum.address(node)).collect();
    let has_none = |(member, name): &(&u32, &String)| !seated.contains(member) && !addresses.contains(name);
    let newcomers = deployment.members.iter().filter(has_none);
    let mut asked = Vec::new();
    for (node, (member, name)) in vacant.into_iter().zip(newcomers) {
        let Some((host, port)) = read_address(name) else { continue };
        tracing::warn!(was = %addresses[node], is = %name, "a server of this client was replaced: change its list");
        quorum.replace_node(node, host, port);
        quorum.members.expect(node, *member);
        statuses.remove(&node);
        asked.push(node);
    }
    let (newcomers, _) = ask(quorum, |node| asked.contains(&node)).await;
    record_members(quorum, deployment, &newcomers);
    statuses.extend(newcomers);
    statuses
}

/// Makes those servers members again that have lost their data, and tells those of this generation that do not know of it, if
/// a majority has the record. What it says then is what the deployment is now.
async fn readmit(quorum: &Arc<Quorum>, deployment: &Deployment, statuses: &BTreeMap<usize, ServerStatus>) {
    let is_to_be_marked =
        |status: &ServerStatus| status.is_unmarked() || deployment.earlier_member(&status.stamp).is_some();
    if !quorum.members.unknown().iter().filter_map(|node| statuses.get(node)).any(is_to_be_marked) {
        return;
    }
    // The answers are of different moments: one that has answered may have lost its data before another one did. So they are
    // asked twice: what they say both times they had all at once in between.
    let is_known = |statuses: &BTreeMap<usize, ServerStatus>| deployment.is_known_to_a_majority(statuses.values());
    if !is_known(statuses) {
        return;
    }
    let (statuses, _) = ask_all(quorum).await;
    if !is_known(&statuses) {
        return;
    }
    for node in quorum.members.unknown() {
        let Some(status) = statuses.get(&node) else { continue };
        if status.is_unmarked() {
            mark_again(quorum, deployment, node).await;
        } else if let Some(member) = deployment.earlier_member(&status.stamp) {
            mark_as(quorum, deployment, node, member, advance(deployment, member, &status.stamp)).await;
        }
    }
}

/// Makes the unmarked server at `node` the member that it was. It gives no vote until every lease has ended of which it
/// may have known.
async fn mark_again(quorum: &Arc<Quorum>, deployment: &Deployment, node: usize) {
    let Some(member) = quorum.members.candidate(node, deployment, &quorum.address(node)) else {
        let why = format!("{}, and is none of the members {}", stranger(""), deployment.list());
        return quorum.members.set_unknown(node, why);
    };
    mark_as(quorum, deployment, node, member, mark_member(deployment, member, "", deployment.rejoin_quarantine()))
        .await;
}

async fn mark_as(quorum: &Arc<Quorum>, deployment: &Deployment, node: usize, member: u32, call: ScriptCall) {
    let (marked, _) = mark(quorum, |other| (other == node).then(|| call.clone())).await;
    if marked.contains(&node) {
        tracing::info!(node = %quorum.address(node), %deployment, "a server is a member again");
        quorum.members.set_member(node, deployment, member);
    }
}

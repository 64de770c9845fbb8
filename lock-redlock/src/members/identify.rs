//! Finding out which server is which member: when a client connects, and whenever a server says that it is not the member
//! that it was asked as.

use std::{sync::Arc, time::Duration};

use lock_core::Error;
use lock_redis::node::ScriptCall;

use crate::{
    config::read_address,
    members::servers::{
        INIT_HINT, Statuses, ask_all, ask_some, mark, no_deployment, not_a_member, refuse_same_server, stranger,
    },
    nodes::{
        quorum::Quorum,
        scripts::{advance, mark_member},
    },
    protocol::deployment::{Deployment, ServerStatus, common},
};

/// The least time between two looks at which server is which.
const IDENTIFIED: Duration = Duration::from_millis(100);

/// Connects to the nodes, and finds out which deployment they are and whether this client takes part in it. A majority is
/// enough, but the other nodes are given their time, so that a fault of a single node is found, too.
///
/// # Errors
/// [`Error::Config`] with what differs; [`Error::Unavailable`] when no majority answers, or none knows the deployment.
pub(crate) async fn connect(quorum: &Arc<Quorum>) -> Result<Deployment, Error> {
    let (statuses, failed) = ask_all(quorum).await;
    refuse_same_server(quorum, &statuses)?;
    let named = statuses.iter().map(|(node, status)| (quorum.address(*node), status));
    let deployment = common(named)?;
    if statuses.len() < quorum.majority() {
        return Err(quorum.unavailable("answers", failed));
    }
    let Some(deployment) = deployment else { return Err(no_deployment(quorum.config.addresses())) };
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
        return Err(quorum.unavailable(&format!("knows the deployment any more; {INIT_HINT}"), reasons));
    }
    readmit(quorum, &deployment, &statuses).await;
    Ok(deployment)
}

/// Refuses an unmarked server whose address belongs to no member, where addresses tell: every marked server is reached by
/// the address that the operator gave it. Behind a translation of addresses, such a server may be a member without its
/// data; it is not counted, and the client goes on without it.
fn refuse_another_server(
    quorum: &Quorum,
    deployment: &Deployment,
    node: usize,
    statuses: &Statuses,
) -> Result<(), Error> {
    let address = quorum.address(node);
    let tells = |(node, status): (&usize, &ServerStatus)| {
        deployment.member(&status.stamp).is_none_or(|member| deployment.name(member) == quorum.address(*node))
    };
    // Safeguard: a client with another list of servers is refused (Redlock)
    if deployment.named(&address).is_none() && statuses.iter().all(tells) {
        return Err(not_a_member(deployment, address));
    }
    Ok(())
}

impl Quorum {
    /// Finds out in the background which members the unknown servers are, unless a task is doing so or has just done so.
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

/// Asks the unknown servers what they are, goes on with another generation or deployment if the servers have one now, and
/// makes servers that have lost their data members again.
async fn identify(quorum: &Arc<Quorum>) {
    let Some(deployment) = quorum.deployment() else { return };
    let unknown = quorum.members.unknown();
    let (statuses, _) = ask_some(quorum, |node| unknown.contains(&node)).await;
    record_members(quorum, &deployment, &statuses);
    if statuses.values().any(|status| deployment.member(&status.stamp).is_none()) {
        let (statuses, _) = ask_all(quorum).await;
        let (deployment, statuses) = follow(quorum, deployment, statuses).await;
        readmit(quorum, &deployment, &statuses).await;
    }
}

fn record_members(quorum: &Quorum, deployment: &Deployment, statuses: &Statuses) {
    for (node, status) in statuses {
        match deployment.member(&status.stamp) {
            Some(member) => quorum.members.set_member(*node, deployment, member),
            None => quorum.members.set_unknown(*node, stranger(&status.stamp)),
        }
    }
}

/// Goes on with the deployment that the servers are now, if this client could connect to it: an operator may have replaced a
/// member, or made another deployment of the servers after all had lost their data. A held lock counts for as long as a
/// majority of the members confirms it by value and number, whatever the members were when they granted it; the promise of
/// a member that was replaced since counts until its old deadline.
async fn follow(quorum: &Arc<Quorum>, known: Arc<Deployment>, statuses: Statuses) -> (Arc<Deployment>, Statuses) {
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
    // Safeguard: clients go on with what an operator makes of their servers (Redlock)
    quorum.set_deployment(Arc::clone(&other));
    quorum.members.reset_for(&known, &other);
    record_members(quorum, &other, &statuses);
    let statuses = fill_vacant_places(quorum, &other, vacant, statuses).await;
    (other, statuses)
}

/// Puts the members that have no place at the vacant places, and asks them what they are.
async fn fill_vacant_places(
    quorum: &Arc<Quorum>,
    deployment: &Deployment,
    vacant: Vec<usize>,
    mut statuses: Statuses,
) -> Statuses {
    let seated: Vec<u32> = quorum.members.roster().members().collect();
    let addresses: Vec<String> = (0..quorum.len()).map(|node| quorum.address(node)).collect();
    let has_none = |(member, name): &(&u32, &String)| !seated.contains(member) && !addresses.contains(name);
    let newcomers = deployment.members.iter().filter(has_none);
    let mut asked = Vec::new();
    for (node, (member, name)) in vacant.into_iter().zip(newcomers) {
        let Some((host, port)) = read_address(name) else { continue };
        tracing::warn!(was = %addresses[node], is = %name, "a server of this client was replaced: change its list");
        // Safeguard: clients find the server that has the place of another (Redlock)
        quorum.replace_node(node, host, port);
        quorum.members.expect(node, *member);
        statuses.remove(&node);
        asked.push(node);
    }
    let (newcomers, _) = ask_some(quorum, |node| asked.contains(&node)).await;
    record_members(quorum, deployment, &newcomers);
    statuses.extend(newcomers);
    statuses
}

/// Makes servers that have lost their data members again, and tells the other servers of this generation, if a majority has
/// the record: then the record is the present one.
async fn readmit(quorum: &Arc<Quorum>, deployment: &Deployment, statuses: &Statuses) {
    let is_to_be_marked =
        |status: &ServerStatus| status.is_unmarked() || deployment.earlier_member(&status.stamp).is_some();
    if !quorum.members.unknown().iter().filter_map(|node| statuses.get(node)).any(is_to_be_marked) {
        return;
    }
    // The answers are of different moments: a server that has answered may have lost its data before another one answered.
    // So the servers are asked twice: what they say both times, all of them had at one moment in between.
    // Safeguard: a server without data becomes a member again only where a majority knows the deployment (Redlock)
    let is_known = |statuses: &Statuses| deployment.is_known_to_a_majority(statuses.values());
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

/// Makes the unmarked server at `node` the member that it was. The server gives no vote until every lease has ended that it
/// may have known of.
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

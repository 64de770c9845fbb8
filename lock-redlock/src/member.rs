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
    deployment::{Deployment, Standing, common},
    init::mark,
    panel::{Panel, unavailable},
    scripts::{advance, enlist, read_standing, standing},
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
pub(crate) async fn ask_all(panel: &Arc<Panel>) -> (BTreeMap<usize, Standing>, Vec<(usize, String)>) {
    ask(panel, |_| true).await
}

async fn ask(panel: &Arc<Panel>, of: impl Fn(usize) -> bool) -> (BTreeMap<usize, Standing>, Vec<(usize, String)>) {
    let mut replies = panel.ask(|node| of(node).then(|| standing().into()), read_standing);
    let (mut standings, mut failed) = (BTreeMap::new(), Vec::new());
    while let Some((node, answer)) = replies.next_of_all().await {
        match answer {
            Ok(standing) => {
                standings.insert(node, standing);
            }
            Err(silence) => failed.push((node, silence.reason())),
        }
    }
    (standings, failed)
}

/// Refuses two addresses that lead to one server.
pub(crate) fn refuse_twins(panel: &Panel, standings: &BTreeMap<usize, Standing>) -> Result<(), Error> {
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (node, standing) in standings {
        if let Some(other) = met.insert(&standing.run_id, *node) {
            let twice = format!("{},{}", panel.address(other.min(*node)), panel.address(other.max(*node)));
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
pub(crate) async fn meet(panel: &Arc<Panel>) -> Result<Deployment, Error> {
    let (standings, failed) = ask_all(panel).await;
    refuse_twins(panel, &standings)?;
    let named = standings.iter().map(|(node, standing)| (panel.address(*node), standing));
    let deployment = common(named)?;
    if standings.len() < panel.majority() {
        return Err(unavailable(panel, "answers", failed));
    }
    let Some(deployment) = deployment else {
        let addresses = panel.config.addresses();
        return Err(Error::config(
            "host",
            addresses,
            format!("servers of a deployment; these are of none yet, {MARK}"),
        ));
    };
    deployment.admit(&panel.config)?;
    let replaced = |node: usize, standing: Option<&Standing>| {
        standing.is_some_and(|standing| deployment.was_replaced(&standing.stamp))
            || (standing.is_none_or(Standing::is_unmarked) && deployment.has_replaced(&panel.address(node)))
    };
    for (node, standing) in &standings {
        if standing.is_unmarked() && !replaced(*node, Some(standing)) {
            refuse_another_server(panel, &deployment, *node, &standings)?;
        }
    }
    take_down(panel, &deployment, &standings);
    let is_vacant = |node: &usize| replaced(*node, standings.get(node));
    let vacant = panel.slots.unknown().into_iter().filter(is_vacant).collect();
    let standings = seat(panel, &deployment, vacant, standings).await;
    if !deployment.is_known_to_a_majority(standings.values()) {
        let unmarked = standings.iter().filter(|(_, standing)| standing.is_unmarked());
        let reasons = unmarked.map(|(node, _)| (*node, stranger(""))).chain(failed);
        return Err(unavailable(panel, &format!("knows the deployment any more; {MARK}"), reasons));
    }
    take_in(panel, &deployment, &standings).await;
    Ok(deployment)
}

/// Refuses an unmarked server that is no member by its address, where addresses tell: the members are reached by those that
/// an operator gave them. Elsewhere, behind a translation of addresses, such a server may be a member without its data; it is
/// not counted, and the client goes on without it.
fn refuse_another_server(
    panel: &Panel,
    deployment: &Deployment,
    node: usize,
    standings: &BTreeMap<usize, Standing>,
) -> Result<(), Error> {
    let address = panel.address(node);
    let tells = |(node, standing): (&usize, &Standing)| {
        deployment.member(&standing.stamp).is_none_or(|member| deployment.name(member) == panel.address(*node))
    };
    if deployment.named(&address).is_none() && standings.iter().all(tells) {
        return Err(not_a_member(deployment, address));
    }
    Ok(())
}

/// That the server at this address is none of the deployment's.
pub(crate) fn not_a_member(deployment: &Deployment, address: String) -> Error {
    let members = format!("the members of the deployment {}: {}", deployment.id, deployment.list());
    Error::config("host", address, members)
}

impl Panel {
    /// Finds out in the background which members the servers are that are not known as any, unless somebody is at it or
    /// has just been.
    pub(crate) fn identify(self: &Arc<Self>) {
        if self.slots.unknown().is_empty() {
            return;
        }
        let Some(turn) = self.identifying.begin() else { return };
        let panel = Arc::clone(self);
        self.context.spawn(async move {
            identify(&panel).await;
            panel.clock().sleep(IDENTIFIED).await;
            drop(turn);
        });
    }
}

/// Asks the servers that are not known as members what they are, goes on with another generation or deployment if that is
/// what they are now, and makes those that have lost their data members again.
async fn identify(panel: &Arc<Panel>) {
    let Some(deployment) = panel.deployment() else { return };
    let unknown = panel.slots.unknown();
    let (standings, _) = ask(panel, |node| unknown.contains(&node)).await;
    take_down(panel, &deployment, &standings);
    if standings.values().any(|standing| deployment.member(&standing.stamp).is_none()) {
        let (standings, _) = ask_all(panel).await;
        let (deployment, standings) = follow(panel, deployment, standings).await;
        take_in(panel, &deployment, &standings).await;
    }
}

fn take_down(panel: &Panel, deployment: &Deployment, standings: &BTreeMap<usize, Standing>) {
    for (node, standing) in standings {
        match deployment.member(&standing.stamp) {
            Some(member) => panel.slots.found(*node, deployment, member),
            None => panel.slots.is_stranger(*node, stranger(&standing.stamp)),
        }
    }
}

/// What the servers are now: an operator may have replaced a member, or made another deployment of them after all had lost
/// their data. A client that could connect to it goes on with it. What it holds counts for as long as a majority of the
/// members says that they keep it, by value and number, whatever they were when they granted it; what a member has kept that
/// was replaced since counts for as long as had been promised before.
async fn follow(
    panel: &Arc<Panel>,
    known: Arc<Deployment>,
    standings: BTreeMap<usize, Standing>,
) -> (Arc<Deployment>, BTreeMap<usize, Standing>) {
    if known.is_known_to_a_majority(standings.values()) {
        return (known, standings);
    }
    let mut others = standings.values().filter_map(Standing::marked_for);
    let is_next = |other: &&Deployment| {
        (other.id != known.id || other.generation > known.generation)
            && other.is_known_to_a_majority(standings.values())
    };
    let Some(other) = others.find(is_next).cloned() else { return (known, standings) };
    if let Err(error) = other.admit(&panel.config) {
        tracing::warn!(%error, "the servers were made another deployment, which this client is no part of");
        return (known, standings);
    }
    tracing::info!(deployment = %other, "the servers are another deployment, or have another member");
    let other = Arc::new(other);
    let was_replaced = |(node, member)| (known.replaced_in(&other, member)).then_some(node);
    let vacant = panel.slots.seats().members().enumerate().filter_map(was_replaced).collect();
    panel.belongs_to(Arc::clone(&other));
    panel.slots.begin_anew(&known, &other);
    take_down(panel, &other, &standings);
    let standings = seat(panel, &other, vacant, standings).await;
    (other, standings)
}

/// Gives the places of servers that are no members any more to the members that have none, and asks these what they are.
async fn seat(
    panel: &Arc<Panel>,
    deployment: &Deployment,
    vacant: Vec<usize>,
    mut standings: BTreeMap<usize, Standing>,
) -> BTreeMap<usize, Standing> {
    let seated: Vec<u32> = panel.slots.seats().members().collect();
    let addresses: Vec<String> = (0..panel.len()).map(|node| panel.address(node)).collect();
    let has_none = |(member, name): &(&u32, &String)| !seated.contains(member) && !addresses.contains(name);
    let newcomers = deployment.members.iter().filter(has_none);
    let mut asked = Vec::new();
    for (node, (member, name)) in vacant.into_iter().zip(newcomers) {
        let Some((host, port)) = read_address(name) else { continue };
        tracing::warn!(was = %addresses[node], is = %name, "a server of this client was replaced: change its list");
        panel.put(node, host, port);
        panel.slots.expect(node, *member);
        standings.remove(&node);
        asked.push(node);
    }
    let (newcomers, _) = ask(panel, |node| asked.contains(&node)).await;
    take_down(panel, deployment, &newcomers);
    standings.extend(newcomers);
    standings
}

/// Makes those servers members again that have lost their data, and tells those of this generation that do not know of it, if
/// a majority has the record. What it says then is what the deployment is now.
async fn take_in(panel: &Arc<Panel>, deployment: &Deployment, standings: &BTreeMap<usize, Standing>) {
    let is_to_be_marked =
        |standing: &Standing| standing.is_unmarked() || deployment.earlier_member(&standing.stamp).is_some();
    if !panel.slots.unknown().iter().filter_map(|node| standings.get(node)).any(is_to_be_marked) {
        return;
    }
    // The answers are of different moments: one that has answered may have lost its data before another one did. So they are
    // asked twice: what they say both times they had all at once in between.
    let is_known = |standings: &BTreeMap<usize, Standing>| deployment.is_known_to_a_majority(standings.values());
    if !is_known(standings) {
        return;
    }
    let (standings, _) = ask_all(panel).await;
    if !is_known(&standings) {
        return;
    }
    for node in panel.slots.unknown() {
        let Some(standing) = standings.get(&node) else { continue };
        if standing.is_unmarked() {
            enlist_again(panel, deployment, node).await;
        } else if let Some(member) = deployment.earlier_member(&standing.stamp) {
            mark_as(panel, deployment, node, member, advance(deployment, member, &standing.stamp)).await;
        }
    }
}

/// Makes the unmarked server at `node` the member that it was. It gives no vote until every lease has ended of which it
/// may have known.
async fn enlist_again(panel: &Arc<Panel>, deployment: &Deployment, node: usize) {
    let Some(member) = panel.slots.candidate(node, deployment, &panel.address(node)) else {
        let why = format!("{}, and is none of the members {}", stranger(""), deployment.list());
        return panel.slots.is_stranger(node, why);
    };
    mark_as(panel, deployment, node, member, enlist(deployment, member, "", deployment.absence())).await;
}

async fn mark_as(panel: &Arc<Panel>, deployment: &Deployment, node: usize, member: u32, call: ScriptCall) {
    let (marked, _) = mark(panel, |other| (other == node).then(|| call.clone())).await;
    if marked.contains(&node) {
        tracing::info!(node = %panel.address(node), %deployment, "a server is a member again");
        panel.slots.found(node, deployment, member);
    }
}

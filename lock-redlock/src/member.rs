//! Which server is which member of the deployment: found out when a client connects, and whenever a server says that it is
//! not the member that it was asked as.
//!
//! A server without data on its disk forgets its votes and its stamp when it restarts. It becomes the member that it was
//! again only when a majority of the members still has the record: by that the client knows that its own idea of the
//! deployment is the present one. Where a majority has lost its data, nobody can know which locks were held and who the
//! members were, so an operator has to say it again, by `init`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::Error;
use lock_redis::scripts::held;

use crate::{
    deployment::{Deployment, Standing, common},
    panel::{Panel, unavailable},
    quorum::majority,
    scripts::{enlist, read_standing, standing},
};

/// For how long after one look nobody looks again which server is which.
const IDENTIFIED: Duration = Duration::from_millis(100);

/// What an operator does about servers that are no members.
pub(crate) const MARK: &str = "mark them with `lock redlock init`";

/// What is known of the server at one address.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    /// It is this member, and answers to this stamp.
    Member { member: u32, stamp: Arc<str> },
    /// It is not counted.
    Unknown {
        why: String,
        /// The member that it was: a server that lost its data becomes that again, whatever it is called.
        was: Option<u32>,
    },
}

impl Slot {
    fn unknown() -> Self {
        Self::Unknown { why: "it has not said yet which member it is".to_owned(), was: None }
    }
}

/// What is known of the servers at all addresses of a client.
#[derive(Debug)]
pub(crate) struct Slots(Mutex<Vec<Slot>>);

impl Slots {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(vec![Slot::unknown(); nodes]))
    }

    /// The stamp of the server there.
    ///
    /// # Errors
    /// Why it is not counted.
    pub(crate) fn stamp(&self, node: usize) -> Result<Arc<str>, String> {
        self.open(|slots| match &slots[node] {
            Slot::Member { stamp, .. } => Ok(Arc::clone(stamp)),
            Slot::Unknown { why, .. } => Err(why.clone()),
        })
    }

    /// Nothing is known any more.
    fn forget(&self) {
        self.open(|slots| slots.fill(Slot::unknown()));
    }

    /// The nodes that are not known as members.
    pub(crate) fn unknown(&self) -> Vec<usize> {
        self.open(|slots| {
            let unknown = |(node, slot): (usize, &Slot)| matches!(slot, Slot::Unknown { .. }).then_some(node);
            slots.iter().enumerate().filter_map(unknown).collect()
        })
    }

    /// The server at `node` is that member, unless another address leads to that one: a member has one vote.
    fn found(&self, node: usize, deployment: &Deployment, member: u32) {
        self.open(|slots| {
            let other = slots.iter().position(|slot| matches!(slot, Slot::Member { member: m, .. } if *m == member));
            slots[node] = match other.filter(|other| *other != node) {
                None => Slot::Member { member, stamp: deployment.stamp(member).into() },
                Some(_) => {
                    let why = format!("it is the member {}, which another address leads to", deployment.name(member));
                    Slot::Unknown { why, was: None }
                }
            };
        });
    }

    /// The server at `node` is not (any more) the member that it was taken for.
    pub(crate) fn is_stranger(&self, node: usize, why: String) {
        self.open(|slots| {
            let was = match &slots[node] {
                Slot::Member { member, .. } => Some(*member),
                Slot::Unknown { was, .. } => *was,
            };
            slots[node] = Slot::Unknown { why, was };
        });
    }

    /// Which member the unmarked server at `node` is to become: the one that it was, or that is called so, unless another
    /// address leads to that one.
    fn candidate(&self, node: usize, deployment: &Deployment, address: &str) -> Option<u32> {
        self.open(|slots| {
            let Slot::Unknown { was, .. } = slots[node] else { return None };
            let member = was.or_else(|| deployment.named(address))?;
            let is_taken = slots.iter().any(|slot| matches!(slot, Slot::Member { member: m, .. } if *m == member));
            (!is_taken).then_some(member)
        })
    }

    fn open<T>(&self, work: impl FnOnce(&mut Vec<Slot>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a server with this stamp is called in messages.
pub(crate) fn stranger(stamp: &str) -> String {
    match stamp {
        "" => "it was never marked as a member, or has lost its data".to_owned(),
        stamp => format!("it is marked as another member, {stamp:?}"),
    }
}

/// What the nodes say of themselves, of those that answer; and why the others do not.
pub(crate) async fn ask_all(panel: &Arc<Panel>) -> (HashMap<usize, Standing>, Vec<(usize, String)>) {
    ask(panel, |_| true).await
}

async fn ask(panel: &Arc<Panel>, of: impl Fn(usize) -> bool) -> (HashMap<usize, Standing>, Vec<(usize, String)>) {
    let mut replies = panel.ask(|node| of(node).then(|| standing().into()), read_standing);
    let (mut standings, mut failed) = (HashMap::new(), Vec::new());
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
pub(crate) fn refuse_twins(panel: &Panel, standings: &HashMap<usize, Standing>) -> Result<(), Error> {
    let mut met: HashMap<&str, usize> = HashMap::new();
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
    for (node, standing) in &standings {
        match standing.member_of() {
            Some((_, member)) => panel.slots.found(*node, &deployment, member),
            None => {
                refuse_another_server(panel, &deployment, *node, &standings)?;
                panel.slots.is_stranger(*node, stranger(&standing.stamp));
            }
        }
    }
    if !is_known_to_a_majority(&deployment, standings.values()) {
        let unmarked = standings.iter().filter(|(_, standing)| standing.is_unmarked());
        let reasons = unmarked.map(|(node, _)| (*node, stranger(""))).chain(failed);
        return Err(unavailable(panel, &format!("knows the deployment any more; {MARK}"), reasons));
    }
    enlist_those_without_data(panel, &deployment, &standings).await;
    Ok(deployment)
}

/// Refuses an unmarked server that is no member by its address, where addresses tell: the members are reached by those that
/// `init` was given. Elsewhere, behind a translation of addresses, such a server may be a member without its data; it is not
/// counted, and the client goes on without it.
fn refuse_another_server(
    panel: &Panel,
    deployment: &Deployment,
    node: usize,
    standings: &HashMap<usize, Standing>,
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

/// Whether so many members have the record, each counted once, that it is the present one.
fn is_known_to_a_majority<'a>(deployment: &Deployment, standings: impl Iterator<Item = &'a Standing>) -> bool {
    let mut members: Vec<u32> = standings.filter_map(|standing| deployment.member(&standing.stamp)).collect();
    members.sort_unstable();
    members.dedup();
    members.len() >= majority(deployment.members.len())
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
        self.runtime.spawn(async move {
            identify(&panel).await;
            panel.clock().sleep(IDENTIFIED).await;
            drop(turn);
        });
    }
}

/// Asks the servers that are not known as members what they are, and makes those that have lost their data members again.
async fn identify(panel: &Arc<Panel>) {
    let Some(deployment) = panel.deployment() else { return };
    let unknown = panel.slots.unknown();
    let (standings, _) = ask(panel, |node| unknown.contains(&node)).await;
    take_down(panel, &deployment, &standings);
    if standings.values().any(|standing| deployment.member(&standing.stamp).is_none()) {
        let (standings, _) = ask_all(panel).await;
        let deployment = follow(panel, deployment, &standings);
        enlist_those_without_data(panel, &deployment, &standings).await;
    }
}

fn take_down(panel: &Panel, deployment: &Deployment, standings: &HashMap<usize, Standing>) {
    for (node, standing) in standings {
        match deployment.member(&standing.stamp) {
            Some(member) => panel.slots.found(*node, deployment, member),
            None => panel.slots.is_stranger(*node, stranger(&standing.stamp)),
        }
    }
}

/// The deployment that the servers are now: an operator may have made another one of them, after all had lost their data.
/// A client that could connect to it goes on with it. What it holds counts for as long as a majority of the members says
/// that they keep it, by value and number, whichever deployment they were when they granted it.
fn follow(panel: &Panel, known: Arc<Deployment>, standings: &HashMap<usize, Standing>) -> Arc<Deployment> {
    let is_known = |deployment: &Deployment| is_known_to_a_majority(deployment, standings.values());
    if is_known(&known) {
        return known;
    }
    let mut others = standings.values().filter_map(|standing| Some(standing.member_of()?.0));
    let Some(other) = others.find(|other| is_known(other)) else { return known };
    if let Err(error) = other.admit(&panel.config) {
        tracing::warn!(%error, "the servers were made another deployment, which this client is no part of");
        return known;
    }
    tracing::info!(deployment = %other.id, "the servers were made another deployment");
    let other = Arc::new(other.clone());
    panel.belongs_to(Arc::clone(&other));
    panel.slots.forget();
    take_down(panel, &other, standings);
    other
}

/// Makes those servers members again that have lost their data, if a majority still has the record. What it says then is
/// what the deployment is now.
pub(crate) async fn enlist_those_without_data(
    panel: &Arc<Panel>,
    deployment: &Deployment,
    standings: &HashMap<usize, Standing>,
) {
    if !is_known_to_a_majority(deployment, standings.values()) {
        return;
    }
    for node in panel.slots.unknown() {
        if standings.get(&node).is_some_and(Standing::is_unmarked) {
            enlist_again(panel, deployment, node).await;
        }
    }
}

/// Makes the unmarked server at `node` the member that it was. It gives no vote until every lease has ended of which it
/// may have known.
async fn enlist_again(panel: &Arc<Panel>, deployment: &Deployment, node: usize) {
    let address = panel.address(node);
    let Some(member) = panel.slots.candidate(node, deployment, &address) else {
        let why = format!("{}, and is none of the members {}", stranger(""), deployment.list());
        return panel.slots.is_stranger(node, why);
    };
    let call = enlist(deployment, member, "", deployment.absence());
    let mut replies = panel.ask(|other| (other == node).then(|| call.clone().into()), held);
    if let Some((_, Ok(true))) = replies.next_of_all().await {
        tracing::info!(node = %address, deployment = %deployment.id, "a member that had lost its data is one again");
        panel.slots.found(node, deployment, member);
    }
}

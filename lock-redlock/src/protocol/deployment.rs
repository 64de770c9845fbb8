//! A deployment: its members and its limits, how a server says that it is a member, and what a client makes of that.
//!
//! `init` writes the same record on every server: an id that no other deployment has, the members, the longest ttl, and
//! whether a restarted server is kept from voting. Beside it each server has a *stamp*: the id, the generation of the
//! record, and which member this server is. Every request that counts toward a majority carries the stamp that the
//! client expects, and a server with another stamp answers *stranger*. So votes of two clients are votes of the same
//! members whatever addresses the two were given, and a server that is reached under two addresses is one member.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use lock_core::Error;

use crate::{Config, config::address, protocol::votes::majority};

/// What the servers of a deployment have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deployment {
    /// Unique to this deployment.
    pub(crate) id: String,
    /// Rises with each change of the members, by a random step: two operators that change the members at a time never make
    /// the same generation.
    pub(crate) generation: u64,
    /// The generation before this one; 0 for the first. A server goes on from there or from an earlier generation, and so
    /// from each generation to a single next one: of two that follow the same generation, at most one is a majority's.
    pub(crate) previous: u64,
    /// The members by number, with the addresses that an operator gave. A number is never given to another server.
    pub(crate) members: BTreeMap<u32, String>,
    /// The members that were replaced.
    pub(crate) replaced: BTreeMap<u32, String>,
    /// The longest ttl that a lease may have, and for how long a server that has lost its data gives no vote.
    pub(crate) max_ttl: Duration,
    /// Whether a restarted server gives no vote for `max_ttl`.
    pub(crate) quarantine: bool,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerStatus {
    /// The run id of its process.
    pub(crate) run_id: String,
    /// The run id of the process that the deployment knows as this member; `any` where servers forget nothing.
    pub(crate) known_run: String,
    /// Its stamp; empty on a server that was never marked or has lost its data.
    pub(crate) stamp: String,
    /// For how long the server gives no vote.
    pub(crate) quarantine: Option<Duration>,
    /// The record; `None` where none exists that this version can read.
    pub(crate) deployment: Option<Deployment>,
}

impl Deployment {
    /// A new deployment of the servers of `config`.
    #[must_use]
    pub(crate) fn new(id: String, config: &Config) -> Self {
        let members = (1..).zip(config.nodes.iter().map(address)).collect();
        Self {
            id,
            generation: 1,
            previous: 0,
            members,
            replaced: BTreeMap::new(),
            max_ttl: config.max_ttl.unwrap_or(Config::MAX_TTL),
            quarantine: config.restart_quarantine.unwrap_or(true),
        }
    }

    /// The next generation, with the server called `new` in the place of the member `old`.
    #[must_use]
    pub(crate) fn replacing(&self, old: u32, new: String) -> Self {
        let mut next = self.clone();
        next.generation = self.generation + 1 + u64::from(fastrand::u32(..));
        next.previous = self.generation;
        next.replaced.retain(|_, name| *name != new);
        next.replaced.extend(next.members.remove_entry(&old));
        let last = self.members.keys().chain(self.replaced.keys()).max();
        next.members.insert(last.map_or(1, |last| last + 1), new);
        next
    }

    /// Whether `member` was replaced between this generation and `later`.
    #[must_use]
    pub(crate) fn replaced_in(&self, later: &Self, member: u32) -> bool {
        self.id == later.id && self.has(member) && !later.has(member)
    }

    /// The stamp of this member.
    #[must_use]
    pub(crate) fn stamp(&self, member: u32) -> String {
        format!("{} {} {member}", self.id, self.generation)
    }

    /// The member with this stamp.
    #[must_use]
    pub(crate) fn member(&self, stamp: &str) -> Option<u32> {
        self.members.keys().copied().find(|member| self.stamp(*member) == stamp)
    }

    /// The member with this stamp of an earlier generation, if it still is one.
    #[must_use]
    pub(crate) fn earlier_member(&self, stamp: &str) -> Option<u32> {
        let stamp = Stamp::read(stamp)?;
        let is_earlier = stamp.id == self.id && stamp.generation < self.generation;
        Some(stamp.member).filter(|member| is_earlier && self.has(*member))
    }

    /// Whether the server with this stamp was a member, and was replaced.
    #[must_use]
    pub(crate) fn was_replaced(&self, stamp: &str) -> bool {
        Stamp::read(stamp)
            .is_some_and(|stamp| stamp.id == self.id && stamp.generation <= self.generation && !self.has(stamp.member))
    }

    /// The member with this stamp, if its server may go on to this generation from there.
    #[must_use]
    pub(crate) fn next_for(&self, stamp: &str) -> Option<u32> {
        let stamp = Stamp::read(stamp)?;
        // Safeguard: a server goes on from a generation to one next one only (Redlock)
        (stamp.id == self.id && stamp.generation <= self.previous).then_some(stamp.member)
    }

    /// Whether a majority of the members has this generation of the record, each member counted once.
    #[must_use]
    pub(crate) fn is_known_to_a_majority<'a>(&self, statuses: impl IntoIterator<Item = &'a ServerStatus>) -> bool {
        let members: BTreeSet<u32> = statuses.into_iter().filter_map(|status| self.member(&status.stamp)).collect();
        members.len() >= majority(self.members.len())
    }

    /// The member with this address.
    #[must_use]
    pub(crate) fn named(&self, address: &str) -> Option<u32> {
        self.members.iter().find(|(_, name)| *name == address).map(|(member, _)| *member)
    }

    /// Whether this is a member.
    #[must_use]
    pub(crate) fn has(&self, member: u32) -> bool {
        self.members.contains_key(&member)
    }

    /// The address of a member, for messages.
    #[must_use]
    pub(crate) fn name(&self, member: u32) -> &str {
        self.members.get(&member).map_or("?", String::as_str)
    }

    /// For how long a server that has lost its data gives no vote: until every lease has ended that it may have known of.
    #[must_use]
    pub(crate) const fn rejoin_quarantine(&self) -> Duration {
        // Also where servers are said to forget nothing: this server did.
        self.max_ttl
    }

    /// The members, for messages.
    #[must_use]
    pub(crate) fn list(&self) -> String {
        self.members.values().map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// Checks that a client with this configuration takes part in the deployment.
    ///
    /// # Errors
    /// [`Error::Config`] with what differs.
    pub(crate) fn admit(&self, config: &Config) -> Result<(), Error> {
        if config.nodes.len() != self.members.len() {
            return Err(self.differs("host", config.addresses(), self.list()));
        }
        // Safeguard: the longest ttl is the deployment's (Redlock)
        if let Some(max_ttl) = config.max_ttl.filter(|max_ttl| *max_ttl != self.max_ttl) {
            return Err(self.differs("max_ttl", format!("{max_ttl:?}"), format!("{:?}", self.max_ttl)));
        }
        if let Some(quarantine) = config.restart_quarantine.filter(|quarantine| *quarantine != self.quarantine) {
            return Err(self.differs("restart_quarantine", on_or_off(quarantine), on_or_off(self.quarantine)));
        }
        if let Some(ttl) = config.ttl.filter(|ttl| *ttl > self.max_ttl) {
            return Err(self.differs("ttl", format!("{ttl:?}"), format!("up to {:?}", self.max_ttl)));
        }
        Ok(())
    }

    fn differs(&self, key: &str, value: impl Into<String>, allowed: impl fmt::Display) -> Error {
        let id = &self.id;
        Error::config(key, value, format!("{allowed}, by what `lock redlock init` has written for the deployment {id}"))
    }

    /// Whether the server at this address was replaced.
    #[must_use]
    pub(crate) fn has_replaced(&self, address: &str) -> bool {
        self.replaced.values().any(|name| name == address)
    }
}

/// The stamp by which a server says that it is a member, taken apart: of which deployment, generation and place.
struct Stamp<'a> {
    id: &'a str,
    generation: u64,
    member: u32,
}

impl<'a> Stamp<'a> {
    fn read(stamp: &'a str) -> Option<Self> {
        let mut parts = stamp.split(' ');
        let (id, generation, member) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { id, generation, member })
    }
}

/// Members as the record has them.
#[must_use]
pub(crate) fn members_text(members: &BTreeMap<u32, String>) -> String {
    let member = |(member, name): (&u32, &String)| format!("{member}={name}");
    members.iter().map(member).collect::<Vec<_>>().join(" ")
}

/// Reads what [`members_text`] writes.
#[must_use]
pub(crate) fn read_members(text: &str) -> Option<BTreeMap<u32, String>> {
    let member = |text: &str| {
        let (member, name) = text.split_once('=')?;
        Some((member.parse().ok()?, name.to_owned()))
    };
    text.split(' ').filter(|member| !member.is_empty()).map(member).collect()
}

/// A switch as the settings have it.
#[must_use]
pub(crate) const fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl ServerStatus {
    /// Whether the server has restarted, and nobody has asked for its vote since.
    #[must_use]
    pub(crate) fn has_restarted(&self) -> bool {
        self.known_run != "any" && self.known_run != self.run_id
    }

    /// Whether the server was never marked, or has lost its data.
    #[must_use]
    pub(crate) const fn is_unmarked(&self) -> bool {
        self.stamp.is_empty()
    }

    /// The deployment that both the stamp and the record name. A replaced server has the record, too.
    #[must_use]
    pub(crate) fn marked_for(&self) -> Option<&Deployment> {
        let (deployment, stamp) = (self.deployment.as_ref()?, Stamp::read(&self.stamp)?);
        (stamp.id == deployment.id && stamp.generation == deployment.generation).then_some(deployment)
    }
}

/// The deployment of these servers, in the generation that a majority of its members has, or else in the latest one. `None`
/// when all servers are unmarked.
///
/// # Errors
/// [`Error::Config`] when the servers belong to several deployments, or a stamp does not agree with its record.
pub(crate) fn common<'a>(
    statuses: impl IntoIterator<Item = (String, &'a ServerStatus)>,
) -> Result<Option<Deployment>, Error> {
    let marked: Vec<_> = statuses.into_iter().filter(|(_, status)| !status.is_unmarked()).collect();
    let mut found: Vec<(&str, &Deployment)> = Vec::new();
    for (address, status) in &marked {
        let Some(deployment) = status.marked_for() else {
            let value = format!("{address}, which is marked as {:?}", status.stamp);
            return Err(Error::config(
                "host",
                value,
                "servers with a record of their deployment that this version reads",
            ));
        };
        let differs = |(_, known): &&(&str, &Deployment)| {
            known.id != deployment.id || (known.generation == deployment.generation && *known != deployment)
        };
        if let Some((other, known)) = found.iter().find(differs) {
            let value = format!("{address} is of the deployment {deployment}, {other} of {known}");
            return Err(Error::config("host", value, "servers of one deployment"));
        }
        found.push((address, deployment));
    }
    found.sort_by_key(|(_, deployment)| Reverse(deployment.generation));
    let known = |(_, deployment): &&(&str, &Deployment)| {
        deployment.is_known_to_a_majority(marked.iter().map(|(_, status)| *status))
    };
    let deployment = found.iter().find(known).or_else(|| found.first());
    Ok(deployment.map(|(_, deployment)| (*deployment).clone()))
}

/// The addresses of the servers whose deployment was never made: an `init` that was broken off has left it on a minority of its
/// members, and another deployment is to be completed. `statuses` are of all servers of a list.
pub(crate) fn never_made<'a>(statuses: impl IntoIterator<Item = (String, &'a ServerStatus)>) -> BTreeSet<String> {
    let statuses: Vec<_> = statuses.into_iter().collect();
    let marked: Vec<_> =
        statuses.iter().filter_map(|(address, status)| Some((address, status.marked_for()?))).collect();
    let is_asked = |name: &String| statuses.iter().any(|(address, _)| address == name);
    let is_remnant = |deployment: &Deployment| {
        // Safeguard: a deployment that an operator has changed is not taken for one that was never made (Redlock)
        deployment.generation == 1
            // Safeguard: a deployment with a member that was not asked is not taken for one that was never made (Redlock)
            && deployment.members.values().all(is_asked)
            // Safeguard: a deployment that a majority may know is not taken for one that was never made (Redlock)
            && !deployment.is_known_to_a_majority(statuses.iter().map(|(_, status)| *status))
    };
    // All who look choose the same one.
    let servers = |id: &str| marked.iter().filter(|(_, deployment)| deployment.id == id).count();
    let rank = |deployment: &'a Deployment| (!is_remnant(deployment), servers(&deployment.id), Reverse(&deployment.id));
    let kept = marked.iter().map(|(_, deployment)| *deployment).max_by_key(|deployment| rank(deployment));
    let is_never_made =
        |deployment: &Deployment| is_remnant(deployment) && kept.is_some_and(|kept| kept.id != deployment.id);
    let never_made = marked.iter().filter(|(_, deployment)| is_never_made(deployment));
    never_made.map(|(address, _)| (*address).clone()).collect()
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, generation, max_ttl, quarantine, .. } = self;
        let quarantine = on_or_off(*quarantine);
        write!(f, "{id}/{generation} ({}; max_ttl={max_ttl:?}, restart_quarantine={quarantine})", self.list())
    }
}

#[cfg(test)]
mod tests {
    use lock_redis::node::NodeConfig;

    use super::*;

    fn config(ports: &[u16]) -> Config {
        Config::new(ports.iter().map(|port| NodeConfig::new("h", *port)).collect()).unwrap()
    }

    fn deployment() -> Deployment {
        Deployment::new("d1".to_owned(), &config(&[1, 2, 3]))
    }

    fn status(deployment: &Deployment, member: u32) -> ServerStatus {
        let (stamp, deployment) = (deployment.stamp(member), Some(deployment.clone()));
        let run_id = member.to_string();
        ServerStatus { known_run: run_id.clone(), run_id, stamp, quarantine: None, deployment }
    }

    #[test]
    fn a_stamp_tells_the_member_and_is_no_other_deployments_nor_another_generations() {
        let one = deployment();
        assert_eq!(one.member(&one.stamp(2)), Some(2));
        let later = Deployment { generation: 2, ..one.clone() };
        let other = Deployment { id: "d2".to_owned(), ..one.clone() };
        for stamp in [later.stamp(2), other.stamp(2), one.stamp(4), String::new()] {
            assert_eq!(one.member(&stamp), None, "{stamp}");
        }
    }

    #[test]
    fn a_change_of_members_makes_another_generation_in_which_nobody_else_has_a_number_of_before() {
        let before = deployment();
        let after = before.replacing(3, "h:4".to_owned()).replacing(1, "h:5".to_owned());
        assert_eq!(members_text(&after.members), "2=h:2 4=h:4 5=h:5");
        assert_eq!(members_text(&after.replaced), "1=h:1 3=h:3");
        let back = after.replacing(5, "h:1".to_owned());
        assert_eq!((members_text(&back.members).as_str(), back.has_replaced("h:1")), ("2=h:2 4=h:4 6=h:1", false));
        assert_eq!([2, 3].map(|member| after.earlier_member(&before.stamp(member))), [Some(2), None]);
        assert_eq!(before.earlier_member(&after.stamp(2)), None);
        assert_ne!(before.replacing(3, "h:4".to_owned()), before.replacing(3, "h:4".to_owned()));
    }

    #[test]
    fn a_server_goes_on_from_a_generation_to_one_next_one_only() {
        let before = deployment();
        let (one, mut other) = (before.replacing(3, "h:4".to_owned()), before.replacing(3, "h:5".to_owned()));
        other.generation = one.generation + 1;
        assert_eq!([one.next_for(&before.stamp(3)), other.next_for(&before.stamp(1))], [Some(3), Some(1)]);
        assert_eq!(other.next_for(&one.stamp(1)), None, "although its number is lower");
        let after = one.replacing(1, "h:6".to_owned());
        assert_eq!([&before, &one].map(|known| after.next_for(&known.stamp(2))), [Some(2); 2]);
        assert!(one.was_replaced(&before.stamp(3)) && !one.was_replaced(&before.stamp(2)));
    }

    #[test]
    fn what_a_majority_of_the_members_knows_is_the_deployment_and_who_was_replaced_is_no_member() {
        let before = deployment();
        let after = before.replacing(3, "h:4".to_owned());
        let named = |status| ("h:1".to_owned(), status);
        let [first, second, third] = [1, 2, 3].map(|member| status(&before, member));
        let later = [1, 2, 3].map(|member| status(&after, member));
        let found = common([&later[0], &second, &third].map(named)).unwrap();
        assert_eq!(found, Some(before), "one of three knows the other");
        assert_eq!(common([&first, &later[0], &later[1]].map(named)).unwrap(), Some(after.clone()));
        assert_eq!(after.member(&later[2].stamp), None);
        assert!(!after.is_known_to_a_majority([&later[0], &later[2]]));
    }

    #[test]
    fn the_members_are_read_as_they_were_written() {
        let one = deployment();
        assert_eq!(read_members(&members_text(&one.members)), Some(one.members));
        assert_eq!(read_members(&members_text(&one.replaced)), Some(one.replaced));
        for text in ["x", "1", "x=h:1"] {
            assert_eq!(read_members(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_differs_is_named_with_both_values_and_what_is_not_set_is_the_deployments() {
        let one = deployment();
        let mut client = config(&[4, 5, 6]);
        one.admit(&client).unwrap();
        client.max_ttl = Some(Duration::from_secs(1));
        let error = one.admit(&client).unwrap_err().to_string();
        assert!(error.contains("max_ttl") && error.contains("1s") && error.contains("60s"), "{error}");
        client.max_ttl = Some(one.max_ttl);
        client.restart_quarantine = Some(false);
        let error = one.admit(&client).unwrap_err().to_string();
        assert!(error.contains("restart_quarantine") && error.contains("\"off\"") && error.contains("on,"), "{error}");
        client.restart_quarantine = None;
        client.ttl = Some(Duration::from_secs(90));
        let error = one.admit(&client).unwrap_err().to_string();
        assert!(error.contains("ttl") && error.contains("90s") && error.contains("60s"), "{error}");
        let error = one.admit(&config(&[1, 2, 3, 4, 5])).unwrap_err().to_string();
        assert!(error.contains("h:4") && error.contains("h:1,h:2,h:3,"), "{error}");
    }

    #[test]
    fn servers_of_two_deployments_are_not_one() {
        let (one, mut other) = (deployment(), deployment());
        let named = |status| ("h:1".to_owned(), status);
        let [first, second] = [1, 2].map(|member| status(&one, member));
        assert_eq!(common([named(&first), named(&second)]).unwrap(), Some(one));
        other.id = "d2".to_owned();
        let third = status(&other, 3);
        let error = common([named(&first), named(&third)]).unwrap_err().to_string();
        assert!(error.contains("d1/1") && error.contains("d2/1"), "{error}");
        let unmarked = ServerStatus { stamp: String::new(), deployment: None, ..first.clone() };
        assert_eq!(common([named(&unmarked)]).unwrap(), None);
        let torn = ServerStatus { deployment: None, ..first.clone() };
        assert!(common([named(&torn)]).unwrap_err().to_string().contains("d1 1 1"));
    }

    #[test]
    fn of_what_broken_off_inits_have_left_one_deployment_is_completed_and_one_that_may_be_at_work_is_no_remnant() {
        let remnants = |of: &[&Deployment], unmarked: u32| -> Vec<String> {
            let marked = (1..).zip(of).map(|(member, deployment)| status(deployment, member));
            let empty = ServerStatus { stamp: String::new(), deployment: None, ..status(&deployment(), 1) };
            let statuses: Vec<_> = marked.chain((0..unmarked).map(|_| empty.clone())).collect();
            let named = (1..).zip(&statuses).map(|(port, status): (u16, _)| (format!("h:{port}"), status));
            never_made(named).into_iter().collect()
        };
        let made = deployment();
        let other = Deployment { id: "d0".to_owned(), ..made.clone() };
        assert_eq!(remnants(&[&made, &made, &made], 0), [""; 0]);
        assert_eq!(remnants(&[&made, &made, &other], 0), ["h:3"]);
        assert_eq!(remnants(&[&made, &other, &other], 0), ["h:1"]);
        // Two that were begun and none that was made: whoever looks completes the same one.
        assert_eq!(remnants(&[&made, &other], 1), ["h:1"]);
        // A server that was not asked may be of the other one, too.
        assert_eq!(remnants(&[&made, &other], 0), [""; 0]);
        // An operator has changed the other one, so it was made.
        let changed = Deployment { generation: 2, ..other };
        assert_eq!(remnants(&[&made, &made, &changed], 0), [""; 0]);
        // Both are at work.
        let large = Deployment::new("d3".to_owned(), &config(&[1, 2, 3, 4, 5]));
        assert_eq!(remnants(&[&made, &made, &large, &large, &large], 0), [""; 0]);
    }
}

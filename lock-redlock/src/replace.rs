//! Putting another server in the place of a member.
//!
//! The next generation of the record is written on the members that stay. Each of them answers from then on only to clients
//! that know of it, so once a majority has it, nobody is granted or keeps anything by the members of before. Only then is the
//! new server made a member, and it gives no vote until every lease has ended that was kept by then: so until that moment a
//! grant takes a majority of the members that stayed, which is one of the old list and of the new one. docs/protocols.md
//! has the argument.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lock_core::{Context, Error, safeguard};
use lock_redis::node::{NodeConfig, ScriptCall};

use crate::{
    Config,
    config::address,
    deployment::{Deployment, Standing, common},
    init::mark,
    member::{MARK, ask_all, not_a_member, refuse_twins},
    panel::Panel,
    quorum::majority,
    scripts::{advance, enlist},
};

/// What came of a change of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// For how long the new server gives no vote: until then no other member may fail that could have failed before.
    pub no_vote_for: Duration,
    /// Whether the old server knows that it is none any more. One that does not must not come back with its data: together
    /// with another one that comes back with data from before the change it would make up the majority of before.
    pub old_was_told: bool,
}

/// Puts the server `new` (host, port) in the place of the member `old` of the deployment that `config` names, with the list of
/// before or of after. Clients that are connected go on with the new one by themselves and keep what they hold; those that
/// connect are to have the new list, and go on with the old one meanwhile. `old` need not answer. Called again with the same
/// servers, it completes what was begun.
///
/// # Errors
/// [`Error::Config`] when `old` is no member or `new` is one, when `new` belongs to another deployment, when another change was
/// begun and not ended, and as [`init`](crate::init); [`Error::Unavailable`] when `new` does not answer, or so few of the
/// other members vote that nothing would be granted meanwhile. Nothing has been changed then, unless the error says that it is
/// to be called again.
///
/// # Panics
/// Outside of a tokio runtime.
///
/// # Cancel safety
/// When the future is dropped, some servers may know of the change and others not. While they are no majority nothing has
/// changed for clients, as long as a majority answers that does not; calling it again completes it.
pub async fn replace(config: &Config, old: (&str, u16), new: (&str, u16)) -> Result<Replaced, Error> {
    replace_in(config, old, new, Context::current()).await
}

/// As [`replace`], in a world of one's own.
///
/// # Errors
/// Those of [`replace`].
///
/// # Cancel safety
/// As that of [`replace`].
pub async fn replace_in(
    config: &Config,
    old: (&str, u16),
    new: (&str, u16),
    context: Context,
) -> Result<Replaced, Error> {
    config.check()?;
    let mut all = config.clone();
    let [old, new] = [old, new].map(|(host, port)| {
        let mut node = config.nodes[0].clone();
        (node.host, node.port) = (host.to_owned(), port);
        let address = address(&node);
        add(&mut all.nodes, node);
        address
    });
    let panel = Arc::new(Panel::new(all, context));
    let change = Change { panel: &panel, old, new };
    let result = change.make(config).await;
    panel.close();
    result
}

fn add(nodes: &mut Vec<NodeConfig>, node: NodeConfig) {
    if !nodes.iter().any(|known| address(known) == address(&node)) {
        nodes.push(node);
    }
}

struct Change<'a> {
    panel: &'a Arc<Panel>,
    old: String,
    new: String,
}

impl Change<'_> {
    async fn make(&self, config: &Config) -> Result<Replaced, Error> {
        if self.old == self.new {
            return Err(Error::config("new", &self.new, "another server than the one that it replaces"));
        }
        let (standings, failed) = ask_all(self.panel).await;
        refuse_twins(self.panel, &standings)?;
        let newcomer = self.newcomer(&standings, &failed)?;
        let members = standings.iter().filter(|(node, _)| self.panel.address(**node) != self.new);
        let members = members.map(|(node, standing)| (self.panel.address(*node), standing));
        let Some(known) = common(members)? else {
            let allowed = format!("servers of a deployment; these are of none yet, {MARK}");
            return Err(Error::config("host", config.addresses(), allowed));
        };
        known.admit(config)?;
        self.refuse_foreign(&known, newcomer)?;
        let next = self.next(&known, &standings, &failed)?;
        let old_was_told = self.advance(&next, &standings, failed).await?;
        let no_vote_for = self.enlist(&next, newcomer).await?;
        Ok(Replaced { no_vote_for, old_was_told })
    }

    /// What the new server says of itself.
    fn newcomer<'a>(
        &self,
        standings: &'a BTreeMap<usize, Standing>,
        failed: &[(usize, String)],
    ) -> Result<&'a Standing, Error> {
        let at = |node: usize| self.panel.address(node) == self.new;
        let answered = standings.iter().find(|(node, _)| at(**node));
        answered.map(|(_, standing)| standing).ok_or_else(|| {
            let reason = failed.iter().find(|(node, _)| at(*node)).map_or("it does not answer", |(_, reason)| reason);
            Error::no_answer(self.panel.config.url(), format!("{} cannot become a member: {reason}", self.new))
        })
    }

    /// Whether the new server is free to become a member: never one, or one of this deployment before.
    fn refuse_foreign(&self, known: &Deployment, newcomer: &Standing) -> Result<(), Error> {
        if newcomer.is_unmarked() || newcomer.marked_for().is_some_and(|deployment| deployment.id == known.id) {
            return Ok(());
        }
        let value = format!("{}, which is marked as {:?}", self.new, newcomer.stamp);
        Err(Error::config("new", value, "a server that belongs to no other deployment, or was emptied by FLUSHALL"))
    }

    /// The generation in which the new server has the place of the old one: one that was begun before, or another.
    fn next(
        &self,
        known: &Deployment,
        standings: &BTreeMap<usize, Standing>,
        failed: &[(usize, String)],
    ) -> Result<Deployment, Error> {
        if self.is_made_in(known) {
            return Ok(known.clone());
        }
        let begun = standings.values().filter_map(Standing::marked_for);
        if let Some(begun) = begun.max_by_key(|deployment| deployment.generation)
            && begun.generation > known.generation
        {
            if self.is_made_in(begun) {
                return Ok(begun.clone());
            }
            let value = format!("{} {}", self.old, self.new);
            let allowed =
                format!("the change that was begun, from {} to {}, until it is ended", known.list(), begun.list());
            return Err(Error::config("replace", value, allowed));
        }
        let Some(member) = known.named(&self.old) else { return Err(not_a_member(known, self.old.clone())) };
        if known.named(&self.new).is_some() {
            let allowed = format!("a server that is none of the members {}", known.list());
            return Err(Error::config("new", &self.new, allowed));
        }
        self.refuse_outage(known, member, standings, failed)?;
        Ok(known.replacing(member, self.new.clone()))
    }

    fn is_made_in(&self, deployment: &Deployment) -> bool {
        deployment.named(&self.new).is_some() && deployment.named(&self.old).is_none()
    }

    /// Refuses a change during which nothing would be granted.
    fn refuse_outage(
        &self,
        known: &Deployment,
        leaving: u32,
        standings: &BTreeMap<usize, Standing>,
        failed: &[(usize, String)],
    ) -> Result<(), Error> {
        let mut reasons = failed.to_vec();
        let mut voting = 0;
        for (node, standing) in standings {
            match (known.member(&standing.stamp), standing.quarantine) {
                (None, _) => {}
                (Some(member), _) if member == leaving => {}
                (Some(_), None) => voting += 1,
                (Some(_), Some(left)) => reasons.push((*node, format!("it gives no vote for {left:?}"))),
            }
        }
        if voting >= majority(known.members.len()) {
            return Ok(());
        }
        Err(self.no_majority("votes without the one that is replaced", reasons))
    }

    /// Has the members know of the generation, those that stay and the one that goes. Returns whether the latter does.
    async fn advance(
        &self,
        next: &Deployment,
        standings: &BTreeMap<usize, Standing>,
        mut failed: Vec<(usize, String)>,
    ) -> Result<bool, Error> {
        let call = |node: usize| -> Option<ScriptCall> {
            let stamp = &standings.get(&node).filter(|_| self.panel.address(node) != self.new)?.stamp;
            Some(advance(next, next.next_for(stamp)?, stamp))
        };
        let (mut told, refused) = mark(self.panel, call).await;
        told.retain(|node| self.panel.address(*node) != self.old);
        failed.extend(refused);
        // What they say now counts, and not that they were told: one that has lost its data since may be a member of the
        // generation before again, as long as a majority had not been told.
        let (standings, _) = ask_all(self.panel).await;
        let staying = standings.iter().filter(|(node, standing)| {
            self.panel.address(**node) != self.new && next.member(&standing.stamp).is_some()
        });
        // Before they are a majority others may still be granted something by the members of before, and the new server
        // must not begin to count the time that it gives no vote.
        let knowing = if safeguard("told-still") { staying.count() } else { told.len() };
        if knowing < majority(next.members.len()) && safeguard("newcomer-after-majority") {
            return Err(self.no_majority("could be told of the change; call it again to complete it", failed));
        }
        let knows = |(node, standing): (&usize, &Standing)| {
            self.panel.address(*node) == self.old && next.was_replaced(&standing.stamp)
        };
        Ok(standings.iter().any(knows))
    }

    /// Makes the new server a member.
    async fn enlist(&self, next: &Deployment, newcomer: &Standing) -> Result<Duration, Error> {
        if next.member(&newcomer.stamp).is_some() {
            return Ok(newcomer.quarantine.unwrap_or_default());
        }
        let Some(member) = next.named(&self.new) else { return Ok(Duration::ZERO) };
        let absence = if safeguard("newcomer-quarantine") { next.absence() } else { Duration::ZERO };
        let call = |node: usize| {
            (self.panel.address(node) == self.new).then(|| enlist(next, member, &newcomer.stamp, absence))
        };
        let (_, failed) = mark(self.panel, call).await;
        if failed.is_empty() {
            Ok(next.absence())
        } else {
            Err(self.no_majority("could be completed; call it again", failed))
        }
    }

    fn no_majority(&self, what: &str, reasons: Vec<(usize, String)>) -> Error {
        let reason = |(node, reason): (usize, String)| format!("{}: {reason}", self.panel.address(node));
        let reasons: Vec<String> = reasons.into_iter().map(reason).collect();
        let what = format!("no majority of the members {what} ({})", reasons.join("; "));
        Error::no_answer(self.panel.config.url(), what)
    }
}

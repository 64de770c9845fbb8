//! Putting another server in the place of a member.
//!
//! The next generation of the record is written on the members that stay. Each of them answers from then on only to clients
//! that know of it, so once a majority has it, nobody is granted or keeps anything by the members of before. Only then is the
//! new server made a member, and it gives no vote until every lease has ended that was kept by then: so until that moment a
//! grant takes a majority of the members that stayed, which is one of the old list and of the new one. docs/protocols.md
//! has the argument.

use std::{sync::Arc, time::Duration};

use lock_core::{Context, Error, safeguard};
use lock_redis::node::{NodeConfig, ScriptCall};

use crate::{
    Config,
    config::address,
    members::servers::{Statuses, ask_all, mark, no_deployment, not_a_member, refuse_same_server},
    nodes::{
        quorum::Quorum,
        scripts::{advance, mark_member},
    },
    protocol::{
        deployment::{Deployment, ServerStatus, common},
        votes::majority,
    },
};

/// The outcome of replacing a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// For how long the new server gives no vote. Until then one member less may fail.
    pub no_vote_for: Duration,
    /// Whether the old server knows that it is no member any more. A server that does not know must not come back with its
    /// data: together with another server that comes back with data from before the change, it would be the old majority.
    pub old_was_told: bool,
}

/// Puts the server `new` (host, port) in the place of the member `old` of the deployment of `config`, which has the list of
/// before or of after. Connected clients go on with the new server by themselves and keep their locks; later clients are to
/// have the new list, and are served with the old one meanwhile. `old` need not answer. Called again with the same servers,
/// it completes a change that was begun.
///
/// # Errors
/// [`Error::Config`] when `old` is no member or `new` is one, when `new` belongs to another deployment, when another change was
/// begun and not ended, and as [`init`](crate::init); [`Error::Unavailable`] when `new` does not answer, or so few of the
/// other members vote that nothing would be granted meanwhile. After an error nothing has been changed, unless the error asks
/// for another call.
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

/// As [`replace`], with the time, the tasks and the ids of `context`.
///
/// # Errors
/// As [`replace`].
///
/// # Cancel safety
/// As [`replace`].
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
    let quorum = Arc::new(Quorum::new(all, context));
    let replacement = Replacement { quorum: &quorum, old, new };
    let result = replacement.run(config).await;
    quorum.close();
    result
}

fn add(nodes: &mut Vec<NodeConfig>, node: NodeConfig) {
    if !nodes.iter().any(|known| address(known) == address(&node)) {
        nodes.push(node);
    }
}

/// One replacement of a member: the address of the server that goes, and of the one that comes.
struct Replacement<'a> {
    quorum: &'a Arc<Quorum>,
    old: String,
    new: String,
}

impl Replacement<'_> {
    async fn run(&self, config: &Config) -> Result<Replaced, Error> {
        if self.old == self.new {
            return Err(Error::config("new", &self.new, "another server than the one that it replaces"));
        }
        let (statuses, failed) = ask_all(self.quorum).await;
        refuse_same_server(self.quorum, &statuses)?;
        let newcomer = self.newcomer(&statuses, &failed)?;
        let members = statuses.iter().filter(|(node, _)| self.quorum.address(**node) != self.new);
        let members = members.map(|(node, status)| (self.quorum.address(*node), status));
        let Some(known) = common(members)? else { return Err(no_deployment(config.addresses())) };
        known.admit(config)?;
        self.refuse_foreign(&known, newcomer)?;
        let next = self.next(&known, &statuses, &failed)?;
        let old_was_told = self.advance(&next, &statuses, failed).await?;
        let no_vote_for = self.mark_member(&next, newcomer).await?;
        Ok(Replaced { no_vote_for, old_was_told })
    }

    /// The status of the new server.
    fn newcomer<'a>(&self, statuses: &'a Statuses, failed: &[(usize, String)]) -> Result<&'a ServerStatus, Error> {
        let at = |node: usize| self.quorum.address(node) == self.new;
        let answered = statuses.iter().find(|(node, _)| at(**node));
        answered.map(|(_, status)| status).ok_or_else(|| {
            let reason = failed.iter().find(|(node, _)| at(*node)).map_or("it does not answer", |(_, reason)| reason);
            Error::no_answer(self.quorum.config.url(), format!("{} cannot become a member: {reason}", self.new))
        })
    }

    /// Refuses a new server that belongs to another deployment.
    fn refuse_foreign(&self, known: &Deployment, newcomer: &ServerStatus) -> Result<(), Error> {
        if newcomer.is_unmarked() || newcomer.marked_for().is_some_and(|deployment| deployment.id == known.id) {
            return Ok(());
        }
        let value = format!("{}, which is marked as {:?}", self.new, newcomer.stamp);
        Err(Error::config("new", value, "a server that belongs to no other deployment, or was emptied by FLUSHALL"))
    }

    /// The generation in which the new server has the place of the old one; it may have been begun before.
    fn next(&self, known: &Deployment, statuses: &Statuses, failed: &[(usize, String)]) -> Result<Deployment, Error> {
        if self.is_made_in(known) {
            return Ok(known.clone());
        }
        let begun = statuses.values().filter_map(ServerStatus::marked_for);
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
        self.refuse_outage(known, member, statuses, failed)?;
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
        statuses: &Statuses,
        failed: &[(usize, String)],
    ) -> Result<(), Error> {
        let mut reasons = failed.to_vec();
        let mut voting = 0;
        for (node, status) in statuses {
            match (known.member(&status.stamp), status.quarantine) {
                (None, _) => {}
                (Some(member), _) if member == leaving => {}
                (Some(_), None) => voting += 1,
                (Some(_), Some(left)) => reasons.push((*node, format!("it gives no vote for {left:?}"))),
            }
        }
        // Safeguard: a member is replaced only while the others vote (Redlock)
        if voting >= majority(known.members.len()) {
            return Ok(());
        }
        Err(self.quorum.no_majority("members votes without the one that is replaced", reasons))
    }

    /// Tells the members of the next generation. Returns whether the old server knows that it was replaced.
    async fn advance(
        &self,
        next: &Deployment,
        statuses: &Statuses,
        mut failed: Vec<(usize, String)>,
    ) -> Result<bool, Error> {
        let call = |node: usize| -> Option<ScriptCall> {
            let stamp = &statuses.get(&node).filter(|_| self.quorum.address(node) != self.new)?.stamp;
            Some(advance(next, next.next_for(stamp)?, stamp))
        };
        let (mut told, refused) = mark(self.quorum, call).await;
        told.retain(|node| self.quorum.address(*node) != self.old);
        failed.extend(refused);
        // What the members say now counts, and not that they were told: a server that has lost its data since may be a member of
        // the generation before again, as long as no majority had been told.
        let (statuses, _) = ask_all(self.quorum).await;
        let staying = statuses
            .iter()
            .filter(|(node, status)| self.quorum.address(**node) != self.new && next.member(&status.stamp).is_some());
        // Until a majority knows, something may still be granted by the old members, and the new server must not begin to
        // count the time in which it gives no vote.
        let knowing = if safeguard("told-still") { staying.count() } else { told.len() };
        // Safeguard: a new server is made a member when a majority was told (Redlock)
        if knowing < majority(next.members.len()) && safeguard("newcomer-after-majority") {
            return Err(self
                .quorum
                .no_majority("members could be told of the change; call it again to complete it", failed));
        }
        let knows = |(node, status): (&usize, &ServerStatus)| {
            self.quorum.address(*node) == self.old && next.was_replaced(&status.stamp)
        };
        Ok(statuses.iter().any(knows))
    }

    /// Makes the new server a member.
    async fn mark_member(&self, next: &Deployment, newcomer: &ServerStatus) -> Result<Duration, Error> {
        if next.member(&newcomer.stamp).is_some() {
            return Ok(newcomer.quarantine.unwrap_or_default());
        }
        let Some(member) = next.named(&self.new) else { return Ok(Duration::ZERO) };
        // Safeguard: a new server gives no vote until every lease of before has ended (Redlock)
        let quarantine = if safeguard("newcomer-quarantine") { next.rejoin_quarantine() } else { Duration::ZERO };
        let call = |node: usize| {
            (self.quorum.address(node) == self.new).then(|| mark_member(next, member, &newcomer.stamp, quarantine))
        };
        let (_, failed) = mark(self.quorum, call).await;
        if failed.is_empty() {
            Ok(next.rejoin_quarantine())
        } else {
            Err(self.quorum.no_majority("members could be completed; call it again", failed))
        }
    }
}

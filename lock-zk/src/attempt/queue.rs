//! A contender's way through the line, from its node to its grant.

use futures::FutureExt;
use lock_core::{Error, Mode, Wait, safeguard};

use super::{Attempt, AttemptError, LOOKS_PER_TICK};
use crate::{
    lease::{HeldNode, NodeKind, ZkLease},
    protocol::queue::{self, Layout, QueuePosition},
    session::{ContenderNode, retry_backoff},
    wire::{Outcome, RequestError, Watch, WatchEvent},
    withdraw::{Leftover, announce},
};

/// Why a wait for the contender ahead in the queue ended, and thus what the attempt does next.
enum NextStep {
    /// The one ahead held the lock and handed it on.
    HandedOn,
    /// Something changed: look again.
    Look,
    /// There was no answer: look again, after a pause.
    Unanswered,
}

impl NextStep {
    /// What follows when a watch was not set.
    fn without_watch(error: &RequestError) -> Self {
        if matches!(error, RequestError::NoNode) { Self::Look } else { Self::Unanswered }
    }
}

impl Attempt<'_> {
    /// Waits until the contender has what it is after.
    pub(super) async fn queue(
        &self,
        entered: &ContenderNode,
        mut children: Vec<String>,
    ) -> Result<ZkLease, AttemptError> {
        let mut own: Option<Watch> = None;
        let mut heard = (String::new(), 0);
        let mut backoff = retry_backoff();
        loop {
            let step = match queue::position(&children, &entered.name) {
                QueuePosition::Gone => return Err(AttemptError::Restart),
                QueuePosition::Disagrees { there } => return Err(self.disagrees(entered, there).await),
                QueuePosition::OtherKind => return Err(self.withdraw(self.other_kind(), entered).await),
                QueuePosition::Holds => {
                    if let Some(lease) = self.grant(entered, &mut own) {
                        self.tell(entered, &children);
                        return Ok(lease);
                    }
                    // First, but the session may have ended on the servers: only its heartbeat can tell.
                    let pause = self.zk.clock().sleep(self.zk.config().tick_time / LOOKS_PER_TICK);
                    self.unless_interrupted(pause).await.map(|()| Ok(NextStep::Look))
                }
                QueuePosition::Behind(_) | QueuePosition::FirstBlocked if self.request.wait == Wait::No => {
                    let denied = AttemptError::Failed(Error::NotAcquired { name: self.request.name.clone() });
                    return Err(self.withdraw(denied, entered).await);
                }
                QueuePosition::Behind(ahead) => {
                    self.request.outage.answered();
                    self.unless_interrupted(self.wait_for(ahead, entered, &mut own, &mut heard)).await
                }
                QueuePosition::FirstBlocked => {
                    self.request.outage.answered();
                    self.unless_interrupted(self.wait_as_first_blocked(entered)).await
                }
            };
            let step = match step {
                Ok(step) => step?,
                Err(failure) => return Err(self.withdraw(failure, entered).await),
            };
            // All ahead of a holder that was alone were gone before it held, numbers only grow, and the own node is there:
            // a writer waited for the one next to it, a reader has only readers in between. Without certainty about
            // the session the list has to say it again.
            if let NextStep::HandedOn = step
                && let Some(lease) = self.grant(entered, &mut own)
            {
                return Ok(lease);
            }
            if let NextStep::Unanswered = step {
                if let Err(failure) = self.unless_interrupted(self.zk.clock().sleep(backoff.pause())).await {
                    return Err(self.withdraw(failure, entered).await);
                }
            } else {
                backoff = retry_backoff();
            }
            children = self.list(entered).await?;
        }
    }

    fn grant(&self, entered: &ContenderNode, own: &mut Option<Watch>) -> Option<ZkLease> {
        let kind = if self.request.mode == Mode::Exclusive { NodeKind::Exclusive } else { NodeKind::Shared };
        let node = self.path.of(&entered.name);
        let (session, path) = (self.session.clone(), self.path.clone());
        let held = HeldNode { session, path, node, token: entered.token, kind };
        ZkLease::grant(held, self.request, &self.active, own)
    }

    /// Tells whoever waits behind the holder of a permit that the holder waits no more. The one behind may have seen this
    /// contender as the first blocked one, and is the first blocked one itself now.
    fn tell(&self, entered: &ContenderNode, children: &[String]) {
        if matches!(self.request.mode, Mode::Permit { .. }) && queue::is_followed(children, &entered.name) {
            if !safeguard("gate-tells") {
                return;
            }
            announce(&self.session, self.path.of(&entered.name), self.request.payload.clone());
        }
    }

    /// Curator's mutex and its read-write lock exclude each other nowhere: whoever would hold one beside the other is told.
    fn other_kind(&self) -> AttemptError {
        let (ours, theirs) =
            ("InterProcessMutex, which is mutex() here", "InterProcessReadWriteLock, which is rwlock() here");
        let (ours, theirs) = if self.request.by_rwlock { (theirs, ours) } else { (ours, theirs) };
        let name = &self.request.name;
        let allowed =
            format!("one kind of lock for each path: {name:?} is in use as {theirs}, and was asked for as {ours}");
        AttemptError::Failed(Error::config("layout", Layout::Curator.name(), allowed))
    }

    async fn disagrees(&self, entered: &ContenderNode, there: std::num::NonZeroU32) -> AttemptError {
        let Mode::Permit { of } = self.request.mode else { return AttemptError::Restart };
        self.withdraw(AttemptError::Failed(Error::permits(&self.request.name, of, there)), entered).await
    }

    /// Waits for a change of the node ahead, or of the own node. The watch is set before the wait and its answer tells
    /// whether the node was still there, so its going cannot be missed in between.
    async fn wait_for(
        &self,
        ahead: &str,
        entered: &ContenderNode,
        own: &mut Option<Watch>,
        heard: &mut (String, i32),
    ) -> Result<NextStep, AttemptError> {
        let own_path = self.path.of(&entered.name);
        let (watched, mine) = self
            .session
            .watch_both(
                &self.path.of(ahead),
                (own.is_none() && safeguard("own-node-watch")).then_some(own_path.as_str()),
            )
            .await;
        match mine {
            Some(Ok((stat, watch))) if stat.ephemeral_owner == self.session.id() || !safeguard("own-session") => {
                *own = Some(watch);
            }
            // Not there, or not this session's: it will go with the old one.
            Some(Ok(_) | Err(RequestError::NoNode)) => return Err(AttemptError::Restart),
            Some(Err(error)) => return Ok(NextStep::without_watch(&error)),
            None => {}
        }
        let (stat, watched) = match watched {
            Ok(watched) => watched,
            // Safeguard: catalogue: a watch on a node that has gone is no wait (ZooKeeper)
            Err(gone) => return Ok(NextStep::without_watch(&gone)),
        };
        let now = (ahead.to_owned(), stat.version);
        let news = queue::is_news(&now, heard);
        *heard = now;
        if news && safeguard("gate-versions") {
            return Ok(NextStep::Look);
        }
        if !safeguard("own-node-watch") {
            *own = Some(std::future::pending().boxed());
        }
        let Some(watch) = own.as_mut() else { return Ok(NextStep::Look) };
        // The own node first: events come in the order of their transactions, so if it was deleted before the
        // predecessor handed on, that is known by now.
        tokio::select! {
            biased;
            // Safeguard: catalogue: a waiter watches its own node (ZooKeeper)
            event = watch => {
                *own = None;
                match event {
                    WatchEvent::Deleted | WatchEvent::SessionEnded => Err(AttemptError::Restart),
                    _ => Ok(NextStep::Look),
                }
            }
            event = watched => match event {
                // Of a reader, or of a permit, a change of its data says nothing.
                WatchEvent::DataChanged if queue::marks(ahead) => Ok(NextStep::HandedOn),
                WatchEvent::Deleted if !safeguard("look-after-deletion") => Ok(NextStep::HandedOn),
                _ => look(event),
            },
        }
    }

    /// Waits for somebody to come or go, as the first without a permit. The watch is set by the very list that says so
    /// again: whatever goes after that list fires it.
    async fn wait_as_first_blocked(&self, entered: &ContenderNode) -> Result<NextStep, AttemptError> {
        match self.session.list_and_watch(&self.path.directory).await {
            Ok((children, watch)) if queue::position(&children, &entered.name) == QueuePosition::FirstBlocked => {
                look(watch.await)
            }
            Err(RequestError::NoNode) => Err(AttemptError::Restart),
            Err(error) => Ok(NextStep::without_watch(&error)),
            Ok(_) => Ok(NextStep::Look),
        }
    }

    /// The directory's children, whatever it takes.
    pub(super) async fn list(&self, entered: &ContenderNode) -> Result<Vec<String>, AttemptError> {
        let listing = self.repeated(|| self.session.list(&self.path.directory));
        match self.unless_interrupted(listing).await {
            Ok(Ok(children)) => Ok(children),
            // No directory, no node in it.
            Ok(Err(RequestError::NoNode)) => Err(AttemptError::Restart),
            Ok(Err(error)) if error.outcome() == Outcome::SessionEnded => Err(AttemptError::Restart),
            Ok(Err(error)) => Err(self.withdraw(self.refused(error), entered).await),
            Err(failure) => Err(self.withdraw(failure, entered).await),
        }
    }

    async fn withdraw(&self, failure: AttemptError, entered: &ContenderNode) -> AttemptError {
        // Safeguard: catalogue: a try that was refused withdraws (ZooKeeper)
        // Safeguard: catalogue: a waiter that gives up withdraws (ZooKeeper)
        self.give_up(failure, Some(Leftover::Node(self.path.of(&entered.name)))).await
    }
}

fn look(event: WatchEvent) -> Result<NextStep, AttemptError> {
    match event {
        WatchEvent::SessionEnded => Err(AttemptError::Restart),
        _ => Ok(NextStep::Look),
    }
}

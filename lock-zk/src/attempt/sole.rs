//! The strategy `herd`: one ephemeral node that all contenders of a name try to create; everybody else watches it, and all
//! of them wake when it goes. Unfair, and a burst of requests at each release. It is here to be compared with the queue.
//!
//! The node is `<root>/<name>` itself, where the queue has its directory. A node without children cannot be a directory and
//! a directory is in the way of the node, so the servers themselves keep contenders of the two strategies from holding one
//! name side by side: the one that comes second is told.

use std::sync::Arc;

use lock_core::{Error, Wait};

use super::{Attempt, AttemptError, FRESH_STARTS, LOOKS_PER_TICK};
use crate::{
    Strategy,
    lease::{HeldNode, NodeKind, ZkLease},
    protocol::sole,
    session::retry_backoff,
    wire::{Outcome, RequestError, Stat, WatchEvent},
    withdraw::{Leftover, PendingSoleCreate, is_made_by},
};

impl Attempt<'_> {
    /// Takes the lock as soon as it is free and nobody else is faster.
    pub(super) async fn take(&self) -> Result<ZkLease, AttemptError> {
        let mut vanished = 0;
        let mut backoff = retry_backoff();
        while vanished < FRESH_STARTS {
            if let Some(created) = self.create_sole().await? {
                return self.hold_sole(&created).await;
            }
            if self.watch_sole().await? {
                vanished = 0;
            } else {
                // Neither created nor found: it went in between, or its parent is missing again and again.
                vanished += 1;
                self.unless_interrupted(self.zk.clock().sleep(backoff.pause())).await?;
            }
        }
        Err(AttemptError::Restart)
    }

    /// Tries to create the node. `None` when that did not succeed; then another one's may be there.
    async fn create_sole(&self) -> Result<Option<Stat>, AttemptError> {
        self.unless_interrupted(self.session.connected()).await?;
        let (session, path) = (Arc::clone(&self.session), Arc::clone(&self.path.directory));
        let data = sole::data(&self.path.unique, &self.request.payload);
        let mut creating: PendingSoleCreate = Box::pin(async move { session.create_sole(&path, &data).await });
        let created = match self.unless_interrupted(&mut creating).await {
            Ok(created) => created,
            Err(failure) => return Err(self.give_up(failure, Some(Leftover::SoleUnderWay(creating))).await),
        };
        match created {
            Ok(stat) if stat.ephemeral_owner == self.session.id() => Ok(Some(stat)),
            Ok(_) => Err(AttemptError::Restart),
            Err(RequestError::NodeExists) => Ok(None),
            Err(RequestError::NoNode) => {
                let root = self.unless_interrupted(self.session.make_root(&self.zk.config().root)).await?;
                match root {
                    Err(error) if error.outcome() == Outcome::Refused => Err(self.refused(error)),
                    _ => Ok(None),
                }
            }
            Err(error) => match error.outcome() {
                Outcome::Refused => Err(self.refused(error)),
                Outcome::SessionEnded => Err(AttemptError::Restart),
                Outcome::Throttled => Ok(None),
                Outcome::Unknown => self.recover_sole().await,
            },
        }
    }

    /// After a create without an answer: the node, if it is there and this attempt's own.
    async fn recover_sole(&self) -> Result<Option<Stat>, AttemptError> {
        let looking = self.repeated(|| self.session.read_settled(&self.path.directory));
        match self.unless_interrupted(looking).await {
            Ok(Ok((data, stat))) => Ok(is_made_by(&data, &stat, &self.path, self.session.id()).then_some(stat)),
            Ok(Err(RequestError::NoNode)) => Ok(None),
            Ok(Err(error)) if error.outcome() == Outcome::SessionEnded => Err(AttemptError::Restart),
            Ok(Err(error)) => Err(self.give_up(self.refused(error), Some(Leftover::Sole)).await),
            Err(failure) => Err(self.give_up(failure, Some(Leftover::Sole)).await),
        }
    }

    /// Holds by the node that was created, once the session is certain to live.
    async fn hold_sole(&self, created: &Stat) -> Result<ZkLease, AttemptError> {
        let node = self.path.directory.to_string();
        let (session, path) = (Arc::clone(&self.session), self.path.clone());
        let held = HeldNode { session, path, node, token: created.token(), kind: NodeKind::Sole };
        loop {
            if let Some(lease) = ZkLease::grant(held.clone(), self.request, &self.active, &mut None) {
                return Ok(lease);
            }
            let pause = self.zk.clock().sleep(self.zk.config().tick_time / LOOKS_PER_TICK);
            if let Err(failure) = self.unless_interrupted(pause).await {
                return Err(self.give_up(failure, Some(Leftover::Sole)).await);
            }
        }
    }

    /// Waits for the node to go, or refuses where nobody wants to wait. False when it was not there any more. The watch's
    /// answer tells whether it was, so its going cannot be missed in between.
    async fn watch_sole(&self) -> Result<bool, AttemptError> {
        let path = &self.path.directory;
        if self.request.wait == Wait::No {
            return match self.unless_interrupted(self.session.read(path)).await? {
                Ok((_, stat)) if stat.ephemeral_owner == 0 => Err(self.wrong_strategy(Strategy::Queue)),
                Ok(_) => Err(AttemptError::Failed(Error::NotAcquired { name: self.request.name.clone() })),
                Err(error) => self.not_seen(error),
            };
        }
        let watching = async {
            match self.session.watch(path).await {
                Ok((stat, _)) if stat.ephemeral_owner == 0 => Err(self.wrong_strategy(Strategy::Queue)),
                Ok((_, watch)) => {
                    self.request.outage.answered();
                    match watch.await {
                        WatchEvent::SessionEnded => Err(AttemptError::Restart),
                        _ => Ok(true),
                    }
                }
                Err(error) => self.not_seen(error),
            }
        };
        self.unless_interrupted(watching).await?
    }

    /// The node could not be looked at: gone, or no answer.
    fn not_seen(&self, error: RequestError) -> Result<bool, AttemptError> {
        match error.outcome() {
            _ if matches!(error, RequestError::NoNode) => Ok(false),
            Outcome::Throttled | Outcome::Unknown => Ok(false),
            Outcome::SessionEnded => Err(AttemptError::Restart),
            Outcome::Refused => Err(self.refused(error)),
        }
    }
}

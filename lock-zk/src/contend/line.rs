//! A contender's way through the line, from its node to its grant.

use lock_core::{Error, Mode, Wait};
use zookeeper_client::{Error as ClientError, EventType, WatchedEvent};

use super::{Attempt, LOOKS_PER_TICK, Setback};
use crate::{
    lease::{Footing, Hold, Watch, ZkLease},
    queue::{self, Standing},
    sweep::{Trace, announce},
    wire::{Entered, Outcome, outcome, patience},
};

/// What a wait ended with.
enum Turn {
    /// The one ahead held the lock and handed it on.
    HandedOn,
    /// Something changed: look again.
    Look,
    /// There was no answer: look again, after a pause.
    Unanswered,
}

impl Turn {
    /// What follows when a watch was not set.
    fn without_watch(error: &ClientError) -> Self {
        if *error == ClientError::NoNode { Self::Look } else { Self::Unanswered }
    }
}

impl Attempt<'_> {
    /// Waits until the contender has what it is after.
    pub(super) async fn queue(&self, entered: &Entered, mut children: Vec<String>) -> Result<ZkLease, Setback> {
        let mut own: Option<Watch> = None;
        let mut heard = (String::new(), 0);
        let mut backoff = patience();
        loop {
            let turn = match queue::standing(&children, &entered.name) {
                Standing::Gone => return Err(Setback::Again),
                Standing::Disagrees { there } => return Err(self.disagrees(entered, there).await),
                Standing::Holds => {
                    if let Some(lease) = self.grant(entered, &mut own) {
                        self.tell(entered, &children);
                        return Ok(lease);
                    }
                    // First, but the session may have ended on the servers: only its heartbeat can tell.
                    let pause = self.zk.clock().sleep(self.zk.config().tick_time / LOOKS_PER_TICK);
                    self.unless_interrupted(pause).await.map(|()| Ok(Turn::Look))
                }
                Standing::Behind(_) | Standing::Gate if self.request.wait == Wait::No => {
                    let denied = Setback::Failed(Error::NotAcquired { name: self.request.name.clone() });
                    return Err(self.withdraw(denied, entered).await);
                }
                Standing::Behind(ahead) => {
                    self.unless_interrupted(self.wait_for(ahead, entered, &mut own, &mut heard)).await
                }
                Standing::Gate => self.unless_interrupted(self.wait_at_gate(entered)).await,
            };
            let turn = match turn {
                Ok(turn) => turn?,
                Err(setback) => return Err(self.withdraw(setback, entered).await),
            };
            // All ahead of a holder that was alone were gone before it held, numbers only grow, and the own node is there:
            // a writer waited for the one next to it, a reader has only readers in between. Without certainty about
            // the session the list has to say it again.
            if let Turn::HandedOn = turn
                && let Some(lease) = self.grant(entered, &mut own)
            {
                return Ok(lease);
            }
            if let Turn::Unanswered = turn {
                if let Err(setback) = self.unless_interrupted(self.zk.clock().sleep(backoff.pause())).await {
                    return Err(self.withdraw(setback, entered).await);
                }
            } else {
                backoff = patience();
            }
            children = self.list(entered).await?;
        }
    }

    fn grant(&self, entered: &Entered, own: &mut Option<Watch>) -> Option<ZkLease> {
        let footing = if self.request.mode == Mode::Exclusive { Footing::Exclusive } else { Footing::Shared };
        let node = self.spot.path(&entered.name);
        let hold = Hold { keeping: self.keeping.clone(), spot: self.spot.clone(), node, token: entered.token, footing };
        ZkLease::grant(hold, self.request, &self.active, own)
    }

    /// Tells whoever waits behind the holder of a permit that it waits no more. It may have seen this contender as the
    /// gate, and is the gate itself now.
    fn tell(&self, entered: &Entered, children: &[String]) {
        if matches!(self.request.mode, Mode::Permit { .. }) && queue::is_followed(children, &entered.name) {
            announce(&self.keeping, self.spot.path(&entered.name), self.request.payload.clone());
        }
    }

    async fn disagrees(&self, entered: &Entered, there: std::num::NonZeroU32) -> Setback {
        let Mode::Permit { of } = self.request.mode else { return Setback::Again };
        self.withdraw(Setback::Failed(Error::permits(&self.request.name, of, there)), entered).await
    }

    /// Waits for a change of the node ahead, or of the own node. The watch is set before the wait and its answer tells
    /// whether the node was still there, so its going cannot be missed in between.
    async fn wait_for(
        &self,
        ahead: &str,
        entered: &Entered,
        own: &mut Option<Watch>,
        heard: &mut (String, i32),
    ) -> Result<Turn, Setback> {
        let own_path = self.spot.path(&entered.name);
        let (watched, mine) =
            self.session.watch_both(&self.spot.path(ahead), own.is_none().then_some(own_path.as_str())).await;
        match mine {
            Some(Ok((stat, watcher))) if stat.ephemeral_owner == self.session.id() => {
                *own = Some(Box::pin(watcher.changed()));
            }
            // Not there, or not this session's: it will go with the old one.
            Some(Ok(_) | Err(ClientError::NoNode)) => return Err(Setback::Again),
            Some(Err(error)) => return Ok(Turn::without_watch(&error)),
            None => {}
        }
        let (stat, watched) = match watched {
            Ok(watched) => watched,
            Err(gone) => return Ok(Turn::without_watch(&gone)),
        };
        let now = (ahead.to_owned(), stat.version);
        let news = queue::is_news(&now, heard);
        *heard = now;
        if news {
            return Ok(Turn::Look);
        }
        let Some(watch) = own.as_mut() else { return Ok(Turn::Look) };
        // The own node first: events come in the order of their transactions, so if it was deleted before the
        // predecessor handed on, that is known by now.
        tokio::select! {
            biased;
            event = watch => {
                *own = None;
                match event.event_type {
                    EventType::NodeDeleted | EventType::Session => Err(Setback::Again),
                    _ => Ok(Turn::Look),
                }
            }
            event = watched.changed() => match event.event_type {
                // Of a reader, or of a permit, a change of its data says nothing.
                EventType::NodeDataChanged if queue::marks(ahead) => Ok(Turn::HandedOn),
                _ => look(&event),
            },
        }
    }

    /// Waits for somebody to come or go, as the first without a permit. The watch is set by the very list that says so
    /// again: whatever goes after that list fires it.
    async fn wait_at_gate(&self, entered: &Entered) -> Result<Turn, Setback> {
        match self.session.list_and_watch(&self.spot.directory).await {
            Ok((children, watcher)) if queue::standing(&children, &entered.name) == Standing::Gate => {
                look(&watcher.changed().await)
            }
            Err(ClientError::NoNode) => Err(Setback::Again),
            Err(error) => Ok(Turn::without_watch(&error)),
            Ok(_) => Ok(Turn::Look),
        }
    }

    /// The directory's children, whatever it takes.
    pub(super) async fn list(&self, entered: &Entered) -> Result<Vec<String>, Setback> {
        let listing = self.repeated(|| self.session.list(&self.spot.directory));
        match self.unless_interrupted(listing).await {
            Ok(Ok(children)) => Ok(children),
            // No directory, no node in it.
            Ok(Err(ClientError::NoNode)) => Err(Setback::Again),
            Ok(Err(error)) if outcome(&error) == Outcome::SessionEnded => Err(Setback::Again),
            Ok(Err(error)) => Err(self.withdraw(self.refused(error), entered).await),
            Err(setback) => Err(self.withdraw(setback, entered).await),
        }
    }

    async fn withdraw(&self, setback: Setback, entered: &Entered) -> Setback {
        self.give_up(setback, Some(Trace::Node(self.spot.path(&entered.name)))).await
    }
}

fn look(event: &WatchedEvent) -> Result<Turn, Setback> {
    match event.event_type {
        EventType::Session => Err(Setback::Again),
        _ => Ok(Turn::Look),
    }
}

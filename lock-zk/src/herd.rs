//! The strategy `herd`: one ephemeral node that all contenders of a name try to create; everybody else watches it, and all
//! of them wake when it goes. Unfair, and a burst of requests at each release. It is here to be compared with the queue.
//!
//! The node is `<root>/<name>` itself, where the queue has its directory. A node without children cannot be a directory and
//! a directory is in the way of the node, so the servers themselves keep contenders of the two strategies from holding one
//! name side by side: the one that comes second is told.

use std::sync::Arc;

use lock_core::{Error, Wait};
use zookeeper_client::{Error as ClientError, EventType, Stat};

use crate::{
    Strategy,
    contend::{Attempt, FRESH_STARTS, LOOKS_PER_TICK, Setback},
    lease::{Footing, Hold, ZkLease},
    session::Session,
    sweep::{Taking, Trace},
    wire::{Outcome, Spot, outcome, patience, token},
};

/// What stands between the unique id and the payload in a node's data.
const SEPARATOR: u8 = b'\n';

/// What a contender writes into the node: its unique id, which tells its node from others of the same name, and its payload.
fn data(unique: &str, payload: &[u8]) -> Vec<u8> {
    [unique.as_bytes(), &[SEPARATOR], payload].concat()
}

/// The unique id and the payload in a node's data; the id is empty in what no contender wrote.
pub(crate) fn parts(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == SEPARATOR) {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (&[], data),
    }
}

/// Whether the attempt of `spot` made that node, in `session`.
pub(crate) fn is_made_by(data: &[u8], stat: &Stat, spot: &Spot, session: i64) -> bool {
    stat.ephemeral_owner == session && parts(data).0 == spot.unique.as_bytes()
}

/// Deletes the node that the attempt of `spot` made, if it is there: `NoNode` otherwise. `certain`: a watch says that it is.
///
/// All attempts call their nodes the same, and a deletion says only the name. So nothing is deleted before a look, which the
/// server answers after all that this session sent before. And the attempt's own removals (by a release, by the end of its
/// validity) take turns: the second one would not find in time that the first one has made room for another holder.
///
/// What is left is a third party that deletes the node in the moment of its release.
pub(crate) async fn remove(session: &Session, spot: &Spot, certain: bool) -> Result<(), ClientError> {
    let mut removed = spot.removed.lock().await;
    if *removed {
        return Err(ClientError::NoNode);
    }
    if !certain {
        let (data, stat) = session.read_settled(&spot.directory).await?;
        if !is_made_by(&data, &stat, spot, session.id()) {
            return Err(ClientError::NoNode);
        }
    }
    let deleted = session.delete_present(&spot.directory).await;
    *removed = deleted.is_ok();
    deleted
}

impl Attempt<'_> {
    /// Takes the lock as soon as it is free and nobody else is faster.
    pub(crate) async fn take(&self) -> Result<ZkLease, Setback> {
        let mut vanished = 0;
        let mut backoff = patience();
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
        Err(Setback::Again)
    }

    /// Tries to create the node. `None` when that did not succeed; then another one's may be there.
    async fn create_sole(&self) -> Result<Option<Stat>, Setback> {
        self.unless_interrupted(self.session.connected()).await?;
        let (session, path) = (Arc::clone(&self.session), Arc::clone(&self.spot.directory));
        let data = data(&self.spot.unique, &self.request.payload);
        let mut taking: Taking = Box::pin(async move { session.create_sole(&path, &data).await });
        let created = match self.unless_interrupted(&mut taking).await {
            Ok(created) => created,
            Err(setback) => return Err(self.give_up(setback, Some(Trace::SoleUnderWay(taking))).await),
        };
        match created {
            Ok(stat) if stat.ephemeral_owner == self.session.id() => Ok(Some(stat)),
            Ok(_) => Err(Setback::Again),
            Err(ClientError::NodeExists) => Ok(None),
            Err(ClientError::NoNode) => {
                let root = self.unless_interrupted(self.session.make_root(&self.zk.config().root)).await?;
                match root {
                    Err(error) if outcome(&error) == Outcome::Refused => Err(self.refused(error)),
                    _ => Ok(None),
                }
            }
            Err(error) => match outcome(&error) {
                Outcome::Refused => Err(self.refused(error)),
                Outcome::SessionEnded => Err(Setback::Again),
                Outcome::Throttled => Ok(None),
                Outcome::Unknown => self.recover_sole().await,
            },
        }
    }

    /// After a create without an answer: the node, if it is there and this attempt's own.
    async fn recover_sole(&self) -> Result<Option<Stat>, Setback> {
        let looking = self.repeated(|| self.session.read_settled(&self.spot.directory));
        match self.unless_interrupted(looking).await {
            Ok(Ok((data, stat))) => Ok(is_made_by(&data, &stat, &self.spot, self.session.id()).then_some(stat)),
            Ok(Err(ClientError::NoNode)) => Ok(None),
            Ok(Err(error)) if outcome(&error) == Outcome::SessionEnded => Err(Setback::Again),
            Ok(Err(error)) => Err(self.give_up(self.refused(error), Some(Trace::Sole)).await),
            Err(setback) => Err(self.give_up(setback, Some(Trace::Sole)).await),
        }
    }

    /// Holds by the node that was created, once the session is certain to live.
    async fn hold_sole(&self, created: &Stat) -> Result<ZkLease, Setback> {
        let node = self.spot.directory.to_string();
        let (keeping, spot) = (self.keeping.clone(), self.spot.clone());
        let hold = Hold { keeping, spot, node, token: token(created), footing: Footing::Sole };
        loop {
            if let Some(lease) = ZkLease::grant(hold.clone(), self.request, &self.active, &mut None) {
                return Ok(lease);
            }
            let pause = self.zk.clock().sleep(self.zk.config().tick_time / LOOKS_PER_TICK);
            if let Err(setback) = self.unless_interrupted(pause).await {
                return Err(self.give_up(setback, Some(Trace::Sole)).await);
            }
        }
    }

    /// Waits for the node to go, or refuses where nobody wants to wait. False when it was not there any more. The watch's
    /// answer tells whether it was, so its going cannot be missed in between.
    async fn watch_sole(&self) -> Result<bool, Setback> {
        let path = &self.spot.directory;
        if self.request.wait == Wait::No {
            return match self.unless_interrupted(self.session.read(path)).await? {
                Ok((_, stat)) if stat.ephemeral_owner == 0 => Err(self.wrong_strategy(Strategy::Queue)),
                Ok(_) => Err(Setback::Failed(Error::NotAcquired { name: self.request.name.clone() })),
                Err(error) => self.not_seen(error),
            };
        }
        let watching = async {
            match self.session.watch(path).await {
                Ok((stat, _)) if stat.ephemeral_owner == 0 => Err(self.wrong_strategy(Strategy::Queue)),
                Ok((_, watcher)) => match watcher.changed().await.event_type {
                    EventType::Session => Err(Setback::Again),
                    _ => Ok(true),
                },
                Err(error) => self.not_seen(error),
            }
        };
        self.unless_interrupted(watching).await?
    }

    /// The node could not be looked at: gone, or no answer.
    fn not_seen(&self, error: ClientError) -> Result<bool, Setback> {
        match outcome(&error) {
            _ if error == ClientError::NoNode => Ok(false),
            Outcome::Throttled | Outcome::Unknown => Ok(false),
            Outcome::SessionEnded => Err(Setback::Again),
            Outcome::Refused => Err(self.refused(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_nobody_of_us_wrote_has_no_maker() {
        assert_eq!(parts(b"somebody else's"), (&b""[..], &b"somebody else's"[..]));
    }

    proptest! {
        #[test]
        fn a_nodes_data_lead_back_to_its_maker_and_its_payload(unique in "[0-9a-f-]{1,40}", payload: Vec<u8>) {
            let data = data(&unique, &payload);
            prop_assert_eq!(parts(&data), (unique.as_bytes(), payload.as_slice()));
        }

        #[test]
        fn whatever_a_node_holds_is_all_shown_and_has_one_maker_at_most(data: Vec<u8>) {
            let (unique, payload) = parts(&data);
            prop_assert!(data.ends_with(payload) && data.starts_with(unique));
            prop_assert!(unique.is_empty() || unique.len() + 1 + payload.len() == data.len());
        }
    }
}

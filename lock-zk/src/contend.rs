//! One acquisition: a contender's way through the queue.
//!
//! It runs on the session's own thread and owns what it has on the server at each moment, so that however it ends, it
//! leaves a lease or nothing.

use std::{sync::Arc, time::Duration};

use lock_core::{Backoff, Error, Request, Wait};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zookeeper_client::{Error as ClientError, EventType};

use crate::{
    connection::Connection,
    lease::{Watch, ZkLease},
    queue::{self, Standing},
    session::{Failure, Session},
    sweep::{Entering, Keeping, ONE_TRY, Trace, withdraw},
    wire::{Entered, Outcome, Spot, outcome},
};

/// How often a contender starts over because its node or its directory vanished, before it reports that.
const FRESH_STARTS: u32 = 16;

/// How often a contender looks again because its session is not certain to live, at most, per tick.
const LOOKS_PER_TICK: u32 = 4;

/// Why an attempt did not end in a grant.
enum Setback {
    /// Its place in the queue is gone for sure, or ended with its session: start over.
    Again,
    Failed(Error),
}

/// What a wait for the predecessor ended with.
enum Turn {
    /// The predecessor held the lock and handed it on.
    HandedOn,
    /// Something changed: look again.
    Look,
}

/// Acquires, for as long as it is not told to stop and the servers are not out of reach for too long.
pub(crate) async fn contend(zk: &Connection, request: &Request, stop: &CancellationToken) -> Result<ZkLease, Error> {
    for _ in 0..FRESH_STARTS {
        let session = tokio::select! {
            biased;
            () = zk.closed().cancelled() => return Err(Error::Closed),
            () = stop.cancelled() => return Err(Error::Cancelled),
            session = zk.session() => session?,
        };
        match Attempt::new(zk, session, request, stop).run().await {
            Ok(lease) => return Ok(lease),
            Err(Setback::Again) => {}
            Err(Setback::Failed(error)) => return Err(error),
        }
    }
    Err(Error::no_answer(zk.config().url(), "the contender's node vanished again and again"))
}

/// One attempt, in one session.
struct Attempt<'a> {
    zk: &'a Connection,
    keeping: Keeping,
    session: Arc<Session>,
    request: &'a Request,
    stop: &'a CancellationToken,
    spot: Spot,
}

impl<'a> Attempt<'a> {
    fn new(zk: &'a Connection, session: Arc<Session>, request: &'a Request, stop: &'a CancellationToken) -> Self {
        let unique = Uuid::new_v4().simple().to_string();
        let spot = Spot {
            directory: format!("{}/{}", zk.config().root, request.name.to_component()).into(),
            prefix: queue::prefix(&unique, session.id()).into(),
            unique: unique.into(),
        };
        Self { zk, keeping: zk.keeping(&session), session, request, stop, spot }
    }

    async fn run(&self) -> Result<ZkLease, Setback> {
        let _active = self.session.activate();
        let (entered, children) = self.enter().await?;
        self.queue(&entered, children).await
    }

    /// Puts the contender's node into the queue. Returns it with the directory's children at a later moment.
    async fn enter(&self) -> Result<(Entered, Vec<String>), Setback> {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
        for _ in 0..FRESH_STARTS {
            if let Err(setback) = self.unless_interrupted(self.session.connected()).await {
                return Err(self.give_up(setback, None).await);
            }
            let entering = Arc::clone(&self.session).enter(self.spot.clone(), Arc::clone(&self.request.payload));
            let mut entering: Entering = Box::pin(entering);
            let (created, listed) = match self.unless_interrupted(&mut entering).await {
                Ok(answers) => answers,
                Err(setback) => return Err(self.give_up(setback, Some(Trace::UnderWay(entering))).await),
            };
            match created {
                Ok(entered) if entered.owner != self.session.id() => return Err(Setback::Again),
                Ok(entered) => {
                    let children = match listed {
                        Ok(children) => children,
                        Err(_) => self.list(&entered).await?,
                    };
                    return Ok((entered, children));
                }
                Err(ClientError::NoNode) => {
                    let making = self.unless_interrupted(self.session.make_directory(&self.spot.directory)).await;
                    match making? {
                        Err(error) if outcome(&error) == Outcome::Refused && error != ClientError::NoNode => {
                            return Err(self.refused(error));
                        }
                        // Made, or unknown, or gone again: the next create tells.
                        _ => continue,
                    }
                }
                Err(error) => match outcome(&error) {
                    Outcome::Refused => return Err(self.refused(error)),
                    Outcome::SessionEnded => return Err(Setback::Again),
                    Outcome::Unknown => {
                        if let Some(found) = self.recover().await? {
                            return Ok(found);
                        }
                    }
                },
            }
            self.unless_interrupted(self.zk.clock().sleep(backoff.pause())).await?;
        }
        Err(Setback::Again)
    }

    /// After a create without an answer: whether it was done. Looks for the own unique id, once the server is not
    /// behind. A create that is not there by then never comes: it went down a connection that is closed, and a server
    /// that still had it would find the session moved on.
    async fn recover(&self) -> Result<Option<(Entered, Vec<String>)>, Setback> {
        let looking = async {
            loop {
                self.session.connected().await;
                match find(&self.session, &self.spot).await {
                    Err(error) if outcome(&error) == Outcome::Unknown => {}
                    other => return other,
                }
            }
        };
        match self.unless_interrupted(looking).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(ClientError::NoNode)) => Ok(None),
            Ok(Err(error)) if outcome(&error) == Outcome::SessionEnded => Err(Setback::Again),
            Ok(Err(error)) => {
                let refused = self.refused(error);
                Err(self.give_up(refused, Some(Trace::Unknown)).await)
            }
            Err(setback) => Err(self.give_up(setback, Some(Trace::Unknown)).await),
        }
    }

    /// Waits until the contender is first in line.
    async fn queue(&self, entered: &Entered, mut children: Vec<String>) -> Result<ZkLease, Setback> {
        let mut own: Option<Watch> = None;
        loop {
            match queue::standing(&children, &entered.name) {
                Standing::Gone => return Err(Setback::Again),
                Standing::First => {
                    if let Some(lease) = self.grant(entered, &mut own) {
                        return Ok(lease);
                    }
                    // First, but the session may have ended on the servers: only its heartbeat can tell.
                    let pause = self.zk.clock().sleep(self.zk.config().tick_time / LOOKS_PER_TICK);
                    if let Err(setback) = self.unless_interrupted(pause).await {
                        return Err(self.give_up(setback, Some(Trace::Node(self.spot.path(&entered.name)))).await);
                    }
                }
                Standing::Behind(_) if self.request.wait == Wait::No => {
                    let denied = Setback::Failed(Error::NotAcquired { name: self.request.name.clone() });
                    return Err(self.give_up(denied, Some(Trace::Node(self.spot.path(&entered.name)))).await);
                }
                Standing::Behind(ahead) => {
                    let turn = self.unless_interrupted(self.wait_for(ahead, entered, &mut own)).await;
                    let turn = match turn {
                        Ok(turn) => turn?,
                        Err(setback) => {
                            return Err(self.give_up(setback, Some(Trace::Node(self.spot.path(&entered.name)))).await);
                        }
                    };
                    // All ahead of a holder were gone before it held, numbers only grow, and the own node is there: it
                    // is first. Without certainty about the session the list has to say it again.
                    if let Turn::HandedOn = turn
                        && let Some(lease) = self.grant(entered, &mut own)
                    {
                        return Ok(lease);
                    }
                }
            }
            children = self.list(entered).await?;
        }
    }

    fn grant(&self, entered: &Entered, own: &mut Option<Watch>) -> Option<ZkLease> {
        ZkLease::grant(&self.keeping, &self.request.name, self.spot.path(&entered.name), entered.token, own)
    }

    /// Waits for a change of the node ahead, or of the own node. The watch is set before the wait and its answer tells
    /// whether the node was still there, so its going cannot be missed in between.
    async fn wait_for(&self, ahead: &str, entered: &Entered, own: &mut Option<Watch>) -> Result<Turn, Setback> {
        let own_path = self.spot.path(&entered.name);
        let (ahead, mine) =
            self.session.watch_both(&self.spot.path(ahead), own.is_none().then_some(own_path.as_str())).await;
        match mine {
            Some(Ok((owner, watcher))) if owner == self.session.id() => *own = Some(Box::pin(watcher.changed())),
            // Not there, or not this session's: it will go with the old one.
            Some(Ok(_) | Err(ClientError::NoNode)) => return Err(Setback::Again),
            Some(Err(_)) => return Ok(Turn::Look),
            None => {}
        }
        let Ok(ahead) = ahead else { return Ok(Turn::Look) };
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
            event = ahead.changed() => match event.event_type {
                EventType::NodeDataChanged => Ok(Turn::HandedOn),
                EventType::Session => Err(Setback::Again),
                _ => Ok(Turn::Look),
            },
        }
    }

    /// The directory's children, whatever it takes.
    async fn list(&self, entered: &Entered) -> Result<Vec<String>, Setback> {
        let listing = async {
            loop {
                self.session.connected().await;
                match self.session.list(&self.spot.directory).await {
                    Err(error) if outcome(&error) == Outcome::Unknown => {}
                    other => return other,
                }
            }
        };
        match self.unless_interrupted(listing).await {
            Ok(Ok(children)) => Ok(children),
            // No directory, no node in it.
            Ok(Err(ClientError::NoNode)) => Err(Setback::Again),
            Ok(Err(error)) if outcome(&error) == Outcome::SessionEnded => Err(Setback::Again),
            Ok(Err(error)) => {
                let refused = self.refused(error);
                Err(self.give_up(refused, Some(Trace::Node(self.spot.path(&entered.name)))).await)
            }
            Err(setback) => Err(self.give_up(setback, Some(Trace::Node(self.spot.path(&entered.name)))).await),
        }
    }

    /// Runs `future`, unless the caller stops, the connection is closed, or the session fails before it is ready.
    async fn unless_interrupted<F: Future>(&self, future: F) -> Result<F::Output, Setback> {
        let limit = self.zk.config().connect_timeout;
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.zk.closed().cancelled() => Err(Setback::Failed(Error::Closed)),
            () = self.stop.cancelled() => Err(Setback::Failed(Error::Cancelled)),
            failure = self.session.failed(limit) => Err(match failure {
                Failure::Ended => Setback::Again,
                Failure::Outage => {
                    let reason = format!("disconnected for {limit:?}");
                    Setback::Failed(Error::no_answer(self.zk.config().url(), reason))
                }
            }),
        }
    }

    fn refused(&self, error: ClientError) -> Setback {
        Setback::Failed(Error::unavailable(self.zk.config().url(), "the request was refused", error))
    }

    /// Withdraws what the attempt has on the server: waits for one try, and leaves the rest to the janitor.
    async fn give_up(&self, setback: Setback, trace: Option<Trace>) -> Setback {
        let (Some(trace), Setback::Failed(_)) = (trace, &setback) else { return setback };
        let gone = withdraw(&self.keeping, &self.spot, trace);
        tokio::select! {
            biased;
            () = gone.cancelled() => {}
            _ = self.session.failed(Duration::ZERO) => {}
            () = self.zk.clock().sleep(ONE_TRY) => {}
        }
        setback
    }
}

/// The own node by its unique id, and the children that it is among; only if it lives and dies with this session. One
/// that was left by another session goes with that, and is not ours.
async fn find(session: &Session, spot: &Spot) -> Result<Option<(Entered, Vec<String>)>, ClientError> {
    let children = session.list_synced(&spot.directory).await?;
    for name in queue::made_by(&children, &spot.unique, session.id()) {
        match session.read(&spot.path(name)).await {
            Ok((_, stat)) if stat.ephemeral_owner == session.id() => {
                let entered = Entered::new(name.to_owned(), &stat);
                return Ok(Some((entered, children)));
            }
            Ok(_) | Err(ClientError::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::Clock;
    use zookeeper_client::{Acls, Client, CreateMode};

    use super::*;
    use crate::Config;

    #[tokio::test]
    async fn a_node_that_is_called_like_the_own_one_but_belongs_to_another_session_is_not_ours() {
        let server = lock_lab::servers::ZooKeeper::start(1).await.unwrap();
        let port = server.ports()[0];
        let config = Config::new([("127.0.0.1", port)]).with_tick_time(Duration::from_millis(100));
        let session = Session::open(Arc::new(config), Clock::boot()).await.unwrap();
        let spot = Spot {
            directory: "/locks/own".into(),
            unique: "me".into(),
            prefix: queue::prefix("me", session.id()).into(),
        };
        session.make_directory(&spot.directory).await.unwrap();
        let other = Client::connect(&format!("127.0.0.1:{port}")).await.unwrap();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        other.create(&spot.path(&spot.prefix), b"", &options).await.unwrap();
        assert_eq!(find(&session, &spot).await.unwrap(), None);

        let (created, listed) = Arc::clone(&session).enter(spot.clone(), Arc::new([])).await;
        let found = find(&session, &spot).await.unwrap();
        assert_eq!(found, Some((created.unwrap(), listed.unwrap())));
        session.close();
    }
}

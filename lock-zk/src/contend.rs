//! One acquisition: a contender's way to its lease.
//!
//! It runs on the session's own thread and owns what it has on the server at each moment, so that however it ends, it
//! leaves a lease or nothing.

mod line;

use std::{sync::Arc, time::Duration};

use lock_core::{Error, Request};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zookeeper_client::Error as ClientError;

use crate::{
    Strategy,
    backend::NAME,
    connection::Connection,
    lease::ZkLease,
    queue::{self, Kind},
    room,
    session::{Active, Failure, Session},
    sweep::{Entering, Keeping, ONE_TRY, Trace, withdraw},
    wire::{Entered, Outcome, Spot, outcome, patience},
};

/// How often a contender starts over because its node or its directory vanished, before it reports that.
pub(crate) const FRESH_STARTS: u32 = 16;

/// How often a contender looks again because its session is not certain to live, at most, per tick.
pub(crate) const LOOKS_PER_TICK: u32 = 4;

/// Why an attempt did not end in a grant.
pub(crate) enum Setback {
    /// Its place in the queue is gone for sure, or ended with its session: start over.
    Again,
    Failed(Error),
}

/// Acquires, for as long as it is not told to stop and the servers are not out of reach for too long.
pub(crate) async fn contend(zk: &Connection, request: &Request, stop: &CancellationToken) -> Result<ZkLease, Error> {
    let Some(kind) = Kind::of(request.mode) else {
        return Err(Error::Unsupported { feature: "this mode", backend: NAME });
    };
    for _ in 0..FRESH_STARTS {
        let room = tokio::select! {
            biased;
            () = zk.closed().cancelled() => return Err(Error::Closed),
            () = stop.cancelled() => return Err(Error::Cancelled),
            room = zk.room(room::of_two(&zk.directory(&request.name))) => room?,
        };
        match Attempt::new(zk, room.activated(), request, kind, stop).run().await {
            Ok(lease) => return Ok(lease),
            Err(Setback::Again) => {}
            Err(Setback::Failed(error)) => return Err(error),
        }
    }
    Err(Error::no_answer(zk.config().url(), "the contender's node vanished again and again"))
}

/// One attempt, in one session.
pub(crate) struct Attempt<'a> {
    pub(crate) zk: &'a Connection,
    pub(crate) keeping: Keeping,
    pub(crate) session: Arc<Session>,
    /// Keeps the session's heartbeat writing, and room in it.
    pub(crate) active: Active,
    pub(crate) request: &'a Request,
    stop: &'a CancellationToken,
    pub(crate) spot: Spot,
}

impl<'a> Attempt<'a> {
    fn new(zk: &'a Connection, active: Active, request: &'a Request, kind: Kind, stop: &'a CancellationToken) -> Self {
        let session = Arc::clone(active.session());
        let unique = Uuid::new_v4().simple().to_string();
        let spot = Spot {
            directory: zk.directory(&request.name).into(),
            prefix: queue::prefix(&unique, session.id(), kind).into(),
            unique: unique.into(),
            removed: Arc::default(),
        };
        Self { zk, keeping: zk.keeping(&session), session, active, request, stop, spot }
    }

    async fn run(&self) -> Result<ZkLease, Setback> {
        if self.zk.config().strategy == Strategy::Herd {
            return self.take().await;
        }
        let (entered, children) = self.enter().await?;
        if queue::is_out_of_numbers(&entered.name) {
            return Err(self.leave_full_directory(&entered).await);
        }
        self.queue(&entered, children).await
    }

    /// Puts the contender's node into the queue. Returns it with the directory's children at a later moment.
    async fn enter(&self) -> Result<(Entered, Vec<String>), Setback> {
        let mut backoff = patience();
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
                        Ok(()) => continue,
                        // Unknown, or gone again: the next create tells.
                        _ => {}
                    }
                }
                Err(error) => match outcome(&error) {
                    Outcome::Refused => return Err(self.refused(error)),
                    Outcome::SessionEnded => return Err(Setback::Again),
                    Outcome::Throttled => {}
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

    /// Withdraws from a directory whose counter is near its end. Those who are there have good numbers and go on; once they
    /// have left, the directory is removed, and the next one counts from 0. Servers remove only containers, and some time
    /// later, so the directory is removed here when this contender was the last in it.
    async fn leave_full_directory(&self, entered: &Entered) -> Setback {
        let directory = &self.spot.directory;
        let reason = format!(
            "the sequence numbers of {directory} are used up; the lock is available again when all who hold it or wait for it \
             have left"
        );
        let refused = Setback::Failed(Error::no_answer(self.zk.config().url(), reason));
        let refused = self.give_up(refused, Some(Trace::Node(self.spot.path(&entered.name)))).await;
        // Refused by the server unless nobody is in the directory.
        match self.unless_interrupted(self.session.delete(directory)).await {
            Ok(Ok(())) => Setback::Again,
            Ok(Err(_)) => refused,
            Err(setback) => setback,
        }
    }

    /// After a create without an answer: whether it was done. Looks for the own unique id, once a later write of the
    /// session is committed. A create that is not there by then never comes: it went down a connection that is closed, and a
    /// server that still had it would find the session moved on.
    async fn recover(&self) -> Result<Option<(Entered, Vec<String>)>, Setback> {
        match self.unless_interrupted(self.repeated(|| find(&self.session, &self.spot))).await {
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

    /// The first definite answer to a request.
    pub(crate) async fn repeated<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut backoff = patience();
        loop {
            self.session.connected().await;
            match ask().await {
                Err(error) if outcome(&error).may_pass() => self.zk.clock().sleep(backoff.pause()).await,
                other => return other,
            }
        }
    }

    /// Runs `future`, unless the caller stops, the connection is closed, or the session fails before it is ready.
    pub(crate) async fn unless_interrupted<F: Future>(&self, future: F) -> Result<F::Output, Setback> {
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

    pub(crate) fn refused(&self, error: ClientError) -> Setback {
        if error == ClientError::NoChildrenForEphemerals {
            return self.wrong_strategy(Strategy::Herd);
        }
        Setback::Failed(Error::unavailable(self.zk.config().url(), "the request was refused", error))
    }

    /// The other strategy is in use for this name. The server itself keeps the two apart: what is a directory for one
    /// is a node without children for the other, so they never grant the same lock side by side.
    pub(crate) fn wrong_strategy(&self, there: Strategy) -> Setback {
        let (asked, name) = (self.zk.config().strategy, &self.request.name);
        let allowed = format!("{there}, with which the lock {name:?} is in use now: one strategy for all who use it");
        Setback::Failed(Error::config("strategy", asked.to_string(), allowed))
    }

    /// Withdraws what the attempt has on the server: waits for one try, and leaves the rest to the cleanup.
    pub(crate) async fn give_up(&self, setback: Setback, trace: Option<Trace>) -> Setback {
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
    let children = session.list_settled(&spot.directory).await?;
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
        let session = Session::open(Arc::new(config), Clock::boot(), true).await.unwrap();
        let spot = Spot {
            directory: "/locks/own".into(),
            unique: "me".into(),
            prefix: queue::prefix("me", session.id(), Kind::Exclusive).into(),
            removed: Arc::default(),
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

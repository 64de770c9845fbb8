//! One acquisition: a contender's way to its lease.
//!
//! It runs on the session's own thread and owns what it has on the server at each moment, so that however it ends, it
//! leaves a lease or nothing.

mod full;
mod queue;
mod sole;

use std::{sync::Arc, time::Duration};

use lock_core::{Error, Request, Wait, safeguard};
use tokio_util::sync::CancellationToken;

use crate::{
    Strategy,
    config::NAME,
    connection::Connection,
    lease::ZkLease,
    node_path::NodePath,
    protocol::{
        queue::{self as names, ContenderKind, Layout, NameForm},
        watch_budget::waiter_watches,
    },
    session::{ActiveSession, ContenderNode, Session, SessionFailure, retry_backoff},
    wire::{CreateMode, Outcome, RequestError},
    withdraw::{Leftover, ONE_TRY, PendingCreate, withdraw},
};

/// How often a contender starts over because its node or its directory vanished, before it reports that.
const FRESH_STARTS: u32 = 16;

/// How often a contender looks again because its session is not certain to live, at most, per tick.
const LOOKS_PER_TICK: u32 = 4;

/// Why an attempt did not end in a grant, and whether the acquisition starts another attempt.
enum AttemptError {
    /// Its place in the queue is gone for sure, or ended with its session.
    Restart,
    /// The acquisition has failed.
    Failed(Error),
}

/// Acquires, for as long as it is not told to stop and the servers are not out of reach for too long.
pub(crate) async fn acquire(zk: &Connection, request: &Request, stop: &CancellationToken) -> Result<ZkLease, Error> {
    let Some(kind) = ContenderKind::of(request.mode) else {
        return Err(Error::Unsupported { feature: "this mode", backend: NAME, setting: None });
    };
    let layout = zk.config().layout;
    // kazoo's clients read a contender's data as text.
    // Safeguard: what is no text is not shown to kazoo's clients (ZooKeeper)
    if layout == Layout::Kazoo && std::str::from_utf8(&request.payload).is_err() {
        let payload = String::from_utf8_lossy(&request.payload);
        return Err(Error::config(
            "payload",
            payload,
            "UTF-8, with layout=kazoo, whose clients read it as their identifier",
        ));
    }
    let directory: Arc<str> = zk.directory(&request.name)?.into();
    let form = NameForm::of(layout, request.by_rwlock);
    let unique = (!safeguard("own-session")).then(|| zk.context().unique_id());
    for _ in 0..FRESH_STARTS {
        let reservation = tokio::select! {
            biased;
            () = zk.closed().cancelled() => return Err(Error::Closed),
            () = stop.cancelled() => return Err(Error::Cancelled),
            reservation = zk.reserve(waiter_watches(&directory)) => reservation?,
        };
        let unique = form.unique(unique.clone().unwrap_or_else(|| zk.context().unique_id()));
        let active = reservation.activated();
        let path = NodePath {
            directory: Arc::clone(&directory),
            prefix: names::prefix(form, &unique, active.session().id(), kind).into(),
            unique: unique.into(),
            removed: Arc::default(),
        };
        match Attempt::new(zk, active, request, stop, path).run().await {
            Ok(lease) => return Ok(lease),
            Err(AttemptError::Restart) => {}
            Err(AttemptError::Failed(error)) => return Err(error),
        }
    }
    Err(Error::no_answer(zk.config().url(), "the contender's node vanished again and again"))
}

/// One attempt to acquire a lock within one ZooKeeper session.
struct Attempt<'a> {
    zk: &'a Connection,
    session: Arc<Session>,
    /// Keeps the session alive by writes, and watches for the attempt in it.
    active: ActiveSession,
    request: &'a Request,
    stop: &'a CancellationToken,
    path: NodePath,
}

impl<'a> Attempt<'a> {
    fn new(
        zk: &'a Connection,
        active: ActiveSession,
        request: &'a Request,
        stop: &'a CancellationToken,
        path: NodePath,
    ) -> Self {
        let session = Arc::clone(active.session());
        Self { zk, session, active, request, stop, path }
    }

    async fn run(&self) -> Result<ZkLease, AttemptError> {
        if self.zk.config().strategy == Strategy::Herd {
            return self.take().await;
        }
        let (entered, children) = self.enter().await?;
        // Safeguard: whoever is given a number near the end of the counter withdraws (ZooKeeper)
        if names::is_out_of_numbers(&entered.name) {
            return Err(self.leave_full_directory(&entered).await);
        }
        self.queue(&entered, children).await
    }

    /// Puts the contender's node into the queue. Returns it with the directory's children at a later moment.
    async fn enter(&self) -> Result<(ContenderNode, Vec<String>), AttemptError> {
        if !safeguard("own-session")
            && let Some(found) = self.recover().await?
        {
            return Ok(found);
        }
        let mut backoff = retry_backoff();
        for _ in 0..FRESH_STARTS {
            if let Err(failure) = self.unless_interrupted(self.session.connected()).await {
                return Err(self.give_up(failure, None).await);
            }
            let creating = Arc::clone(&self.session).enter(self.path.clone(), Arc::clone(&self.request.payload));
            let mut creating: PendingCreate = Box::pin(creating);
            let (created, listed) = match self.unless_interrupted(&mut creating).await {
                Ok(answers) => answers,
                Err(failure) => return Err(self.give_up(failure, Some(Leftover::UnderWay(creating))).await),
            };
            match created {
                Ok(entered) if entered.owner != self.session.id() => return Err(AttemptError::Restart),
                Ok(entered) => {
                    let children = match listed {
                        // Safeguard: the list that came with the create is enough for a grant (ZooKeeper)
                        Ok(children) => children,
                        Err(_) => self.list(&entered).await?,
                    };
                    return Ok((entered, children));
                }
                Err(RequestError::NoNode) => {
                    let making = self.session.make_directory(&self.path.directory, self.directory_mode());
                    match self.unless_interrupted(making).await? {
                        Err(error) if error.outcome() == Outcome::Refused && !matches!(error, RequestError::NoNode) => {
                            return Err(self.refused(error));
                        }
                        Ok(()) => continue,
                        // Unknown, or gone again: the next create tells.
                        _ => {}
                    }
                }
                Err(error) => match error.outcome() {
                    Outcome::Refused => return Err(self.refused(error)),
                    Outcome::SessionEnded => return Err(AttemptError::Restart),
                    Outcome::Throttled => {}
                    Outcome::Unknown if !safeguard("unique-id") => {}
                    Outcome::Unknown => {
                        // Safeguard: catalogue: an unanswered create is looked for (ZooKeeper)
                        if let Some(found) = self.recover().await? {
                            return Ok(found);
                        }
                    }
                },
            }
            self.unless_interrupted(self.zk.clock().sleep(backoff.pause())).await?;
        }
        Err(AttemptError::Restart)
    }

    /// How the lock's directory is made. Curator makes containers, too, and makes one anew that is gone; kazoo's clients look for
    /// it once, so it has to stay.
    fn directory_mode(&self) -> CreateMode {
        match self.zk.config().layout {
            // Safeguard: a directory that kazoo's clients use stays (ZooKeeper)
            Layout::Kazoo => CreateMode::Persistent,
            Layout::Native | Layout::Curator => CreateMode::Container,
        }
    }

    /// After a create without an answer: whether it was done. Looks for the own unique id, once a later write of the
    /// session is committed. A create that is not there by then never comes: it went down a connection that is closed, and a
    /// server that still had it would find the session moved on.
    async fn recover(&self) -> Result<Option<(ContenderNode, Vec<String>)>, AttemptError> {
        match self.unless_interrupted(self.repeated(|| find(&self.session, &self.path))).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(RequestError::NoNode)) => Ok(None),
            Ok(Err(error)) if error.outcome() == Outcome::SessionEnded => Err(AttemptError::Restart),
            Ok(Err(error)) => {
                let refused = self.refused(error);
                Err(self.give_up(refused, Some(Leftover::Unknown)).await)
            }
            Err(failure) => Err(self.give_up(failure, Some(Leftover::Unknown)).await),
        }
    }

    /// The first definite answer to a request.
    async fn repeated<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, RequestError>>,
    {
        let mut backoff = retry_backoff();
        loop {
            self.session.connected().await;
            match ask().await {
                // Safeguard: what is not answered is asked again after a pause (ZooKeeper)
                Err(error) if error.outcome().may_pass() => self.zk.clock().sleep(backoff.pause()).await,
                other => return other,
            }
        }
    }

    /// Runs `future`, unless the caller stops, the connection is closed, or the session fails before it is ready.
    async fn unless_interrupted<F: Future>(&self, future: F) -> Result<F::Output, AttemptError> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.zk.closed().cancelled() => Err(AttemptError::Failed(Error::Closed)),
            () = self.stop.cancelled() => Err(AttemptError::Failed(Error::Cancelled)),
            failure = self.session_fails() => Err(failure),
        }
    }

    /// Resolves when the session is of no use to the attempt any more. One that waits outlasts a disconnection, which it reports;
    /// one that does not wait gives up after the limit for an answer.
    async fn session_fails(&self) -> AttemptError {
        if self.request.wait == Wait::UntilStopped {
            self.session.report(&self.request.outage).await;
            return AttemptError::Restart;
        }
        let limit = self.zk.config().response_timeout;
        match self.session.failed(limit).await {
            SessionFailure::Ended => AttemptError::Restart,
            SessionFailure::Outage => {
                let reason = format!("disconnected for {limit:?}");
                AttemptError::Failed(Error::no_answer(self.zk.config().url(), reason))
            }
        }
    }

    fn refused(&self, error: RequestError) -> AttemptError {
        if matches!(error, RequestError::NoChildrenForEphemerals) {
            return self.wrong_strategy(Strategy::Herd);
        }
        AttemptError::Failed(Error::refused(self.zk.config().url(), "the request was refused", Some(error.into())))
    }

    /// The other strategy is in use for this name. The server itself keeps the two apart: what is a directory for one
    /// is a node without children for the other, so they never grant the same lock side by side.
    fn wrong_strategy(&self, there: Strategy) -> AttemptError {
        let (asked, name) = (self.zk.config().strategy, &self.request.name);
        let allowed = format!("{there}, with which the lock {name:?} is in use now: one strategy for all who use it");
        AttemptError::Failed(Error::config("strategy", asked.to_string(), allowed))
    }

    /// Withdraws what the attempt has on the server: waits for one try, and leaves the rest to the cleanup.
    async fn give_up(&self, failure: AttemptError, leftover: Option<Leftover>) -> AttemptError {
        let (Some(leftover), AttemptError::Failed(_)) = (leftover, &failure) else { return failure };
        let gone = withdraw(&self.session, &self.path, leftover);
        tokio::select! {
            biased;
            () = gone.cancelled() => {}
            _ = self.session.failed(Duration::ZERO) => {}
            () = self.zk.clock().sleep(ONE_TRY) => {}
        }
        failure
    }
}

/// The own node by its unique id, and the children that it is among; only if it lives and dies with this session. One
/// that was left by another session goes with that, and is not ours.
async fn find(session: &Session, path: &NodePath) -> Result<Option<(ContenderNode, Vec<String>)>, RequestError> {
    let children = session.list_settled(&path.directory).await?;
    for name in names::made_by(&children, &path.unique, session.id()) {
        match session.read(&path.of(name)).await {
            // Safeguard: a node found again belongs to the present session (ZooKeeper)
            // Safeguard: catalogue: a node of another session is not taken (ZooKeeper)
            Ok((_, stat)) if stat.ephemeral_owner == session.id() => {
                let entered = ContenderNode::new(name.to_owned(), &stat);
                return Ok(Some((entered, children)));
            }
            Ok((_, stat)) if !safeguard("own-session") => {
                return Ok(Some((ContenderNode::new(name.to_owned(), &stat), children)));
            }
            Ok(_) | Err(RequestError::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::Context;
    use zookeeper_client::{Acls, Client, CreateMode};

    use super::*;
    use crate::{Config, wire};

    #[tokio::test]
    async fn a_node_that_is_called_like_the_own_one_but_belongs_to_another_session_is_not_ours() {
        let server = lock_lab::servers::ZooKeeper::start(1).await.unwrap();
        let port = server.ports()[0];
        let config = Config::new([("127.0.0.1", port)]).with_tick_time(Duration::from_millis(100));
        let session = Session::open(Arc::new(config), Context::current(), true).await.unwrap();
        let path = NodePath {
            directory: "/locks/own".into(),
            unique: "me".into(),
            prefix: names::prefix(NameForm::Native, "me", session.id(), ContenderKind::Exclusive).into(),
            removed: Arc::default(),
        };
        session.make_directory(&path.directory, wire::CreateMode::Container).await.unwrap();
        let other = Client::connector().with_session_timeout(Duration::from_secs(60));
        let other = other.connect(&format!("127.0.0.1:{port}")).await.unwrap();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        other.create(&path.of(&path.prefix), b"", &options).await.unwrap();
        assert_eq!(find(&session, &path).await.unwrap(), None);

        let (created, listed) = Arc::clone(&session).enter(path.clone(), Arc::new([])).await;
        let found = find(&session, &path).await.unwrap();
        assert_eq!(found, Some((created.unwrap(), listed.unwrap())));
        session.close();
    }
}

//! Following a lock: by one watch on its directory, set anew with each look.
//!
//! Nothing is kept for a consumer that is slow: the next look is taken when it asks for the next item, and one-shot watches
//! tell that something changed since the last one, however often. So several changes may become one item, and no change
//! is missed altogether: the watch is set by the same request that lists the directory.

use std::{sync::Arc, time::Duration};

use futures::stream::{self, BoxStream};
use lock_core::{Backoff, Error, LockName, Snapshot};

use crate::{
    Strategy,
    connection::Connection,
    inspect::{self, KnownContenders},
    protocol::watch_budget::one_watch,
    session::{Session, SessionFailure, WatchReservation},
    wire::{RequestError, Watch},
};

/// The state that a stream which watches one lock keeps between two items.
struct WatchState {
    zk: Arc<Connection>,
    name: LockName,
    /// What is watched in which session, from the look before.
    watching: Option<(WatchReservation, Watch)>,
    known: KnownContenders,
    backoff: Backoff,
    /// Nothing new was learned since that failure: wait a little before the next try.
    failed: bool,
}

/// The result of one look at a lock: the snapshot, the contenders known from it, and the watch set with it.
type LookResult = (Snapshot, KnownContenders, WatchReservation, Watch);

/// How `name` is now, and again whenever something changed. Ends when the connection is closed.
pub(crate) fn follow(zk: Arc<Connection>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let following = WatchState { zk, name, watching: None, known: KnownContenders::new(), backoff, failed: false };
    Box::pin(stream::unfold(following, |mut following| async move {
        let closed = following.zk.closed().clone();
        let item = closed.run_until_cancelled(following.next()).await?;
        Some((item, following))
    }))
}

impl WatchState {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        if self.failed {
            self.zk.clock().sleep(self.backoff.pause()).await;
        }
        let looked = match self.changed().await {
            Ok(()) => self.look().await,
            Err(error) => Err(error),
        };
        self.failed = looked.is_err();
        let (snapshot, known, reservation, watch) = looked?;
        (self.known, self.watching) = (known, Some((reservation, watch)));
        self.backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        Ok(snapshot)
    }

    /// Resolves when something changed since the last look, or might have; an error when that cannot be known. The watch
    /// outlives an outage: the servers tell what was missed when the session is connected again.
    async fn changed(&mut self) -> Result<(), Error> {
        let Some((reservation, watch)) = self.watching.as_mut() else { return Ok(()) };
        let limit = self.zk.config().response_timeout;
        tokio::select! {
            biased;
            _ = watch => {}
            failure = reservation.session.failed(limit) => {
                if failure == SessionFailure::Outage {
                    return Err(Error::no_answer(self.zk.config().url(), format!("disconnected for {limit:?}")));
                }
            }
        }
        self.watching = None;
        Ok(())
    }

    /// Looks, on the connection's thread and to the end: should the stream be dropped meanwhile, the watch goes with the
    /// answer.
    async fn look(&mut self) -> Result<LookResult, Error> {
        let (name, known) = (self.name.clone(), std::mem::take(&mut self.known));
        self.zk.run(|zk| async move { look(&zk, &name, known).await }).await
    }
}

async fn look(zk: &Connection, name: &LockName, mut known: KnownContenders) -> Result<LookResult, Error> {
    let directory = zk.directory(name)?;
    let reservation = zk.reserve(one_watch(&directory)).await?;
    let session = &reservation.session;
    let looking = async {
        match zk.config().strategy {
            Strategy::Queue => watch_queue(session, &directory, &mut known).await,
            Strategy::Herd => watch_sole(session, &directory).await,
        }
    };
    let (snapshot, watch) = zk.while_connected(session, "a look at a lock", looking).await?;
    Ok((snapshot, known, reservation, watch))
}

async fn watch_queue(
    session: &Session,
    directory: &str,
    known: &mut KnownContenders,
) -> Result<(Snapshot, Watch), RequestError> {
    loop {
        match session.list_and_watch(directory).await {
            Ok((children, watcher)) => {
                return Ok((inspect::at_queue(session, directory, &children, known).await?, watcher));
            }
            Err(RequestError::NoNode) => {}
            Err(error) => return Err(error),
        }
        // Nobody was here yet, or the servers reaped the empty directory: its making is what to wait for.
        let (there, watcher) = session.watch_for(directory).await?;
        if there.is_none() {
            return Ok((Snapshot::default(), watcher));
        }
    }
}

async fn watch_sole(session: &Session, path: &str) -> Result<(Snapshot, Watch), RequestError> {
    let (_, watcher) = session.watch_for(path).await?;
    Ok((inspect::at_sole(session, path).await?, watcher))
}

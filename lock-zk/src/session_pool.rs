//! The sessions of a connection: one, and more only while there are more watches than one can have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{BootInstant, Context, Error};

use crate::{
    Config,
    session::{OpenError, Session, WatchReservation},
};

/// The open ZooKeeper sessions of one connection, from which each attempt takes one with room for its watches.
#[derive(Debug, Default)]
pub(crate) struct SessionPool {
    /// Those that are open, oldest first.
    open: Mutex<Vec<Arc<Session>>>,
    /// The last attempt to open one that failed, and when it did. Locked while one is opened, so that all who need one
    /// wait for one attempt.
    opening: tokio::sync::Mutex<Option<(BootInstant, OpenError)>>,
}

impl SessionPool {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches of `bytes` in the oldest session that has room for them.
    fn find(&self, bytes: usize) -> Option<WatchReservation> {
        let mut open = self.open();
        // Safeguard: catalogue: a session that has ended is followed by another (ZooKeeper)
        open.retain(|session| !session.is_ended());
        open.iter().find_map(|session| session.reserve(bytes))
    }

    /// Watches of `bytes`, in a new session when no other has room for them. Where the connection's tasks run only: a
    /// session lives where it was opened.
    pub(crate) async fn reserve(
        &self,
        config: &Arc<Config>,
        context: &Context,
        bytes: usize,
    ) -> Result<WatchReservation, Error> {
        let clock = context.clock();
        let arrived = clock.now();
        loop {
            if let Some(reservation) = self.find(bytes) {
                return Ok(reservation);
            }
            let mut opening = self.opening.lock().await;
            if let Some(reservation) = self.find(bytes) {
                return Ok(reservation);
            }
            // The attempt that this caller waited for was its own as well: it does not begin another one.
            // Safeguard: the failure of an attempt to connect is shared (ZooKeeper)
            if let Some((_, failure)) = opening.as_ref().filter(|(failed, _)| *failed >= arrived) {
                return Err(failure.clone().into_error(config));
            }
            let is_only = self.open().is_empty();
            match Session::open(Arc::clone(config), context.clone(), is_only).await {
                Ok(session) => {
                    *opening = None;
                    self.open().push(session);
                }
                Err(failure) => {
                    *opening = Some((clock.now(), failure.clone()));
                    return Err(failure.into_error(config));
                }
            }
        }
    }

    /// All sessions, of which none is the pool's any more.
    pub(crate) async fn take(&self) -> Vec<Arc<Session>> {
        // Whoever opens one right now is told that the connection is closed.
        let _opening = self.opening.lock().await;
        std::mem::take(&mut *self.open())
    }

    /// As [`SessionPool::take`], without those that are being opened.
    pub(crate) fn take_now(&self) -> Vec<Arc<Session>> {
        std::mem::take(&mut *self.open())
    }
}

/// Resolves when all of them have ended.
pub(crate) async fn terminated(sessions: &[Arc<Session>]) {
    futures::future::join_all(sessions.iter().map(|session| session.terminated())).await;
}

//! The sessions of a connection: one, and more only while there are more watches than one can have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{BootInstant, Clock, Error};

use crate::{
    Config,
    session::{Room, Session, Unopened},
};

/// The sessions of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Those that are open, oldest first.
    open: Mutex<Vec<Arc<Session>>>,
    /// The last attempt to open one that failed, and when it did. Locked while one is opened, so that all who need one
    /// wait for one attempt.
    opening: tokio::sync::Mutex<Option<(BootInstant, Unopened)>>,
}

impl Pool {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for watches of `bytes` in the oldest session that has it.
    fn find(&self, bytes: usize) -> Option<Room> {
        let mut open = self.open();
        open.retain(|session| !session.is_ended());
        open.iter().find_map(|session| session.room(bytes))
    }

    /// Room for watches of `bytes`, in a new session when no other has it. On the connection's thread only: a session
    /// lives where it was opened.
    pub(crate) async fn room(&self, config: &Arc<Config>, clock: Clock, bytes: usize) -> Result<Room, Error> {
        let arrived = clock.now();
        loop {
            if let Some(room) = self.find(bytes) {
                return Ok(room);
            }
            let mut opening = self.opening.lock().await;
            if let Some(room) = self.find(bytes) {
                return Ok(room);
            }
            // The attempt that this caller waited for was its own as well: it does not begin another one.
            if let Some((_, failure)) = opening.as_ref().filter(|(failed, _)| *failed >= arrived) {
                return Err(failure.clone().into_error(config));
            }
            let is_only = self.open().is_empty();
            match Session::open(Arc::clone(config), clock, is_only).await {
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

    /// As [`Pool::take`], without those that are being opened.
    pub(crate) fn take_now(&self) -> Vec<Arc<Session>> {
        std::mem::take(&mut *self.open())
    }
}

/// Resolves when all of them have ended.
pub(crate) async fn terminated(sessions: &[Arc<Session>]) {
    futures::future::join_all(sessions.iter().map(|session| session.terminated())).await;
}

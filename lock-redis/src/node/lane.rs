//! Requests that count only when replicas have them: a script and `WAIT`, down one connection.
//!
//! `WAIT` answers for what was written on its own connection, so another one would prove nothing. And it keeps that
//! connection from answering anything else meanwhile, so it is none of those that other requests share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Connection, Node, NodeError, Replicas, ScriptCall};

/// How many acquisitions wait for replicas at a time, each on a connection of its own; further ones wait for these.
const ACQUIRING: usize = 16;

/// Renewals come in bursts, one after the other.
const RENEWING: usize = 2;

/// What a lane is for. They do not wait for each other: a renewal is not stuck behind acquisitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Acquiring,
    Renewing,
}

/// The connections of one node that wait for replicas.
pub(super) struct Lanes {
    acquiring: Arc<Pool>,
    renewing: Arc<Pool>,
}

struct Pool {
    idle: Mutex<Vec<Connection>>,
    places: Arc<Semaphore>,
}

/// A connection for requests that count only when enough replicas have them; the shared one, where none need to.
pub(crate) struct Lane {
    connection: Connection,
    own: Option<Own>,
}

struct Own {
    replicas: Replicas,
    pool: Arc<Pool>,
    /// Something was sent that has not been answered.
    is_busy: AtomicBool,
    _place: OwnedSemaphorePermit,
}

impl Default for Lanes {
    fn default() -> Self {
        let pool = |places| Arc::new(Pool { idle: Mutex::default(), places: Arc::new(Semaphore::new(places)) });
        Self { acquiring: pool(ACQUIRING), renewing: pool(RENEWING) }
    }
}

impl Lanes {
    pub(super) fn close(&self) {
        [&self.acquiring, &self.renewing].into_iter().for_each(|pool| pool.idle(Vec::clear));
    }
}

impl Pool {
    fn idle<T>(&self, work: impl FnOnce(&mut Vec<Connection>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Node {
    /// A lane; the present connection itself, where no replica needs to acknowledge anything.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn lane(&self, purpose: Purpose) -> Result<Lane, NodeError> {
        // Also where it is not used: it shares the failure of a server that is out among all who ask.
        let connection = self.connection().await?;
        let Some(replicas) = self.config().replicas else { return Ok(Lane { connection, own: None }) };
        let lanes = &self.shared.lanes;
        let pool = Arc::clone(if purpose == Purpose::Acquiring { &lanes.acquiring } else { &lanes.renewing });
        let place = Arc::clone(&pool.places).acquire_owned().await.map_err(|_| NodeError::closed())?;
        let known = pool.idle(|idle| {
            idle.retain(|connection| !connection.is_broken());
            idle.pop()
        });
        let connection = match known {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Lane { connection, own: Some(Own { replicas, pool, is_busy: AtomicBool::new(false), _place: place }) })
    }
}

impl Lane {
    /// The connection itself, for what no replica needs to acknowledge.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether replicas have to acknowledge what is written.
    pub(crate) const fn is_acknowledged(&self) -> bool {
        self.own.is_some()
    }

    /// Runs `calls` in one burst, and says whether enough replicas have all that they wrote.
    pub(crate) async fn run(&self, calls: &[ScriptCall]) -> (Vec<Result<Value, NodeError>>, Result<(), NodeError>) {
        let Some(own) = &self.own else { return self.connection.run_acknowledged(calls, None).await };
        own.is_busy.store(true, Ordering::Release);
        let replicas = Some(own.replicas);
        // Safeguard: replicas are waited for behind the scripts, on their connection (Redis)
        let (answers, acknowledged) = self.connection.run_acknowledged(calls, replicas).await;
        own.is_busy.store(false, Ordering::Release);
        (answers, acknowledged)
    }
}

/// A connection on which nothing waits for replicas.
impl From<Connection> for Lane {
    fn from(connection: Connection) -> Self {
        Self { connection, own: None }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let Some(own) = &self.own else { return };
        if !own.is_busy.load(Ordering::Acquire) && !self.connection.is_broken() {
            own.pool.idle(|idle| idle.push(self.connection.clone()));
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("connection", &self.connection).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_as_many_acknowledgements_as_are_wanted_are_enough() {
        let wanted = Replicas::new(2, Duration::from_millis(50));
        assert!(wanted.judge(Ok(Value::Int(2))).is_ok() && wanted.judge(Ok(Value::Int(3))).is_ok());
        let error = wanted.judge(Ok(Value::Int(1))).unwrap_err().to_string();
        assert!(error.contains("min_replicas=2") && error.contains("1 of 2"), "{error}");
        assert!(wanted.judge(Ok(Value::Nil)).is_err());
    }
}

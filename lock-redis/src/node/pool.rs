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

/// Which pool a connection is taken from: acquisitions and renewals have one each, so that a renewal does not wait for
/// acquisitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolPurpose {
    Acquiring,
    Renewing,
}

/// The pools of connections on which requests to one node wait for `WAIT`, one pool for acquisitions and one for renewals.
pub(super) struct ConnectionPools {
    acquiring: Arc<ConnectionPool>,
    renewing: Arc<ConnectionPool>,
}

/// Idle connections, and the permits that limit how many connections are in use.
struct ConnectionPool {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

/// A connection for requests that count only when enough replicas have them: from a pool, or the node's shared connection where
/// no replica needs to acknowledge anything.
pub(crate) struct PooledConnection {
    connection: Connection,
    loan: Option<PoolLoan>,
}

/// The loan of a connection from its [`ConnectionPool`], to which the connection goes back unless an answer is outstanding.
struct PoolLoan {
    replicas: Replicas,
    pool: Arc<ConnectionPool>,
    /// Something was sent that has not been answered.
    is_busy: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

impl Default for ConnectionPools {
    fn default() -> Self {
        let pool =
            |permits| Arc::new(ConnectionPool { idle: Mutex::default(), permits: Arc::new(Semaphore::new(permits)) });
        Self { acquiring: pool(ACQUIRING), renewing: pool(RENEWING) }
    }
}

impl ConnectionPools {
    pub(super) fn close(&self) {
        [&self.acquiring, &self.renewing].into_iter().for_each(|pool| pool.idle(Vec::clear));
    }
}

impl ConnectionPool {
    fn idle<T>(&self, work: impl FnOnce(&mut Vec<Connection>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Node {
    /// A connection from a pool; the present connection itself, where no replica needs to acknowledge anything.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn pooled(&self, purpose: PoolPurpose) -> Result<PooledConnection, NodeError> {
        // Also where it is not used: it shares the failure of a server that is out among all who ask.
        let connection = self.connection().await?;
        let Some(replicas) = self.config().replicas else { return Ok(PooledConnection { connection, loan: None }) };
        let pools = &self.shared.pools;
        let pool = Arc::clone(if purpose == PoolPurpose::Acquiring { &pools.acquiring } else { &pools.renewing });
        let permit = Arc::clone(&pool.permits).acquire_owned().await.map_err(|_| NodeError::closed())?;
        let known = pool.idle(|idle| {
            idle.retain(|connection| !connection.is_broken());
            idle.pop()
        });
        let connection = match known {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(PooledConnection {
            connection,
            loan: Some(PoolLoan { replicas, pool, is_busy: AtomicBool::new(false), _permit: permit }),
        })
    }
}

impl PooledConnection {
    /// The connection itself, for what no replica needs to acknowledge.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether replicas have to acknowledge what is written.
    pub(crate) const fn is_acknowledged(&self) -> bool {
        self.loan.is_some()
    }

    /// Runs `calls` in one burst, and says whether enough replicas have all that they wrote.
    pub(crate) async fn run(&self, calls: &[ScriptCall]) -> (Vec<Result<Value, NodeError>>, Result<(), NodeError>) {
        let Some(loan) = &self.loan else { return self.connection.run_acknowledged(calls, None).await };
        loan.is_busy.store(true, Ordering::Release);
        let replicas = Some(loan.replicas);
        // Safeguard: replicas are waited for behind the scripts, on their connection (Redis)
        let (answers, acknowledged) = self.connection.run_acknowledged(calls, replicas).await;
        loan.is_busy.store(false, Ordering::Release);
        (answers, acknowledged)
    }
}

/// A connection on which nothing waits for replicas.
impl From<Connection> for PooledConnection {
    fn from(connection: Connection) -> Self {
        Self { connection, loan: None }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(loan) = &self.loan else { return };
        if !loan.is_busy.load(Ordering::Acquire) && !self.connection.is_broken() {
            loan.pool.idle(|idle| idle.push(self.connection.clone()));
        }
    }
}

impl fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledConnection").field("connection", &self.connection).finish_non_exhaustive()
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

//! The SPI.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{Backend, Capabilities, Context, Error, Feature, Lease, LockName, Request, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Strategy, attempt, config::NAME, connection::Connection, inspect, protocol::watch_budget::NO_WATCH, watch,
};

/// A connection to a ZooKeeper ensemble: one session for its locks, or several when they are many, on a thread of its own.
///
/// Dropping it ends the session in the background; [`Backend::close`] waits for that and reports.
#[derive(Debug)]
pub struct ZooKeeper {
    connection: Arc<Connection>,
}

impl ZooKeeper {
    /// Connects: a session is open when it returns.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no server opened a session within the connect limit, [`Error::Config`] when the
    /// settings cannot work, alone or with what the servers made of the session's time-out.
    ///
    /// # Cancel safety
    /// When the future is dropped, the session ends in the background.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current()).await
    }

    /// As [`ZooKeeper::connect`], with the clock, the tasks and the ids of `context`. Where that is not of this machine, there
    /// is no thread, and the connection's tasks run in it, too.
    ///
    /// # Errors
    /// As [`ZooKeeper::connect`].
    ///
    /// # Cancel safety
    /// As [`ZooKeeper::connect`].
    pub async fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        let zk = Self { connection: Arc::new(Connection::new(config.checked()?, context)?) };
        zk.connection.run(|connection| async move { connection.reserve(NO_WATCH).await.map(drop) }).await?;
        Ok(Arc::new(zk))
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.connection.abandon();
    }
}

#[async_trait]
impl Backend for ZooKeeper {
    fn context(&self) -> &Context {
        self.connection.context()
    }

    fn capabilities(&self) -> Capabilities {
        let (strategy, layout) = (self.connection.config().strategy, self.connection.config().layout);
        let any = Capabilities::new(NAME).with(Feature::Expiry).with(Feature::ClocklessToken);
        if strategy == Strategy::Herd {
            return any;
        }
        let line = any.with(Feature::Fifo).with(Feature::Queue).with(Feature::ReadWrite).with(Feature::Downgrade);
        if layout.is_foreign() { line } else { line.with(Feature::Semaphore) }
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        // Stops the contender should this future be dropped against the rule, as by a runtime that shuts down.
        let stop = stop.child_token();
        let _stop = stop.clone().drop_guard();
        let lease = self.connection.run(|zk| async move { attempt::acquire(&zk, &request, &stop).await }).await?;
        Ok(Box::new(lease))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let name = name.clone();
        self.connection.run(|zk| async move { inspect::inspect(&zk, &name).await }).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        // Not of `self`: a stream that somebody keeps must not keep the connection.
        watch::follow(Arc::clone(&self.connection), name)
    }

    async fn close(&self, limit: Duration) {
        self.connection.close(limit).await;
    }
}

//! The SPI.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{Backend, Capabilities, Contender, Context, Error, Feature, Lease, LockName, Request, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Layout, Strategy, attempt, config::NAME, connection::Connection, inspect, listing,
    protocol::watch_budget::NO_WATCH, revoke, watch,
};

/// What the strategy `queue` has and the other one has not.
const OF_THE_QUEUE: [Feature; 4] = [Feature::Fifo, Feature::Queue, Feature::ReadWrite, Feature::Downgrade];

/// What the queue has in the layout of this library alone.
const OF_ONE_LAYOUT: [Feature; 3] = [Feature::Semaphore, Feature::Listing, Feature::ForcedRelease];

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
        let Config { strategy, layout, .. } = *self.connection.config();
        let any = Capabilities::new(NAME).with(Feature::Expiry).with(Feature::ClocklessToken);
        match (strategy, layout) {
            (Strategy::Herd, _) => any.withheld_by("strategy=herd", &OF_THE_QUEUE).with(Feature::Listing),
            (Strategy::Queue, Layout::Native) => any.with_all(&OF_THE_QUEUE).with_all(&OF_ONE_LAYOUT),
            (Strategy::Queue, Layout::Curator) => {
                any.with_all(&OF_THE_QUEUE).withheld_by("layout=curator", &OF_ONE_LAYOUT)
            }
            (Strategy::Queue, Layout::Kazoo) => any.with_all(&OF_THE_QUEUE).withheld_by("layout=kazoo", &OF_ONE_LAYOUT),
        }
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

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        let prefix = prefix.to_owned();
        self.connection.run(|zk| async move { listing::list(&zk, &prefix).await }).await
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
        let name = name.clone();
        self.connection.run(|zk| async move { revoke::revoke(&zk, &name, token).await }).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        // Not of `self`: a stream that somebody keeps must not keep the connection.
        watch::follow(Arc::clone(&self.connection), name)
    }

    async fn close(&self, limit: Duration) {
        self.connection.close(limit).await;
    }
}

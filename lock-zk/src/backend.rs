//! The SPI.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{Backend, Capabilities, Error, Feature, Lease, LockName, Mode, Request, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::{Config, connection::Connection, contend::contend};

/// A connection to a ZooKeeper ensemble: one session for all its locks, on a thread of its own.
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
    /// settings cannot work.
    ///
    /// # Cancel safety
    /// When the future is dropped, the session ends in the background.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        let zk = Self { connection: Arc::new(Connection::new(config.checked()?)?) };
        zk.connection.run(|connection| async move { connection.session().await.map(drop) }).await?;
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
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("zk")
            .with(Feature::Fifo)
            .with(Feature::Queue)
            .with(Feature::Expiry)
            .with(Feature::ClocklessToken)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        if request.mode != Mode::Exclusive {
            return Err(Error::Unsupported { feature: "this mode", backend: "zk" });
        }
        if request.ttl.is_some() {
            return Err(Error::Unsupported { feature: "a ttl for a single lock", backend: "zk" });
        }
        // Stops the contender should this future be dropped against the rule, as by a runtime that shuts down.
        let stop = stop.child_token();
        let _stop = stop.clone().drop_guard();
        let lease = self.connection.run(|zk| async move { contend(&zk, &request, &stop).await }).await?;
        Ok(Box::new(lease))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let name = name.clone();
        self.connection.run(|zk| async move { zk.inspect(&name).await }).await
    }

    async fn close(&self, limit: Duration) -> Result<(), Error> {
        self.connection.close(limit).await
    }
}

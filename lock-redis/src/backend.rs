//! The SPI.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{Backend, Capabilities, Context, Error, Feature, Lease, LockName, Request, Snapshot, Wait};
use tokio_util::sync::CancellationToken;

use crate::{
    attempt::{Tried, Wanted},
    client::Redis,
    config::settings::TTL,
    watch,
};

#[async_trait]
impl Backend for Redis {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities =
            Capabilities::new(self.config.deployment.scheme()).with_ttl(TTL.range()).with(Feature::Expiry);
        match &self.fifo {
            Some(_) => capabilities.with(Feature::Fifo).with(Feature::Queue).with(Feature::LockDelay),
            None => capabilities
                .with(Feature::ReadWrite)
                .with(Feature::Downgrade)
                .with(Feature::Semaphore)
                .with(Feature::LockDelay),
        }
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        if self.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        let wanted = Wanted::new(&self, &request)?;
        if let Some(fifo) = &self.fifo {
            return self.acquire_in_turn(fifo, &wanted, &stop).await;
        }
        if request.wait == Wait::UntilStopped {
            return self.wait(&wanted, &stop).await;
        }
        match self.try_once(&wanted, None, &stop).await {
            Ok(Tried::Granted(granted)) => Ok(self.grant(&request, granted)),
            Ok(Tried::Held(_) | Tried::InLine { .. }) => Err(Error::NotAcquired { name: request.name }),
            Ok(Tried::Permits(there)) => Err(wanted.disagreement(there)),
            Ok(Tried::Stopped) => Err(Error::Cancelled),
            Err(error) => Err(self.unavailable(error)),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        if self.fifo.is_some() {
            return self.look_at_the_line(name).await;
        }
        self.look(name).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        watch::followed(self, name)
    }

    async fn close(&self, _limit: Duration) {
        self.closed.cancel();
        self.servers().close();
    }
}

//! The SPI.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{Backend, Capabilities, Contender, Context, Error, Feature, Lease, LockName, Request, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, acquisition::Acquisition, client::Redlock, driver::BACKEND, inspect, listing, protocol::kind::LockKind,
    revoke, watch,
};

#[async_trait]
impl Backend for Redlock {
    fn context(&self) -> &Context {
        &self.quorum.context
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(BACKEND)
            .with_ttl(Config::ttls_up_to(self.quorum.max_ttl()))
            .with(Feature::Expiry)
            .with(Feature::ReadWrite)
            .with(Feature::Downgrade)
            .with(Feature::Listing)
            .with(Feature::ForcedRelease)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let unsupported = || Error::unsupported(request.mode.needs().unwrap_or(Feature::Semaphore), BACKEND);
        let kind = LockKind::of(request.mode).ok_or_else(unsupported)?;
        let lease = Acquisition::new(self, kind, request, stop).run().await?;
        Ok(Box::new(lease))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        inspect::inspect(&self.quorum, name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        listing::list(&self.quorum, prefix).await
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
        revoke::revoke(&self.quorum, name, token).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        watch::follow(Arc::clone(&self.quorum), name)
    }

    async fn close(&self, _limit: Duration) {
        self.quorum.close();
    }
}

//! The backend: connecting, looking, closing.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{Backend, Capabilities, Context, Error, Feature, Lease, LockName, Renewer, Request, Snapshot};
use lock_redis::token::Proposals;
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    acquisition::Acquisition,
    inspect,
    lease::{SharedLease, renewal::Renewals},
    members::identify,
    nodes::quorum::Quorum,
    protocol::kind::LockKind,
    waiters::Waiters,
    watch,
};

/// The name of this backend.
pub(crate) const BACKEND: &str = "redlock";

/// One connection to a deployment of independent Redis servers.
pub struct Redlock {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) proposals: Proposals,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) renewer: Renewer<SharedLease>,
}

impl Redlock {
    /// Connects to the servers of `config`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the connect limit when no majority of them answers, or no majority knows its
    /// deployment any more; [`Error::Config`] when a setting is not allowed or differs from the deployment's, when the
    /// servers are no deployment yet or of different ones, or two addresses lead to one and the same server.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current()).await
    }

    /// As [`Redlock::connect`], in a world of one's own.
    ///
    /// # Errors
    /// Those of [`Redlock::connect`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        config.check()?;
        let quorum = Arc::new(Quorum::new(config, context.clone()));
        let deployment = identify::connect(&quorum).await?;
        quorum.set_deployment(Arc::new(deployment));
        let renewals = Arc::new(Renewals(Arc::clone(&quorum)));
        Ok(Arc::new(Self {
            quorum,
            proposals: Proposals::new(context.clock()),
            waiters: Waiters::new(context.unique_id(), context.clock()),
            renewer: Renewer::new(&context, renewals),
        }))
    }
}

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

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        watch::follow(Arc::clone(&self.quorum), name)
    }

    async fn close(&self, _limit: Duration) {
        self.quorum.close();
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("url", &self.quorum.config.url()).finish_non_exhaustive()
    }
}

//! The SPI.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{Backend, Capabilities, Contender, Context, Error, Feature, Lease, LockName, Request, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Strategy, client::Client, config::settings::TTL, lease::Leases, listing, plain::PlainStrategy,
    queue::QueueStrategy, revoke, servers::Servers, watch,
};

/// What the strategy `queue` has and the other one has not.
const OF_THE_QUEUE: [Feature; 6] =
    [Feature::Fifo, Feature::Queue, Feature::ReadWrite, Feature::Downgrade, Feature::Semaphore, Feature::LockDelay];

/// A connection to Redis: one server, the primary that sentinels name, or a cluster.
pub struct Redis {
    client: Arc<Client>,
    strategy: ActiveStrategy,
}

/// The configured strategy, with its state, by which a connection acquires locks.
enum ActiveStrategy {
    Queue(QueueStrategy),
    Plain(PlainStrategy),
}

impl Redis {
    /// Connects to the servers of `config`. Its tasks run on the present runtime.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that is not allowed; [`Error::Unavailable`] when no primary answered
    /// within the connect limit.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current()).await
    }

    /// As [`Redis::connect`], in a world of one's own.
    ///
    /// # Errors
    /// Those of [`Redis::connect`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        config.check()?;
        let connected = Servers::connect(&config, &context).await;
        let servers = connected.map_err(|error| error.into_error(&config.url()))?;
        let client = Arc::new(Client::new(config, servers, context));
        let leases = Leases::new(&client);
        let strategy = match client.config.strategy {
            Strategy::Queue => ActiveStrategy::Queue(QueueStrategy::new(&client, leases)),
            Strategy::Plain { look_again } => ActiveStrategy::Plain(PlainStrategy::new(&client, leases, look_again)),
        };
        Ok(Arc::new(Self { client, strategy }))
    }
}

#[async_trait]
impl Backend for Redis {
    fn context(&self) -> &Context {
        &self.client.context
    }

    fn capabilities(&self) -> Capabilities {
        let scheme = self.client.config.deployment.scheme();
        let capabilities =
            Capabilities::new(scheme).with_ttl(TTL.range()).with(Feature::Expiry).with(Feature::ForcedRelease);
        match self.strategy {
            // Without a prefix nobody can tell which keys are locks.
            ActiveStrategy::Plain(_) if self.client.config.prefix.is_empty() => {
                capabilities.withheld_by("strategy=plain", &OF_THE_QUEUE)
            }
            ActiveStrategy::Plain(_) => {
                capabilities.withheld_by("strategy=plain", &OF_THE_QUEUE).with(Feature::Listing)
            }
            ActiveStrategy::Queue(_) => capabilities.with_all(&OF_THE_QUEUE).with(Feature::Listing),
        }
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        if self.client.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        match &self.strategy {
            ActiveStrategy::Queue(queue) => queue.acquire(&request, &stop).await,
            ActiveStrategy::Plain(plain) => plain.acquire(&request, &stop).await,
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        watch::look(&self.client, name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        listing::list(&self.client, prefix).await
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
        revoke::revoke(&self.client, name, token).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        watch::followed(Arc::clone(&self.client), name)
    }

    async fn close(&self, _limit: Duration) {
        self.client.closed.cancel();
        self.client.servers.close();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("config", &self.client.config).finish_non_exhaustive()
    }
}

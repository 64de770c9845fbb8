//! The SPI on Redis.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lock_core::{
    Backend, Capabilities, Cleanup, Clock, Context, Error, Feature, Lease, LockName, Renewer, Request, Snapshot,
    Validity, Wait, validity::deadline,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Queue,
    attempt::{Granted, Tried, Wanted},
    config::settings::TTL,
    fifo::Fifo,
    keys::Keys,
    kind::Holding,
    lease::{Held, RedisLease, Watchdog, give_back},
    lines::Lines,
    node::{Node, NodeError},
    scripts::Attempt,
    servers::Servers,
    token::Proposals,
    watch,
};

/// A renewal comes round this often in a ttl, so that two of them may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// A connection to Redis: one server, the primary that sentinels name, or a cluster.
pub struct Redis {
    config: Config,
    servers: Servers,
    context: Context,
    proposals: Proposals,
    renewer: Renewer<Held>,
    lines: Lines,
    /// The other way to wait.
    fifo: Option<Fifo>,
    closed: CancellationToken,
    /// What tells the waiters of this connection from those of others, and how many there were.
    id: String,
    waiters: AtomicU64,
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
        let fifo = (config.queue == Queue::Fifo).then(|| Fifo::new(&servers, &config.prefix, &context));
        let redis = Self {
            fifo,
            renewer: Renewer::new(&context, Arc::new(Watchdog { servers: servers.clone() })),
            config,
            servers,
            proposals: Proposals::new(context.clock()),
            lines: Lines::default(),
            closed: CancellationToken::new(),
            id: context.unique_id(),
            context,
            waiters: AtomicU64::new(0),
        };
        Ok(Arc::new(redis))
    }

    pub(crate) const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The node that has the lock of this name now.
    pub(crate) fn node_for(&self, name: &LockName) -> Node {
        self.servers.node_for(&self.keys(name))
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.context.clock()
    }

    pub(crate) const fn proposals(&self) -> &Proposals {
        &self.proposals
    }

    pub(crate) const fn cleanup(&self) -> &Cleanup {
        self.context.cleanup()
    }

    pub(crate) const fn lines(&self) -> &Lines {
        &self.lines
    }

    pub(crate) fn keys(&self, name: &LockName) -> Keys {
        Keys::new(&self.config.prefix, name)
    }

    /// A new attempt on that lock, told from all others by its value.
    pub(crate) fn attempt(&self, name: &LockName) -> Attempt {
        Attempt::known(self.keys(name), self.context.unique_id())
    }

    pub(crate) fn url(&self) -> String {
        self.config.url()
    }

    pub(crate) fn unavailable(&self, error: NodeError) -> Error {
        if self.closed.is_cancelled() { Error::Closed } else { error.into_error(&self.url()) }
    }

    pub(crate) const fn ttl(&self) -> Duration {
        self.config.ttl
    }

    pub(crate) const fn longest_silence(&self) -> Duration {
        self.config.look_again
    }

    pub(crate) const fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// A name that no other waiter has, on this connection or on another one.
    pub(crate) fn waiter_id(&self) -> String {
        format!("{}-{}", self.id, self.waiters.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a lease of a grant.
    pub(crate) fn grant(self: &Arc<Self>, request: &Request, granted: Granted) -> Box<dyn Lease> {
        let Granted { holding, number, sent_at, .. } = granted;
        self.proposals.seen(number);
        let validity = Validity::new(self.clock(), deadline(sent_at, holding.ttl));
        Box::new(self.hold(request.name.clone(), holding, number, validity))
    }

    /// Keeps what is held renewed from now on.
    pub(crate) fn hold(
        self: &Arc<Self>,
        name: LockName,
        holding: Holding,
        number: u64,
        validity: Validity,
    ) -> RedisLease {
        let every = holding.ttl / RENEWALS_PER_TTL;
        let is_passing_on = AtomicBool::new(false);
        let held = Arc::new(Held { name, holding, number, validity: validity.clone(), is_passing_on });
        let kept = self.renewer.keep(Arc::clone(&held), validity, every);
        RedisLease { held, kept, redis: Arc::clone(self) }
    }

    /// Has the cleanup release what could not be released, until it has ended by itself.
    pub(crate) fn leave_to_cleanup(&self, holdings: Vec<Holding>) {
        let ttl = holdings.iter().map(|holding| holding.ttl).max().unwrap_or_default();
        let until = self.clock().now().saturating_add(ttl);
        let (servers, url, holdings) = (self.servers.clone(), self.url(), Arc::new(holdings));
        self.cleanup().clean("a release without an answer", until, move || {
            let (servers, url, holdings) = (servers.clone(), url.clone(), Arc::clone(&holdings));
            async move {
                for holding in holdings.iter() {
                    give_back(&servers, holding).await.map_err(|error| error.into_error(&url))?;
                }
                Ok(())
            }
        });
    }
}

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
        self.servers.close();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("config", &self.config).finish_non_exhaustive()
    }
}

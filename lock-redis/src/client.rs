//! What every module of the backend works with: the servers, the keys, the clock.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_core::{Cleanup, Clock, Context, Error, LockName, Renewer};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Queue,
    fifo::Fifo,
    keys::Keys,
    lines::Lines,
    node::{Node, NodeError},
    renewal::{Held, Watchdog},
    scripts::Attempt,
    servers::Servers,
    token::Proposals,
};

/// A connection to Redis: one server, the primary that sentinels name, or a cluster.
pub struct Redis {
    pub(crate) config: Config,
    servers: Servers,
    pub(crate) context: Context,
    proposals: Proposals,
    pub(crate) renewer: Renewer<Held>,
    lines: Lines,
    /// The other way to wait.
    pub(crate) fifo: Option<Fifo>,
    pub(crate) closed: CancellationToken,
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
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("config", &self.config).finish_non_exhaustive()
    }
}

//! The backend: connecting, looking, closing.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::{future::join_all, stream::BoxStream};
use lock_core::{Backend, Capabilities, Error, Feature, Keeper, Lease, LockName, Request, Snapshot};
use lock_redis::token::Proposals;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    Config, acquisition::Acquisition, changes, kind::Kind, lease::Held, look, member, panel::Panel, renewal::Renewals,
    waiting::Waiters,
};

/// The name of this backend.
const BACKEND: &str = "redlock";

/// One connection to a deployment of independent Redis servers.
pub struct Redlock {
    pub(crate) panel: Arc<Panel>,
    pub(crate) proposals: Proposals,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) leases: Leases,
    pub(crate) keeper: Keeper<Held>,
}

/// The leases that are held, to be given back when the connection is closed.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<String, Weak<Held>>>);

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
        config.check()?;
        let runtime = Handle::current();
        let clock = config.clock;
        let panel = Arc::new(Panel::new(config, &runtime));
        let deployment = member::meet(&panel).await?;
        panel.belongs_to(Arc::new(deployment));
        let renewals = Arc::new(Renewals(Arc::clone(&panel)));
        Ok(Arc::new(Self {
            panel,
            proposals: Proposals::default(),
            waiters: Waiters::new(uuid::Uuid::new_v4().simple().to_string(), clock),
            leases: Leases::default(),
            keeper: Keeper::new(clock, &runtime, renewals),
        }))
    }
}

#[async_trait]
impl Backend for Redlock {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(BACKEND)
            .with_ttl(Config::ttls_up_to(self.panel.max_ttl()))
            .with(Feature::Expiry)
            .with(Feature::ReadWrite)
            .with(Feature::Downgrade)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let unsupported = || Error::unsupported(request.mode.needs().unwrap_or(Feature::Semaphore), BACKEND);
        let kind = Kind::of(request.mode).ok_or_else(unsupported)?;
        let lease = Acquisition::new(self, kind, request, stop).run().await?;
        Ok(Box::new(lease))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        look::look(&self.panel, name).await
    }

    fn changes(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        changes::follow(Arc::clone(&self.panel), name)
    }

    async fn close(&self, limit: Duration) -> Result<(), Error> {
        let clock = self.panel.clock();
        let deadline = clock.now().saturating_add(limit);
        let releases = join_all(self.leases.take().into_iter().map(|held| async move { held.close().await }));
        let released = clock.timeout(limit, releases).await.is_some();
        let drained = self.panel.janitor.close(deadline.saturating_since(clock.now())).await;
        self.panel.close();
        if released && drained {
            return Ok(());
        }
        Err(Error::no_answer(self.panel.config.url(), "something was left to its ttl"))
    }
}

impl Leases {
    pub(crate) fn add(&self, held: &Arc<Held>) {
        self.open(|leases| leases.insert(held.attempt.value.clone(), Arc::downgrade(held)));
    }

    pub(crate) fn remove(&self, held: &Held) {
        self.open(|leases| leases.remove(&held.attempt.value));
    }

    fn take(&self) -> Vec<Arc<Held>> {
        self.open(std::mem::take).into_values().filter_map(|held| held.upgrade()).collect()
    }

    fn open<T>(&self, work: impl FnOnce(&mut HashMap<String, Weak<Held>>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("url", &self.panel.config.url()).finish_non_exhaustive()
    }
}

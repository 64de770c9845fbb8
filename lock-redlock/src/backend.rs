//! The backend: connecting, looking, closing.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use lock_core::{Backend, Capabilities, Contender, Error, Feature, Keeper, Lease, LockName, Mode, Request, Snapshot};
use lock_redis::{
    scripts::{Holder, holder, inspect},
    token::Proposals,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    acquisition::Acquisition,
    lease::Held,
    member,
    panel::{Panel, unavailable},
    renewal::Renewals,
    scripts::LockKeys,
    waiting::Waiters,
};

/// One connection to a deployment of independent Redis servers.
pub struct Redlock {
    pub(crate) panel: Arc<Panel>,
    pub(crate) proposals: Proposals,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) keeper: Keeper<Held>,
}

/// The leases that are held, to be given back when the connection is closed.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<String, Weak<Held>>>);

impl Redlock {
    /// Connects to the servers of `config`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the connect limit when no majority of them answers; [`Error::Config`] when a setting
    /// is not allowed, or two of them are one and the same server under two addresses.
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
        member::meet(&panel).await?;
        let renewals = Arc::new(Renewals(Arc::clone(&panel)));
        Ok(Arc::new(Self {
            panel,
            proposals: Proposals::default(),
            waiters: Waiters::new(uuid::Uuid::new_v4().simple().to_string(), clock),
            leases: Arc::default(),
            keeper: Keeper::new(clock, &runtime, renewals),
        }))
    }
}

#[async_trait]
impl Backend for Redlock {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("redlock").with_ttl(self.panel.config.ttls()).with(Feature::Expiry)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        if request.mode != Mode::Exclusive {
            return Err(Error::Unsupported { feature: "a shared lock", backend: "redlock" });
        }
        let lease = Acquisition::new(self, request, stop).run().await?;
        Ok(Box::new(lease))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let keys = LockKeys::new(&self.panel.config.prefix, name);
        let mut replies = self.panel.ask(|_| Some(inspect(keys.common()).into()), holder);
        let (mut seen, mut failed, mut answered) = (Vec::new(), Vec::new(), 0);
        while let Some((node, answer)) = replies.next(&self.panel).await {
            match answer {
                Ok(holder) => {
                    answered += 1;
                    seen.extend(holder);
                }
                Err(silence) => failed.push((node, silence.reason())),
            }
        }
        if answered < self.panel.majority() {
            return Err(unavailable(&self.panel, "answers", failed));
        }
        Ok(Snapshot::new(majority_holder(&seen, self.panel.majority()).into_iter().collect(), Vec::new()))
    }

    async fn close(&self, limit: Duration) -> Result<(), Error> {
        let clock = self.panel.clock();
        let deadline = clock.now().saturating_add(limit);
        let releases = join_all(self.leases.take().into_iter().map(|held| async move { held.close().await }));
        let released = clock.timeout(limit, releases).await.is_some();
        let drained = self.panel.janitor.drain(deadline.saturating_since(clock.now())).await;
        for node in &self.panel.nodes {
            node.close();
        }
        if released && drained {
            return Ok(());
        }
        Err(Error::no_answer(self.panel.config.url(), "something was left to its ttl"))
    }
}

/// The holder that a majority of the nodes shows, if any. What a minority shows is a vote that is being lost, or the rest
/// of a lease that is over.
fn majority_holder(seen: &[Holder], majority: usize) -> Option<Contender> {
    let values: HashSet<&[u8]> = seen.iter().map(|holder| holder.value.as_slice()).collect();
    let shown_by = |value: &[u8]| seen.iter().filter(|holder| holder.value == value).collect::<Vec<_>>();
    let holders = values.into_iter().map(shown_by).find(|nodes| nodes.len() >= majority)?;
    let first = holders.first()?;
    let mut contender = Contender::new(String::from_utf8_lossy(&first.value)).with_payload(first.payload.clone());
    if let Some(token) = shown_token(&holders, majority) {
        contender = contender.with_token(token);
    }
    // For so long a majority keeps it: the majority-th largest.
    let remaining = holders.iter().map(|holder| holder.remaining.unwrap_or(Duration::MAX));
    match crate::quorum::largest(remaining, majority) {
        Some(remaining) if remaining < Duration::MAX => Some(contender.with_remaining(remaining)),
        _ => Some(contender),
    }
}

/// The token of a holder, as far as the nodes can tell: the number that a majority agrees on; else the greatest, to which
/// the others were raised. (A node that granted late may have given a greater one.)
fn shown_token(holders: &[&Holder], majority: usize) -> Option<u64> {
    let numbers: Vec<u64> = holders.iter().filter_map(|holder| holder.number).collect();
    let agreed = |number: &&u64| numbers.iter().filter(|other| other == number).count() >= majority;
    numbers.iter().find(agreed).or(numbers.iter().max()).copied()
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

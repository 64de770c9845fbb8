//! Backends that break one promise each, made of the memory backend.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use lock_core::{
    Backend, Capabilities, Clock, Contender, Context, Error, Feature, Lease, LockName, Locks, Mode, ReleaseOutcome,
    Request, Snapshot, Validity, Wait,
    conformance::{Down, Failure, Fixture, Kept, LONG_TTL, Link, MemoryFixture, Severable},
    memory::Memory,
};
use tokio_util::sync::CancellationToken;

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// Every tenth acquisition is granted whether the lock is held or not.
    GrantsTwice,
    /// The holder's deadline is later than the server's.
    OverstatesValidity,
    /// The holder renews its validity by itself, without asking the server.
    NeverLoses,
    /// A release is reported and not done; the lease is renewed on.
    NeverReleases,
    /// An attempt that is told to stop keeps its place.
    LeavesTheQueue,
    /// Each token is lower than the one before it.
    TokensFall,
    /// An attempt without waiting waits.
    AlwaysWaits,
    /// Names that differ only in case are one lock.
    FoldsNames,
    /// Readers and writers take no notice of each other.
    ReadsBesideWriters,
    /// There is one permit more than was said.
    OnePermitTooMany,
    /// A reader that waits comes in beside readers, whether a writer waits or not.
    ReadersOvertake,
    /// A lock is free at the end of a lease, whatever delay was asked for.
    IgnoresLockDelays,
    /// It has no semaphores, and refuses them in another backend's name.
    RefusesInAnothersName,
    /// It says that a writer may become a reader, and refuses it when it comes to that.
    PretendsToDowngrade,
    /// A forced release ends the grant of whoever holds the lock.
    RevokesWhoeverHolds,
    /// A list takes its prefix for a pattern.
    ListsByPattern,
}

/// A memory fixture whose connections are sabotaged.
#[derive(Debug)]
pub(crate) struct Sabotaged {
    memory: MemoryFixture,
    sabotage: Sabotage,
}

impl Sabotaged {
    pub(crate) fn new(sabotage: Sabotage) -> Self {
        Self { memory: MemoryFixture::with_clock(Clock::runtime()), sabotage }
    }

    fn locks(&self, memory: Arc<Memory>) -> Locks {
        Locks::new(Arc::new(Saboteur {
            memory,
            sabotage: self.sabotage,
            acquisitions: AtomicU64::new(0),
            looks: AtomicU64::new(0),
        }))
    }
}

#[async_trait]
impl Fixture for Sabotaged {
    fn clock(&self) -> Clock {
        self.memory.clock()
    }

    async fn connect(&self) -> Result<Locks, Failure> {
        Ok(self.locks(self.memory.memory(LONG_TTL)?))
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let memory = self.memory.memory(Duration::from_secs(1))?;
        Ok(Severable { locks: self.locks(memory.clone()), link: Box::new(Switch(memory)) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        self.memory.connect_to_down(down).await
    }

    async fn residue(&self, names: &[LockName]) -> Result<Vec<String>, Failure> {
        self.memory.residue(names).await
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        self.memory.delete(name).await
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        let token = if self.sabotage == Sabotage::TokensFall { u64::MAX - token } else { token };
        self.memory.kept(name, token).await
    }
}

#[derive(Debug)]
struct Switch(Arc<Memory>);

#[async_trait]
impl Link for Switch {
    async fn hold(&self) {
        self.0.set_connected(false);
    }

    async fn cut(&self) {
        self.0.set_connected(false);
    }

    async fn slow_down(&self, _delay: Duration) {}

    async fn heal(&self) {
        self.0.set_connected(true);
    }
}

#[derive(Debug)]
struct Saboteur {
    memory: Arc<Memory>,
    sabotage: Sabotage,
    acquisitions: AtomicU64,
    looks: AtomicU64,
}

#[async_trait]
impl Backend for Saboteur {
    fn context(&self) -> &Context {
        self.memory.context()
    }

    fn capabilities(&self) -> Capabilities {
        let turn = self.looks.fetch_add(1, Ordering::Relaxed);
        match self.sabotage {
            Sabotage::RefusesInAnothersName if turn.is_multiple_of(2) => Capabilities::new("chalk"),
            Sabotage::RefusesInAnothersName => Capabilities::new("memory"),
            _ => self.memory.capabilities(),
        }
    }

    async fn acquire(self: Arc<Self>, mut request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let turn = self.acquisitions.fetch_add(1, Ordering::Relaxed);
        match self.sabotage {
            Sabotage::GrantsTwice if turn % 10 == 9 => request.name = beside(&request.name)?,
            Sabotage::AlwaysWaits => request.wait = Wait::UntilStopped,
            Sabotage::FoldsNames => request.name = LockName::new(request.name.as_str().to_lowercase())?,
            Sabotage::ReadsBesideWriters if request.mode == Mode::Read => request.name = beside(&request.name)?,
            Sabotage::OnePermitTooMany => request.mode = one_more(request.mode),
            Sabotage::ReadersOvertake if request.mode == Mode::Read && self.only_a_waiting_writer(&request).await? => {
                request.name = beside(&request.name)?;
            }
            Sabotage::IgnoresLockDelays => request.delay = None,
            Sabotage::LeavesTheQueue => return self.acquire_deaf(request, stop).await,
            _ => {}
        }
        Ok(self.lease(Arc::clone(&self.memory).acquire(request, stop).await?))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.memory.inspect(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        if self.sabotage != Sabotage::ListsByPattern {
            return self.memory.list(prefix).await;
        }
        let mut all = self.memory.list("").await?;
        all.retain(|name| name.as_str().starts_with(prefix.trim_end_matches('*')));
        Ok(all)
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
        let token = match self.sabotage {
            Sabotage::RevokesWhoeverHolds => {
                self.inspect(name).await?.holders.first().and_then(|holder| holder.token).unwrap_or(token)
            }
            _ => token,
        };
        self.memory.revoke(name, token).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        Arc::clone(&self.memory).watch(name)
    }

    async fn close(&self, limit: Duration) {
        self.memory.close(limit).await;
    }
}

/// Another name, so that whoever holds the right one does not matter.
fn beside(name: &LockName) -> Result<LockName, Error> {
    LockName::new(format!("{name}#{:x}", fastrand::u64(..)))
}

fn one_more(mode: Mode) -> Mode {
    match mode {
        Mode::Permit { of } => Mode::Permit { of: of.saturating_add(1) },
        other => other,
    }
}

impl Saboteur {
    /// Whether the request waits, and all that keeps it out is a writer that waits.
    async fn only_a_waiting_writer(&self, request: &Request) -> Result<bool, Error> {
        let seen = self.memory.inspect(&request.name).await?;
        let read = seen.holders.iter().all(|holder| holder.mode == Some(Mode::Read));
        Ok(request.wait == Wait::UntilStopped && read && !seen.queue.is_empty())
    }

    /// Answers a stop, and leaves the attempt itself as it is.
    async fn acquire_deaf(&self, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let never = CancellationToken::new();
        let mut attempt = tokio::spawn(Arc::clone(&self.memory).acquire(request, never));
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                tokio::spawn(async move { attempt.await.map(|lease| lease.map(Box::leak)) });
                Err(Error::Cancelled)
            }
            done = &mut attempt => done.unwrap_or(Err(Error::Cancelled)),
        }
    }

    fn lease(&self, lease: Box<dyn Lease>) -> Box<dyn Lease> {
        let validity = match (self.sabotage, lease.validity().valid_until()) {
            (Sabotage::OverstatesValidity, Some(until)) => {
                Validity::new(Clock::runtime(), until.saturating_add(LONG_TTL / 20))
            }
            (Sabotage::NeverLoses, Some(_)) => self_renewed(),
            _ => lease.validity().clone(),
        };
        Box::new(SabotagedLease { lease, validity, sabotage: self.sabotage })
    }
}

/// A validity that goes on and on.
fn self_renewed() -> Validity {
    const STEP: Duration = Duration::from_millis(100);
    let clock = Clock::runtime();
    let validity = Validity::new(clock, clock.now().saturating_add(STEP * 4));
    let renewed = validity.clone();
    tokio::spawn(async move {
        while let Some(observed) = renewed.observe() {
            renewed.advance(observed, clock.now().saturating_add(STEP * 4));
            clock.sleep(STEP).await;
        }
    });
    validity
}

#[derive(Debug)]
struct SabotagedLease {
    lease: Box<dyn Lease>,
    validity: Validity,
    sabotage: Sabotage,
}

#[async_trait]
impl Lease for SabotagedLease {
    fn token(&self) -> u64 {
        match self.sabotage {
            Sabotage::TokensFall => u64::MAX - self.lease.token(),
            _ => self.lease.token(),
        }
    }

    fn validity(&self) -> &Validity {
        &self.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        if self.sabotage == Sabotage::NeverReleases {
            Box::leak(self.lease);
            return Ok(ReleaseOutcome::Released);
        }
        self.lease.release().await
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Self { lease, validity, sabotage } = *self;
        if sabotage == Sabotage::PretendsToDowngrade {
            lease.release().await?;
            return Err(Error::unsupported(Feature::Downgrade, "memory"));
        }
        Ok(Box::new(Self { lease: lease.downgrade().await?, validity, sabotage }))
    }
}

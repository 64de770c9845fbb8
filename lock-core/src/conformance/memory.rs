//! The fixture of the memory backend, which also shows what one looks like.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Down, Failure, Fixture, Kept, LONG_TTL, Link, Severable};
use crate::{
    Clock, Error, LockName, Locks, LocksOptions,
    memory::{Config, Memory, MemoryServer},
};

/// For how long an outage is bridged: less than a case waits.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);

fn locks(memory: Arc<Memory>) -> Locks {
    Locks::with_options(memory, LocksOptions::default().with_outage_timeout(OUTAGE_TIMEOUT))
}

/// A memory server of its own.
#[derive(Debug, Default)]
pub struct MemoryFixture {
    server: MemoryServer,
}

impl MemoryFixture {
    /// A server that counts on `clock`, as that of a paused runtime.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self { server: MemoryServer::with_clock(clock) }
    }

    /// A new connection to the fixture's server.
    ///
    /// # Errors
    /// Those of [`Memory::connect`].
    pub fn memory(&self, ttl: Duration) -> Result<Arc<Memory>, Error> {
        Memory::connect(Config::new(self.server.clone()).with_ttl(ttl))
    }
}

#[async_trait]
impl Fixture for MemoryFixture {
    fn clock(&self) -> Clock {
        self.server.clock()
    }

    async fn connect(&self) -> Result<Locks, Failure> {
        Ok(locks(self.memory(LONG_TTL)?))
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let memory = self.memory(Duration::from_secs(3))?;
        Ok(Severable { locks: locks(memory.clone()), link: Box::new(MemoryLink(memory)) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        let server = MemoryServer::with_clock(self.clock());
        let connect = || Memory::connect(Config::new(server.clone()));
        match down {
            Down::Refusing => {
                server.set_up(false);
                Ok(locks(connect()?))
            }
            Down::Silent => {
                let memory = connect()?;
                server.set_up(false);
                Ok(locks(memory))
            }
        }
    }

    async fn residue(&self, names: &[LockName]) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for name in names {
            let kept = self.server.snapshot(name);
            left.extend(kept.holders.iter().map(|holder| format!("the holder {} of {name:?}", holder.id)));
            left.extend(kept.queue.iter().map(|waiter| format!("the waiter {} for {name:?}", waiter.id)));
        }
        Ok(left)
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        self.server.delete(name);
        Ok(())
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        let kept = self.server.snapshot(name);
        let holder = kept.holders.iter().find(|holder| holder.token == Some(token));
        Ok(holder.map_or(Kept::Gone, |holder| holder.remaining.map_or(Kept::Held, Kept::For)))
    }
}

/// The [`Link`] of a connection of the memory backend, which conformance cases cut by a flag on the connection itself.
#[derive(Debug)]
struct MemoryLink(Arc<Memory>);

#[async_trait]
impl Link for MemoryLink {
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

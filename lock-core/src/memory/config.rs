//! Settings of a memory connection.

use std::time::Duration;

use super::MemoryServer;
use crate::{Error, Setting, Settings};

const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// How long the server keeps a lease.
pub(super) const TTL: Setting<Duration> = Setting::duration(
    "ttl",
    DEFAULT_TTL,
    Duration::from_millis(10),
    Duration::from_secs(86_400),
    "How long the server keeps a lease without a renewal.",
);

/// Settings of a memory connection.
#[derive(Debug, Clone)]
pub struct Config {
    pub(super) server: MemoryServer,
    pub(super) ttl: Duration,
}

impl Config {
    /// A connection to `server` with a ttl of 30 s.
    #[must_use]
    pub const fn new(server: MemoryServer) -> Self {
        Self { server, ttl: DEFAULT_TTL }
    }

    /// How long the server keeps a lease without a renewal, from 10 ms to a day.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Reads `memory://NAME?ttl=30s`: the server of that name in this process; without a name, the unnamed one.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown key, a value that is not allowed, several names, a user, or a path.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        settings.without_user()?;
        let name = match settings.hosts.as_slice() {
            [] => String::new(),
            [(name, None)] => name.clone(),
            several => return Err(Error::config("host", format!("{several:?}"), "one name without a port, or none")),
        };
        if !settings.path.trim_matches('/').is_empty() {
            return Err(Error::config("path", settings.path, "no path with memory://"));
        }
        let ttl = TTL.read(&mut settings)?;
        settings.finish()?;
        Ok(Self { server: MemoryServer::named(&name), ttl })
    }
}

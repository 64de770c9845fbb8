//! What a connection needs to know, and the settings that a URL may have.

use std::{path::PathBuf, time::Duration};

use lock_core::{Error, Setting, SettingDoc, Settings};

/// What the backend is called, in its URL and in refusals.
pub(crate) const NAME: &str = "sqlite";

const MILLISECOND: Duration = Duration::from_millis(1);

pub(crate) const TTL: Setting<Duration> = Setting::duration(
    "ttl",
    Duration::from_secs(30),
    Duration::from_millis(100),
    Duration::from_secs(86_400),
    "After how long without a renewal a lock is free for the next one.",
);
const LOOK_AGAIN: Setting<Duration> = Setting::duration(
    "look_again",
    Duration::from_millis(100),
    MILLISECOND,
    Duration::from_secs(10),
    "The longest pause between two looks of a waiter.",
);
const CONNECT_TIMEOUT: Setting<Duration> = Setting::duration(
    "connect_timeout",
    Duration::from_secs(5),
    Duration::from_millis(10),
    Duration::from_secs(600),
    "How long connecting may take, and for how long waiters bridge an outage.",
);
const RESPONSE_TIMEOUT: Setting<Duration> = Setting::duration(
    "response_timeout",
    Duration::from_secs(5),
    Duration::from_millis(10),
    Duration::from_secs(60),
    "For how long the database may answer nothing before a request is given up.",
);

/// Settings of a [`Sqlite`](crate::Sqlite) connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The database file; made when it is missing. Programs compete when they name the same file.
    pub path: PathBuf,
    /// How long the database keeps a lease without a renewal, unless a request chooses its own ttl.
    pub ttl: Duration,
    /// The longest pause between two looks of a waiter.
    pub look_again: Duration,
    /// How long connecting may take, and for how long waiters bridge an outage.
    pub connect_timeout: Duration,
    /// For how long the database may answer nothing before a request is given up.
    pub response_timeout: Duration,
}

impl Config {
    /// Locks in the database file at `path`, which is absolute.
    ///
    /// # Errors
    /// [`Error::Config`] for a relative path.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        if !path.is_absolute() {
            let allowed = "the absolute path of a file, as sqlite:///var/lib/app/locks.db";
            return Err(Error::config("path", path.display().to_string(), allowed));
        }
        Ok(Self {
            path,
            ttl: TTL.default_value(),
            look_again: LOOK_AGAIN.default_value(),
            connect_timeout: CONNECT_TIMEOUT.default_value(),
            response_timeout: RESPONSE_TIMEOUT.default_value(),
        })
    }

    /// Reads `sqlite:///PATH?ttl=30s&look_again=100ms`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown key, a value that is not allowed, a host, a user, or no path.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        settings.without_user()?;
        if let Some((host, _)) = settings.hosts.first() {
            let allowed = "none: the path follows three slashes, as sqlite:///var/lib/app/locks.db";
            return Err(Error::config("host", host, allowed));
        }
        let mut config = Self::new(std::mem::take(&mut settings.path))?;
        config.ttl = TTL.read(&mut settings)?;
        config.look_again = LOOK_AGAIN.read(&mut settings)?;
        config.connect_timeout = CONNECT_TIMEOUT.read(&mut settings)?;
        config.response_timeout = RESPONSE_TIMEOUT.read(&mut settings)?;
        settings.finish()?;
        Ok(config)
    }

    /// Refuses what a program has set by itself and a URL could not have set.
    pub(crate) fn check(&self) -> Result<(), Error> {
        TTL.check(self.ttl)?;
        LOOK_AGAIN.check(self.look_again)?;
        CONNECT_TIMEOUT.check(self.connect_timeout)?;
        RESPONSE_TIMEOUT.check(self.response_timeout)
    }

    /// What the documentation says of the settings.
    pub(crate) fn docs() -> Vec<SettingDoc> {
        [TTL, LOOK_AGAIN, CONNECT_TIMEOUT, RESPONSE_TIMEOUT].iter().map(Setting::doc).collect()
    }

    /// The database in the form of its URL, for errors.
    #[must_use]
    pub fn url(&self) -> String {
        format!("sqlite://{}", self.path.display())
    }
}

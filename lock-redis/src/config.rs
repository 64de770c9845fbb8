//! The settings of the Redis backend.

use std::{ops::RangeInclusive, time::Duration};

use lock_core::{Error, Settings};

use crate::{keys::Keys, node::NodeConfig};

/// The ttls that this backend takes: below, a renewal may not come round in time; above, a dead holder blocks for days.
pub(crate) const TTLS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// The limits for one request or connection that can be set.
const LIMITS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

/// Settings of one connection. They are checked by [`Redis::connect`](crate::Redis::connect).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The server.
    pub node: NodeConfig,
    /// How long the server keeps a lock without a renewal, unless a request says otherwise.
    pub ttl: Duration,
    /// What the keys of all locks begin with.
    pub prefix: String,
    /// How those who wait stand to each other.
    pub queue: Queue,
}

/// Who is next, of those who wait for a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queue {
    /// Whoever comes first after a release (`queue=none`): nothing is kept on the server about those who wait.
    #[default]
    None,
    /// Whoever has waited the longest (`queue=fifo`): those who wait stand in line on the server, and a release hands the
    /// lock over.
    Fifo,
}

impl Queue {
    fn of(text: &str) -> Result<Self, Error> {
        match text {
            "none" => Ok(Self::None),
            "fifo" => Ok(Self::Fifo),
            _ => Err(Error::config("queue", text, "none or fifo")),
        }
    }
}

impl Config {
    /// The port of a server that was given without one.
    pub const PORT: u16 = 6379;

    /// The server at `host` and `port`, everything else as it is by default.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            node: NodeConfig::new(host, port),
            ttl: Duration::from_secs(30),
            prefix: "lock".to_owned(),
            queue: Queue::None,
        }
    }

    /// Reads a URL's settings: `redis://[user[:password]@]host[:port][/db]` with the keys `ttl`, `prefix`, `queue`,
    /// `connect_timeout` and `response_timeout`.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting, its value, and what is allowed.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        if settings.scheme != "redis" {
            return Err(Error::config("scheme", &settings.scheme, "redis (one server, without TLS)"));
        }
        let (host, port) = one_host(&settings)?;
        let mut config = Self::new(host, port);
        config.node.db = database(&settings.path)?;
        config.node.username = settings.username.take();
        config.node.password = settings.password.take();
        config.ttl = settings.duration("ttl", config.ttl, TTLS)?;
        config.node.connect_timeout = settings.duration("connect_timeout", config.node.connect_timeout, LIMITS)?;
        config.node.response_timeout = settings.duration("response_timeout", config.node.response_timeout, LIMITS)?;
        if let Some(prefix) = settings.text("prefix") {
            config.prefix = prefix;
        }
        if let Some(queue) = settings.text("queue") {
            config.queue = Queue::of(&queue)?;
        }
        settings.finish()?;
        config.check()?;
        Ok(config)
    }

    /// With another ttl.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// With another prefix of the keys.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// With another order among those who wait.
    #[must_use]
    pub const fn with_queue(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self
    }

    /// With a user and a password to sign in with.
    #[must_use]
    pub fn with_credentials(mut self, username: Option<String>, password: impl Into<String>) -> Self {
        self.node.username = username;
        self.node.password = Some(password.into());
        self
    }

    /// With another database than number 0.
    #[must_use]
    pub const fn with_db(mut self, db: u32) -> Self {
        self.node.db = db;
        self
    }

    /// With another limit for connecting, which is also for how long an outage is bridged.
    #[must_use]
    pub const fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.node.connect_timeout = limit;
        self
    }

    /// With another limit for one request.
    #[must_use]
    pub const fn with_response_timeout(mut self, limit: Duration) -> Self {
        self.node.response_timeout = limit;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !Keys::is_prefix(&self.prefix) {
            return Err(Error::config("prefix", &self.prefix, Keys::PREFIXES));
        }
        within("ttl", self.ttl, &TTLS)?;
        within("connect_timeout", self.node.connect_timeout, &LIMITS)?;
        within("response_timeout", self.node.response_timeout, &LIMITS)
    }
}

fn within(key: &str, value: Duration, allowed: &RangeInclusive<Duration>) -> Result<(), Error> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(Error::config(key, format!("{value:?}"), format!("{:?} to {:?}", allowed.start(), allowed.end())))
}

fn one_host(settings: &Settings) -> Result<(String, u16), Error> {
    let [(host, port)] = settings.hosts.as_slice() else {
        let given: Vec<_> = settings.hosts.iter().map(|(host, _)| host.as_str()).collect();
        return Err(Error::config("host", given.join(","), "one server; redlock:// takes several"));
    };
    // An IPv6 address stands in brackets in a URL, and without them everywhere else.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(Error::config("host", host, "a name or an address"));
    }
    Ok((host.to_owned(), port.unwrap_or(Config::PORT)))
}

fn database(path: &str) -> Result<u32, Error> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(0),
        number => number.parse().map_err(|_| Error::config("path", path, "the number of a database, as /0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(host: &str, values: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new("redis");
        settings.hosts = vec![(host.to_owned(), None)];
        settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        settings
    }

    fn refused(settings: Settings) -> String {
        Config::from_settings(settings).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let config = Config::from_settings(settings("h", &[])).unwrap();
        assert_eq!((config.node.host.as_str(), config.node.port, config.node.db), ("h", 6379, 0));
        assert_eq!((config.ttl, config.prefix.as_str()), (Duration::from_secs(30), "lock"));
    }

    #[test]
    fn every_setting_of_a_url_is_taken() {
        let mut given = settings("[::1]", &[("ttl", "5s"), ("prefix", "a"), ("connect_timeout", "2s")]);
        given.values.insert("response_timeout".to_owned(), "200ms".to_owned());
        (given.path, given.username, given.password) = ("/3".to_owned(), Some("u".to_owned()), Some("p".to_owned()));
        let config = Config::from_settings(given).unwrap();
        assert_eq!((config.node.host.as_str(), config.node.db, config.prefix.as_str()), ("::1", 3, "a"));
        assert_eq!(config.node.connect_timeout, Duration::from_secs(2));
        assert_eq!(config.node.response_timeout, Duration::from_millis(200));
        assert_eq!(config.ttl, Duration::from_secs(5));
        let shown = format!("{config:?}");
        assert!(shown.contains("***") && !shown.contains("\"p\""), "{shown}");
    }

    #[test]
    fn what_is_not_allowed_is_named_with_what_is() {
        let error = refused(settings("h", &[("ttl", "10ms")]));
        assert!(error.contains("ttl") && error.contains("10ms") && error.contains("100ms"), "{error}");
        let error = refused(settings("h", &[("prefix", "a:b")]));
        assert!(error.contains("prefix") && error.contains("a:b"), "{error}");
        let error = refused(settings("h", &[("tll", "1s")]));
        assert!(error.contains("tll") && error.contains("response_timeout"), "{error}");
        let mut given = settings("h", &[]);
        given.scheme = "rediss".to_owned();
        let error = refused(given);
        assert!(error.contains("rediss") && error.contains("TLS"), "{error}");
        let mut given = settings("h", &[]);
        given.path = "/x".to_owned();
        assert!(refused(given).contains("/x"));
        let mut given = settings("h", &[]);
        given.hosts.push(("i".to_owned(), None));
        let error = refused(given);
        assert!(error.contains("h,i") && error.contains("redlock"), "{error}");
    }
}

//! The settings of the Redis backend.

mod deployment;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use lock_core::{Error, Settings};

pub use self::deployment::{Deployment, Sentinel};
use crate::{
    keys::Keys,
    node::{Address, AddressMap, NodeConfig, Replicas},
    wire::Network,
};

/// The ttls that this backend takes: below, a renewal may not come round in time; above, a dead holder blocks for days.
pub(crate) const TTLS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// The limits for one request or connection that can be set.
const LIMITS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

/// How long one who waits may rely on being told of a release.
const LOOKS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// How long it does, if nothing else is set.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// For how long an outage may be bridged.
const OUTAGES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60 * 60);

/// For how long an outage is bridged where another server takes over, if nothing else is set.
const FAILOVER: Duration = Duration::from_secs(30);

/// How many replicas a primary may have that acknowledge.
const REPLICAS: RangeInclusive<u32> = 0..=100;

/// How long replicas may take to acknowledge.
const ACKNOWLEDGEMENTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

/// How long they may take, if nothing else is set.
const REPLICA_TIMEOUT: Duration = Duration::from_millis(500);

/// Settings of one connection. They are checked by [`Redis::connect`](crate::Redis::connect).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The server, or what holds for each of several.
    pub node: NodeConfig,
    /// What the servers are to each other.
    pub deployment: Deployment,
    /// Where servers are reached that announce themselves by addresses which this program cannot use.
    pub address_map: AddressMap,
    /// How long the server keeps a lock without a renewal, unless a request says otherwise.
    pub ttl: Duration,
    /// What the keys of all locks begin with.
    pub prefix: String,
    /// How those who wait stand to each other.
    pub queue: Queue,
    /// How long one who waits relies on being told of a release; then it looks by itself, as when the holder's lease ends.
    /// With [`Queue::Fifo`] its heartbeats look.
    pub look_again: Duration,
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
            deployment: Deployment::Standalone,
            address_map: AddressMap::default(),
            ttl: Duration::from_secs(30),
            prefix: "lock".to_owned(),
            queue: Queue::None,
            look_again: LOOK_AGAIN,
        }
    }

    /// The primary that sentinels name, everything else as it is by default.
    #[must_use]
    pub fn sentinel(sentinel: Sentinel) -> Self {
        let first = sentinel.sentinels.first().map_or("", |first| first.host.as_str());
        let mut config = Self::new(first, Self::PORT);
        config.node.failover_timeout = Some(FAILOVER);
        config.deployment = Deployment::Sentinel(sentinel);
        config
    }

    /// A cluster, found through these of its servers; everything else as it is by default.
    #[must_use]
    pub fn cluster(nodes: impl IntoIterator<Item = Address>) -> Self {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let mut config = Self::new(nodes.first().map_or("", |first| first.host.as_str()), Self::PORT);
        config.node.failover_timeout = Some(FAILOVER);
        config.deployment = Deployment::Cluster(nodes);
        config
    }

    /// Reads a URL's settings, with the keys `ttl`, `prefix`, `queue`, `look_again`, `connect_timeout` and
    /// `response_timeout`:
    /// * `redis://[user[:password]@]host[:port][/db]`, one server;
    /// * `redis+sentinel://[user[:password]@]host[:port],host[:port].../service[/db]`, the primary that these sentinels name.
    ///   User and password are those of the servers; `sentinel_username` and `sentinel_password` those of the sentinels;
    /// * `redis+cluster://[user[:password]@]host[:port],host[:port]...`, a cluster to which these servers belong.
    ///
    /// `min_replicas` is by how many replicas each grant and each renewal has to be acknowledged, 0 if not set, and
    /// `replica_timeout` for how long they are waited for.
    ///
    /// Where another server may take over, `failover_timeout` is for how long those who wait bridge an outage, and
    /// `address_map=announced:port=reached:port,...` says where servers are reached that announce themselves by addresses
    /// which this program cannot use.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting, its value, and what is allowed.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        let (deployment, first, db) = deployment::read(&mut settings)?;
        let mut config = Self::new(first.host, first.port);
        if deployment != Deployment::Standalone {
            config.node.failover_timeout = Some(settings.duration("failover_timeout", FAILOVER, OUTAGES)?);
            config.address_map = deployment::address_map(&mut settings)?;
        }
        config.deployment = deployment;
        config.node.db = db;
        config.node.username = settings.username.take();
        config.node.password = settings.password.take();
        config.ttl = settings.duration("ttl", config.ttl, TTLS)?;
        config.node.connect_timeout = settings.duration("connect_timeout", config.node.connect_timeout, LIMITS)?;
        config.node.response_timeout = settings.duration("response_timeout", config.node.response_timeout, LIMITS)?;
        let count = settings.number("min_replicas", 0, REPLICAS)?;
        let within = settings.duration("replica_timeout", REPLICA_TIMEOUT, ACKNOWLEDGEMENTS)?;
        config = config.with_min_replicas(count, within);
        if let Some(prefix) = settings.text("prefix") {
            config.prefix = prefix;
        }
        if let Some(queue) = settings.text("queue") {
            config.queue = Queue::of(&queue)?;
        }
        config.look_again = settings.duration("look_again", config.look_again, LOOKS)?;
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

    /// With another limit for how long one who waits relies on being told of a release.
    #[must_use]
    pub const fn with_look_again(mut self, limit: Duration) -> Self {
        self.look_again = limit;
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

    /// With another limit for connecting, which is also for how long an outage of a single server is bridged.
    #[must_use]
    pub const fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.node.connect_timeout = limit;
        self
    }

    /// With another limit for an outage: for so long those who wait bridge it.
    #[must_use]
    pub const fn with_failover_timeout(mut self, limit: Duration) -> Self {
        self.node.failover_timeout = Some(limit);
        self
    }

    /// With another way to where servers are reached that announce themselves by addresses of no use here.
    #[must_use]
    pub fn with_address_map(mut self, addresses: AddressMap) -> Self {
        self.address_map = addresses;
        self
    }

    /// Grants and renewals count only when so many replicas have acknowledged them `within` this time; 0 for none.
    #[must_use]
    pub const fn with_min_replicas(mut self, count: u32, within: Duration) -> Self {
        self.node.replicas = if count == 0 { None } else { Some(Replicas::new(count, within)) };
        self
    }

    /// With another limit for one request.
    #[must_use]
    pub const fn with_response_timeout(mut self, limit: Duration) -> Self {
        self.node.response_timeout = limit;
        self
    }

    /// Sets on which network the servers are; TCP if nothing is set.
    #[must_use]
    pub fn with_network(mut self, network: Arc<dyn Network>) -> Self {
        self.node.network = network;
        self
    }

    /// The URL without secrets, for messages.
    #[must_use]
    pub fn url(&self) -> String {
        self.deployment.url(self.node.url(), self.node.db)
    }

    /// How one of the sentinels is reached.
    pub(crate) fn sentinel_at(&self, sentinel: &Sentinel, address: &Address) -> NodeConfig {
        let at = self.address_map.reached(address);
        NodeConfig {
            username: sentinel.username.clone(),
            password: sentinel.password.clone(),
            failover_timeout: None,
            replicas: None,
            db: 0,
            ..self.node.at(at)
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !Keys::is_prefix(&self.prefix) {
            return Err(Error::config("prefix", &self.prefix, Keys::PREFIXES));
        }
        within("ttl", self.ttl, &TTLS)?;
        self.deployment.check(self.node.db)?;
        if let Some(replicas) = self.node.replicas {
            within("replica_timeout", replicas.within, &ACKNOWLEDGEMENTS)?;
        }
        within("look_again", self.look_again, &LOOKS)?;
        within("failover_timeout", self.node.outage_limit(), &OUTAGES)?;
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

#[cfg(test)]
mod tests;

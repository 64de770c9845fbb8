//! The settings of the Redis backend.

mod deployment;
pub(crate) mod settings;
mod strategy;

use std::{sync::Arc, time::Duration};

use lock_core::{Error, Password, Settings};

pub use self::{
    deployment::{Deployment, Sentinel},
    strategy::Strategy,
};
use crate::{
    node::{Address, AddressMap, NodeConfig, Replicas},
    protocol::keys::Keys,
    wire::{self, Network},
};

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
    /// How contenders take turns. All who use a name have to use the same strategy.
    pub strategy: Strategy,
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
            ttl: settings::TTL.default_value(),
            prefix: settings::PREFIX.default_value().to_owned(),
            strategy: settings::STRATEGY.default_value(),
        }
    }

    /// The primary that sentinels name, everything else as it is by default.
    #[must_use]
    pub fn sentinel(sentinel: Sentinel) -> Self {
        let first = sentinel.sentinels.first().map_or("", |first| first.host.as_str());
        let mut config = Self::new(first, Self::PORT);
        config.deployment = Deployment::Sentinel(sentinel);
        config
    }

    /// A cluster, found through these of its servers; everything else as it is by default.
    #[must_use]
    pub fn cluster(nodes: impl IntoIterator<Item = Address>) -> Self {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let mut config = Self::new(nodes.first().map_or("", |first| first.host.as_str()), Self::PORT);
        config.deployment = Deployment::Cluster(nodes);
        config
    }

    /// Reads a URL's settings, all of which docs/configuration.md lists:
    /// * `redis://[user[:password]@]host[:port][/db]`, one server;
    /// * `redis+sentinel://[user[:password]@]host[:port],host[:port].../service[/db]`, the primary that these sentinels name.
    ///   User and password are those of the servers; `sentinel_username` and `sentinel_password` those of the sentinels;
    /// * `redis+cluster://[user[:password]@]host[:port],host[:port]...`, a cluster to which these servers belong.
    ///
    /// With `rediss` in the place of `redis` every connection is encrypted (TLS), those to sentinels and to replicas that take
    /// over among them.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting, its value, and what is allowed.
    pub fn from_settings(mut given: Settings) -> Result<Self, Error> {
        let with_tls = settings::is_with_tls(&given.scheme);
        let (deployment, first, db) = deployment::read(&mut given)?;
        let mut config = Self::new(first.host, first.port);
        if deployment != Deployment::Standalone {
            config.address_map = deployment::address_map(&mut given)?;
        }
        config.deployment = deployment;
        config.node.db = db;
        config.node.network = wire::network(&mut given, with_tls)?;
        (config.node.username, config.node.password) = given.take_credentials()?;
        config.ttl = settings::TTL.read(&mut given)?;
        config.node.connect_timeout = settings::CONNECT_TIMEOUT.read(&mut given)?;
        config.node.response_timeout = settings::RESPONSE_TIMEOUT.read(&mut given)?;
        let count = settings::MIN_REPLICAS.read(&mut given)?;
        config = config.with_min_replicas(count, settings::REPLICA_TIMEOUT.read(&mut given)?);
        if let Some(prefix) = settings::PREFIX.take(&mut given) {
            config.prefix = prefix;
        }
        config.strategy = settings::STRATEGY.read(&mut given)?;
        if let Some(given) = settings::LOOK_AGAIN.read_if_set(&mut given)? {
            match &mut config.strategy {
                Strategy::Plain { look_again } => *look_again = given,
                Strategy::Queue => {
                    let given = format!("{given:?}");
                    return Err(Error::config(
                        "look_again",
                        given,
                        "nothing without `strategy=plain`: a queue tells its waiters",
                    ));
                }
            }
        }
        if let Some(value) = given.values.remove("queue") {
            return Err(Error::config(
                "queue",
                value,
                "nothing: it is now `strategy=queue`, the default, or `strategy=plain`",
            ));
        }
        if let Some(value) = given.values.remove("failover_timeout") {
            return Err(Error::config(
                "failover_timeout",
                value,
                "nothing: it is now `outage_timeout`, for every backend",
            ));
        }
        given.finish()?;
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

    /// With another strategy, by which contenders take turns.
    #[must_use]
    pub const fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// With a user and a password to sign in with.
    #[must_use]
    pub fn with_credentials(mut self, username: Option<String>, password: impl Into<Password>) -> Self {
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

    /// With another limit for connecting.
    #[must_use]
    pub const fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.node.connect_timeout = limit;
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
        self.deployment.url(&self.node)
    }

    /// How one of the sentinels is reached.
    pub(crate) fn sentinel_at(&self, sentinel: &Sentinel, address: &Address) -> NodeConfig {
        let at = self.address_map.reached(address);
        NodeConfig {
            username: sentinel.username.clone(),
            password: sentinel.password.clone(),
            replicas: None,
            db: 0,
            ..self.node.at(at)
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_allowed = match self.strategy {
            Strategy::Queue => Keys::is_prefix(&self.prefix),
            Strategy::Plain { look_again } => {
                settings::LOOK_AGAIN.check(look_again)?;
                let is_reserved = format!("{}:", self.prefix) == Keys::RESERVED;
                self.prefix.is_empty() || Keys::is_prefix(&self.prefix) && !is_reserved
            }
        };
        if !is_allowed {
            return Err(settings::PREFIX.refused(&self.prefix));
        }
        settings::TTL.check(self.ttl)?;
        self.deployment.check(self.node.db)?;
        if let Some(replicas) = self.node.replicas {
            settings::REPLICA_TIMEOUT.check(replicas.within)?;
        }
        settings::CONNECT_TIMEOUT.check(self.node.connect_timeout)?;
        settings::RESPONSE_TIMEOUT.check(self.node.response_timeout)
    }
}

#[cfg(test)]
mod tests;

//! The settings of a deployment.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use lock_core::{Error, Password, Setting, SettingDoc, Settings};
use lock_redis::{
    keys::Keys,
    node::NodeConfig,
    wire::{self, Network},
};

const MINUTE: Duration = Duration::from_secs(60);
const TEN_MS: Duration = Duration::from_millis(10);

/// With a ttl below the least one, a renewal may not come round in time.
const TTL: Setting<Duration> = Setting::duration(
    "ttl",
    Duration::from_secs(30),
    Duration::from_millis(100),
    Duration::from_secs(24 * 60 * 60),
    "How long the servers keep a lock without a renewal, unless a request says otherwise; at most `max_ttl`.",
);

const MAX_TTL: Setting<Duration> = Setting::duration(
    "max_ttl",
    MINUTE,
    Duration::from_secs(1),
    Duration::from_secs(24 * 60 * 60),
    "The deployment's longest ttl, and for how long a restarted node gives no vote. A client that says otherwise than \
     the deployment is refused.",
);

const RESTART_QUARANTINE: Setting<bool> = Setting::choice(
    "restart_quarantine",
    &[("on", true), ("off", false)],
    "Whether a restarted node gives no vote for `max_ttl`: `off` only where every node has each write on its disk \
     before it answers. A client that says otherwise than the deployment is refused.",
);

const CONNECT_TIMEOUT: Setting<Duration> =
    Setting::duration("connect_timeout", Duration::from_secs(1), TEN_MS, MINUTE, "How long connecting may take.");

/// Far above a round trip, so that a busy machine is not taken for a dead one: nobody waits for a node that is not needed.
const NODE_TIMEOUT: Setting<Duration> = Setting::duration(
    "node_timeout",
    Duration::from_secs(1),
    TEN_MS,
    MINUTE,
    "How long each node may take for one request, where those that answered do not decide.",
);

const PREFIX: Setting<&str> =
    Setting::text("prefix", Some("lock"), Keys::PREFIXES, "What the keys of all locks begin with.");

/// The settings of a URL of `scheme`.
pub(crate) fn settings(scheme: &str) -> Vec<SettingDoc> {
    let mut all = vec![
        TTL.doc(),
        MAX_TTL.doc(),
        RESTART_QUARANTINE.doc(),
        CONNECT_TIMEOUT.doc(),
        NODE_TIMEOUT.doc(),
        PREFIX.doc(),
    ];
    all.push(Password::FILE.doc());
    all.extend(wire::network_settings(scheme == "redlocks"));
    all
}

/// The allowed numbers of servers, for an error.
const COUNTS: &str = "an odd number of servers, at least 3: host:port,host:port,host:port";

/// Settings of one connection to a deployment of independent Redis servers.
///
/// `max_ttl` and `restart_quarantine` belong to the deployment: [`init`](crate::init) writes them on the servers, and a
/// client that says otherwise is refused.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// All servers of the deployment: an odd number, at least 3.
    pub nodes: Vec<NodeConfig>,
    /// How long the servers keep a lock without a renewal, unless a request says otherwise; `None` for 30 s, or the
    /// deployment's `max_ttl` where that is less.
    pub ttl: Option<Duration>,
    /// What the keys of all locks begin with.
    pub prefix: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long each node may take for one request. This matters only where the nodes that answered do not decide: a
    /// majority's answer never waits for the other nodes.
    pub node_timeout: Duration,
    /// The longest ttl that any client may ask for, and for how long a restarted node gives no vote. `None` for what the
    /// deployment has; of a new deployment, 60 s.
    pub max_ttl: Option<Duration>,
    /// Whether a restarted node gives no vote for `max_ttl`. To be turned off only where every node has each write on
    /// its disk before it answers (`appendfsync always`), so that a restart loses nothing. `None` for what the deployment
    /// has; of a new deployment, `true`.
    pub restart_quarantine: Option<bool>,
}

impl Config {
    /// The port of a server that was given without one.
    pub const PORT: u16 = 6379;

    /// The longest ttl of a new deployment, unless something else is asked for.
    pub(crate) const MAX_TTL: Duration = MAX_TTL.default_value();

    /// The servers `nodes`, with the default of every other setting.
    ///
    /// # Errors
    /// [`Error::Config`] when their number is even or below 3, or one is listed twice.
    pub fn new(nodes: Vec<NodeConfig>) -> Result<Self, Error> {
        check_servers(&nodes)?;
        Ok(Self {
            nodes,
            ttl: None,
            prefix: PREFIX.default_value().to_owned(),
            connect_timeout: CONNECT_TIMEOUT.default_value(),
            node_timeout: NODE_TIMEOUT.default_value(),
            max_ttl: None,
            restart_quarantine: None,
        })
    }

    /// Sets the network of the servers; the default is TCP.
    #[must_use]
    pub fn with_network(mut self, network: &Arc<dyn Network>) -> Self {
        for node in &mut self.nodes {
            node.network = Arc::clone(network);
        }
        self
    }

    /// Reads a URL's settings: `redlock://[user[:password]@]host[:port],host[:port],host[:port]` with the keys `ttl`,
    /// `prefix`, `connect_timeout`, `node_timeout`, `max_ttl`, `restart_quarantine` and `password_file`; with `redlocks://` every
    /// connection is encrypted (TLS).
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting, its value, and what is allowed.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        let with_tls = match settings.scheme.as_str() {
            "redlock" => false,
            "redlocks" => true,
            other => return Err(Error::config("scheme", other, "redlock, or redlocks with TLS")),
        };
        if !matches!(settings.path.as_str(), "" | "/") {
            return Err(Error::config("path", &settings.path, "nothing behind the servers"));
        }
        let nodes = servers(&settings)?;
        let mut config = Self::new(nodes)?;
        config = config.with_network(&wire::network(&mut settings, with_tls)?);
        let (username, password) = settings.take_credentials()?;
        for node in &mut config.nodes {
            node.username.clone_from(&username);
            node.password.clone_from(&password);
        }
        config.max_ttl = MAX_TTL.read_if_set(&mut settings)?;
        config.ttl = config.ttl_setting().read_if_set(&mut settings)?;
        config.restart_quarantine = RESTART_QUARANTINE.read_if_set(&mut settings)?;
        config.connect_timeout = CONNECT_TIMEOUT.read(&mut settings)?;
        config.node_timeout = NODE_TIMEOUT.read(&mut settings)?;
        if let Some(prefix) = PREFIX.take(&mut settings) {
            config.prefix = prefix;
        }
        settings.finish()?;
        config.check()?;
        Ok(config)
    }

    /// Checks the fields, which a program may have set.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_servers(&self.nodes)?;
        if !Keys::is_prefix(&self.prefix) {
            return Err(PREFIX.refused(&self.prefix));
        }
        if let Some(max_ttl) = self.max_ttl {
            MAX_TTL.check(max_ttl)?;
        }
        self.ttl.map_or(Ok(()), |ttl| self.ttl_setting().check(ttl))
    }

    /// The setting `ttl`, narrowed as far as possible without the deployment.
    fn ttl_setting(&self) -> Setting<Duration> {
        self.max_ttl.map_or(TTL, |max_ttl| TTL.up_to(max_ttl))
    }

    /// The ttls that a request may ask for in a deployment with this `max_ttl`.
    pub(crate) const fn ttls_up_to(max_ttl: Duration) -> RangeInclusive<Duration> {
        TTL.up_to(max_ttl).range()
    }

    /// The ttl of a request that names none, in a deployment with this `max_ttl`.
    pub(crate) fn default_ttl(&self, max_ttl: Duration) -> Duration {
        self.ttl.unwrap_or_else(|| TTL.default_value().min(max_ttl))
    }

    /// The servers, for messages.
    pub(crate) fn addresses(&self) -> String {
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// The URL without settings and secrets, for messages.
    #[must_use]
    pub fn url(&self) -> String {
        let with_tls = self.nodes.iter().any(|node| node.network.is_encrypted());
        format!("{}://{}", if with_tls { "redlocks" } else { "redlock" }, self.addresses())
    }

    /// The servers with the limits of this configuration.
    pub(crate) fn limited_nodes(&self) -> impl Iterator<Item = NodeConfig> {
        self.nodes.iter().map(|node| {
            let mut node = node.clone();
            node.connect_timeout = self.connect_timeout;
            node.response_timeout = self.node_timeout;
            node
        })
    }
}

fn servers(settings: &Settings) -> Result<Vec<NodeConfig>, Error> {
    let server = |(host, port): &(String, Option<u16>)| {
        // An IPv6 address stands in brackets in a URL, and without them everywhere else.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(Error::config("host", host, COUNTS));
        }
        Ok(NodeConfig::new(host, port.unwrap_or(Config::PORT)))
    };
    settings.hosts.iter().map(server).collect()
}

fn check_servers(nodes: &[NodeConfig]) -> Result<(), Error> {
    let addresses: Vec<String> = nodes.iter().map(address).collect();
    if nodes.len() < 3 || nodes.len().is_multiple_of(2) {
        return Err(Error::config("host", addresses.join(","), COUNTS));
    }
    for (index, address) in addresses.iter().enumerate() {
        // A server with two votes would be a majority with half of the others.
        if addresses[..index].contains(address) {
            return Err(Error::config("host", address, format!("{COUNTS}, each listed once")));
        }
    }
    Ok(())
}

pub(crate) fn address(node: &NodeConfig) -> String {
    let host = node.host.to_lowercase();
    if host.contains(':') { format!("[{host}]:{}", node.port) } else { format!("{host}:{}", node.port) }
}

/// Reads what [`address`] writes.
pub(crate) fn read_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').filter(|host| host.contains(':'))?,
        None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', ']', '/', '@', ',', '=', ' ']))?,
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(hosts: &[&str], values: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new("redlock");
        settings.hosts = hosts.iter().map(|host| ((*host).to_owned(), None)).collect();
        settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        settings
    }

    fn refused(hosts: &[&str], values: &[(&str, &str)]) -> String {
        Config::from_settings(settings(hosts, values)).unwrap_err().to_string()
    }

    const THREE: [&str; 3] = ["a", "b", "[::1]"];

    #[test]
    fn what_is_not_set_has_its_default() {
        let config = Config::from_settings(settings(&THREE, &[])).unwrap();
        assert_eq!(config.url(), "redlock://a:6379,b:6379,[::1]:6379");
        assert_eq!((config.ttl, config.max_ttl, config.restart_quarantine), (None, None, None));
        assert_eq!(config.default_ttl(Duration::from_secs(60)), Duration::from_secs(30));
        assert_eq!(config.default_ttl(Duration::from_secs(10)), Duration::from_secs(10));
    }

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for (host, port) in [("a.b", 6379), ("::1", 1), ("10.0.0.1", 65_535)] {
            assert_eq!(read_address(&address(&NodeConfig::new(host, port))), Some((host, port)));
        }
        for text in ["a", "a:", ":1", "a:0", "a:65536", "::1", "::1:1", "[a]:1", "[::1:1", "a,b:1", "u@a:1", "1=a:1"] {
            assert_eq!(read_address(text), None, "{text}");
        }
    }

    #[test]
    fn every_setting_of_a_url_is_taken() {
        let values = [
            ("ttl", "300ms"),
            ("prefix", "p"),
            ("connect_timeout", "2s"),
            ("node_timeout", "50ms"),
            ("max_ttl", "10s"),
            ("restart_quarantine", "off"),
        ];
        let mut given = settings(&THREE, &values);
        (given.username, given.password) = (Some("u".to_owned()), Some("secret".to_owned()));
        let config = Config::from_settings(given).unwrap();
        assert_eq!((config.ttl, config.prefix.as_str()), (Some(Duration::from_millis(300)), "p"));
        assert_eq!((config.connect_timeout, config.node_timeout), (Duration::from_secs(2), Duration::from_millis(50)));
        assert_eq!((config.max_ttl, config.restart_quarantine), (Some(Duration::from_secs(10)), Some(false)));
        let nodes: Vec<NodeConfig> = config.limited_nodes().collect();
        assert_eq!(nodes[2].password, Some(Password::from("secret")));
        assert_eq!(nodes[2].response_timeout, Duration::from_millis(50));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn an_even_number_of_servers_or_less_than_three_is_refused() {
        for hosts in [&["a"][..], &["a", "b"], &["a", "b", "c", "d"], &[]] {
            let error = refused(hosts, &[]);
            assert!(
                error.contains("odd") && hosts.iter().all(|host| error.contains(&format!("{host}:6379"))),
                "{error}"
            );
        }
    }

    #[test]
    fn a_server_that_is_listed_twice_is_refused() {
        let error = refused(&["a", "b", "A"], &[]);
        assert!(error.contains("\"a:6379\"") && error.contains("once"), "{error}");
    }

    #[test]
    fn what_is_not_allowed_is_named_with_what_is() {
        let error = refused(&THREE, &[("ttl", "2m"), ("max_ttl", "1m")]);
        assert!(error.contains("ttl") && error.contains("2m") && error.contains("1m"), "{error}");
        let error = refused(&THREE, &[("ttl", "10ms")]);
        assert!(error.contains("100ms"), "{error}");
        let error = refused(&THREE, &[("restart_quarantine", "no")]);
        assert!(error.contains("restart_quarantine") && error.contains("on or off"), "{error}");
        let error = refused(&THREE, &[("prefix", "a:b")]);
        assert!(error.contains("a:b"), "{error}");
        let error = refused(&THREE, &[("tll", "1s")]);
        assert!(error.contains("tll") && error.contains("node_timeout"), "{error}");
        let mut given = settings(&THREE, &[]);
        given.path = "/0".to_owned();
        assert!(Config::from_settings(given).unwrap_err().to_string().contains("/0"));
    }
}

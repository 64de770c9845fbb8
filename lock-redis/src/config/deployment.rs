//! Which servers there are, as settings say it.

use lock_core::{Error, Password, Settings};

use super::settings;
use crate::node::{Address, AddressMap, NodeConfig};

/// What the servers are to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deployment {
    /// One server: `redis://`.
    #[default]
    Standalone,
    /// A primary with its replicas, which sentinels watch over: `redis+sentinel://`.
    Sentinel(Sentinel),
    /// A cluster, of which these servers are asked for the others: `redis+cluster://`.
    Cluster(Vec<Address>),
}

/// Where the sentinels are, and what they call the service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sentinel {
    /// What the sentinels call the servers that they watch over.
    pub service: String,
    /// Where the sentinels are.
    pub sentinels: Vec<Address>,
    /// As whom to sign in to the sentinels; `None` for their default user.
    pub username: Option<String>,
    /// The password to sign in to the sentinels with.
    pub password: Option<Password>,
}

impl Sentinel {
    /// The port of a sentinel that was given without one.
    pub const PORT: u16 = 26_379;

    /// The service of this name, asked for at these sentinels, where nobody signs in.
    #[must_use]
    pub fn new(service: impl Into<String>, sentinels: impl IntoIterator<Item = Address>) -> Self {
        Self { service: service.into(), sentinels: sentinels.into_iter().collect(), username: None, password: None }
    }
}

impl Deployment {
    /// The scheme of its URLs.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Standalone => "redis",
            Self::Sentinel(_) => "redis+sentinel",
            Self::Cluster(_) => "redis+cluster",
        }
    }

    /// Its URL without secrets, for messages.
    pub(super) fn url(&self, node: &NodeConfig) -> String {
        let scheme = match self.scheme() {
            plain if node.network.is_encrypted() => plain.replacen("redis", "rediss", 1),
            plain => plain.to_owned(),
        };
        match self {
            Self::Standalone => node.url(),
            Self::Sentinel(Sentinel { service, sentinels, .. }) => {
                format!("{scheme}://{}/{service}/{}", list(sentinels), node.db)
            }
            Self::Cluster(nodes) => format!("{scheme}://{}", list(nodes)),
        }
    }

    pub(super) fn check(&self, db: u32) -> Result<(), Error> {
        match self {
            Self::Standalone => Ok(()),
            Self::Cluster(nodes) if nodes.is_empty() => Err(Error::config("hosts", "", "at least one server")),
            Self::Cluster(_) if db != 0 => Err(Error::config("db", db.to_string(), "0, the only one of a cluster")),
            Self::Cluster(_) => Ok(()),
            Self::Sentinel(Sentinel { service, sentinels, .. }) => {
                if sentinels.is_empty() {
                    return Err(Error::config("hosts", "", "at least one sentinel"));
                }
                // It is one part of a URL's path, and one word of what sentinels say.
                if service.is_empty() || service.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
                    return Err(Error::config("service", service, "a word without slashes, as /orders in the path"));
                }
                Ok(())
            }
        }
    }
}

/// Reads which servers there are, and the number of the database.
pub(super) fn read(settings: &mut Settings) -> Result<(Deployment, Address, u32), Error> {
    match settings.scheme.as_str() {
        "redis" | "rediss" => {
            let [server] = <[Address; 1]>::try_from(hosts(settings, super::Config::PORT)?).map_err(several)?;
            Ok((Deployment::Standalone, server, database(&settings.path)?))
        }
        "redis+sentinel" | "rediss+sentinel" => {
            let sentinels = hosts(settings, Sentinel::PORT)?;
            let (service, db) = service(&settings.path)?;
            let first = sentinels[0].clone();
            let mut sentinel = Sentinel::new(service, sentinels);
            sentinel.username = settings::SENTINEL_USERNAME.take(settings);
            let password = settings::SENTINEL_PASSWORD.take(settings);
            sentinel.password = Password::choose(settings, password, &settings::SENTINEL_PASSWORD_FILE)?;
            Ok((Deployment::Sentinel(sentinel), first, db))
        }
        "redis+cluster" | "rediss+cluster" => {
            let nodes = hosts(settings, super::Config::PORT)?;
            Ok((Deployment::Cluster(nodes.clone()), nodes[0].clone(), database(&settings.path)?))
        }
        other => {
            let allowed = "redis, redis+sentinel or redis+cluster; with TLS rediss, rediss+sentinel or rediss+cluster";
            Err(Error::config("scheme", other, allowed))
        }
    }
}

/// Reads where servers are reached that announce themselves by other addresses.
pub(super) fn address_map(settings: &mut Settings) -> Result<AddressMap, Error> {
    let Some(text) = settings::ADDRESS_MAP.take(settings) else { return Ok(AddressMap::default()) };
    text.parse().map_err(|()| settings::ADDRESS_MAP.refused(text))
}

fn hosts(settings: &Settings, port: u16) -> Result<Vec<Address>, Error> {
    let address = |(host, given): &(String, Option<u16>)| {
        // An IPv6 address stands in brackets in a URL, and without them everywhere else.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(Error::config("host", host, "a name or an address"));
        }
        Ok(Address::new(host, given.unwrap_or(port)))
    };
    let hosts: Vec<_> = settings.hosts.iter().map(address).collect::<Result<_, _>>()?;
    if hosts.is_empty() {
        return Err(Error::config("host", "", "a name or an address"));
    }
    Ok(hosts)
}

fn several(given: Vec<Address>) -> Error {
    let given: Vec<_> = given.into_iter().map(|address| address.host).collect();
    let allowed = "one server; redis+sentinel://, redis+cluster:// and redlock:// take several";
    Error::config("host", given.join(","), allowed)
}

/// Reads `/service` or `/service/db`.
fn service(path: &str) -> Result<(String, u32), Error> {
    let (service, db) = match path.strip_prefix('/').unwrap_or(path).split_once('/') {
        Some((service, db)) => (service, db),
        None => (path.strip_prefix('/').unwrap_or(path), ""),
    };
    if service.is_empty() {
        return Err(Error::config("path", path, "what the sentinels call the service, as /orders or /orders/0"));
    }
    Ok((service.to_owned(), database(db)?))
}

fn database(path: &str) -> Result<u32, Error> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(0),
        number => number.parse().map_err(|_| Error::config("path", path, "the number of a database, as /0")),
    }
}

fn list(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

//! How a client comes to the servers of a deployment.

use std::{collections::BTreeMap, time::Duration};

/// The way of one client: by which addresses, and with which times.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// Where servers are to be reached, by their ports; those that are not named here are reached on loopback.
    ways: BTreeMap<u16, String>,
    lease: Option<Duration>,
    answer_limit: Option<Duration>,
    settings: Vec<String>,
}

impl Connection {
    /// A connection whose locks outlive it by `lease`: the ttl or the session time-out. Where there is no lease, it says
    /// nothing.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// A connection for which an answer is late after `limit`, where the backend can be told so.
    #[must_use]
    pub const fn with_answer_limit(mut self, limit: Duration) -> Self {
        self.answer_limit = Some(limit);
        self
    }

    /// Through proxies, each at this loopback port for the server at that.
    #[must_use]
    pub fn through(mut self, proxies: impl IntoIterator<Item = (u16, u16)>) -> Self {
        self.ways.extend(proxies.into_iter().map(|(server, proxy)| (server, format!("127.0.0.1:{proxy}"))));
        self
    }

    /// By another address, `HOST:PORT`, to the server at that loopback port.
    #[must_use]
    pub fn by(mut self, server: u16, address: String) -> Self {
        self.ways.insert(server, address);
        self
    }

    /// With further settings, as `key=value&key=value`.
    #[must_use]
    pub fn with(mut self, settings: &str) -> Self {
        self.settings.extend((!settings.is_empty()).then(|| settings.to_owned()));
        self
    }

    /// The addresses of these servers, for a URL.
    #[must_use]
    pub fn hosts(&self, ports: &[u16]) -> String {
        let host = |port: &u16| self.ways.get(port).cloned().unwrap_or_else(|| format!("127.0.0.1:{port}"));
        ports.iter().map(host).collect::<Vec<_>>().join(",")
    }

    /// Where the servers themselves tell clients their addresses: the setting by which these go another way.
    #[must_use]
    pub fn address_map(&self, ports: &[u16]) -> String {
        let way = |port: &u16| self.ways.get(port).map(|way| format!("127.0.0.1:{port}={way}"));
        // Safeguard: clients come through the proxies of their side
        let ways: Vec<_> = ports.iter().filter_map(way).collect();
        if ways.is_empty() { String::new() } else { format!("address_map={}", ways.join(",")) }
    }

    /// The query of a URL where a lease and the limit for an answer have these settings, if any, with what it always says.
    pub(super) fn query(&self, lease: Option<&str>, answer_limit: Option<&str>, always: &[&str]) -> String {
        let time = |(key, time): (&str, Duration)| format!("{key}={}ms", time.as_millis());
        let mut query = Vec::new();
        query.extend(lease.zip(self.lease).map(time));
        query.extend(answer_limit.zip(self.answer_limit).map(time));
        query.extend(always.iter().filter(|settings| !settings.is_empty()).map(|settings| (*settings).to_owned()));
        query.extend(self.settings.iter().cloned());
        query.join("&")
    }
}

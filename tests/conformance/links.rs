//! Connections through proxies, one before each server.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use lock_core::{
    Error,
    conformance::{Down, Link},
};
use lock_lab::proxy::Proxy;

/// The proxies of one connection, and with that the means to cut it off.
pub(crate) struct Proxies(Vec<Proxy>);

impl Proxies {
    /// A proxy before each of the servers on these loopback ports.
    pub(crate) async fn start(targets: &[u16]) -> Result<Self, lock_lab::LabError> {
        let mut proxies = Vec::with_capacity(targets.len());
        for target in targets {
            proxies.push(Proxy::start(*target).await?);
        }
        Ok(Self(proxies))
    }

    /// Proxies before servers that a client cannot reach.
    pub(crate) async fn start_down(targets: &[u16], down: Down) -> Result<Self, Error> {
        let started = Self::start(targets).await;
        let proxies = started.map_err(|error| Error::config("proxy", error.to_string(), "one that starts"))?;
        match down {
            Down::Refusing => proxies.cut().await,
            Down::Silent => proxies.hold().await,
        }
        Ok(proxies)
    }

    /// `127.0.0.1:1234,127.0.0.1:1235` for a URL.
    pub(crate) fn hosts(&self) -> String {
        hosts(&self.ports())
    }

    /// Their ports, in the order of the servers.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.0.iter().map(Proxy::port).collect()
    }
}

/// The servers on these loopback ports, for a URL.
pub(crate) fn hosts(ports: &[u16]) -> String {
    ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
}

#[async_trait]
impl Link for Proxies {
    async fn hold(&self) {
        self.0.iter().for_each(Proxy::hold);
    }

    async fn cut(&self) {
        self.0.iter().for_each(Proxy::cut);
    }

    async fn slow_down(&self, delay: Duration) {
        self.0.iter().for_each(|proxy| proxy.delay(delay));
    }

    async fn heal(&self) {
        self.0.iter().for_each(Proxy::heal);
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxies({})", self.hosts())
    }
}

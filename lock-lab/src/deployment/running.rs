//! A deployment whose servers run.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use lock_core::LockName;

use super::{Connection, Decides, Deployment, Servers};
use crate::{
    LabError,
    servers::{Certificates, ClientCertificate},
};

/// A deployment and its running servers, which end when this is dropped.
#[derive(Debug)]
pub struct Running {
    deployment: Deployment,
    servers: Box<dyn Servers>,
    /// The scheme of URLs, and what these say of TLS.
    scheme: &'static str,
    tls: String,
}

impl Running {
    pub(super) fn new(deployment: Deployment, servers: Box<dyn Servers>, by_tls: bool) -> Result<Self, LabError> {
        let registry = lock::registry();
        let with_tls =
            registry.schemes().find(|scheme| scheme.name == deployment.scheme).and_then(|scheme| scheme.with_tls);
        Ok(match with_tls.filter(|_| by_tls) {
            None => Self { deployment, servers, scheme: deployment.scheme, tls: String::new() },
            Some(scheme) => {
                let tls = Certificates::shared()?.settings(ClientCertificate::Good);
                Self { deployment, servers, scheme, tls }
            }
        })
    }

    /// Which deployment it is.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        self.deployment
    }

    /// The loopback ports of all its servers: those that keep locks by their numbers, then those that guide to them.
    #[must_use]
    pub fn all_ports(&self) -> Vec<u16> {
        [self.servers.ports(), self.servers.guides()].concat()
    }

    /// The URL for clients that come by that way.
    #[must_use]
    pub fn url(&self, way: &Connection) -> String {
        let (scheme, authority) = (self.scheme, self.servers.authority(way));
        let lease = self.deployment.lease.map(|kind| kind.setting);
        let always = [self.deployment.settings, &self.servers.settings(way), &self.tls];
        let query = way.query(lease, self.deployment.answer_limit, &always);
        match (query.is_empty(), authority.contains('/')) {
            (true, _) => format!("{scheme}://{authority}"),
            (false, true) => format!("{scheme}://{authority}?{query}"),
            (false, false) => format!("{scheme}://{authority}/?{query}"),
        }
    }

    /// The URL with the backend's own defaults.
    #[must_use]
    pub fn plain_url(&self) -> String {
        self.url(&Connection::default())
    }

    /// The URL of connections whose locks outlive their holder by at most `lease`.
    #[must_use]
    pub fn url_with_lease(&self, lease: Duration) -> String {
        self.url(&Connection::default().with_lease(lease))
    }

    /// Which of the servers a fault strikes: the leader, where there is one.
    pub async fn victim(&self, lock: &LockName) -> usize {
        self.servers.leading(lock).await.ok().flatten().unwrap_or(0)
    }

    /// Starts again the server that was killed, if it is the only one: with its data, or without where it keeps them in
    /// memory. Where others go on without it, it stays down.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when it does not come back.
    pub async fn recover(&mut self, server: usize) -> Result<(), LabError> {
        match (self.deployment.voters(), self.deployment.decides) {
            (_, Decides::Primary { .. } | Decides::Program | Decides::Kernel) => Ok(()),
            (1, _) if self.deployment.is_durable => self.servers.restart(server).await,
            (1, _) => self.servers.restart_empty(server).await,
            _ => Ok(()),
        }
    }
}

impl Deref for Running {
    type Target = dyn Servers;

    fn deref(&self) -> &Self::Target {
        &*self.servers
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.servers
    }
}

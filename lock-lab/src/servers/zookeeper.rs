//! ZooKeeper: one server, or an ensemble.

mod server;
pub(crate) mod session;

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use lock_core::Clock;
use rustix::process::Signal;

use self::server::{ZooKeeperServer, mode};
use super::{ServerCertificate, ports, process::Process};
use crate::LabError;

/// How long a start may take. A second is usual for three servers; more on a machine that is busy with other tests.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a start is repeated when somebody else took a port.
const ATTEMPTS: u32 = 4;

/// How ZooKeeper servers are started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZooKeeperOptions {
    /// Clients come by TLS, too, at [`ZooKeeper::client_ports`], if they have a certificate, and servers show this one.
    pub tls: Option<ServerCertificate>,
    /// Name and password of a user that the servers know, who signs in by SASL.
    pub user: Option<(&'static str, &'static str)>,
}

impl ZooKeeperOptions {
    /// Serving clients by TLS, too.
    #[must_use]
    pub const fn with_tls(mut self, tls: Option<ServerCertificate>) -> Self {
        self.tls = tls;
        self
    }

    /// With a user that the servers know.
    #[must_use]
    pub const fn with_user(mut self, name: &'static str, password: &'static str) -> Self {
        self.user = Some((name, password));
        self
    }
}

/// ZooKeeper servers that form one service.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Vec<ZooKeeperServer>,
}

impl ZooKeeper {
    /// The servers' `tickTime`.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Starts `count` servers: 1 for a standalone server, 3 or more for an ensemble.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when ZooKeeper or Java is not installed.
    pub async fn start(count: usize) -> Result<Self, LabError> {
        Self::start_with(count, &[]).await
    }

    /// As [`ZooKeeper::start`], with further settings, such as `("maxSessionTimeout", "1000")`, which replace the
    /// laboratory's own.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub async fn start_with(count: usize, settings: &[(&str, &str)]) -> Result<Self, LabError> {
        Self::start_as_told(count, settings, ZooKeeperOptions::default()).await
    }

    /// As [`ZooKeeper::start_with`], with options.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub async fn start_as_told(
        count: usize,
        settings: &[(&str, &str)],
        told: ZooKeeperOptions,
    ) -> Result<Self, LabError> {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match Self::try_start(count, settings, told).await {
                // Somebody else may have taken a port since it was looked at.
                Err(LabError::NotStarted { .. }) if attempts > 0 => {}
                done => return done,
            }
        }
    }

    async fn try_start(count: usize, settings: &[(&str, &str)], told: ZooKeeperOptions) -> Result<Self, LabError> {
        let ports: Vec<[u16; 3]> = (0..count).map(|_| [ports::free(), ports::free(), ports::free()]).collect();
        let mut servers = Vec::new();
        for id in 0..count {
            servers.push(ZooKeeperServer::prepare(id, &ports, told)?);
        }
        let mut ensemble = Self { servers };
        for server in &mut ensemble.servers {
            for (key, value) in settings {
                server.configure(key, value)?;
            }
            server.launch()?;
        }
        ensemble.wait_until_ready().await?;
        Ok(ensemble)
    }

    /// Their URL for `Locks::connect`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("zk://{}", hosts.join(","))
    }

    /// The loopback ports that they serve clients on.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.ports[0]).collect()
    }

    /// The loopback ports that clients come to: by TLS, if they serve them so.
    #[must_use]
    pub fn client_ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.tls_port.unwrap_or(server.ports[0])).collect()
    }

    /// How many servers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there are none; never so after a start.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The process of server `index`, while it runs.
    #[must_use]
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.servers[index].process.as_ref().map(Process::pid)
    }

    /// Where server `index` keeps its snapshots and its transaction log.
    #[must_use]
    pub fn data(&self, index: usize) -> PathBuf {
        self.servers[index].dir.path().join("data").join("version-2")
    }

    /// Changes a setting of server `index`, from its next start on.
    ///
    /// # Errors
    /// [`LabError::Io`] when its configuration could not be written.
    pub fn configure(&self, index: usize, key: &str, value: &str) -> Result<(), LabError> {
        self.servers[index].configure(key, value)
    }

    /// Which server leads: the index of the leader, or of the standalone server; `None` while there is none.
    pub async fn leader(&self) -> Option<usize> {
        for (index, server) in self.servers.iter().enumerate() {
            if let Ok(status) = server.status().await
                && ["leader", "standalone"].contains(&mode(&status))
            {
                return Some(index);
            }
        }
        None
    }

    /// Kills server `index` with SIGKILL and waits for its end. Does nothing when it is down.
    pub fn kill(&mut self, index: usize) {
        self.servers[index].process = None;
    }

    /// Freezes server `index` with SIGSTOP: connections stay open and nothing is answered.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    pub fn stop(&self, index: usize) -> Result<(), LabError> {
        self.servers[index].signal(Signal::STOP)
    }

    /// Lets server `index` go on with SIGCONT.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    pub fn cont(&self, index: usize) -> Result<(), LabError> {
        self.servers[index].signal(Signal::CONT)
    }

    /// Kills server `index` if it runs, starts it again with its data, and waits until all servers that run serve
    /// clients.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub async fn restart(&mut self, index: usize) -> Result<(), LabError> {
        self.servers[index].launch()?;
        self.wait_until_ready().await
    }

    /// Kills server `index` if it runs and starts it again with its data, without waiting until it serves clients.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub fn launch_again(&mut self, index: usize) -> Result<(), LabError> {
        self.servers[index].launch()
    }

    /// As [`ZooKeeper::restart`], but removes the server's data first.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub async fn restart_empty(&mut self, index: usize) -> Result<(), LabError> {
        self.kill(index);
        let versions = self.data(index);
        if versions.exists() {
            fs::remove_dir_all(&versions)
                .map_err(|source| LabError::io(format!("removing {}", versions.display()), source))?;
        }
        self.restart(index).await
    }

    /// Takes over the session with this id and closes it: any server gives a session to whoever has its password, and
    /// computes that from the id.
    ///
    /// # Errors
    /// [`LabError::Control`] when no server does so.
    pub async fn end_session(&self, session: i64) -> Result<(), LabError> {
        session::end(&self.ports(), session).await
    }

    /// The fields of `mntr` of server `index`.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn monitor(&self, index: usize) -> Result<BTreeMap<String, String>, LabError> {
        let server = &self.servers[index];
        let text = server.ask("mntr").await?;
        let field = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_string(), value.to_string()));
        let fields: BTreeMap<_, _> = text.lines().filter_map(field).collect();
        if fields.is_empty() {
            return Err(LabError::control(server.label(), "mntr", text.trim()));
        }
        Ok(fields)
    }

    /// How many packets all servers have received from clients since their start. Every question of this kind is one itself.
    ///
    /// # Errors
    /// [`LabError::Control`] when one does not answer.
    pub async fn packets(&self) -> Result<u64, LabError> {
        let mut sum = 0;
        for index in 0..self.servers.len() {
            let fields = self.monitor(index).await?;
            sum += fields.get("zk_packets_received").and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }

    /// Their version.
    ///
    /// # Errors
    /// [`LabError::Control`] when the first one does not answer.
    pub async fn version(&self) -> Result<String, LabError> {
        let version = self.monitor(0).await?.remove("zk_version").unwrap_or_default();
        Ok(version.split(['-', ',']).next().unwrap_or_default().to_string())
    }

    /// Waits until every running server serves clients, with one leader among them.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when that does not happen, or a server has ended.
    pub async fn wait_until_ready(&mut self) -> Result<(), LabError> {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(START_LIMIT);
        loop {
            let mut leaders = 0;
            let mut serving = true;
            for server in &mut self.servers {
                match server.ready().await? {
                    Some(mode) => leaders += usize::from(mode != "follower"),
                    None => serving &= server.process.is_none(),
                }
            }
            if serving && leaders == 1 {
                return Ok(());
            }
            if clock.now() >= deadline {
                let log = self.servers.iter().filter_map(|server| server.process.as_ref()).map(Process::log).collect();
                let reason = format!("not all servers serve clients within {START_LIMIT:?}");
                return Err(LabError::NotStarted { server: self.url(), reason, log });
            }
            clock.sleep(Duration::from_millis(10)).await;
        }
    }
}

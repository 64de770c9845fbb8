//! The sets of servers that are measured: each a backend on one arrangement of servers.

use std::{fmt, str::FromStr, time::Duration};

use tempfile::TempDir;

use crate::{
    LabError,
    servers::{Redis, RedisNodes, ZooKeeper},
};

/// A backend on one arrangement of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Topology {
    /// The memory backend: no server at all, one process.
    Memory,
    /// Files of this machine: no server, any number of processes.
    Local,
    /// ZooKeeper, one server.
    ZooKeeper1,
    /// The same with `strategy=herd`: all who wait watch the one node of the holder.
    ZooKeeperHerd,
    /// ZooKeeper, an ensemble of three.
    ZooKeeper3,
    /// Redis, one server in memory.
    Redis,
    /// The same with `queue=fifo`: those who wait stand in line on the server.
    RedisFifo,
    /// Redlock over five independent Redis servers in memory.
    Redlock5,
}

impl Topology {
    /// Every one, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Memory,
        Self::Local,
        Self::ZooKeeper1,
        Self::ZooKeeperHerd,
        Self::ZooKeeper3,
        Self::Redis,
        Self::RedisFifo,
        Self::Redlock5,
    ];

    /// Its short name on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local => "local",
            Self::ZooKeeper1 => "zk1",
            Self::ZooKeeperHerd => "zk1-herd",
            Self::ZooKeeper3 => "zk3",
            Self::Redis => "redis",
            Self::RedisFifo => "redis-fifo",
            Self::Redlock5 => "redlock5",
        }
    }

    /// Its name in reports.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local => "local",
            Self::ZooKeeper1 => "ZooKeeper 1",
            Self::ZooKeeperHerd => "ZooKeeper 1 herd",
            Self::ZooKeeper3 => "ZooKeeper 3",
            Self::Redis => "Redis",
            Self::RedisFifo => "Redis FIFO",
            Self::Redlock5 => "Redlock 5",
        }
    }

    /// What its URLs say besides where the servers are.
    const fn setting(self) -> Option<&'static str> {
        match self {
            Self::ZooKeeperHerd => Some("strategy=herd"),
            Self::RedisFifo => Some("queue=fifo"),
            _ => None,
        }
    }

    /// What strikes its servers in a run with a server fault; `None` where there is no server.
    #[must_use]
    pub const fn fault(self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Local => None,
            Self::ZooKeeper1 | Self::ZooKeeperHerd => Some("the server killed, and started again with its data"),
            Self::ZooKeeper3 => Some("the leader of three killed"),
            Self::Redis | Self::RedisFifo => Some("the server killed, and started again without its data"),
            Self::Redlock5 => Some("one node of five killed"),
        }
    }

    /// By when the next holder has the lock at the latest after a holder with this lease was killed, as the backend
    /// promises it.
    #[must_use]
    pub fn crash_bound(self, lease: Duration) -> Duration {
        let lease = match self {
            Self::ZooKeeper1 | Self::ZooKeeperHerd | Self::ZooKeeper3 => lease + ZooKeeper::TICK * 2,
            // The kernel gives back at once what a dead process held.
            Self::Local => Duration::ZERO,
            Self::Memory | Self::Redis | Self::RedisFifo | Self::Redlock5 => lease,
        };
        lease + Duration::from_millis(250)
    }

    /// Starts its servers.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when they are not installed.
    pub async fn start(self) -> Result<Deployment, LabError> {
        let servers = match self {
            Self::Memory => Servers::Memory(format!("lab-{:016x}", fastrand::u64(..))),
            Self::Local => Servers::Local(
                TempDir::with_prefix("lock-lab-").map_err(|error| LabError::io("making a directory", error))?,
            ),
            Self::ZooKeeper1 | Self::ZooKeeperHerd => Servers::ZooKeeper(ZooKeeper::start(1).await?),
            Self::ZooKeeper3 => Servers::ZooKeeper(ZooKeeper::start(3).await?),
            Self::Redis | Self::RedisFifo => Servers::Redis(Box::new(Redis::start().await?)),
            Self::Redlock5 => Servers::Redlock(RedisNodes::start(5).await?),
        };
        Ok(Deployment { topology: self, servers })
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::key).join(", ");
        Self::ALL.into_iter().find(|one| one.key() == text).ok_or_else(|| format!("one of {known}"))
    }
}

/// Running servers of one topology.
#[derive(Debug)]
pub struct Deployment {
    topology: Topology,
    servers: Servers,
}

#[derive(Debug)]
enum Servers {
    /// The name of the server in this process.
    Memory(String),
    /// The directory of the files, gone with this.
    Local(TempDir),
    ZooKeeper(ZooKeeper),
    Redis(Box<Redis>),
    Redlock(RedisNodes),
}

impl Deployment {
    /// Which arrangement it is.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The URL for `Locks::connect` with the backend's own defaults.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(Vec::new())
    }

    /// The URL of connections whose locks outlive their holder by at most `lease`: the ttl, or ZooKeeper's session
    /// time-out. Where there is no lease, that of [`Deployment::url`].
    #[must_use]
    pub fn url_with_lease(&self, lease: Duration) -> String {
        let lease = lease.as_millis();
        self.url_with(match &self.servers {
            Servers::Local(_) => Vec::new(),
            Servers::ZooKeeper(_) => {
                vec![format!("session_timeout={lease}ms"), format!("tick_time={}ms", ZooKeeper::TICK.as_millis())]
            }
            _ => vec![format!("ttl={lease}ms")],
        })
    }

    fn url_with(&self, mut settings: Vec<String>) -> String {
        settings.extend(self.topology.setting().map(str::to_owned));
        let url = match &self.servers {
            Servers::Memory(name) => format!("memory://{name}"),
            Servers::Local(directory) => format!("local://{}", directory.path().display()),
            Servers::ZooKeeper(servers) => servers.url(),
            Servers::Redis(server) => server.url(),
            Servers::Redlock(nodes) => nodes.url(),
        };
        if settings.is_empty() { url } else { format!("{url}/?{}", settings.join("&")) }
    }

    /// The servers' version; empty where there is none.
    ///
    /// # Errors
    /// [`LabError::Control`] when they do not answer.
    pub async fn version(&self) -> Result<String, LabError> {
        match &self.servers {
            Servers::Memory(_) | Servers::Local(_) => Ok(String::new()),
            Servers::ZooKeeper(servers) => servers.version().await,
            Servers::Redis(server) => server.version().await,
            Servers::Redlock(nodes) => match nodes.nodes().first() {
                Some(node) => node.version().await,
                None => Ok(String::new()),
            },
        }
    }

    /// How many requests clients have sent to all servers so far: commands of Redis, packets of ZooKeeper (heartbeats
    /// and pings are requests, too). `None` where there is no server.
    ///
    /// # Errors
    /// [`LabError::Control`] when a server does not answer.
    pub async fn requests(&self) -> Result<Option<u64>, LabError> {
        match &self.servers {
            Servers::Memory(_) | Servers::Local(_) => Ok(None),
            Servers::ZooKeeper(servers) => servers.packets().await.map(Some),
            Servers::Redis(server) => server.commands().await.map(Some),
            Servers::Redlock(nodes) => nodes.commands().await.map(Some),
        }
    }

    /// Which of the servers the fault of [`Topology::fault`] strikes: the leader, where there is one.
    pub async fn victim(&self) -> usize {
        match &self.servers {
            Servers::ZooKeeper(servers) => servers.leader().await.unwrap_or(0),
            _ => 0,
        }
    }

    /// Kills that server with SIGKILL; does nothing without servers.
    pub fn strike(&mut self, victim: usize) {
        match &mut self.servers {
            Servers::Memory(_) | Servers::Local(_) => {}
            Servers::ZooKeeper(servers) => servers.kill(victim),
            Servers::Redis(server) => server.kill(),
            Servers::Redlock(nodes) => nodes.nodes_mut()[victim].kill(),
        }
    }

    /// Starts again what the fault of [`Topology::fault`] starts again.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when the server does not come back.
    pub async fn recover(&mut self) -> Result<(), LabError> {
        match (&mut self.servers, self.topology) {
            (Servers::ZooKeeper(servers), Topology::ZooKeeper1 | Topology::ZooKeeperHerd) => servers.restart(0).await,
            (Servers::Redis(server), _) => server.restart_empty().await,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topology_is_found_by_its_key() {
        for topology in Topology::ALL {
            assert_eq!(topology.key().parse(), Ok(topology));
        }
        assert!("redis6".parse::<Topology>().unwrap_err().contains("redlock5"));
    }
}

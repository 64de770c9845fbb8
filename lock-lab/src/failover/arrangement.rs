//! The arrangements of servers on which faults are measured.

use std::{fmt, str::FromStr};

/// A backend on one arrangement of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Arrangement {
    /// ZooKeeper, one server.
    Zk1,
    /// ZooKeeper, an ensemble of three.
    Zk3,
    /// Redis, one server in memory.
    Redis,
    /// The same with `queue=fifo`.
    RedisFifo,
    /// Redis, one server that has each write on its disk before it answers.
    RedisDurable,
    /// Redis, a primary with two replicas and three Sentinels.
    Sentinel,
    /// The same with `min_replicas=1`, and a primary that takes no writes while it hears of no replica.
    SentinelMinReplicas,
    /// Redis, a cluster of three primaries, each with a replica.
    Cluster,
    /// Redlock over three independent servers in memory.
    Redlock3,
    /// Redlock over five independent servers in memory.
    Redlock5,
    /// Redlock over five independent servers that have each write on their disks before they answer.
    Redlock5Durable,
}

impl Arrangement {
    /// Every one, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Zk1,
        Self::Zk3,
        Self::Redis,
        Self::RedisFifo,
        Self::RedisDurable,
        Self::Sentinel,
        Self::SentinelMinReplicas,
        Self::Cluster,
        Self::Redlock3,
        Self::Redlock5,
        Self::Redlock5Durable,
    ];

    /// Its short name on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Zk1 => "zk1",
            Self::Zk3 => "zk3",
            Self::Redis => "redis",
            Self::RedisFifo => "redis-fifo",
            Self::RedisDurable => "redis-durable",
            Self::Sentinel => "sentinel",
            Self::SentinelMinReplicas => "sentinel-min-replicas",
            Self::Cluster => "cluster",
            Self::Redlock3 => "redlock3",
            Self::Redlock5 => "redlock5",
            Self::Redlock5Durable => "redlock5-durable",
        }
    }

    /// Its name in reports.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Zk1 => "ZooKeeper 1",
            Self::Zk3 => "ZooKeeper 3",
            Self::Redis => "Redis",
            Self::RedisFifo => "Redis FIFO",
            Self::RedisDurable => "Redis durable",
            Self::Sentinel => "Redis Sentinel",
            Self::SentinelMinReplicas => "Redis Sentinel, min_replicas=1",
            Self::Cluster => "Redis Cluster",
            Self::Redlock3 => "Redlock 3",
            Self::Redlock5 => "Redlock 5",
            Self::Redlock5Durable => "Redlock 5 durable",
        }
    }

    /// Whether it is ZooKeeper.
    #[must_use]
    pub const fn is_zookeeper(self) -> bool {
        matches!(self, Self::Zk1 | Self::Zk3)
    }

    /// Whether it is Redlock.
    #[must_use]
    pub const fn is_redlock(self) -> bool {
        matches!(self, Self::Redlock3 | Self::Redlock5 | Self::Redlock5Durable)
    }

    /// Whether it is Redis that replicates to others, one of which takes the place of a failed primary.
    #[must_use]
    pub const fn replicates(self) -> bool {
        matches!(self, Self::Sentinel | Self::SentinelMinReplicas | Self::Cluster)
    }

    /// Whether a server has each write on its disk before it answers.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        matches!(self, Self::Zk1 | Self::Zk3 | Self::RedisDurable | Self::Redlock5Durable)
    }

    /// How many servers keep locks, replicas included.
    #[must_use]
    pub const fn servers(self) -> usize {
        match self {
            Self::Sentinel | Self::SentinelMinReplicas => 3,
            Self::Cluster => 6,
            _ => self.voters(),
        }
    }

    /// Whether a server that was restarted gives no vote for as long as a lease may live.
    #[must_use]
    pub const fn has_quarantine(self) -> bool {
        matches!(self, Self::Redlock3 | Self::Redlock5)
    }

    /// Of how many servers each one counts, where a majority decides or one server is alone; 1 where a primary does.
    #[must_use]
    pub const fn voters(self) -> usize {
        match self {
            Self::Zk3 | Self::Redlock3 => 3,
            Self::Redlock5 | Self::Redlock5Durable => 5,
            _ => 1,
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

impl FromStr for Arrangement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::key).join(", ");
        Self::ALL.into_iter().find(|one| one.key() == text).ok_or_else(|| format!("one of {known}"))
    }
}

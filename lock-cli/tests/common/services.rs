//! Real services, and what may happen to them.

use std::time::Duration;

use lock::LockName;
use lock_lab::servers::{Redis, RedisNodes, ZooKeeper};
use tempfile::TempDir;
use zookeeper_client::Client;

/// For how long a lock outlives its holder here: the ttl, or the session time-out.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A running service.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one in a test")]
pub(crate) enum Service {
    ZooKeeper(ZooKeeper),
    Redis(Redis),
    Redlock(RedisNodes),
    /// Files of this machine; the kernel is never out of reach.
    Local(TempDir),
}

impl Service {
    pub(crate) async fn zookeeper() -> Self {
        Self::ZooKeeper(ZooKeeper::start(1).await.expect("ZooKeeper starts"))
    }

    pub(crate) async fn redis() -> Self {
        Self::Redis(Redis::start().await.expect("Redis starts"))
    }

    pub(crate) async fn redlock() -> Self {
        Self::Redlock(RedisNodes::start(5).await.expect("five Redis start"))
    }

    pub(crate) fn local() -> Self {
        Self::Local(tempfile::tempdir().expect("a temporary directory"))
    }

    /// The URL of connections whose locks outlive them for [`LEASE`].
    pub(crate) fn url(&self) -> String {
        let lease = LEASE.as_millis();
        match self {
            Self::ZooKeeper(servers) => {
                let tick = ZooKeeper::TICK.as_millis();
                format!("{}?session_timeout={lease}ms&tick_time={tick}ms", servers.url())
            }
            Self::Redis(server) => format!("{}?ttl={lease}ms", server.url()),
            Self::Redlock(nodes) => format!("{}?ttl={lease}ms", nodes.url()),
            Self::Local(directory) => format!("local://{}?era=0", directory.path().display()),
        }
    }

    /// As [`Service::url`], for a client whose servers always answer, if late: the machine is busy, or stands still.
    pub(crate) fn patient_url(&self) -> String {
        let url = self.url();
        match self {
            Self::ZooKeeper(_) | Self::Local(_) => url,
            Self::Redis(_) => format!("{url}&response_timeout=20s"),
            Self::Redlock(_) => format!("{url}&node_timeout=20s"),
        }
    }

    /// How long after the death of a holder the next one must hold at the latest.
    pub(crate) fn succession(&self) -> Duration {
        let slack = Duration::from_millis(250);
        match self {
            Self::ZooKeeper(_) => LEASE + 2 * ZooKeeper::TICK + slack,
            Self::Redis(_) | Self::Redlock(_) => LEASE + slack,
            Self::Local(_) => slack,
        }
    }

    /// Deletes what stands for the lock on the servers, as an operator would.
    pub(crate) async fn delete(&self, name: &str) {
        match self {
            Self::ZooKeeper(servers) => {
                let hosts: Vec<_> = servers.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
                let client = Client::connect(&hosts.join(",")).await.expect("ZooKeeper answers");
                let directory = format!("/locks/{}", LockName::new(name).expect("a name").to_component());
                for node in client.list_children(&directory).await.expect("the lock is there") {
                    client.delete(&format!("{directory}/{node}"), None).await.expect("its node can be deleted");
                }
            }
            Self::Redis(server) => delete_key(server, name).await,
            Self::Redlock(nodes) => {
                for node in nodes.nodes() {
                    delete_key(node, name).await;
                }
            }
            Self::Local(directory) => {
                let name = LockName::new(name).expect("a name").to_component();
                std::fs::remove_dir_all(directory.path().join(format!("{name}.lock"))).expect("the lock is there");
            }
        }
    }

    /// Freezes all servers: connections stay open, and nothing is answered.
    pub(crate) fn freeze(&self) {
        match self {
            Self::ZooKeeper(servers) => (0..servers.len()).try_for_each(|index| servers.stop(index)),
            Self::Redis(server) => server.stop(),
            Self::Redlock(nodes) => nodes.nodes().iter().try_for_each(Redis::stop),
            Self::Local(_) => panic!("the kernel cannot be frozen"),
        }
        .expect("servers can be stopped");
    }

    /// Kills all servers.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::ZooKeeper(servers) => (0..servers.len()).for_each(|index| servers.kill(index)),
            Self::Redis(server) => server.kill(),
            Self::Redlock(nodes) => nodes.nodes_mut().iter_mut().for_each(Redis::kill),
            Self::Local(_) => panic!("the kernel cannot be killed"),
        }
    }
}

async fn delete_key(server: &Redis, name: &str) {
    let mut connection = server.connection().await.expect("Redis answers");
    let deleted: u32 =
        redis::cmd("DEL").arg(format!("{{lock:{name}}}")).query_async(&mut connection).await.expect("DEL");
    assert_eq!(deleted, 1, "the lock is there");
}

/// Makes a test of the function of that name on each service.
#[macro_export]
macro_rules! on_each_service {
    ($($promise:ident),+ $(,)?) => {
        mod on_zookeeper {
            $(#[tokio::test] async fn $promise() { super::$promise($crate::common::services::Service::zookeeper().await).await; })+
        }
        mod on_redis {
            $(#[tokio::test] async fn $promise() { super::$promise($crate::common::services::Service::redis().await).await; })+
        }
        mod on_redlock {
            $(#[tokio::test] async fn $promise() { super::$promise($crate::common::services::Service::redlock().await).await; })+
        }
    };
}

/// Makes a test of the function of that name on files of this machine.
#[macro_export]
macro_rules! on_local_files {
    ($($promise:ident),+ $(,)?) => {
        mod on_local_files {
            $(#[tokio::test] async fn $promise() { super::$promise($crate::common::services::Service::local()).await; })+
        }
    };
}

//! The servers of an arrangement, each by its number: data servers first, then Sentinels.

use std::{net::Ipv4Addr, time::Duration};

use crate::{
    LabError,
    failover::arrangement::Arrangement,
    servers::{Cluster, ClusterOptions, Redis, RedisNodes, RedisOptions, Sentinel, SentinelOptions, ZooKeeper},
};

#[derive(Debug)]
pub(super) enum Servers {
    ZooKeeper(ZooKeeper),
    Redis(Redis),
    Sentinel(Sentinel),
    Cluster(Cluster),
    Redlock(RedisNodes),
}

impl Servers {
    pub(super) async fn start(arrangement: Arrangement, own_clocks: bool, lease: Duration) -> Result<Self, LabError> {
        let options = RedisOptions::default().with_durable(arrangement.is_durable()).with_own_clock(own_clocks);
        let sentinel = SentinelOptions::default().with_own_clocks(own_clocks);
        Ok(match arrangement {
            Arrangement::Zk1 | Arrangement::Zk3 => Self::ZooKeeper(ZooKeeper::start(arrangement.voters()).await?),
            Arrangement::Redis | Arrangement::RedisFifo | Arrangement::RedisDurable => {
                Self::Redis(Redis::start_as_told(options).await?)
            }
            Arrangement::Sentinel => Self::Sentinel(Sentinel::start_with(sentinel).await?),
            Arrangement::SentinelMinReplicas => {
                Self::Sentinel(Sentinel::start_with(sentinel.with_min_replicas_to_write(1)).await?)
            }
            Arrangement::Cluster => {
                Self::Cluster(Cluster::start_with(ClusterOptions::default().with_own_clocks(own_clocks)).await?)
            }
            Arrangement::Redlock3 | Arrangement::Redlock5 | Arrangement::Redlock5Durable => {
                let max_ttl = format!("{}ms", lease.as_millis());
                let quarantine = if arrangement.is_durable() { "off" } else { "on" };
                let settings = [("max_ttl", max_ttl.as_str()), ("restart_quarantine", quarantine)];
                Self::Redlock(RedisNodes::start_as(arrangement.voters(), options, &settings).await?)
            }
        })
    }

    /// The ports of all, in the order of their numbers.
    pub(super) fn ports(&self) -> Vec<u16> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.ports(),
            Self::Redis(server) => vec![server.port()],
            Self::Sentinel(servers) => servers.nodes().iter().chain(servers.sentinels()).map(Redis::port).collect(),
            Self::Cluster(cluster) => cluster.nodes().iter().map(Redis::port).collect(),
            Self::Redlock(nodes) => nodes.ports(),
        }
    }

    /// Has all serve clients on this address of the machine, too, until they are restarted.
    pub(super) async fn serve_at(&self, address: Ipv4Addr) -> Result<(), LabError> {
        let addresses = format!("127.0.0.1 {address}");
        for server in self.redis() {
            // Only who is on this machine can send anything there.
            () = server.ask("CONFIG SET", &["protected-mode", "no", "bind", &addresses]).await?;
        }
        Ok(())
    }

    /// Those of Redis that keep locks.
    pub(super) fn redis(&self) -> &[Redis] {
        match self {
            Self::ZooKeeper(_) => &[],
            Self::Redis(server) => std::slice::from_ref(server),
            Self::Sentinel(servers) => servers.nodes(),
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Redlock(nodes) => nodes.nodes(),
        }
    }

    /// The one that a fault of one server strikes: the leader, the primary that has `key`, the first of equals.
    pub(super) async fn victim(&self, key: &str) -> Result<usize, LabError> {
        let found = match self {
            Self::ZooKeeper(ensemble) => ensemble.leader().await,
            Self::Redis(_) | Self::Redlock(_) => Some(0),
            Self::Sentinel(servers) => servers.primary().await,
            Self::Cluster(cluster) => cluster.primary(key).await?,
        };
        found.ok_or_else(|| LabError::run("there is no leader or primary that the fault could strike"))
    }

    /// Those that replicate server `primary`.
    pub(super) async fn replicas(&self, primary: usize) -> Result<Vec<usize>, LabError> {
        match self {
            Self::Sentinel(servers) => Ok((0..servers.nodes().len()).filter(|node| *node != primary).collect()),
            Self::Cluster(cluster) => cluster.replicas(primary).await,
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn kill(&mut self, index: usize) {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.kill(index),
            Self::Redis(server) => server.kill(),
            Self::Sentinel(servers) => servers.kill(index),
            Self::Cluster(cluster) => cluster.kill(index),
            Self::Redlock(nodes) => nodes.nodes_mut()[index].kill(),
        }
    }

    pub(super) fn stop(&self, index: usize) -> Result<(), LabError> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.stop(index),
            _ => self.redis()[index].stop(),
        }
    }

    pub(super) fn cont(&self, index: usize) -> Result<(), LabError> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.cont(index),
            _ => self.redis()[index].cont(),
        }
    }

    /// Starts server `index` again, with what it has on its disk.
    pub(super) async fn restart(&mut self, index: usize) -> Result<(), LabError> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.restart(index).await,
            Self::Redis(server) => server.restart().await,
            Self::Sentinel(servers) => servers.restart(index).await,
            Self::Cluster(cluster) => cluster.restart(index).await,
            Self::Redlock(nodes) => nodes.nodes_mut()[index].restart().await,
        }
    }

    /// Kills server `index` and starts it again, with what it has on its disk. A server of an ensemble is not waited for: it
    /// serves nobody before it has a leader, and the others may be next.
    pub(super) async fn restart_at_once(&mut self, index: usize) -> Result<(), LabError> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.launch_again(index),
            _ => self.restart(index).await,
        }
    }

    /// Waits until server `index`, which was started again or is a new one, takes part in decisions as all others do: it
    /// follows its leader or primary, or gives votes.
    pub(super) async fn wait_until_it_takes_part(&mut self, index: usize) -> Result<(), LabError> {
        match self {
            Self::Redlock(nodes) => nodes.wait_until_it_votes(index).await,
            _ => self.wait_until_ready().await,
        }
    }

    /// Has a new, empty server take the place of server `index`, as an operator does, and gives the one of before back.
    pub(super) async fn replace(&mut self, index: usize) -> Result<Redis, LabError> {
        match self {
            Self::Redlock(nodes) => nodes.replace(index).await,
            _ => Err(LabError::run("only a member of a Redlock deployment can be replaced by another server")),
        }
    }

    /// Starts server `index` again with nothing. An ensemble has elected another leader by then: one that had not would
    /// count the empty server among those that know everything.
    pub(super) async fn restart_empty(&mut self, index: usize) -> Result<(), LabError> {
        match self {
            Self::ZooKeeper(ensemble) => {
                ensemble.kill(index);
                ensemble.wait_until_ready().await?;
                ensemble.restart_empty(index).await
            }
            Self::Redis(server) => server.restart_empty().await,
            Self::Redlock(nodes) => nodes.nodes_mut()[index].restart_empty().await,
            // They keep nothing on their disks but what they are in the cluster.
            Self::Sentinel(_) | Self::Cluster(_) => self.restart(index).await,
        }
    }

    /// Moves the wall clock of server `index`.
    pub(super) fn set_clock_ahead(&self, index: usize, by: Duration) -> Result<(), LabError> {
        match self.redis().get(index) {
            Some(server) => server.set_clock_ahead(by),
            None => Ok(()),
        }
    }

    /// Waits until all run and do what they are for.
    pub(super) async fn wait_until_ready(&mut self) -> Result<(), LabError> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.wait_until_ready().await,
            Self::Sentinel(servers) => servers.wait_until_ready().await,
            Self::Cluster(cluster) => cluster.wait_until_ready().await,
            Self::Redis(_) | Self::Redlock(_) => {
                for server in self.redis() {
                    let role = server.role().await?;
                    if role != "master" {
                        return Err(LabError::control(server.label(), "ROLE", &format!("it is a {role}")));
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) async fn version(&self) -> Result<String, LabError> {
        match self {
            Self::ZooKeeper(ensemble) => ensemble.version().await,
            _ => self.redis()[0].version().await,
        }
    }
}

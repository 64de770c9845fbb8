//! Carries a fault out, and ends it.

use std::time::Duration;

use super::{Scene, Side, servers::Servers, truth};
use crate::{LabError, failover::fault::Fault, proxy::Proxy};

/// What the fault `delay` adds each way.
const DELAY: Duration = Duration::from_millis(30);
/// By how much a wall clock jumps: more than any lease of a run.
const JUMP: Duration = Duration::from_secs(60);
/// Nobody listens there: a server that replicates it keeps what it has, and refuses writes.
const NOBODY: &str = "1";

impl Scene {
    /// Does what must be done before the victim acquires. For most faults that is nothing; afterwards the lock can still
    /// be had, unless it must have a replica.
    ///
    /// # Errors
    /// [`LabError`] when a server does not do as it is told.
    pub async fn prepare(&mut self) -> Result<(), LabError> {
        match self.fault {
            Fault::FailoverBeforeReplication => {
                // Now: with the replicas stopped, it takes its time to ask who it is.
                let primary = self.servers.victim(&self.key()).await?;
                self.chosen = Some(primary);
                for replica in self.servers.replicas(primary).await? {
                    self.servers.stop(replica)?;
                    self.struck.push(replica);
                }
                // With the links up, what is written would still reach their sockets, and be read when they go on.
                self.servers.redis()[primary].ask("CLIENT KILL TYPE", &["REPLICA"]).await
            }
            Fault::ClockJumpMinimalQuorum => {
                let nodes = self.arrangement.voters();
                self.links.of(Side::Victim)[nodes / 2 + 1..].iter().for_each(Proxy::cut);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Strikes. Returns as soon as the fault has its effect on the servers; what clients make of it takes its time.
    ///
    /// # Errors
    /// [`LabError`] when a server does not do as it is told, or there is no holder to be struck.
    pub async fn inject(&mut self) -> Result<(), LabError> {
        let key = self.key();
        match self.fault {
            Fault::HolderKilled | Fault::HolderStopped | Fault::HolderStarved => {}
            Fault::ServerKilled => {
                let victim = self.servers.victim(&key).await?;
                self.servers.kill(victim);
                self.struck = vec![victim];
            }
            Fault::ServerRestartedEmpty => {
                let victim = self.servers.victim(&key).await?;
                self.servers.restart_empty(victim).await?;
            }
            Fault::ServerRestartedDurable => {
                let victim = self.servers.victim(&key).await?;
                self.servers.restart(victim).await?;
            }
            Fault::ServerFrozen => {
                let victim = self.servers.victim(&key).await?;
                self.freeze(vec![victim])?;
            }
            Fault::MajorityFrozen => {
                let first = self.servers.victim(&key).await?;
                let voters = self.arrangement.voters();
                self.freeze((0..=voters / 2).map(|offset| (first + offset) % voters).collect())?;
            }
            Fault::Delay => self.links.all().for_each(|proxy| proxy.delay(DELAY)),
            Fault::PartitionHolder => self.links.of(Side::Victim).iter().for_each(Proxy::hold),
            Fault::HolderRequestsLost => {
                self.links.of(Side::Victim).iter().for_each(Proxy::hold_requests);
            }
            Fault::HolderRepliesLost => {
                self.links.of(Side::Victim).iter().for_each(Proxy::hold_replies);
            }
            Fault::ReplyCut => {
                // Not the same reply everywhere: now one to an acquisition, now one to a release.
                self.links.all().zip(0..).for_each(|(proxy, after)| proxy.cut_at_reply(after));
            }
            Fault::FailoverBeforeReplication => {
                let primary = self.chosen.take();
                let primary =
                    primary.ok_or_else(|| LabError::run("this fault has to be prepared before the acquisition"))?;
                self.servers.kill(primary);
                for replica in std::mem::replace(&mut self.struck, vec![primary]) {
                    self.servers.cont(replica)?;
                }
            }
            Fault::ClockJump | Fault::ClockJumpMinimalQuorum => {
                let victim = self.servers.victim(&key).await?;
                self.servers.set_clock_ahead(victim, JUMP)?;
            }
            Fault::KeyDeleted => self.delete(&key).await?,
            Fault::ScriptFlush => {
                for server in self.servers.redis() {
                    () = server.ask("SCRIPT FLUSH", &[]).await?;
                }
            }
            Fault::ReadOnly => self.refuse_writes(&key).await?,
            Fault::SessionTakenOver => {
                let Servers::ZooKeeper(ensemble) = &self.servers else { return Ok(()) };
                ensemble.end_session(truth::holder_session(&ensemble.ports(), &self.name).await?).await?;
            }
        }
        Ok(())
    }

    /// Ends the fault: what was frozen goes on, what was killed is started again, the network is whole. A clock that
    /// jumped stays where it is: set back, it would add the jump to every lease that was given meanwhile.
    ///
    /// # Errors
    /// [`LabError`] when a server does not come back.
    pub async fn heal(&mut self) -> Result<(), LabError> {
        self.links.all().for_each(Proxy::heal);
        let struck = std::mem::take(&mut self.struck);
        for index in struck {
            match self.fault {
                Fault::ServerKilled | Fault::FailoverBeforeReplication => self.servers.restart(index).await?,
                Fault::ReadOnly => () = self.servers.redis()[index].ask("REPLICAOF", &["NO", "ONE"]).await?,
                _ => self.servers.cont(index)?,
            }
        }
        Ok(())
    }

    fn freeze(&mut self, servers: Vec<usize>) -> Result<(), LabError> {
        for index in &servers {
            self.servers.stop(*index)?;
        }
        self.struck = servers;
        Ok(())
    }

    /// As somebody who cleans up: without any regard to whose it is.
    async fn delete(&self, key: &str) -> Result<(), LabError> {
        match &self.servers {
            Servers::ZooKeeper(ensemble) => truth::delete_holder(&ensemble.ports(), &self.name).await,
            Servers::Redlock(nodes) => {
                for node in nodes.nodes() {
                    () = node.ask("DEL", &[key]).await?;
                }
                Ok(())
            }
            servers => servers.redis()[servers.victim(key).await?].ask("DEL", &[key]).await,
        }
    }

    async fn refuse_writes(&mut self, key: &str) -> Result<(), LabError> {
        let victim = self.servers.victim(key).await?;
        match &self.servers {
            Servers::Sentinel(servers) => servers.failover().await.map(drop),
            Servers::Cluster(cluster) => match cluster.replicas(victim).await?.first() {
                Some(replica) => cluster.failover(*replica).await,
                None => Err(LabError::run("the primary has no replica that could take its place")),
            },
            servers => {
                () = servers.redis()[victim].ask("REPLICAOF", &["127.0.0.1", NOBODY]).await?;
                self.struck = vec![victim];
                Ok(())
            }
        }
    }
}

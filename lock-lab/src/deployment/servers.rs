//! Running servers of one deployment, each by its number.

use std::{fmt::Debug, net::Ipv4Addr, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::LockName;

use super::{Connection, GroundTruth};
use crate::{LabError, servers::Redis};

/// What a fault does that makes no sense on these servers.
fn no_such_thing(what: &str) -> LabError {
    LabError::run(format!("there is no such thing on these servers: {what}"))
}

/// Running servers, which end when this is dropped. Those that keep locks have numbers, from 0.
///
/// What is done by a fault and makes no sense on a deployment has an error as its default; the faults say themselves where
/// they do not apply.
#[async_trait]
pub trait Servers: Debug + Send + Sync {
    /// Those of Redis among them that keep locks. What is asked of servers below is asked of these, unless a deployment has
    /// others.
    fn redis(&self) -> &[Redis] {
        &[]
    }

    /// The loopback ports at which clients come to those that keep locks, by their numbers.
    fn ports(&self) -> Vec<u16> {
        self.redis().iter().map(Redis::client_port).collect()
    }

    /// The loopback ports of further servers, which tell clients where those are.
    fn guides(&self) -> Vec<u16> {
        Vec::new()
    }

    /// What a URL says between the scheme and the settings.
    fn authority(&self, way: &Connection) -> String {
        way.hosts(&self.ports())
    }

    /// What every URL has to say besides, as `key=value&key=value`.
    fn settings(&self, _way: &Connection) -> String {
        String::new()
    }

    /// Looks at the servers themselves.
    fn ground_truth(&self) -> Arc<dyn GroundTruth>;

    /// Their version; empty where there is none.
    ///
    /// # Errors
    /// [`LabError::Control`] when they do not answer.
    async fn version(&self) -> Result<String, LabError> {
        match self.redis().first() {
            Some(server) => server.version().await,
            None => Ok(String::new()),
        }
    }

    /// How many requests clients have sent to all of them so far, as they count: heartbeats and pings are requests, too.
    /// `None` where there is no server.
    ///
    /// # Errors
    /// [`LabError::Control`] when one does not answer.
    async fn requests(&self) -> Result<Option<u64>, LabError> {
        match self.redis() {
            [] => Ok(None),
            servers => Redis::commands_of(servers).await.map(Some),
        }
    }

    /// Waits until all that run do what they are for.
    ///
    /// # Errors
    /// [`LabError`] when one does not answer, or they do not come to agree.
    async fn ready(&mut self) -> Result<(), LabError> {
        for server in self.redis() {
            server.is_primary().await?;
        }
        Ok(())
    }

    /// The one that a fault of one server strikes: the leader, the primary that has the lock, the first of equals. `None`
    /// when there is no leader or primary.
    ///
    /// # Errors
    /// [`LabError::Control`] when they do not answer.
    async fn leading(&self, _lock: &LockName) -> Result<Option<usize>, LabError> {
        Ok(Some(0))
    }

    /// Those that replicate that one.
    ///
    /// # Errors
    /// [`LabError::Control`] when they do not answer.
    async fn replicas(&self, _of: usize) -> Result<Vec<usize>, LabError> {
        Ok(Vec::new())
    }

    /// SIGKILL.
    fn kill(&mut self, _server: usize) {}

    /// SIGSTOP: connections stay open, and nothing is answered.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    fn stop(&self, server: usize) -> Result<(), LabError> {
        self.redis().get(server).ok_or_else(|| no_such_thing("a server"))?.stop()
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    fn cont(&self, server: usize) -> Result<(), LabError> {
        self.redis().get(server).ok_or_else(|| no_such_thing("a server"))?.cont()
    }

    /// Starts a server again, with what it has on its disk.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when it does not come back.
    async fn restart(&mut self, _server: usize) -> Result<(), LabError> {
        Err(no_such_thing("a server"))
    }

    /// Kills a server and starts it again, with what it has on its disk; what cannot serve without the others is not waited
    /// for.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when it does not come back.
    async fn restart_at_once(&mut self, server: usize) -> Result<(), LabError> {
        self.restart(server).await
    }

    /// Kills a server and starts it again with nothing.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when it does not come back.
    async fn restart_empty(&mut self, _server: usize) -> Result<(), LabError> {
        Err(no_such_thing("a server"))
    }

    /// Waits until a server that was started again or is new takes part in decisions as all others do: it follows its leader
    /// or primary, or gives votes.
    ///
    /// # Errors
    /// [`LabError`] when that does not happen.
    async fn takes_part(&mut self, _server: usize) -> Result<(), LabError> {
        self.ready().await
    }

    /// Puts right what a restart without its data has left, as an operator does.
    ///
    /// # Errors
    /// [`LabError`] when they do not answer.
    async fn repair(&self) -> Result<(), LabError> {
        Ok(())
    }

    /// Has a new, empty server take the place of another, as an operator does, and gives the one of before back.
    ///
    /// # Errors
    /// [`LabError::Run`] where servers cannot be replaced.
    async fn replace(&mut self, _server: usize) -> Result<Redis, LabError> {
        Err(no_such_thing("a member that is replaced"))
    }

    /// Moves the wall clock of a server.
    ///
    /// # Errors
    /// [`LabError`] where that cannot be done.
    fn set_clock_ahead(&self, server: usize, by: Duration) -> Result<(), LabError> {
        self.redis().get(server).ok_or_else(|| no_such_thing("a wall clock"))?.set_clock_ahead(by)
    }

    /// Has a server refuse writes until it is healed, or another one made the primary in order. Whether it has to be healed.
    ///
    /// # Errors
    /// [`LabError`] where that cannot be done.
    async fn refuse_writes(&mut self, _server: usize) -> Result<bool, LabError> {
        Err(no_such_thing("a server that is read-only"))
    }

    /// Ends what [`Servers::refuse_writes`] began.
    ///
    /// # Errors
    /// [`LabError`] when the server does not answer.
    async fn take_writes(&mut self, server: usize) -> Result<(), LabError> {
        self.redis().get(server).ok_or_else(|| no_such_thing("replication"))?.ask("REPLICAOF", &["NO", "ONE"]).await
    }

    /// Breaks the connections of the replicas of a server.
    ///
    /// # Errors
    /// [`LabError`] where that cannot be done.
    async fn cut_replicas(&self, server: usize) -> Result<(), LabError> {
        self.redis()
            .get(server)
            .ok_or_else(|| no_such_thing("replication"))?
            .ask("CLIENT KILL TYPE", &["REPLICA"])
            .await
    }

    /// Has a server forget its scripts.
    ///
    /// # Errors
    /// [`LabError`] where that cannot be done.
    async fn flush_scripts(&self, server: usize) -> Result<(), LabError> {
        self.redis().get(server).ok_or_else(|| no_such_thing("scripts"))?.ask("SCRIPT FLUSH", &[]).await
    }

    /// Has all serve clients on this address of the machine, too, until they are restarted.
    ///
    /// # Errors
    /// [`LabError::Control`] when one does not answer.
    async fn serve_at(&self, address: Ipv4Addr) -> Result<(), LabError> {
        let addresses = format!("127.0.0.1 {address}");
        for server in self.redis() {
            // Only who is on this machine can send anything there.
            () = server.ask("CONFIG SET", &["protected-mode", "no", "bind", &addresses]).await?;
        }
        Ok(())
    }
}

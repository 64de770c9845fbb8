//! Real services, and what may happen to them.

use std::time::Duration;

use lock::LockName;
use lock_lab::deployment::{Connection, Deployment, Running};

/// For how long a lock outlives its holder here: the ttl, or the session time-out. Several times as long as a machine with too much to
/// do may stand still.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// A running service.
#[derive(Debug)]
pub(crate) struct Service(Running);

impl Service {
    pub(crate) async fn zookeeper() -> Self {
        Self::of("zk1").await
    }

    pub(crate) async fn redis() -> Self {
        Self::of("redis").await
    }

    pub(crate) async fn redlock() -> Self {
        Self::of("redlock5").await
    }

    /// Files of this machine; the kernel is never out of reach.
    pub(crate) async fn local() -> Self {
        Self::of("local").await
    }

    async fn of(deployment: &str) -> Self {
        let deployment: Deployment = deployment.parse().expect("a deployment");
        Self(deployment.start().await.expect("its servers start"))
    }

    /// Which one it is.
    pub(crate) fn deployment(&self) -> Deployment {
        self.0.deployment()
    }

    /// The URL of connections whose locks outlive them for [`LEASE`].
    pub(crate) fn url(&self) -> String {
        self.0.url(&self.way())
    }

    /// As [`Service::url`], for holders that keep their locks to the end: these outlive any standstill of the machine.
    pub(crate) fn lasting_url(&self) -> String {
        self.0.url(&self.way().with_lease(LEASE * 4))
    }

    /// As [`Service::url`], for a client whose servers always answer, if late: the machine is busy, or stands still.
    pub(crate) fn patient_url(&self) -> String {
        self.0.url(&self.way().with_answer_limit(Duration::from_secs(20)))
    }

    fn way(&self) -> Connection {
        let own_era = if self.0.deployment().servers == 0 { "era=0" } else { "" };
        Connection::default().with_lease(LEASE).with(own_era)
    }

    /// How long after the death of a holder the next one must hold at the latest.
    pub(crate) fn succession(&self) -> Duration {
        self.0.deployment().succession(LEASE)
    }

    /// Deletes what stands for the lock on the servers, as an operator would.
    pub(crate) async fn delete(&self, name: &str) {
        let name = LockName::new(name).expect("a name");
        self.0.ground_truth().delete(&name).await.expect("it can be deleted");
    }

    /// Freezes all servers: connections stay open, and nothing is answered.
    pub(crate) fn freeze(&self) {
        (0..self.servers()).try_for_each(|server| self.0.stop(server)).expect("servers can be stopped");
    }

    /// Kills all servers.
    pub(crate) fn kill(&mut self) {
        (0..self.servers()).for_each(|server| self.0.kill(server));
    }

    /// Takes all servers down: those of a quorum are frozen, since they forget their deployment when they are killed.
    pub(crate) fn take_down(&mut self) {
        if self.0.deployment().is_quorum() { self.freeze() } else { self.kill() }
    }

    /// Brings back what [`Service::take_down`] has taken down.
    pub(crate) async fn bring_up(&mut self) {
        for server in 0..self.servers() {
            if self.0.deployment().is_quorum() {
                self.0.cont(server).expect("it goes on");
            } else {
                self.0.restart(server).await.expect("it starts again");
            }
        }
    }

    fn servers(&self) -> usize {
        match self.0.deployment().servers {
            0 => panic!("there are no servers"),
            servers => servers,
        }
    }
}

/// Makes a test of the function of that name on each service.
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
macro_rules! on_local_files {
    ($($promise:ident),+ $(,)?) => {
        mod on_local_files {
            $(#[tokio::test] async fn $promise() { super::$promise($crate::common::services::Service::local().await).await; })+
        }
    };
}

pub(crate) use {on_each_service, on_local_files};

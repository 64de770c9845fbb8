//! One arrangement of servers, with proxies in front of all of them, and one fault that can strike it.

mod links;
mod observer;
mod server;
mod servers;
mod strike;
mod truth;

use std::{path::PathBuf, time::Duration};

use lock_core::LockName;
use lock_redis::keys::Keys;

use self::{links::Links, observer::Places, servers::Servers, strike::ServerFault};
pub use self::{links::Side, observer::Observer};
use super::{
    arrangement::Arrangement,
    fault::{Disagreement, Fault},
};
use crate::{
    LabError,
    servers::{Redis, ZooKeeper},
};

/// What the keys of locks begin with by default.
const PREFIX: &str = "lock";
/// How many data nodes an arrangement with Sentinels has; the Sentinels come after them.
const SENTINEL_NODES: usize = 3;

/// Running servers and the fault of one run.
///
/// A run calls [`Scene::prepare`], has the victim take the lock, takes the fault's steps by [`Scene::step`] while it holds
/// (or all that concern the scene by [`Scene::inject`]), calls [`Scene::heal`], and waits with [`Scene::healthy`]. The
/// processes that hold are not the scene's: steps that strike them do nothing here.
#[derive(Debug)]
pub struct Scene {
    arrangement: Arrangement,
    fault: Fault,
    name: LockName,
    servers: Servers,
    places: Places,
    /// Running servers that are no members: one that was replaced, or never was any.
    beside: Vec<Redis>,
    links: Links,
    /// Whom the fault will strike, where that had to be found out before.
    chosen: Option<usize>,
    /// The servers that the fault has struck, and how.
    struck: Vec<(usize, ServerFault)>,
}

impl Scene {
    /// Starts the servers. `name` is the lock that the victim will hold: the fault strikes the servers that have it. `lease`
    /// is for how long locks will outlive their holders; with Redlock it is the longest that the deployment allows.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when a program is not installed, `Run` when the fault makes no sense on the arrangement.
    pub async fn start(
        arrangement: Arrangement,
        fault: Fault,
        name: LockName,
        lease: Duration,
    ) -> Result<Self, LabError> {
        if let Some(reason) = fault.why_not(arrangement) {
            return Err(LabError::run(format!("{fault} does not apply to {arrangement}: {reason}")));
        }
        let servers = Servers::start(arrangement, fault.scenario().own_clocks, lease).await?;
        let links = Links::start(&servers.ports(), fault.scenario().network, arrangement.replicates()).await?;
        if let Some(address) = links.address() {
            servers.serve_at(address).await?;
        }
        let places = Places::new(servers.ports());
        let mut beside = Vec::new();
        if fault.scenario().strangers.contains(&Disagreement::Servers) {
            let server = Redis::start().await?;
            places.put_beside(server.port());
            beside.push(server);
        }
        Ok(Self { arrangement, fault, name, servers, places, beside, links, chosen: None, struck: Vec::new() })
    }

    /// Which arrangement it is.
    #[must_use]
    pub fn arrangement(&self) -> Arrangement {
        self.arrangement
    }

    /// Which fault it has.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The URL for connections of that side, whose locks outlive their holder by at most `lease`: the ttl, or ZooKeeper's
    /// session time-out.
    #[must_use]
    pub fn url(&self, side: Side, lease: Duration) -> String {
        let millis = lease.as_millis();
        let ttl = format!("ttl={millis}ms");
        let all = self.links.hosts(side, 0..);
        match self.arrangement {
            Arrangement::Zk1 | Arrangement::Zk3 => {
                format!("zk://{all}/?session_timeout={millis}ms&tick_time={}ms", ZooKeeper::TICK.as_millis())
            }
            Arrangement::Redis | Arrangement::RedisDurable => format!("redis://{all}/?{ttl}"),
            Arrangement::RedisFifo => format!("redis://{all}/?{ttl}&queue=fifo"),
            Arrangement::Sentinel | Arrangement::SentinelMinReplicas => {
                let sentinels = self.links.hosts(side, SENTINEL_NODES..);
                let least = if self.arrangement == Arrangement::Sentinel { "" } else { "&min_replicas=1" };
                format!("redis+sentinel://{sentinels}/{}?{ttl}{least}", crate::servers::Sentinel::NAME)
            }
            Arrangement::Cluster => format!("redis+cluster://{all}/?{ttl}"),
            Arrangement::Redlock3 | Arrangement::Redlock5 | Arrangement::Redlock5Durable => {
                format!("redlock://{all}/?{ttl}")
            }
        }
    }

    /// The URL of a process whose settings disagree so with those of the servers, which it reaches without a proxy: a client
    /// knows a server that is no member by its address, where the others have those that an operator gave them.
    ///
    /// # Errors
    /// [`LabError::Run`] where nobody can disagree so.
    pub fn strange_url(&self, disagreement: Disagreement, lease: Duration) -> Result<String, LabError> {
        if !self.arrangement.is_redlock() {
            return Err(LabError::run("only members of a Redlock deployment have settings to disagree with"));
        }
        let mut ports = self.servers.ports();
        let other = match disagreement {
            Disagreement::Servers => {
                let nobody = || LabError::run("no server runs beside those of the deployment");
                let beside = self.beside.first().ok_or_else(nobody)?;
                let last = ports.len() - 1;
                ports[last] = beside.port();
                String::new()
            }
            Disagreement::MaxTtl => format!("&max_ttl={}ms", lease.as_millis() * 2),
        };
        let hosts: Vec<String> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Ok(format!("redlock://{}/?ttl={}ms{other}", hosts.join(","), lease.as_millis()))
    }

    /// The network namespace in which the processes of that side are to run; `None` for that of this program.
    #[must_use]
    pub fn namespace(&self, side: Side) -> Option<PathBuf> {
        self.links.namespace(side)
    }

    /// How many segments the kernel has sent again to or from the victim; `None` where both are on one loopback
    /// interface.
    ///
    /// # Errors
    /// [`LabError::Io`] when the kernel's counters cannot be read.
    pub fn retransmitted(&self) -> Result<Option<u64>, LabError> {
        self.links.retransmitted()
    }

    /// What looks at the servers themselves, past the proxies. It can be used from other tasks, while a fault strikes.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer::new(self.arrangement, self.name.clone(), self.places.clone())
    }

    /// Waits until all servers run and do what they are for, with what they need to bear a fault. After a fault, it has
    /// to be healed first.
    ///
    /// # Errors
    /// [`LabError`] when a server does not answer, or they do not come to agree.
    pub async fn healthy(&mut self) -> Result<(), LabError> {
        self.servers.wait_until_ready().await
    }

    /// The servers' version.
    ///
    /// # Errors
    /// [`LabError::Control`] when they do not answer.
    pub async fn version(&self) -> Result<String, LabError> {
        self.servers.version().await
    }

    /// The key under which the servers of Redis keep the lock.
    fn key(&self) -> String {
        Keys::new(PREFIX, &self.name).lock().to_owned()
    }
}

//! One deployment, with proxies in front of all its servers, and one fault that can strike it.

mod links;
mod observer;
mod strike;

use std::{path::PathBuf, time::Duration};

use lock_core::LockName;

pub use self::{links::Side, observer::Observer};
use self::{links::SideProxies, strike::ServerFault};
use super::fault::{Disagreement, Fault};
use crate::{
    LabError,
    deployment::{Connection, Deployment, Running, StartOptions},
    servers::Redis,
};

/// How long one server may take to answer whoever looks on. A frozen server never does.
const PATIENCE: Duration = Duration::from_millis(200);
/// The same for an ensemble, which answers as one: without a majority there is no answer.
const PATIENCE_WITH_ENSEMBLE: Duration = Duration::from_millis(500);

/// Running servers and the fault of one run.
///
/// A run calls [`Scene::prepare`], has the victim take the lock, takes the fault's steps by [`Scene::step`] while it holds
/// (or all that concern the scene by [`Scene::inject`]), calls [`Scene::heal`], and waits with [`Scene::healthy`]. The
/// processes that hold are not the scene's: steps that strike them do nothing here.
#[derive(Debug)]
pub struct Scene {
    fault: Fault,
    name: LockName,
    servers: Running,
    /// Running servers that are no members: one that was replaced, or never was any.
    beside: Vec<Redis>,
    links: SideProxies,
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
    /// [`LabError`]; `Missing` when a program is not installed, `Run` when the fault makes no sense on the deployment.
    pub async fn start(on: Deployment, fault: Fault, name: LockName, lease: Duration) -> Result<Self, LabError> {
        if let Some(reason) = fault.why_not(on) {
            return Err(LabError::run(format!("{fault} does not apply to {on}: {reason}")));
        }
        let options = StartOptions {
            own_clocks: fault.scenario().own_clocks,
            longest_lease: Some(lease),
            patience: if on.is_ensemble() { PATIENCE_WITH_ENSEMBLE } else { PATIENCE },
            ..StartOptions::default()
        };
        let servers = on.start_with(options).await?;
        let links = SideProxies::start(&servers.all_ports(), fault.scenario().network).await?;
        if let Some(address) = links.address() {
            servers.serve_at(address).await?;
        }
        let mut beside = Vec::new();
        if fault.scenario().strangers.contains(&Disagreement::Servers) {
            let server = Redis::start().await?;
            servers.ground_truth().look_beside(server.port());
            beside.push(server);
        }
        Ok(Self { fault, name, servers, beside, links, chosen: None, struck: Vec::new() })
    }

    /// Which deployment it is.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        self.servers.deployment()
    }

    /// Which fault it has.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The URL for connections of that side, whose locks outlive their holder by at most `lease`: the ttl, or the session
    /// time-out.
    #[must_use]
    pub fn url(&self, side: Side, lease: Duration) -> String {
        self.servers.url(&self.links.way(side).with_lease(lease))
    }

    /// As [`Scene::url`], for a client that waits longer for an answer than a machine may stand still.
    #[must_use]
    pub fn patient_url(&self, side: Side, lease: Duration) -> String {
        self.servers.url(&self.links.way(side).with_lease(lease).with_answer_limit(Duration::from_secs(20)))
    }

    /// The URL of a process whose settings disagree so with those of the servers, which it reaches without a proxy: a client
    /// knows a server that is no member by its address, where the others have those that an operator gave them.
    ///
    /// # Errors
    /// [`LabError::Run`] where nobody can disagree so.
    pub fn strange_url(&self, disagreement: Disagreement, lease: Duration) -> Result<String, LabError> {
        if !self.deployment().is_quorum() {
            return Err(LabError::run("only members of a Redlock deployment have settings to disagree with"));
        }
        let way = Connection::default().with_lease(lease);
        let way = match disagreement {
            Disagreement::Servers => {
                let nobody = || LabError::run("no server runs beside those of the deployment");
                let beside = self.beside.first().ok_or_else(nobody)?;
                let last = self.servers.ports().pop().ok_or_else(nobody)?;
                way.through([(last, beside.port())])
            }
            Disagreement::MaxTtl => way.with(&format!("max_ttl={}ms", lease.as_millis() * 2)),
        };
        Ok(self.servers.url(&way))
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
        Observer::new(self.deployment(), self.name.clone(), self.servers.ground_truth())
    }

    /// Waits until all servers run and do what they are for, with what they need to bear a fault. After a fault, it has
    /// to be healed first.
    ///
    /// # Errors
    /// [`LabError`] when a server does not answer, or they do not come to agree.
    pub async fn healthy(&mut self) -> Result<(), LabError> {
        self.servers.ready().await
    }

    /// The servers' version.
    ///
    /// # Errors
    /// [`LabError::Control`] when they do not answer.
    pub async fn version(&self) -> Result<String, LabError> {
        self.servers.version().await
    }
}

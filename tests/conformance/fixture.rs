//! A deployment of the laboratory as the suite uses it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Error, LockName, Locks,
    conformance::{Down, Failure, Fixture, Kept, LONG_TTL, Link, Severable},
};
use lock_lab::{
    LabError,
    deployment::{Connection, Deployment, GroundTruth, Running, StartOptions},
    proxy::Proxy,
    servers::ServerCertificate,
};

/// The lease of connections that are cut off: several times as long as a machine with too much to do may stand still.
const SHORT_LEASE: Duration = Duration::from_secs(6);

/// The same on ZooKeeper, where less of it is left at any time, and the client library gives a connection up that was silent for two
/// fifths of it.
const SHORT_SESSION: Duration = Duration::from_secs(10);

/// For how long a client is patient with servers.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The limit for one request.
    answer: Duration,
    /// The limit for connecting; on ZooKeeper it is that for a release, too.
    connect: &'static str,
    /// For how long an outage is bridged.
    outage: &'static str,
}

/// With servers that a case expects to be up: a disk that keeps them waiting, or a machine that stands still, is no outage. Less
/// than a case waits, and than a lease lasts.
const PATIENT: Patience =
    Patience { answer: Duration::from_secs(40), connect: "connect_timeout=40s", outage: "outage_timeout=45s" };

/// With servers that a case cuts off. The limit for a request leaves time for a second try at the renewal of a short lease. It is
/// longer than the second and a half for which a machine may stand still: just as long, it would pass as both go on, and neither
/// leave the server time nor be late enough to start again. An outage is bridged for several times as long.
const BRIEF: Patience =
    Patience { answer: Duration::from_secs(2), connect: "connect_timeout=5s", outage: "outage_timeout=10s" };

/// Running servers, and clients that have the least rights that are enough, so that the whole suite shows that they are. To one of
/// the deployments of each scheme that has TLS at least they come by it, with a certificate.
#[derive(Debug)]
pub(crate) struct DeploymentFixture {
    running: Running,
    truth: Arc<dyn GroundTruth>,
    /// Proxies to servers that are down: they live as long as what was connected through them.
    down: Mutex<Vec<Proxies>>,
}

impl DeploymentFixture {
    pub(crate) async fn start(deployment: Deployment) -> Result<Self, LabError> {
        let tls = (!deployment.is_in_clear).then_some(ServerCertificate::Good);
        let patience = PATIENT.answer;
        let options = StartOptions { tls, users: true, patience, bears_silence: true, ..StartOptions::default() };
        let running = deployment.start_with(options).await?;
        Ok(Self { truth: running.ground_truth(), running, down: Mutex::default() })
    }

    async fn locks(&self, way: Connection, lease: Duration, patience: Patience) -> Result<Locks, Error> {
        let deployment = self.running.deployment();
        let way = way.with_lease(lease).with_answer_limit(patience.answer).with(patience.outage);
        // Where a lease ends with its process, there is nothing to connect to.
        let way = way.with(deployment.lease.map_or("", |_| patience.connect)).with(deployment.in_trials);
        lock::connect(&self.running.url(&way)).await
    }

    /// A proxy before each of the servers.
    async fn proxies(&self) -> Result<Proxies, LabError> {
        let mut proxies = Vec::new();
        for port in self.running.all_ports() {
            proxies.push((port, Proxy::start(port).await?));
        }
        Ok(Proxies(proxies))
    }
}

#[async_trait]
impl Fixture for DeploymentFixture {
    async fn connect(&self) -> Result<Locks, Failure> {
        Ok(self.locks(Connection::default(), LONG_TTL, PATIENT).await?)
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let proxies = self.proxies().await?;
        let is_session = self.running.deployment().scheme == "zk";
        let lease = if is_session { SHORT_SESSION } else { SHORT_LEASE };
        let locks = self.locks(proxies.way(), lease, BRIEF).await?;
        Ok(Severable { locks, link: Box::new(proxies) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        let proxies = self.proxies().await;
        let proxies = proxies.map_err(|error| Error::config("proxy", error.to_string(), "one that starts"))?;
        match down {
            Down::Refusing => proxies.cut().await,
            Down::Silent => proxies.hold().await,
        }
        let way = proxies.way();
        self.down.lock().unwrap_or_else(PoisonError::into_inner).push(proxies);
        self.locks(way, LONG_TTL, BRIEF).await
    }

    fn ends_grants_in_one_step(&self) -> bool {
        !self.running.deployment().is_quorum()
    }

    async fn residue(&self, names: &[LockName]) -> Result<Vec<String>, Failure> {
        let mut left = self.truth.residue(names, false).await;
        // What a server that did not answer has is not known: it is asked again.
        left.things.extend(left.silent.iter().map(|server| format!("what {server} has")));
        Ok(left.things)
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        Ok(self.truth.delete(name).await?)
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        Ok(self.truth.kept(name, token).await?)
    }
}

/// The proxies of one connection, each by the port of its server, and with that the means to cut it off.
#[derive(Debug)]
struct Proxies(Vec<(u16, Proxy)>);

impl Proxies {
    fn way(&self) -> Connection {
        Connection::default().through(self.0.iter().map(|(server, proxy)| (*server, proxy.port())))
    }

    fn each(&self, does: impl Fn(&Proxy)) {
        self.0.iter().for_each(|(_, proxy)| does(proxy));
    }
}

#[async_trait]
impl Link for Proxies {
    async fn hold(&self) {
        self.each(Proxy::hold);
    }

    async fn cut(&self) {
        self.each(Proxy::cut);
    }

    async fn slow_down(&self, delay: Duration) {
        self.each(|proxy| proxy.delay(delay));
    }

    async fn heal(&self) {
        self.each(Proxy::heal);
    }
}

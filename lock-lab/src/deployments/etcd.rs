//! etcd, one server or three.

use std::{
    collections::HashSet,
    error::Error as _,
    fmt, fs,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use etcd_client::{
    Client, ConnectOptions, Error, GetOptions, KeyValue, ResponseHeader, SortOrder, SortTarget, StatusResponse,
};
use lock_core::{Clock, LockName, conformance::Kept};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;

use crate::{
    LabError,
    deployment::{
        Connection, Decides, Description, GroundTruth, Held, Lease, Left, Sample, Servers, StartOptions, StartFuture, Trials,
    },
    servers::{
        Certificates, ServerCertificate, ports,
        process::{Process, Program, data_directory},
        rights,
        until::RetryLimit,
    },
};

inventory::submit! {
    Description {
        trials: Trials::All,
        is_in_clear: true,
        is_compared: true,
        quick: &["pauses", "server-restarted-durable"],
        column: Some("etcd"),
        ..ONE
    }
}

inventory::submit! {
    Description {
        key: "etcd3",
        title: "etcd 3",
        servers: 3,
        decides: Decides::Ensemble(3),
        stopped_leader: Some(
            "a leader that was stopped, and does not know of its successor, ends leases too early, in versions from before 2024 (etcd \
             issue 15247)",
        ),
        start: |options| start(3, options),
        trials: Trials::OfTheWay,
        is_compared: true,
        strike: Some("the leader of three killed"),
        quick: &["server-killed", "server-frozen"],
        ..ONE
    }
}

/// One server, which has each transaction on its disk.
const ONE: Description = Description {
    scheme: "etcd",
    // A server looks twice a second for what has ended. It counts whole seconds, as the leases here are.
    lease: Some(Lease { setting: "session_ttl", notice: Duration::from_millis(600), has_claims: false }),
    answer_limit: Some("response_timeout"),
    decides: Decides::Ensemble(1),
    is_durable: true,
    strike: Some("the server killed, and started again with its data"),
    is_struck: true,
    ..Description::new("etcd1", "etcd 1", |options| start(1, options))
};

/// Where the locks are by default.
const ROOT: &str = "/locks";
/// How often a start is repeated when somebody else took a port.
const ATTEMPTS: u32 = 4;
/// How long a server may take for the answer to one question about itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long servers may be without a leader: a second is much, but for a machine that is busy with other tests.
const ELECTION_LIMIT: Duration = Duration::from_secs(30);
/// Between two questions to a server that does not serve yet.
const PAUSE: Duration = Duration::from_millis(5);

fn start(count: usize, options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match EtcdDeployment::start(count, options).await {
                // Somebody else may have taken a port since it was looked at.
                Err(LabError::NotStarted { .. }) if attempts > 0 => {}
                started => return Ok(Box::new(started?) as Box<dyn Servers>),
            }
        }
    })
}

/// One etcd server, and what it takes to start it again.
#[derive(Debug)]
struct EtcdServer {
    /// Where it serves in clear text.
    port: u16,
    /// Where it serves by TLS whoever has a certificate, and which one it shows.
    by_tls: Option<(u16, ServerCertificate)>,
    /// Where the others of its cluster reach it.
    peer_port: u16,
    dir: TempDir,
    program: Program,
    process: Option<Process>,
}

impl EtcdServer {
    /// Servers of one cluster, none of which is started.
    fn cluster(count: usize, certificate: Option<ServerCertificate>) -> Result<Vec<Self>, LabError> {
        let mut servers = Vec::new();
        for _ in 0..count {
            let program = Program { name: "etcd", package: "etcd-server", arguments: Vec::new(), environment: Vec::new() };
            let (port, peer_port, dir) = (ports::free(), ports::free(), data_directory()?);
            let by_tls = certificate.map(|certificate| (ports::free(), certificate));
            servers.push(Self { port, by_tls, peer_port, dir, program, process: None });
        }
        let cluster: Vec<_> = servers.iter().map(|server| format!("{}={}", server.name(), server.peer_url())).collect();
        for server in &mut servers {
            server.program.arguments = server.arguments(&cluster.join(","))?;
        }
        Ok(servers)
    }

    fn arguments(&self, cluster: &str) -> Result<Vec<String>, LabError> {
        let key = self.dir.path().join("token.key");
        fs::write(&key, "what signs the tokens").map_err(|source| LabError::io("writing the key of etcd", source))?;
        let mut client_urls = format!("http://127.0.0.1:{}", self.port);
        let mut tls = Vec::new();
        if let Some((port, certificate)) = self.by_tls {
            let certificates = Certificates::shared()?;
            let (certificate, key) = certificates.server(certificate);
            client_urls = format!("{client_urls},https://127.0.0.1:{port}");
            let files = [("cert", certificate), ("key", key), ("trusted-ca", certificates.ca_file())];
            tls.extend(files.map(|(which, path)| format!("--{which}-file={}", path.display())));
            tls.push("--client-cert-auth".to_owned());
        }
        // Of sessions that live for a second or more none is lengthened: the least is one and a half elections.
        let arguments = [
            ("--name", self.name()),
            ("--data-dir", "data".to_owned()),
            ("--listen-client-urls", client_urls.clone()),
            ("--advertise-client-urls", client_urls),
            ("--listen-peer-urls", self.peer_url()),
            ("--initial-advertise-peer-urls", self.peer_url()),
            ("--initial-cluster", cluster.to_owned()),
            ("--heartbeat-interval", "50".to_owned()),
            ("--election-timeout", "500".to_owned()),
            // Each connection signs in.
            ("--bcrypt-cost", "4".to_owned()),
            // As its documentation asks for where there are users: tokens that end with any change of users, and after their time.
            ("--auth-token", format!("jwt,sign-method=HS256,priv-key={},ttl=1m", key.display())),
        ];
        Ok(arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).chain(tls).collect())
    }

    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }

    /// What it is called in its cluster: no other server has a directory of that name.
    fn name(&self) -> String {
        self.dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Starts it with the data that it has.
    fn launch(&mut self) -> Result<(), LabError> {
        self.process = None;
        self.process = Some(self.program.start(self.dir.path())?);
        Ok(())
    }

    /// Ends it, and removes its data.
    fn clear(&mut self) -> Result<(), LabError> {
        self.process = None;
        let data = self.dir.path().join("data");
        fs::remove_dir_all(data).map_err(|source| LabError::io("removing the data of etcd", source))
    }

    fn signal(&self, signal: Signal) -> Result<(), LabError> {
        self.process.as_ref().ok_or_else(|| LabError::run("the server is down"))?.signal(signal)
    }

    /// How many messages of clients it has counted so far.
    async fn requests(&self) -> Result<u64, LabError> {
        let ask = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let late = || LabError::control("etcd".to_owned(), "/metrics", &format!("nothing within {ANSWER_LIMIT:?}"));
        let answer = Clock::boot().timeout(ANSWER_LIMIT, ask).await.ok_or_else(late)?;
        let answer = answer.map_err(|error| LabError::control("etcd".to_owned(), "/metrics", &error))?;
        let counts = answer.lines().filter(|line| line.starts_with("grpc_server_msg_received_total"));
        Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.process = None;
        let by_tls = self.by_tls.map(|(port, _)| port);
        [self.port, self.peer_port].into_iter().chain(by_tls).for_each(ports::give_back);
    }
}

/// The running servers of an etcd cluster, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct EtcdDeployment {
    servers: Vec<EtcdServer>,
    truth: Arc<EtcdTruth>,
    has_users: bool,
}

impl EtcdDeployment {
    async fn start(count: usize, options: StartOptions) -> Result<Self, LabError> {
        let servers = EtcdServer::cluster(count, options.tls)?;
        let truth = Arc::new(EtcdTruth::new(servers.iter().map(|server| server.port), options.patience));
        let mut etcd = Self { servers, truth, has_users: options.users };
        etcd.launch_empty().await?;
        Ok(etcd)
    }

    /// Starts all without data, and makes their users if they have any.
    async fn launch_empty(&mut self) -> Result<(), LabError> {
        self.truth.signs_in(false);
        self.servers.iter_mut().try_for_each(EtcdServer::launch)?;
        self.ready().await?;
        if self.has_users {
            let mut client = self.truth.client(0).await.map_err(|error| control(&error))?;
            rights::grant_in_etcd(&mut client).await?;
            self.truth.signs_in(true);
        }
        Ok(())
    }

    /// Has the cluster take a server as a new member in the place of the old one. May be done again after an error.
    async fn replace_member(&self, server: usize) -> Result<(), Error> {
        let (name, peer_url) = (self.servers[server].name(), self.servers[server].peer_url());
        self.truth
            .ask(async |mut client| {
                let members = client.member_list().await?;
                // A member that has never run has no name yet.
                let (old, others): (Vec<_>, Vec<_>) = members.members().iter().partition(|member| member.name() == name);
                for old in old {
                    client.member_remove(old.id()).await?;
                }
                if !others.iter().any(|member| member.peer_urls().contains(&peer_url)) {
                    client.member_add([peer_url], None).await?;
                }
                Ok(())
            })
            .await
    }

    /// What keeps a server from serving yet.
    async fn obstacle(&self, server: usize) -> Option<String> {
        let name = self.servers[server].name();
        let look = self.truth.ask_server(server, async |mut client| {
            let is_itself = client.member_list().await?.members().iter().any(|member| member.name() == name);
            Ok((is_itself, client.status().await?.leader()))
        });
        match look.await {
            Ok((false, _)) => Some("another server answers on its port".to_owned()),
            Ok((true, 0)) => Some("it knows of no leader".to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

#[async_trait]
impl Servers for EtcdDeployment {
    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.by_tls.map_or(server.port, |(port, _)| port)).collect()
    }

    fn authority(&self, way: &Connection) -> String {
        rights::user(self.has_users) + &way.hosts(&self.ports())
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::clone(&self.truth) as _
    }

    async fn version(&self) -> Result<String, LabError> {
        let status = self.truth.ask(async |mut client| client.status().await).await;
        Ok(status.map_err(|error| control(&error))?.version().to_owned())
    }

    /// As their own figures count them.
    async fn requests(&self) -> Result<Option<u64>, LabError> {
        let mut all = 0;
        for server in &self.servers {
            all += server.requests().await?;
        }
        Ok(Some(all))
    }

    async fn ready(&mut self) -> Result<(), LabError> {
        let patience = RetryLimit::with("etcd");
        for number in 0..self.servers.len() {
            while let Some(process) = &mut self.servers[number].process {
                if let Some(status) = process.ended() {
                    let (server, reason) = ("etcd".to_owned(), format!("it ended with {status}"));
                    return Err(LabError::NotStarted { server, reason, log: process.log() });
                }
                let Some(obstacle) = self.obstacle(number).await else { break };
                patience.again(obstacle).await?;
            }
        }
        Ok(())
    }

    async fn leading(&self, _lock: &LockName) -> Result<Option<usize>, LabError> {
        for number in 0..self.servers.len() {
            let status = self.truth.ask_server(number, async |mut client| client.status().await).await;
            let member = |status: &StatusResponse| status.header().map_or(0, ResponseHeader::member_id);
            if status.is_ok_and(|status| status.leader() == member(&status)) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn kill(&mut self, server: usize) {
        self.servers[server].process = None;
    }

    fn stop(&self, server: usize) -> Result<(), LabError> {
        self.servers[server].signal(Signal::STOP)
    }

    fn cont(&self, server: usize) -> Result<(), LabError> {
        self.servers[server].signal(Signal::CONT)
    }

    async fn restart(&mut self, server: usize) -> Result<(), LabError> {
        self.servers[server].launch()?;
        self.ready().await
    }

    async fn restart_at_once(&mut self, server: usize) -> Result<(), LabError> {
        self.servers[server].launch()
    }

    /// One of several comes as a new member in the place of the old one, as its documentation asks for.
    async fn restart_empty(&mut self, server: usize) -> Result<(), LabError> {
        self.servers[server].clear()?;
        if self.servers.len() == 1 {
            return self.launch_empty().await;
        }
        let patience = RetryLimit::with("etcd");
        while let Err(error) = self.replace_member(server).await {
            patience.again(error.to_string()).await?;
        }
        let joins = ["--initial-cluster-state", "existing"].map(str::to_owned);
        self.servers[server].program.arguments.extend(joins);
        self.restart(server).await
    }
}

/// The [`GroundTruth`] of an etcd cluster, read from its keys by a client for each server, made anew after an error. One is asked
/// at a time, the next one when it does not answer: each shows what all have agreed on.
struct EtcdTruth {
    patience: Duration,
    signs_in: AtomicBool,
    clients: Vec<(u16, Mutex<Option<Client>>)>,
    turn: AtomicUsize,
}

impl fmt::Debug for EtcdTruth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTruth").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl EtcdTruth {
    fn new(ports: impl Iterator<Item = u16>, patience: Duration) -> Self {
        let clients = ports.map(|port| (port, Mutex::default())).collect();
        Self { patience, signs_in: AtomicBool::new(false), clients, turn: AtomicUsize::new(0) }
    }

    /// From now on it asks as the administrator, or as nobody.
    fn signs_in(&self, signs_in: bool) {
        self.signs_in.store(signs_in, Ordering::Relaxed);
        (0..self.clients.len()).for_each(|server| *self.kept(server) = None);
    }

    /// Asks the server whose turn it is.
    async fn ask<T>(&self, question: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, Error> {
        let turn = self.turn.load(Ordering::Relaxed);
        let answer = self.ask_server(turn % self.clients.len(), question).await;
        if answer.is_err() {
            self.turn.store(turn + 1, Ordering::Relaxed);
        }
        answer
    }

    async fn ask_server<T>(
        &self,
        server: usize,
        question: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // On the heap: the library's futures are of some 20 KiB each.
        let look = Box::pin(async { question(self.client(server).await?).await });
        let late = || Err(Error::Internal(format!("no answer within {:?}", self.patience)));
        let answer = Clock::boot().answer_timeout(self.patience, look).await.unwrap_or_else(late);
        if answer.is_err() {
            *self.kept(server) = None;
        }
        answer
    }

    async fn client(&self, server: usize) -> Result<Client, Error> {
        let kept = self.kept(server).clone();
        if let Some(client) = kept {
            return Ok(client);
        }
        let mut options = ConnectOptions::new().with_connect_timeout(self.patience);
        if self.signs_in.load(Ordering::Relaxed) {
            let (user, password) = rights::ADMINISTRATOR;
            options = options.with_user(user, password).with_auto_token_refresh(true);
        }
        let client = Client::connect([format!("127.0.0.1:{}", self.clients[server].0)], Some(options)).await?;
        Ok(self.kept(server).insert(client).clone())
    }

    fn kept(&self, server: usize) -> MutexGuard<'_, Option<Client>> {
        self.clients[server].1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until there is a leader: on a busy machine the servers elect one now and then. The question may arrive twice.
    async fn ask_a_leader<T, F>(&self, question: impl Fn(Client) -> F + Sync) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(ELECTION_LIMIT);
        loop {
            match self.ask(async |client| question(client).await).await {
                Err(error) if is_about_a_leader(&error) && clock.now() < deadline => clock.sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// The contenders of a lock in the order of their revisions: the first one holds.
    async fn contenders(&self, name: &LockName) -> Result<Vec<KeyValue>, Error> {
        self.ask_a_leader(|client| contenders(client, name)).await
    }

    async fn holder(&self, name: &LockName) -> Result<KeyValue, LabError> {
        let contenders = self.contenders(name).await.map_err(|error| control(&error))?;
        contenders.into_iter().next().ok_or_else(|| LabError::run(format!("nobody holds {name}")))
    }
}

/// What the keys of a lock's contenders begin with.
fn directory(name: &LockName) -> String {
    format!("{ROOT}/{}/", name.to_component())
}

/// The contenders of a lock in the order of their revisions, as that client's server shows them.
async fn contenders(mut client: Client, name: &LockName) -> Result<Vec<KeyValue>, Error> {
    let in_order = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let found = client.get(directory(name), Some(in_order)).await;
    found.map(|mut found| found.take_kvs())
}

/// Whether a server has said that it cannot answer now: it has no leader, or has just got another one.
fn is_about_a_leader(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.code() == Code::Unavailable && status.source().is_none())
}

fn control(error: &Error) -> LabError {
    LabError::control("etcd".to_owned(), "a question of the laboratory", error)
}

fn left(found: Result<Vec<String>, Error>) -> Left {
    match found {
        Ok(things) => Left { things, silent: Vec::new() },
        Err(error) => Left { things: Vec::new(), silent: vec![format!("etcd: {error}")] },
    }
}

#[async_trait]
impl GroundTruth for EtcdTruth {
    async fn holders(&self, name: &LockName) -> Vec<Sample> {
        let clock = Clock::boot();
        let asked = clock.now();
        let Ok(contenders) = self.ask(|client| contenders(client, name)).await else { return Vec::new() };
        let held = contenders.first().map(|key| Held {
            token: Some(key.create_revision().unsigned_abs()),
            payload: Some(String::from_utf8_lossy(key.value()).into_owned()),
            remaining_nanos: None,
        });
        vec![Sample { server: "etcd".into(), asked, answered: clock.now(), held, closed_nanos: None }]
    }

    /// etcd counts a lease in whole seconds: only whether the key is still there.
    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, LabError> {
        let contenders = self.contenders(name).await.map_err(|error| control(&error))?;
        let is_there = contenders.iter().any(|key| key.create_revision().unsigned_abs() == token);
        Ok(if is_there { Kept::Held } else { Kept::Gone })
    }

    /// By one look at the keys of all locks: a thousand looks, one for each name, take a minute where the machine is busy.
    async fn residue(&self, names: &[LockName], _has_died: bool) -> Left {
        let look = |mut client: Client| async move {
            let keys = GetOptions::new().with_prefix().with_keys_only();
            client.get(format!("{ROOT}/"), Some(keys)).await
        };
        let directories: HashSet<String> = names.iter().map(directory).collect();
        let is_meant = |key: &String| key.rfind('/').is_some_and(|end| directories.contains(&key[..=end]));
        let found = self.ask_a_leader(look).await.map(|found| {
            let keys = found.kvs().iter().map(|key| String::from_utf8_lossy(key.key()).into_owned());
            keys.filter(is_meant).collect()
        });
        left(found)
    }

    async fn sessions_left(&self) -> Left {
        let leases = self.ask_a_leader(|mut client| async move { client.leases().await }).await;
        left(leases.map(|leases| leases.leases().iter().map(|lease| format!("lease {:x}", lease.id())).collect()))
    }

    async fn delete(&self, name: &LockName) -> Result<(), LabError> {
        let key = self.holder(name).await?.key().to_vec();
        let delete = |mut client: Client| {
            let key = key.clone();
            async move { client.delete(key, None).await }
        };
        self.ask_a_leader(delete).await.map(drop).map_err(|error| control(&error))
    }

    async fn end_session(&self, name: &LockName) -> Result<(), LabError> {
        let session = self.holder(name).await?.lease();
        let revoke = |mut client: Client| async move { client.lease_revoke(session).await };
        self.ask_a_leader(revoke).await.map(drop).map_err(|error| control(&error))
    }

    async fn serves(&self, _number: usize, _name: &LockName) {
        while self.ask(async |mut client| client.put("/observer", "", None).await).await.is_err() {
            Clock::boot().sleep(PAUSE).await;
        }
    }
}

//! etcd, one server.

use std::{
    fmt, fs,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use etcd_client::{Client, ConnectOptions, Error, GetOptions, KeyValue, SortOrder, SortTarget};
use lock_core::{Clock, LockName, conformance::Kept};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    LabError,
    deployment::{
        Connection, Decides, Description, GroundTruth, Held, Lease, Left, Sample, Servers, StartOptions, StartFuture, Trials,
    },
    servers::{
        ports,
        process::{Process, Program, data_directory},
        rights,
        until::RetryLimit,
    },
};

inventory::submit! {
    Description {
        scheme: "etcd",
        // A server looks twice a second for what has ended. It counts whole seconds, as the leases here are.
        lease: Some(Lease { setting: "session_ttl", notice: Duration::from_millis(600), has_claims: false }),
        answer_limit: Some("response_timeout"),
        decides: Decides::Ensemble(1),
        is_durable: true,
        trials: Trials::All,
        is_compared: true,
        strike: Some("the server killed, and started again with its data"),
        is_struck: true,
        quick: &["pauses", "server-restarted-durable"],
        column: Some("etcd"),
        ..Description::new("etcd1", "etcd 1", start)
    }
}

/// Where the locks are by default.
const ROOT: &str = "/locks";
/// How often a start is repeated when somebody else took a port.
const ATTEMPTS: u32 = 4;
/// How long a server may take for the answer to one question about itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Between two questions to a server that does not serve yet.
const PAUSE: Duration = Duration::from_millis(5);

fn start(options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match EtcdDeployment::start(options).await {
                // Somebody else may have taken a port since it was looked at.
                Err(LabError::NotStarted { .. }) if attempts > 0 => {}
                started => return Ok(Box::new(started?) as Box<dyn Servers>),
            }
        }
    })
}

/// A single etcd server and what it takes to start it again, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct EtcdDeployment {
    port: u16,
    dir: TempDir,
    program: Program,
    process: Option<Process>,
    truth: Arc<EtcdTruth>,
    has_users: bool,
}

impl EtcdDeployment {
    async fn start(options: StartOptions) -> Result<Self, LabError> {
        let (port, peers, dir) = (ports::free(), ports::free(), data_directory()?);
        let (client_url, peer_url) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let key = dir.path().join("token.key");
        fs::write(&key, "what signs the tokens").map_err(|source| LabError::io("writing the key of etcd", source))?;
        // Of sessions that live for a second or more none is lengthened: the least is one and a half elections.
        let arguments = [
            ("--name", name(&dir)),
            ("--data-dir", "data".to_owned()),
            ("--listen-client-urls", client_url.clone()),
            ("--advertise-client-urls", client_url),
            ("--listen-peer-urls", peer_url.clone()),
            ("--initial-advertise-peer-urls", peer_url.clone()),
            ("--initial-cluster", format!("{}={peer_url}", name(&dir))),
            ("--heartbeat-interval", "20".to_owned()),
            ("--election-timeout", "200".to_owned()),
            // Each connection signs in.
            ("--bcrypt-cost", "4".to_owned()),
            // As its documentation asks for where there are users: tokens that end with any change of users, and after their time.
            ("--auth-token", format!("jwt,sign-method=HS256,priv-key={},ttl=1m", key.display())),
        ];
        let arguments = arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
        let program = Program { name: "etcd", package: "etcd-server", arguments, environment: Vec::new() };
        let (truth, has_users) = (Arc::new(EtcdTruth::new(port, options.patience)), options.users);
        let mut etcd = Self { port, dir, program, process: None, truth, has_users };
        etcd.launch_empty().await?;
        Ok(etcd)
    }

    /// Starts it without data, and makes its users if it has any.
    async fn launch_empty(&mut self) -> Result<(), LabError> {
        self.truth.signs_in(false);
        self.launch().await?;
        if self.has_users {
            let mut client = self.truth.client().await.map_err(|error| control(&error))?;
            rights::grant_in_etcd(&mut client).await?;
            self.truth.signs_in(true);
        }
        Ok(())
    }

    /// Starts it with the data that it has, and waits until it serves.
    async fn launch(&mut self) -> Result<(), LabError> {
        self.process = None;
        self.process = Some(self.program.start(self.dir.path())?);
        self.ready().await
    }

    fn process(&self) -> Result<&Process, LabError> {
        self.process.as_ref().ok_or_else(|| LabError::run("the server is down"))
    }

    fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

/// What it is called in its cluster: no other server has a directory of that name.
fn name(dir: &TempDir) -> String {
    dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[async_trait]
impl Servers for EtcdDeployment {
    fn ports(&self) -> Vec<u16> {
        vec![self.port]
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

    /// As its own figures count them.
    async fn requests(&self) -> Result<Option<u64>, LabError> {
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
        Ok(Some(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()))
    }

    async fn ready(&mut self) -> Result<(), LabError> {
        let (patience, name) = (RetryLimit::with("etcd"), name(&self.dir));
        loop {
            let Some(process) = &mut self.process else { return Ok(()) };
            if let Some(status) = process.ended() {
                let (server, reason) = ("etcd".to_owned(), format!("it ended with {status}"));
                return Err(LabError::NotStarted { server, reason, log: process.log() });
            }
            let members = self.truth.ask(async |mut client| client.member_list().await).await;
            match members {
                Ok(members) if members.members().iter().any(|member| member.name() == name) => return Ok(()),
                Ok(_) => patience.again("another server answers on its port".to_owned()).await?,
                Err(error) => patience.again(error.to_string()).await?,
            }
        }
    }

    fn kill(&mut self, _server: usize) {
        self.process = None;
    }

    fn stop(&self, _server: usize) -> Result<(), LabError> {
        self.process()?.signal(Signal::STOP)
    }

    fn cont(&self, _server: usize) -> Result<(), LabError> {
        self.process()?.signal(Signal::CONT)
    }

    async fn restart(&mut self, _server: usize) -> Result<(), LabError> {
        self.launch().await
    }

    async fn restart_empty(&mut self, _server: usize) -> Result<(), LabError> {
        self.process = None;
        fs::remove_dir_all(self.data()).map_err(|source| LabError::io("removing the data of etcd", source))?;
        self.launch_empty().await
    }
}

/// The [`GroundTruth`] of an etcd server, read from its keys by a client that is made anew after an error.
struct EtcdTruth {
    port: u16,
    patience: Duration,
    signs_in: AtomicBool,
    client: Mutex<Option<Client>>,
}

impl fmt::Debug for EtcdTruth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTruth").field("port", &self.port).finish_non_exhaustive()
    }
}

impl EtcdTruth {
    fn new(port: u16, patience: Duration) -> Self {
        Self { port, patience, signs_in: AtomicBool::new(false), client: Mutex::default() }
    }

    /// From now on it asks as the administrator, or as nobody.
    fn signs_in(&self, signs_in: bool) {
        self.signs_in.store(signs_in, Ordering::Relaxed);
        *self.kept() = None;
    }

    async fn ask<T>(&self, question: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, Error> {
        // On the heap: the library's futures are of some 20 KiB each.
        let look = Box::pin(async { question(self.client().await?).await });
        let late = || Err(Error::Internal(format!("no answer within {:?}", self.patience)));
        let answer = Clock::boot().timeout(self.patience, look).await.unwrap_or_else(late);
        if answer.is_err() {
            *self.kept() = None;
        }
        answer
    }

    async fn client(&self) -> Result<Client, Error> {
        let kept = self.kept().clone();
        if let Some(client) = kept {
            return Ok(client);
        }
        let mut options = ConnectOptions::new().with_connect_timeout(self.patience);
        if self.signs_in.load(Ordering::Relaxed) {
            let (user, password) = rights::ADMINISTRATOR;
            options = options.with_user(user, password).with_auto_token_refresh(true);
        }
        let client = Client::connect([format!("127.0.0.1:{}", self.port)], Some(options)).await?;
        Ok(self.kept().insert(client).clone())
    }

    fn kept(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contenders of a lock in the order of their revisions: the first one holds.
    async fn contenders(&self, name: &LockName) -> Result<Vec<KeyValue>, Error> {
        let in_order = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let prefix = format!("{ROOT}/{}/", name.to_component());
        let found = self.ask(async |mut client| client.get(prefix, Some(in_order)).await).await;
        found.map(|mut found| found.take_kvs())
    }

    async fn holder(&self, name: &LockName) -> Result<KeyValue, LabError> {
        let contenders = self.contenders(name).await.map_err(|error| control(&error))?;
        contenders.into_iter().next().ok_or_else(|| LabError::run(format!("nobody holds {name}")))
    }
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
        let Ok(contenders) = self.contenders(name).await else { return Vec::new() };
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

    async fn residue(&self, names: &[LockName], _has_died: bool) -> Left {
        let mut all = Left::default();
        for name in names {
            let found = self.contenders(name).await;
            let found = found.map(|keys| keys.iter().map(|key| String::from_utf8_lossy(key.key()).into_owned()).collect());
            all = all.and(left(found));
        }
        all
    }

    async fn sessions_left(&self) -> Left {
        let leases = self.ask(async |mut client| client.leases().await).await;
        left(leases.map(|leases| leases.leases().iter().map(|lease| format!("lease {:x}", lease.id())).collect()))
    }

    async fn delete(&self, name: &LockName) -> Result<(), LabError> {
        let key = self.holder(name).await?.key().to_vec();
        self.ask(async |mut client| client.delete(key, None).await).await.map(drop).map_err(|error| control(&error))
    }

    async fn end_session(&self, name: &LockName) -> Result<(), LabError> {
        let session = self.holder(name).await?.lease();
        self.ask(async |mut client| client.lease_revoke(session).await).await.map(drop).map_err(|error| control(&error))
    }

    async fn serves(&self, _number: usize, _name: &LockName) {
        while self.ask(async |mut client| client.put("/observer", "", None).await).await.is_err() {
            Clock::boot().sleep(PAUSE).await;
        }
    }
}

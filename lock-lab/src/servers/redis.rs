//! One Redis server, or one Sentinel.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use lock_core::Clock;
use redis::{AsyncConnectionConfig, FromRedisValue, aio::MultiplexedConnection};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    certificates::{Certificates, ServerCertificate},
    clock::WallClock,
    command_counts::CommandCounts,
    ports,
    process::{self, Process, Program},
};
use crate::LabError;

/// How long a start may take. Twenty milliseconds are usual.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a control request may take. The half second of the client crate passes on a machine that is busy with others.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How often a start is repeated when somebody else took the port.
const ATTEMPTS: u32 = 8;

/// A connection to the server with this URL, which waits longer for an answer than a busy machine takes.
///
/// # Errors
/// Those of the client crate.
pub async fn connect_to_redis(url: &str) -> redis::RedisResult<MultiplexedConnection> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_LIMIT))
        .set_response_timeout(Some(ANSWER_LIMIT));
    redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&limits).await
}

/// One Redis server.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    /// Where it serves clients by TLS.
    tls_port: Option<u16>,
    /// Where a node of a cluster talks to the others.
    bus: Option<u16>,
    program: Program,
    /// Options of the next start beside those of the program: they may change between starts.
    changing: Vec<String>,
    clock: Option<WallClock>,
    dir: TempDir,
    process: Option<Process>,
}

/// How a Redis server is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Each write is on its disk before it answers: after a restart it has everything. Else it has nothing then.
    pub durable: bool,
    /// It has a wall clock of its own, for [`Redis::set_clock_ahead`] and [`Redis::stop_clock_at`].
    pub own_clock: bool,
    /// It serves clients by TLS, too, at [`Redis::client_port`], and shows this; clients need a certificate. Servers that
    /// replicate or watch each other do so by TLS.
    pub tls: Option<ServerCertificate>,
}

impl RedisOptions {
    /// With each write on its disk before it answers, or in memory only.
    #[must_use]
    pub const fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// With a wall clock of its own, or the machine's.
    #[must_use]
    pub const fn with_own_clock(mut self, own_clock: bool) -> Self {
        self.own_clock = own_clock;
        self
    }

    /// Serving clients by TLS, too.
    #[must_use]
    pub const fn with_tls(mut self, tls: Option<ServerCertificate>) -> Self {
        self.tls = tls;
        self
    }

    const fn arguments(self) -> &'static [&'static str] {
        if self.durable {
            &["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        } else {
            &["--save", "", "--appendonly", "no"]
        }
    }
}

/// The kind of Redis process to start: a plain server, a member of a cluster, or a Sentinel.
#[derive(Debug, Clone, Copy)]
pub(super) enum RedisKind<'a> {
    Server,
    /// A member of a cluster, with a port more.
    Member,
    /// A Sentinel with this configuration, which it keeps up to date itself.
    Sentinel(&'a str),
}

impl Redis {
    /// Starts a server that keeps its data in memory only: after a restart it has nothing.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when redis is not installed.
    pub async fn start() -> Result<Self, LabError> {
        Self::start_as_told(RedisOptions::default()).await
    }

    /// Starts a server that has each write on its disk before it answers: after a restart it has everything.
    ///
    /// # Errors
    /// As those of [`Redis::start`].
    pub async fn start_durable() -> Result<Self, LabError> {
        Self::start_as_told(RedisOptions::default().with_durable(true)).await
    }

    /// Starts a server with these options.
    ///
    /// # Errors
    /// As those of [`Redis::start`]; `Missing` when there is no C compiler for a clock of its own.
    pub async fn start_as_told(options: RedisOptions) -> Result<Self, LabError> {
        Self::start_as(RedisKind::Server, options, options.arguments(), &[]).await
    }

    /// Starts a server with these options of `redis-server` beside the address.
    ///
    /// # Errors
    /// As those of [`Redis::start`].
    pub async fn start_with(options: &[&str]) -> Result<Self, LabError> {
        Self::start_as(RedisKind::Server, RedisOptions::default(), options, &[]).await
    }

    /// Starts a server of that kind, with a clock and TLS as `told`; those of `changing` can be replaced before a restart.
    pub(super) async fn start_as(
        kind: RedisKind<'_>,
        told: RedisOptions,
        options: &[&str],
        changing: &[&str],
    ) -> Result<Self, LabError> {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let mut server = Self::prepare(kind, told, options, changing)?;
            match server.restart().await {
                // Somebody else may have taken the port since it was looked at.
                Err(LabError::NotStarted { .. }) if attempts > 0 => {}
                done => return done.map(|()| server),
            }
        }
    }

    fn prepare(kind: RedisKind<'_>, told: RedisOptions, options: &[&str], changing: &[&str]) -> Result<Self, LabError> {
        let port = ports::free();
        let dir = process::data_directory()?;
        let bus = matches!(kind, RedisKind::Member).then(ports::free);
        let mut arguments = Vec::new();
        let name = match kind {
            RedisKind::Server | RedisKind::Member => "redis-server",
            RedisKind::Sentinel(configuration) => {
                fs::write(dir.path().join("sentinel.conf"), configuration)
                    .map_err(|source| LabError::io("writing the configuration of a Sentinel", source))?;
                arguments.push("sentinel.conf".to_owned());
                "redis-sentinel"
            }
        };
        arguments.extend(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"].map(str::to_owned));
        if let Some(bus) = bus {
            // Without it the bus takes the port plus 10000, which somebody else may have.
            arguments.extend(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()].map(str::to_owned));
        }
        let tls_port = told.tls.map(|_| ports::free());
        if let Some((certificate, port)) = told.tls.zip(tls_port) {
            arguments.extend(tls_arguments(certificate, port)?);
            if bus.is_some() {
                arguments.extend(["--tls-cluster", "yes"].map(str::to_owned));
            }
        }
        arguments.extend(options.iter().map(ToString::to_string));
        let clock = told.own_clock.then(WallClock::new).transpose()?;
        let environment = clock.as_ref().map(WallClock::environment).unwrap_or_default();
        let program = Program { name, package: name, arguments, environment };
        let changing = changing.iter().map(ToString::to_string).collect();
        Ok(Self { port, tls_port, bus, program, changing, clock, dir, process: None })
    }

    /// Replaces the options that may change between starts.
    pub(super) fn change(&mut self, options: Vec<String>) {
        self.changing = options;
    }

    /// The port of its cluster's bus; 0 outside of a cluster.
    pub(super) fn bus(&self) -> u16 {
        self.bus.unwrap_or_default()
    }

    /// Its URL for `Locks::connect`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The loopback port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The loopback port that clients come to: by TLS, if it serves them so.
    #[must_use]
    pub fn client_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// Its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Kills it with SIGKILL and waits for its end. Does nothing when it is down.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Freezes it with SIGSTOP: connections stay open and nothing is answered.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    pub fn stop(&self) -> Result<(), LabError> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(Signal::STOP))
    }

    /// Lets it go on with SIGCONT.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    pub fn cont(&self) -> Result<(), LabError> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(Signal::CONT))
    }

    /// Kills it if it runs, and starts it again on the same port with what is on its disk: everything if it was
    /// started by [`Redis::start_durable`], nothing if by [`Redis::start`].
    ///
    /// # Errors
    /// As those of [`Redis::start`].
    pub async fn restart(&mut self) -> Result<(), LabError> {
        self.kill();
        let mut program = self.program.clone();
        program.arguments.extend(self.changing.iter().cloned());
        let mut process = program.start(self.dir.path())?;
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(START_LIMIT);
        let not_started = |reason: String, process: &Process| LabError::NotStarted {
            server: self.label(),
            reason,
            log: process.log(),
        };
        loop {
            if let Some(status) = process.ended() {
                return Err(not_started(format!("it ended with {status}"), &process));
            }
            if let Ok(info) = self.info("server").await {
                // Another server may own the port.
                if info.get("process_id") != Some(&process.pid().to_string()) {
                    return Err(not_started("another server answers on its port".into(), &process));
                }
                // Refused while it reads what is on its disk.
                if self.ask::<String>("PING", &[]).await.is_ok() {
                    break;
                }
            }
            if clock.now() >= deadline {
                return Err(not_started(format!("no answer within {START_LIMIT:?}"), &process));
            }
            clock.sleep(Duration::from_millis(2)).await;
        }
        self.process = Some(process);
        Ok(())
    }

    /// As [`Redis::restart`], but removes what was on its disk first.
    ///
    /// # Errors
    /// As those of [`Redis::start`].
    pub async fn restart_empty(&mut self) -> Result<(), LabError> {
        self.kill();
        for entry in fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            let removed =
                if entry.path().is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            removed.map_err(|source| LabError::io(format!("removing {}", entry.path().display()), source))?;
        }
        self.restart().await
    }

    /// Sets by how much its wall clock is ahead of this machine's: at once, and whether it runs or not. Its monotonic
    /// clock stays right.
    ///
    /// # Errors
    /// [`LabError::Control`] when it was started without a clock of its own.
    pub fn set_clock_ahead(&self, by: Duration) -> Result<(), LabError> {
        self.own_clock()?.set_ahead(by)
    }

    /// Stops its wall clock at that time since 1970, at once; at zero it runs again. Its monotonic clock goes on.
    ///
    /// # Errors
    /// As those of [`Redis::set_clock_ahead`].
    pub fn stop_clock_at(&self, time: Duration) -> Result<(), LabError> {
        self.own_clock()?.stop_at(time)
    }

    fn own_clock(&self) -> Result<&WallClock, LabError> {
        let shared = || LabError::control(self.label(), "another time", "it was started with the machine's clock");
        self.clock.as_ref().ok_or_else(shared)
    }

    /// A connection of its own, for control requests.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn connection(&self) -> Result<MultiplexedConnection, LabError> {
        connect_to_redis(&self.url()).await.map_err(|error| self.control("connect", &error))
    }

    /// The fields of one section of `INFO`.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn info(&self, section: &str) -> Result<BTreeMap<String, String>, LabError> {
        let mut connection = self.connection().await?;
        let text: String = redis::cmd("INFO")
            .arg(section)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.control("INFO", &error))?;
        let field = |line: &str| line.trim_end().split_once(':').map(|(key, value)| (key.into(), value.into()));
        Ok(text.lines().filter_map(field).collect())
    }

    /// What it counts of each command since its start.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn command_counts(&self) -> Result<CommandCounts, LabError> {
        Ok(CommandCounts::read(&self.info("commandstats").await?))
    }

    /// How many commands clients have sent since its start, as [`CommandCounts::requests`] counts them.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn commands(&self) -> Result<u64, LabError> {
        Ok(self.command_counts().await?.requests())
    }

    /// Its version.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn version(&self) -> Result<String, LabError> {
        Ok(self.info("server").await?.remove("redis_version").unwrap_or_default())
    }

    /// Sends one command over a connection of its own.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer, or with an error.
    pub async fn ask<T: FromRedisValue>(&self, command: &'static str, arguments: &[&str]) -> Result<T, LabError> {
        let mut connection = self.connection().await?;
        let mut request = redis::Cmd::new();
        request.arg(command.split(' ').collect::<Vec<_>>()).arg(arguments);
        request.query_async(&mut connection).await.map_err(|error| self.control(command, &error))
    }

    /// The sum of [`Redis::commands`] of these.
    ///
    /// # Errors
    /// [`LabError::Control`] when one does not answer.
    pub(crate) async fn commands_of(servers: &[Self]) -> Result<u64, LabError> {
        let mut sum = 0;
        for server in servers {
            sum += server.commands().await?;
        }
        Ok(sum)
    }

    /// Fails unless it is a primary, or alone.
    pub(crate) async fn is_primary(&self) -> Result<(), LabError> {
        let role = self.role().await?;
        if role == "master" {
            return Ok(());
        }
        Err(LabError::control(self.label(), "ROLE", &format!("it is a {role}")))
    }

    /// Has it replicate a server that does not exist: it keeps what it has, and refuses writes.
    pub(crate) async fn replicate_nobody(&self) -> Result<(), LabError> {
        // Nobody listens at that port.
        self.ask("REPLICAOF", &["127.0.0.1", "1"]).await
    }

    /// What it is in the replication: `master` or `slave`.
    pub(crate) async fn role(&self) -> Result<String, LabError> {
        Ok(self.info("replication").await?.remove("role").unwrap_or_default())
    }

    pub(crate) fn label(&self) -> String {
        format!("{} on port {}", self.program.name, self.port)
    }

    fn control(&self, request: &'static str, error: &redis::RedisError) -> LabError {
        LabError::control(self.label(), request, error)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        ports::give_back(self.port);
        if let Some(port) = self.tls_port {
            ports::give_back(port);
        }
        if let Some(bus) = self.bus {
            ports::give_back(bus);
        }
    }
}

/// The options of a server that serves by TLS at `port`, and shows that certificate.
fn tls_arguments(certificate: ServerCertificate, port: u16) -> Result<Vec<String>, LabError> {
    let certificates = Certificates::shared()?;
    let (shown, key) = certificates.server(certificate);
    let path = |path: PathBuf| path.display().to_string();
    let options = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path(shown)),
        ("--tls-key-file", path(key)),
        ("--tls-ca-cert-file", path(certificates.ca_file())),
        ("--tls-auth-clients", "yes".to_owned()),
        ("--tls-replication", "yes".to_owned()),
    ];
    Ok(options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect())
}

//! A look at one server.

use std::time::Duration;

use lock_core::{
    Clock, Context, Diagnosis,
    diagnosis::{figure, with_causes},
};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};

use super::{
    leftovers,
    rights::{Denied, Rights, error, is_denial},
};
use crate::{
    node::{Address, Eviction, NodeConfig, accepted, text},
    protocol::list::scanned,
    wire::Network,
};

/// What a server that answers has shown. `None` stands for what the user may not ask, or the server does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLook {
    /// After what time the connection could be used.
    pub connected_in: Duration,
    /// How long a request took after that.
    pub round_trip: Duration,
    /// The version of the server.
    pub version: Option<String>,
    /// Whether the server is `standalone`, of a `cluster`, or a `sentinel`.
    pub mode: Option<String>,
    /// Whether it is a replica.
    pub is_replica: Option<bool>,
    /// What tells its process from all others.
    pub run_id: Option<String>,
    /// Whether and how it deletes keys when it is short of memory.
    pub eviction: Option<Option<Eviction>>,
    /// Its wall clock.
    pub clock: Option<ClockOffset>,
    /// How many replicas are connected to it.
    pub replicas: Option<u32>,
    /// What it writes to its disk.
    pub persistence: Option<Persistence>,
    /// What the user may not do.
    pub denied: Vec<Denied>,
    /// What was not looked at, since the user may not give these commands: what, and the command.
    pub unseen: Vec<(&'static str, &'static str)>,
    /// Keys of locks that have no expiry.
    pub endless: Vec<String>,
}

/// The wall clock of a server beside that of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockOffset {
    /// By how many microseconds the server's clock is ahead; negative when it is behind.
    pub ahead_micros: i64,
    /// How far off that may be: half a round trip.
    pub within: Duration,
}

/// What a server writes to its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Persistence {
    /// Whether it appends each write to a file.
    pub appends: bool,
    /// When that file is on the disk (`appendfsync`); `None` where the user may not ask.
    pub fsync: Option<String>,
}

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreached {
    /// Nobody takes the connection, or nobody answers.
    Silent(String),
    /// Whoever is there does not speak as Redis does.
    NoRedis(String),
    /// The server does not let the user in.
    SignIn {
        /// What it said.
        said: String,
        /// How long that took.
        took: Duration,
    },
    /// The server refuses what a connection begins with, for another reason.
    Refused {
        /// What it said.
        said: String,
        /// How long that took.
        took: Duration,
    },
}

impl ClockOffset {
    /// The server showed `shown` microseconds since 1970 when it was `sent` to `received` here.
    #[must_use]
    pub fn new(shown: u64, sent: u64, received: u64) -> Self {
        let middle = sent.midpoint(received);
        let ahead = i128::from(shown) - i128::from(middle);
        let bounded = i64::try_from(ahead).unwrap_or(if ahead > 0 { i64::MAX } else { i64::MIN });
        Self { ahead_micros: bounded, within: Duration::from_micros(received.saturating_sub(sent).div_ceil(2)) }
    }

    /// By how much it is off, either way.
    #[must_use]
    pub const fn off(self) -> Duration {
        Duration::from_micros(self.ahead_micros.unsigned_abs())
    }
}

impl std::fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let direction = if self.ahead_micros < 0 { "behind" } else { "ahead" };
        write!(f, "{} {direction}, give or take {}", figure(self.off()), figure(self.within))
    }
}

impl ServerLook {
    /// Adds what is worth showing.
    pub fn add_facts(&self, server: &str, diagnosis: &mut Diagnosis) {
        diagnosis.answered(server, self.connected_in, Some(self.round_trip));
        let role = self.is_replica.map(|is_replica| if is_replica { "replica" } else { "primary" }.to_owned());
        let persistence = self.persistence.as_ref().map(|Persistence { appends, fsync }| match (appends, fsync) {
            (false, _) => "no append-only file".to_owned(),
            (true, Some(fsync)) => format!("appendfsync {fsync}"),
            (true, None) => "append-only file".to_owned(),
        });
        let known = [
            ("version", self.version.clone()),
            ("mode", self.mode.clone()),
            ("role", role),
            ("connected replicas", self.replicas.map(|count| count.to_string())),
            ("persistence", persistence),
            ("wall clock", self.clock.map(|clock| clock.to_string())),
        ];
        for (what, value) in known {
            if let Some(value) = value {
                diagnosis.fact(server, what, value);
            }
        }
    }
}

impl Unreached {
    /// Adds what is worth showing: a server that refuses has answered.
    pub fn add_facts(&self, server: &str, diagnosis: &mut Diagnosis) {
        if let Self::SignIn { took, .. } | Self::Refused { took, .. } = self {
            diagnosis.answered(server, *took, None);
        }
    }
}

/// Looks at the server of `config` as its user, within its limits.
///
/// # Errors
/// [`Unreached`] when nobody answers there, or nobody who can be used.
///
/// # Cancel safety
/// Nothing is lost when the future is dropped.
pub async fn look(config: &NodeConfig, rights: &Rights, context: &Context) -> Result<ServerLook, Unreached> {
    let clock = context.clock();
    let begin = clock.now();
    let opening = open(config);
    let opened = clock.answer_timeout(config.connect_timeout, opening).await;
    let took = clock.now().saturating_since(begin);
    let (wire, driver) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => return Err(unreached(&error, took)),
        None => return Err(Unreached::Silent(format!("no connection within {:?}", config.connect_timeout))),
    };
    let asker = Asker { wire, clock, limit: config.response_timeout };
    tokio::select! {
        biased;
        looked = asker.look(begin, rights) => looked,
        () = driver => Err(Unreached::NoRedis("the connection was taken and ended without an answer".to_owned())),
    }
}

/// Asks one server, or a sentinel, a few questions: after what time they were answered, and the answers, some of which may be
/// errors.
pub(super) async fn ask(
    config: &NodeConfig,
    questions: &[Cmd],
    clock: Clock,
) -> Result<(Duration, Vec<Value>), Unreached> {
    let begin = clock.now();
    let took = || clock.now().saturating_since(begin);
    let opened = clock.answer_timeout(config.connect_timeout, open(config)).await;
    let (wire, driver) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => return Err(unreached(&error, took())),
        None => return Err(Unreached::Silent(format!("no connection within {:?}", config.connect_timeout))),
    };
    let asker = Asker { wire, clock, limit: config.response_timeout };
    let answers = tokio::select! {
        biased;
        answers = asker.ask(questions, begin) => answers?,
        () = driver => return Err(Unreached::NoRedis("the connection was taken and ended without an answer".to_owned())),
    };
    Ok((took(), answers))
}

/// An open connection, and the future that moves its bytes.
type Opened = (MultiplexedConnection, std::pin::Pin<Box<dyn Future<Output = ()> + Send>>);

async fn open(config: &NodeConfig) -> Result<Opened, RedisError> {
    let limits = AsyncConnectionConfig::new().set_response_timeout(None);
    let stream = Network::dial(config.network.as_ref(), &Address::new(&config.host, config.port)).await?;
    let (wire, driver) = MultiplexedConnection::new_with_config(&config.user()?, stream, limits).await?;
    Ok((wire, Box::pin(driver)))
}

/// Sorts why a connection cannot be used.
fn unreached(error: &RedisError, took: Duration) -> Unreached {
    use redis::ErrorKind;
    let said = with_causes(error);
    let is_sign_in = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    match error.kind() {
        ErrorKind::AuthenticationFailed => Unreached::SignIn { said, took },
        _ if is_sign_in => Unreached::SignIn { said, took },
        // Whoever takes a connection and hangs up when Redis is spoken is not Redis, or wants to hear TLS.
        _ if error.is_connection_dropped() && !error.is_connection_refusal() => Unreached::NoRedis(said),
        ErrorKind::Io => Unreached::Silent(said),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType | ErrorKind::Client => Unreached::NoRedis(said),
        _ => Unreached::Refused { said, took },
    }
}

/// A connection on which a diagnosis asks its questions, each within a limit.
struct Asker {
    wire: MultiplexedConnection,
    clock: Clock,
    limit: Duration,
}

impl Asker {
    async fn ask(&self, questions: &[Cmd], begin: lock_core::BootInstant) -> Result<Vec<Value>, Unreached> {
        let mut burst = Pipeline::with_capacity(questions.len());
        for question in questions {
            burst.add_command(question.clone());
        }
        let mut wire = self.wire.clone();
        let asking = wire.send_packed_commands(&burst, 0, questions.len());
        match self.clock.answer_timeout(self.limit, asking).await {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(error)) => Err(unreached(&error, self.clock.now().saturating_since(begin))),
            None => Err(Unreached::Silent(format!(
                "the connection was taken, and nothing was answered within {:?}",
                self.limit
            ))),
        }
    }

    async fn look(&self, begin: lock_core::BootInstant, rights: &Rights) -> Result<ServerLook, Unreached> {
        let questions = [
            redis::cmd("PING"),
            redis::cmd("HELLO"),
            command(&["INFO", "server"]),
            command(&["INFO", "memory"]),
            command(&["INFO", "replication"]),
            command(&["INFO", "persistence"]),
            command(&["CONFIG", "GET", "appendfsync"]),
        ];
        let answers = self.ask(&questions, begin).await?;
        let connected_in = self.clock.now().saturating_since(begin);
        let [ping, hello, server, memory, replication, persistence, fsync] = answers.as_slice() else {
            return Err(Unreached::NoRedis("another number of answers than of questions".to_owned()));
        };
        if let Err(error) = accepted(ping.clone())
            && error.code() != Some("NOPERM")
        {
            return Err(unreached(&error, connected_in));
        }
        let mut look = read(hello, [server, memory, replication, persistence], fsync);
        look.connected_in = connected_in;
        let sent = (self.clock.now(), self.clock.wall_micros());
        let time = self.ask(&[redis::cmd("TIME")], begin).await?;
        look.round_trip = self.clock.now().saturating_since(sent.0);
        look.clock =
            time.first().and_then(micros).map(|shown| ClockOffset::new(shown, sent.1, self.clock.wall_micros()));
        look.denied = rights.denied(&self.ask(&rights.questions(), begin).await?);
        if rights.needs_info() && error(server).is_some_and(|said| is_denial(&said)) {
            look.denied.push(Denied { right: "info".to_owned(), is_needed: true });
        }
        self.find_endless(rights, begin, &mut look).await?;
        look.denied.extend(Rights::deaf(&self.ask(&rights.listening(), begin).await?));
        Ok(look)
    }

    /// Looks for keys of locks without an expiry, in a bounded number of steps.
    async fn find_endless(
        &self,
        rights: &Rights,
        begin: lock_core::BootInstant,
        look: &mut ServerLook,
    ) -> Result<(), Unreached> {
        let mut cursor = "0".to_owned();
        for _ in 0..leftovers::STEPS {
            if rights.own_keys.is_empty() {
                return Ok(());
            }
            let found = self.ask(&[leftovers::scan(&cursor, &rights.own_keys)], begin).await?;
            if found.first().and_then(error).is_some_and(|said| is_denial(&said)) {
                look.unseen.push(("locks without an expiry", "scan"));
                return Ok(());
            }
            let Some((next, keys)) = found.first().and_then(scanned) else { return Ok(()) };
            let ends = keys.iter().map(|key| command(&["PTTL", key])).collect::<Vec<_>>();
            let ends = if ends.is_empty() { Vec::new() } else { self.ask(&ends, begin).await? };
            look.endless.extend(leftovers::endless(&keys, &ends));
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
        Ok(())
    }
}

fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// Reads what a server says of itself: `HELLO`, four sections of `INFO`, and `CONFIG GET appendfsync`.
fn read(hello: &Value, sections: [&Value; 4], fsync: &Value) -> ServerLook {
    let [server, memory, replication, persistence] = sections.map(|section| text(section).unwrap_or_default());
    let greeted = |name: &str| {
        let Value::Array(parts) = hello else { return None };
        let pair = parts.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name))?;
        text(&pair[1]).map(str::to_owned)
    };
    let said = |section: &str, name: &str| field(section, name).map(str::to_owned);
    let role = greeted("role").or_else(|| said(replication, "role"));
    let mut unseen = Vec::new();
    if memory.is_empty() {
        unseen.push(("whether keys are evicted, replicas and persistence", "info"));
    }
    let fsync = match fsync {
        Value::Array(pair) => pair.get(1).and_then(text).map(str::to_owned),
        _ => {
            unseen.push(("appendfsync", "config|get"));
            None
        }
    };
    ServerLook {
        version: greeted("version").or_else(|| said(server, "redis_version")),
        mode: greeted("mode").or_else(|| said(server, "redis_mode")),
        is_replica: role.map(|role| role != "master"),
        run_id: said(server, "run_id"),
        eviction: field(memory, "maxmemory").map(|_| Eviction::of(memory)),
        replicas: field(replication, "connected_slaves").and_then(|count| count.parse().ok()),
        persistence: field(persistence, "aof_enabled").map(|appends| Persistence { appends: appends == "1", fsync }),
        unseen,
        ..ServerLook::default()
    }
}

/// A field of a section of `INFO`.
fn field<'a>(section: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = section.lines().filter_map(|line| line.trim_end().split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Reads the answer to `TIME`.
fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |value: &Value| text(value)?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn what_a_server_says_is_read_from_wherever_it_may_be_asked() {
        let hello = Value::Array(
            ["server", "redis", "version", "7.0.15", "mode", "cluster", "role", "replica"].map(bulk).into(),
        );
        let denied = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
        let least = read(&hello, [&denied; 4], &denied);
        assert_eq!(
            (least.version.as_deref(), least.mode.as_deref(), least.is_replica, least.eviction),
            (Some("7.0.15"), Some("cluster"), Some(true), None)
        );
        assert_eq!(least.unseen.len(), 2);
        let sections = [
            "redis_version:5.0.1\r\nredis_mode:standalone\r\nrun_id:abc\r\n",
            "maxmemory:7\r\nmaxmemory_policy:allkeys-lru\r\n",
            "role:master\r\nconnected_slaves:2\r\n",
            "aof_enabled:1\r\n",
        ]
        .map(bulk);
        let fsync = Value::Array(["appendfsync", "everysec"].map(bulk).into());
        let all = read(&denied, sections.each_ref(), &fsync);
        assert_eq!((all.version.as_deref(), all.is_replica, all.replicas), (Some("5.0.1"), Some(false), Some(2)));
        assert_eq!(all.eviction.unwrap().unwrap().policy, "allkeys-lru");
        assert_eq!(all.persistence, Some(Persistence { appends: true, fsync: Some("everysec".to_owned()) }));
        assert_eq!((all.run_id.as_deref(), all.unseen), (Some("abc"), vec![]));
    }

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_round_trip() {
        let behind = ClockOffset::new(1_000, 5_000, 5_200);
        assert_eq!((behind.ahead_micros, behind.within), (-4_100, Duration::from_micros(100)));
        assert_eq!(behind.to_string(), "4.1ms behind, give or take 100.0µs");
        assert_eq!(micros(&Value::Array(vec![bulk("2"), bulk("7")])), Some(2_000_007));
        assert_eq!(micros(&Value::Nil), None);
    }
}

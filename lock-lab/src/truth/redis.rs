//! What servers of Redis keep of locks: those that stand alone, replicate, share the slots, or vote.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{Clock, LockName, conformance::Kept};
use lock_redis::{
    keys::Keys,
    protocol::packed::{Lock, Note},
};
use redis::{Pipeline, Value};

use super::{
    keys::{LockKeys, lock_keys},
    server::RedisServer,
};
use crate::{
    LabError,
    deployment::{GroundTruth, Held, Left, Sample},
    servers::nodes::{ANY, QUARANTINE, RUN},
};

/// Between two questions to a server that does not serve yet.
const PAUSE: Duration = Duration::from_millis(5);

/// For how long a server may stand still before it deletes a lock. It is not asked again, which could take what the next one has
/// been granted meanwhile.
const DELETION: Duration = Duration::from_secs(5);

/// The answer of one Redis server about a lock: its role, what the lock key holds, and the milliseconds left of it.
type HolderAnswer = (Value, Option<Vec<u8>>, i64);
/// The answer of one Redis server about a lock of the strategy `plain`: its role, what the lock key holds, the milliseconds
/// left of it, and the record beside the lock key.
type PlainAnswer = (Value, Option<Vec<u8>>, i64, Option<Vec<u8>>);
/// The answer of one Redlock node about a lock: its role, what the lock key holds, the milliseconds left of it, and the three
/// parts of its [`NodeStatus`].
type VoteAnswer = (Value, Option<Vec<u8>>, i64, String, Option<String>, i64);
/// The status of one Redlock node: its record, the process that the deployment knows, and the milliseconds of its
/// quarantine.
type NodeStatus = (String, Option<String>, i64);

/// The [`GroundTruth`] of Redis deployments, read from each server over a connection of its own.
#[derive(Debug)]
pub(crate) struct RedisTruth {
    patience: Duration,
    /// On how many of them a holder has to be.
    majority: usize,
    /// Whether the strategy is `plain`.
    is_plain: bool,
    servers: Mutex<KnownServers>,
}

/// The Redis servers that a [`RedisTruth`] reads, which may change during a run.
#[derive(Debug, Default)]
struct KnownServers {
    /// In the order of their numbers.
    numbered: Vec<u16>,
    /// Of running servers that have no say, but may have nothing of the locks in the end either.
    beside: Vec<u16>,
    known: BTreeMap<u16, Arc<RedisServer>>,
}

/// The keys of some locks that are left on one Redis server.
enum ServerResidue {
    /// It is a primary, or alone, and has these.
    Left(Vec<String>),
    /// It is a replica: what it has, and for how long, is its primary's.
    Replicated,
}

/// A holder of a lock as one Redis server has it: the writer, a reader, or one with a permit.
#[derive(Debug)]
struct NodeHolder {
    value: Vec<u8>,
    remaining: Duration,
    /// The number of its grant; for a writer also the last number that was given out, which a quorum agrees on.
    numbers: Vec<u64>,
}

/// The exclusive holder of a lock on one Redis server: its fencing token and its payload, as far as the server tells.
struct ExclusiveHolder {
    token: Option<u64>,
    payload: Option<String>,
}

impl ExclusiveHolder {
    /// By what the lock key holds.
    fn packed(packed: &[u8]) -> Self {
        Self::known(Lock::read(packed))
    }

    /// With the strategy `plain`, by what the lock key and the record beside it hold.
    fn plain(value: &[u8], record: Option<&[u8]>) -> Self {
        Self::known(recorded(value, record))
    }

    fn known(lock: Option<Lock>) -> Self {
        let token = lock.as_ref().map(|lock| lock.number);
        Self { token, payload: lock.map(|lock| String::from_utf8_lossy(&lock.payload).into_owned()) }
    }
}

impl RedisTruth {
    /// Servers at these ports, of which one has the lock.
    pub(crate) fn of_one(ports: Vec<u16>, patience: Duration) -> Arc<Self> {
        Self::new(ports, 1, false, patience)
    }

    /// The same with the strategy `plain`.
    pub(crate) fn of_one_plain(ports: Vec<u16>, patience: Duration) -> Arc<Self> {
        Self::new(ports, 1, true, patience)
    }

    /// Servers at these ports, of which a majority votes.
    pub(crate) fn of_majority(ports: Vec<u16>, patience: Duration) -> Arc<Self> {
        let majority = ports.len() / 2 + 1;
        Self::new(ports, majority, false, patience)
    }

    fn new(numbered: Vec<u16>, majority: usize, is_plain: bool, patience: Duration) -> Arc<Self> {
        let servers = Mutex::new(KnownServers { numbered, ..KnownServers::default() });
        Arc::new(Self { patience, majority, is_plain, servers })
    }

    fn keys(&self, name: &LockName) -> Keys {
        lock_keys(self.is_plain, name)
    }

    /// Another server has come to the place of that number; the one of before may still run.
    pub(crate) fn replaced(&self, number: usize, port: u16, runs: bool) {
        let mut servers = self.servers();
        let old = std::mem::replace(&mut servers.numbered[number], port);
        servers.beside.extend(runs.then_some(old));
    }

    /// Whether its servers vote: then they have quarantines.
    const fn is_quorum(&self) -> bool {
        self.majority > 1
    }

    fn numbered(&self) -> Vec<Arc<RedisServer>> {
        let ports = self.servers().numbered.clone();
        ports.into_iter().map(|port| self.server(port)).collect()
    }

    fn server(&self, port: u16) -> Arc<RedisServer> {
        let new = || Arc::new(RedisServer::new(port, self.patience));
        Arc::clone(self.servers().known.entry(port).or_insert_with(new))
    }

    fn servers(&self) -> MutexGuard<'_, KnownServers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks one server who holds; `None` when it does not answer or its word does not count. Where nodes vote, one that the
    /// deployment does not know yet counts as closed for ever, also where those that restart have no quarantine: the first
    /// vote that it is asked for begins one.
    async fn look(&self, server: &RedisServer, name: &LockName) -> Option<Sample> {
        let keys = self.keys(name);
        let mut question = redis::pipe();
        // At once: else the value of one holder could come with the time left of another.
        question.atomic();
        question.cmd("ROLE").cmd("GET").arg(keys.lock()).cmd("PTTL").arg(keys.lock());
        let clock = Clock::boot();
        let asked = clock.now();
        let (role, holder, left, standing): (Value, Option<ExclusiveHolder>, i64, Option<NodeStatus>) =
            if self.is_quorum() {
                question.cmd("INFO").arg("server").cmd("GET").arg(RUN).cmd("PTTL").arg(QUARANTINE);
                let (role, packed, left, info, member, quarantine): VoteAnswer = server.ask(&question).await?;
                (role, packed.map(|packed| ExclusiveHolder::packed(&packed)), left, Some((info, member, quarantine)))
            } else if self.is_plain {
                question.cmd("GET").arg(keys.token());
                let (role, value, left, record): PlainAnswer = server.ask(&question).await?;
                (role, value.map(|value| ExclusiveHolder::plain(&value, record.as_deref())), left, None)
            } else {
                let (role, packed, left): HolderAnswer = server.ask(&question).await?;
                (role, packed.map(|packed| ExclusiveHolder::packed(&packed)), left, None)
            };
        let answered = clock.now();
        // Safeguard: a replica's word does not count (truth)
        if !is_primary(&role) {
            return None;
        }
        let nanos = |millis: i64| u64::try_from(millis).ok().map(|millis| millis * 1_000_000);
        let held =
            holder.map(|ExclusiveHolder { token, payload }| Held { token, payload, remaining_nanos: nanos(left) });
        let closed_nanos = standing.and_then(|(info, member, quarantine)| {
            let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim_end);
            let is_member = member.as_deref() == run_id || member.as_deref() == Some(ANY);
            if is_member { nanos(quarantine) } else { Some(u64::MAX) }
        });
        Some(Sample { server: label(server), asked, answered, held, closed_nanos })
    }
}

#[async_trait]
impl GroundTruth for RedisTruth {
    async fn holders(&self, name: &LockName) -> Vec<Sample> {
        let servers = self.numbered();
        let looks = servers.iter().map(|server| self.look(server, name));
        futures::future::join_all(looks).await.into_iter().flatten().collect()
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, LabError> {
        let (servers, keys) = (self.numbered(), self.keys(name));
        let looks = servers.iter().map(|server| async {
            if self.is_plain {
                plain_holding(server, &keys).await
            } else {
                holdings(server, keys.lock(), self.is_quorum()).await
            }
        });
        let answers: Vec<_> = futures::future::join_all(looks).await.into_iter().flatten().collect();
        // Of servers that share the slots one has that of the lock; a node that votes is not passed over.
        if answers.len() < if self.is_quorum() { servers.len() } else { 1 } {
            return Err(LabError::control("Redis", "who holds", "not all servers answer"));
        }
        let holdings: Vec<NodeHolder> = answers.into_iter().flatten().collect();
        for holding in &holdings {
            let mut same: Vec<_> = holdings.iter().filter(|other| other.value == holding.value).collect();
            // A grant is known by its token: a majority of all nodes gave it that.
            let agreed = same.iter().filter(|other| other.numbers.contains(&token)).count();
            if agreed >= self.majority {
                // It stands for as long as a majority keeps it.
                same.sort_by_key(|other| std::cmp::Reverse(other.remaining));
                return Ok(Kept::For(same[self.majority - 1].remaining));
            }
        }
        Ok(Kept::Gone)
    }

    async fn residue(&self, names: &[LockName], has_died: bool) -> Left {
        let mut servers = self.numbered();
        let beside = self.servers().beside.clone();
        servers.extend(beside.into_iter().map(|port| self.server(port)));
        let keys = LockKeys::of(self.is_plain, names, has_died);
        let answers = futures::future::join_all(servers.iter().map(|server| residue(server, &keys))).await;
        let (mut left, mut primaries) = (Left::default(), 0);
        for (server, answer) in servers.iter().zip(answers) {
            match answer {
                Some(ServerResidue::Left(keys)) => {
                    primaries += 1;
                    left.things.extend(keys.into_iter().map(|key| format!("{key} on {}", label(server))));
                }
                Some(ServerResidue::Replicated) => {}
                None => left.silent.push(label(server)),
            }
        }
        if primaries == 0 && left.silent.is_empty() {
            left.silent.push("a primary".into());
        }
        left
    }

    async fn delete(&self, name: &LockName) -> Result<(), LabError> {
        let lock = self.keys(name).lock().to_owned();
        let mut deletion = redis::pipe();
        let parts = ["", ":readers", ":reading", ":permits", ":permitted"].map(|part| format!("{lock}{part}"));
        deletion.cmd("DEL").arg(&parts).ignore();
        let servers = self.numbered();
        let deletions = servers.iter().map(|server| server.ask_within::<()>(DELETION, &deletion));
        let deleted = futures::future::join_all(deletions).await;
        // Replicas refuse, and so do nodes that have not got its slot.
        if deleted.iter().flatten().count() < self.majority {
            return Err(LabError::control("Redis", "DEL", "too few servers carry it out"));
        }
        Ok(())
    }

    async fn serves(&self, number: usize, name: &LockName) {
        // Not a key of the lock, but in its slot.
        let key = format!("observer:{}", self.keys(name).lock());
        let mut write: Pipeline = redis::pipe();
        write.cmd("SET").arg(&key).arg(1).arg("PX").arg(1000).ignore();
        let server = self.numbered().swap_remove(number);
        while server.ask::<()>(&write).await.is_none() {
            Clock::boot().sleep(PAUSE).await;
        }
    }

    fn look_beside(&self, port: u16) {
        self.servers().beside.push(port);
    }
}

fn label(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port)
}

fn is_primary(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// Asks one server what it has of those locks; `None` when it does not answer.
async fn residue(server: &RedisServer, locks: &LockKeys) -> Option<ServerResidue> {
    let mut question = redis::pipe();
    question.atomic().cmd("ROLE").cmd("KEYS").arg(locks.pattern());
    let (role, keys): (Value, Vec<String>) = server.ask(&question).await?;
    match is_primary(&role) {
        false => Some(ServerResidue::Replicated),
        true if keys.is_empty() => Some(ServerResidue::Left(keys)),
        true => {
            let ttls: Vec<i64> = server.ask(&LockKeys::times(&keys)).await?;
            Some(ServerResidue::Left(locks.left(keys.into_iter().zip(ttls))))
        }
    }
}

/// The members of a sorted set of readers or permits, with the milliseconds at which they end.
type MemberExpiries = Vec<(Vec<u8>, u64)>;
/// The notes on the members of a set of readers or permits, by member.
type MemberNotes = HashMap<Vec<u8>, Vec<u8>>;

/// What one node keeps of a writer, of readers and of permits, from one moment. Nothing from a replica; `None` when it does
/// not answer, or has not got the slot.
async fn holdings(server: &RedisServer, lock: &str, is_quorum: bool) -> Option<Vec<NodeHolder>> {
    let mut look = redis::pipe();
    look.atomic().cmd("ROLE").get(lock).pttl(lock).cmd("TIME");
    for (members, notes) in [(":readers", ":reading"), (":permits", ":permitted")] {
        look.zrange_withscores(format!("{lock}{members}"), 0, -1).hgetall(format!("{lock}{notes}"));
    }
    if is_quorum {
        look.get(format!("{lock}:token"));
    }
    /// The answer of one Redis server about a lock: its role, what the lock key holds, the milliseconds left of it, the time
    /// of the server, and the members and notes of readers and of permits.
    type Look = (Value, Option<Vec<u8>>, i64, (u64, u64), MemberExpiries, MemberNotes, MemberExpiries, MemberNotes);
    /// The answer of one Redlock node: a [`Look`], and its counter.
    type Vote = (
        Value,
        Option<Vec<u8>>,
        i64,
        (u64, u64),
        MemberExpiries,
        MemberNotes,
        MemberExpiries,
        MemberNotes,
        Option<u64>,
    );
    let ((role, held, remaining, (seconds, micros), readers, reading, permits, permitted), counter): (Look, _) =
        if is_quorum {
            let (role, held, left, now, readers, reading, permits, permitted, counter): Vote =
                server.ask(&look).await?;
            ((role, held, left, now, readers, reading, permits, permitted), counter)
        } else {
            (server.ask(&look).await?, None)
        };
    let mut all = Vec::new();
    if !is_primary(&role) {
        return Some(all);
    }
    if let Some(held) = held {
        let remaining = u64::try_from(remaining).map_or(Duration::MAX, Duration::from_millis);
        // Of one of another library there is no number, and the key holds the value alone.
        let (value, number) = match Lock::read(&held) {
            Some(lock) => (lock.value, Some(lock.number)),
            None => (held, None),
        };
        all.push(NodeHolder { value, remaining, numbers: number.into_iter().chain(counter).collect() });
    }
    let now = Duration::from_micros(seconds * 1_000_000 + micros);
    let note = if is_quorum { voted } else { packed };
    all.extend(members(readers, &reading, now, note));
    all.extend(members(permits, &permitted, now, note));
    Some(all)
}

/// What the record of the strategy `plain` says of the holder with this value.
fn recorded(value: &[u8], record: Option<&[u8]>) -> Option<Lock> {
    // Safeguard: what stands beside the lock is its holder's (truth)
    record.and_then(Lock::read_record).filter(|lock| lock.value == value)
}

/// What one server keeps of a holder by the strategy `plain`. Nothing from a replica; `None` when it does not answer.
async fn plain_holding(server: &RedisServer, keys: &Keys) -> Option<Vec<NodeHolder>> {
    let mut look = redis::pipe();
    look.atomic().cmd("ROLE").get(keys.lock()).pttl(keys.lock()).get(keys.token());
    let (role, value, remaining, record): PlainAnswer = server.ask(&look).await?;
    let value = value.filter(|_| is_primary(&role));
    let holder = value.map(|value| NodeHolder {
        remaining: u64::try_from(remaining).map_or(Duration::MAX, Duration::from_millis),
        numbers: recorded(&value, record.as_deref()).map(|lock| lock.number).into_iter().collect(),
        value,
    });
    Some(holder.into_iter().collect())
}

/// A function that reads the note on a reader or a permit: the number of its grant, and the lock delay, for which the member
/// stays after its lease.
type NoteReader = fn(&[u8]) -> Option<(u64, Duration)>;

/// As the scripts of a single server write it.
fn packed(note: &[u8]) -> Option<(u64, Duration)> {
    Note::read(note).map(|note| (note.number, note.delay))
}

/// As a node that votes has it: number, time of the grant and lock delay in ms, in digits.
fn voted(note: &[u8]) -> Option<(u64, Duration)> {
    let note = String::from_utf8_lossy(note);
    let mut parts = note.split(' ').map(str::parse::<u64>);
    let (Some(Ok(number)), Some(Ok(_)), Some(Ok(delay))) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    Some((number, Duration::from_millis(delay)))
}

/// Those of the members whose leases run.
fn members(
    members: MemberExpiries,
    notes: &MemberNotes,
    now: Duration,
    read: NoteReader,
) -> impl Iterator<Item = NodeHolder> {
    members.into_iter().filter_map(move |(value, ends)| {
        let (number, delay) = read(notes.get(&value)?)?;
        let remaining = Duration::from_millis(ends).checked_sub(now + delay)?;
        Some(NodeHolder { value, remaining, numbers: vec![number] })
    })
}

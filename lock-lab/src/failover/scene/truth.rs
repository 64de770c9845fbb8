//! What the servers really hold for a lock, asked directly.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock_core::{Clock, LockName};
use redis::Value;
use tokio::sync::Mutex;
use zookeeper_client::{Acls, Client, CreateMode, Error, Stat};

use super::server::Server;
use crate::{
    LabError,
    failover::events::{Kept, Lock, Truth, now},
    residue::{self, RedisKeys},
    servers::nodes::{ANY, QUARANTINE, RUN},
};

/// Where the locks are by default.
const ROOT: &str = "/locks";
/// What an observer writes to, to see everything that was committed before.
const MARKER: &str = "/observer";
/// The observer's own session.
const SESSION: Duration = Duration::from_secs(20);
/// How long a look may take: without a majority there is no answer.
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// How often each server is asked for the present holder.
const ROUNDS: usize = 10;

/// The role, the lock's value, the milliseconds left of it, and what stands beside it.
type Answers = (Value, Option<Vec<u8>>, i64, [Option<Vec<u8>>; 3]);
/// What a node of Redlock says of itself, which process of it the deployment knows, and the milliseconds of its quarantine.
type Standing = (String, Option<String>, i64);

/// Asks one server of Redis; `None` when it does not answer or its word does not count. Where nodes have quarantines, if only
/// new ones, one that the deployment does not know yet counts as closed for ever: the first vote that it is asked for begins
/// one.
pub(super) async fn look(server: &Server, prefix: &str, lock: Lock, round: u64, has_quarantine: bool) -> Option<Truth> {
    let keys = lock_redis::keys::Keys::new(prefix, &LockName::new(lock.name()).ok()?);
    let mut question = redis::pipe();
    // At once: else the value of one holder could come with the time left of another.
    question.atomic();
    question.cmd("ROLE").cmd("GET").arg(keys.lock()).cmd("PTTL").arg(keys.lock());
    question.cmd("HMGET").arg(keys.token()).arg(&["value", "held", "payload"]);
    let asked = now();
    let ((role, value, left, [owner, number, payload]), standing): (Answers, Option<Standing>) = if has_quarantine {
        question.cmd("INFO").arg("server").cmd("GET").arg(RUN).cmd("PTTL").arg(QUARANTINE);
        let (role, value, left, beside, info, member, quarantine) = server.ask(&question).await?;
        ((role, value, left, beside), Some((info, member, quarantine)))
    } else {
        (server.ask(&question).await?, None)
    };
    let answered = now();
    if !is_primary(&role) {
        return None;
    }
    let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let nanos = |millis: i64| u64::try_from(millis).ok().map(|millis| millis * 1_000_000);
    // What stands beside the lock is about this holder only if it has its value.
    let own = owner == value;
    let held = value.map(|_| Kept {
        token: text(number.filter(|_| own)).and_then(|number| number.parse().ok()),
        payload: text(payload.filter(|_| own)),
        remaining_nanos: nanos(left),
    });
    let closed_nanos = standing.and_then(|(info, member, quarantine)| {
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim_end);
        if member.as_deref() == run_id || member.as_deref() == Some(ANY) { nanos(quarantine) } else { Some(u64::MAX) }
    });
    let server = format!("127.0.0.1:{}", server.port);
    Some(Truth { lock, round, server, asked, answered, held, closed_nanos })
}

/// What a server of Redis has of both locks.
#[derive(Debug)]
pub(super) enum Keys {
    /// It is a primary, or alone, and has these.
    Left(Vec<String>),
    /// It is a replica: what it has, and for how long, is its primary's.
    Replicated,
}

/// Asks one server of Redis what it has; `None` when it does not answer.
pub(super) async fn residue(server: &Server, prefix: &str) -> Option<Keys> {
    let locks = RedisKeys::beginning_with(format!("{{{prefix}:")).with_ended_members();
    let mut question = redis::pipe();
    question.atomic().cmd("ROLE").cmd("KEYS").arg(locks.pattern());
    let (role, keys): (Value, Vec<String>) = server.ask(&question).await?;
    match is_primary(&role) {
        false => Some(Keys::Replicated),
        true if keys.is_empty() => Some(Keys::Left(keys)),
        true => {
            let ttls: Vec<i64> = server.ask(&RedisKeys::times(&keys)).await?;
            Some(Keys::Left(locks.left(keys.into_iter().zip(ttls))))
        }
    }
}

fn is_primary(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// Clients of an ensemble, one for each server, made when they are needed. Each server tells the same; one at a time is
/// asked, the next one when it does not answer: a client's own change to another server takes the time of its session.
#[derive(Debug, Clone)]
pub(super) struct Ensemble(Arc<Servers>);

#[derive(Debug)]
struct Servers {
    clients: Vec<(u16, Mutex<Option<Client>>)>,
    turn: AtomicUsize,
}

impl Ensemble {
    pub(super) fn new(ports: &[u16]) -> Self {
        let clients = ports.iter().map(|port| (*port, Mutex::default())).collect();
        Self(Arc::new(Servers { clients, turn: AtomicUsize::new(0) }))
    }

    /// What the ensemble as one holds; `None` when the server whose turn it is does not answer.
    pub(super) async fn look(&self, lock: Lock, round: u64) -> Option<Truth> {
        let name = LockName::new(lock.name()).ok()?;
        let asked = now();
        let first = self.holder(&name).await.ok()?;
        let answered = now();
        let held = first.map(|Holder { payload, stat, .. }| Kept {
            token: Some(stat.czxid.cast_unsigned()),
            payload: Some(String::from_utf8_lossy(&payload).into_owned()),
            remaining_nanos: None,
        });
        Some(Truth { lock, round, server: "ensemble".into(), asked, answered, held, closed_nanos: None })
    }

    /// Who holds, by the server whose turn it is.
    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        self.ask(|client| async move { holder(&client, name).await }).await
    }

    /// Contenders of both locks and sessions that the ensemble as one has; `None` when the server whose turn it is does not
    /// answer.
    pub(super) async fn residue(&self) -> Option<Vec<String>> {
        let names: Result<Vec<_>, _> = Lock::ALL.into_iter().map(|lock| LockName::new(lock.name())).collect();
        let names = names.ok()?;
        let left = self.ask(|client| async move {
            catch_up(&client).await?;
            let mut left = residue::contenders_left(&client, &names).await?;
            left.extend(residue::sessions_left(&client).await?);
            Ok(left)
        });
        left.await.ok()
    }

    /// Asks the server whose turn it is.
    async fn ask<T, A>(&self, question: impl FnOnce(Client) -> A + Send) -> Result<T, Error>
    where
        A: Future<Output = Result<T, Error>> + Send,
    {
        let turn = self.0.turn.load(Ordering::Relaxed) % self.0.clients.len();
        let (port, kept) = &self.0.clients[turn];
        let mut kept = kept.lock().await;
        let look = async {
            let client = match &*kept {
                Some(client) => client.clone(),
                None => kept.insert(connect(*port).await?).clone(),
            };
            question(client).await
        };
        let found = Clock::boot().timeout(LOOK_LIMIT, look).await.unwrap_or(Err(Error::Timeout));
        if found.is_err() {
            *kept = None;
            self.0.turn.store(turn + 1, Ordering::Relaxed);
        }
        found
    }

    /// Who holds now, by any server.
    async fn present_holder(&self, name: &LockName) -> Result<Holder, LabError> {
        let mut last = Error::NoHosts;
        for _ in 0..self.0.clients.len() * ROUNDS {
            match self.holder(name).await {
                Ok(Some(holder)) => return Ok(holder),
                Ok(None) => return Err(LabError::run(format!("nobody holds {name} whom the fault could strike"))),
                Err(error) => last = error,
            }
        }
        Err(control(&last))
    }
}

async fn connect(port: u16) -> Result<Client, Error> {
    let client = Client::connector().with_session_timeout(SESSION).connect(&format!("127.0.0.1:{port}")).await?;
    match client.create(MARKER, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(Error::NodeExists) => Ok(client),
        Err(error) => Err(error),
    }
}

/// A server may be behind what others have told their clients, and a read does not wait for that; a write of the own session
/// is carried out in its turn, and what comes after it sees all that came before.
async fn catch_up(client: &Client) -> Result<(), Error> {
    client.set_data(MARKER, b"", None).await.map(drop)
}

/// The node that holds the lock: the first in line.
async fn holder(client: &Client, name: &LockName) -> Result<Option<Holder>, Error> {
    catch_up(client).await?;
    let directory = format!("{ROOT}/{}", name.to_component());
    let mut children = match client.list_children(&directory).await {
        Err(Error::NoNode) => return Ok(None),
        children => children?,
    };
    children.sort_by_key(|child| child.rsplit('-').next().and_then(|digits| digits.parse::<u32>().ok()));
    for child in children {
        let path = format!("{directory}/{child}");
        match client.get_data(&path).await {
            // Gone since it was listed: the next one holds.
            Err(Error::NoNode) => {}
            found => return found.map(|(payload, stat)| Some(Holder { path, payload, stat })),
        }
    }
    Ok(None)
}

/// A holder's node.
#[derive(Debug)]
struct Holder {
    path: String,
    payload: Vec<u8>,
    stat: Stat,
}

/// The session of who holds the lock now.
pub(super) async fn holder_session(ports: &[u16], name: &LockName) -> Result<i64, LabError> {
    Ok(Ensemble::new(ports).present_holder(name).await?.stat.ephemeral_owner)
}

/// Deletes the node of who holds the lock now.
pub(super) async fn delete_holder(ports: &[u16], name: &LockName) -> Result<(), LabError> {
    let holder = Ensemble::new(ports).present_holder(name).await?;
    // Any server will do.
    let client = connect(ports[0]).await.map_err(|error| control(&error))?;
    client.delete(&holder.path, None).await.map_err(|error| control(&error))
}

fn control(error: &Error) -> LabError {
    LabError::control("ZooKeeper", "a look at the holder's node", error)
}

//! What the servers really hold for a lock, asked directly.

use std::{sync::Arc, time::Duration};

use lock_core::{Clock, LockName};
use lock_redis::keys::Keys;
use redis::Value;
use tokio::sync::Mutex;
use zookeeper_client::{Acls, Client, CreateMode, Stat};

use super::observer::Server;
use crate::{
    LabError,
    failover::events::{Kept, Lock, Truth, now},
};

/// Where the locks are by default.
const ROOT: &str = "/locks";
/// What an observer writes to, to see everything that was committed before.
const MARKER: &str = "/observer";
/// The observer's own session.
const SESSION: Duration = Duration::from_secs(20);
/// How long a look may take: without a majority there is no answer.
const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// Asks one server of Redis; `None` when it does not answer or its word does not count.
pub(super) async fn look(server: &Server, prefix: &str, lock: Lock, round: u64) -> Option<Truth> {
    let keys = Keys::new(prefix, &LockName::new(lock.name()).ok()?);
    let mut question = redis::pipe();
    // At once: else the value of one holder could come with the time left of another.
    question.atomic();
    question.cmd("ROLE").cmd("GET").arg(keys.lock()).cmd("PTTL").arg(keys.lock());
    question.cmd("HMGET").arg(keys.token()).arg(&["value", "held", "payload"]);
    let asked = now();
    let (role, value, left, [owner, number, payload]): (Value, Option<Vec<u8>>, i64, [Option<Vec<u8>>; 3]) =
        server.ask(&question).await?;
    let answered = now();
    if !is_primary(&role) {
        return None;
    }
    let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // What stands beside the lock is about this holder only if it has its value.
    let own = owner == value;
    let held = value.map(|_| Kept {
        token: text(number.filter(|_| own)).and_then(|number| number.parse().ok()),
        payload: text(payload.filter(|_| own)),
        remaining_nanos: u64::try_from(left).ok().map(|left| left * 1_000_000),
    });
    Some(Truth { lock, round, server: format!("127.0.0.1:{}", server.port), asked, answered, held })
}

fn is_primary(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// A client of an ensemble, made when it is needed.
#[derive(Debug, Clone)]
pub(super) struct Ensemble {
    hosts: Arc<str>,
    client: Arc<Mutex<Option<Client>>>,
}

impl Ensemble {
    pub(super) fn new(ports: &[u16]) -> Self {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Self { hosts: hosts.join(",").into(), client: Arc::default() }
    }

    /// What the ensemble as one holds; `None` while it does not answer.
    pub(super) async fn look(&self, lock: Lock, round: u64) -> Option<Truth> {
        let name = LockName::new(lock.name()).ok()?;
        let asked = now();
        let first = Clock::boot().timeout(LOOK_LIMIT, self.holder(&name)).await?.ok()?;
        let answered = now();
        let held = first.map(|Holder { payload, stat, .. }| Kept {
            token: Some(stat.czxid.cast_unsigned()),
            payload: Some(String::from_utf8_lossy(&payload).into_owned()),
            remaining_nanos: None,
        });
        Some(Truth { lock, round, server: "ensemble".into(), asked, answered, held })
    }

    /// The node that holds the lock: the first in line.
    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, zookeeper_client::Error> {
        let client = self.client().await?;
        // A server may be behind what others have told their clients, and a read does not wait for that; a write of the own
        // session is carried out in its turn, and what comes after it sees all that came before.
        let written = client.set_data(MARKER, b"", None).await;
        if written.as_ref().is_err_and(|error| *error != zookeeper_client::Error::ConnectionLoss) {
            // Its session is over. It connects again by itself, but does not make another one.
            self.client.lock().await.take();
        }
        written?;
        let directory = format!("{ROOT}/{}", name.to_component());
        let mut children = match client.list_children(&directory).await {
            Err(zookeeper_client::Error::NoNode) => return Ok(None),
            children => children?,
        };
        children.sort_by_key(|child| child.rsplit('-').next().and_then(|digits| digits.parse::<u32>().ok()));
        for child in children {
            let path = format!("{directory}/{child}");
            match client.get_data(&path).await {
                // Gone since it was listed: the next one holds.
                Err(zookeeper_client::Error::NoNode) => {}
                found => return found.map(|(payload, stat)| Some(Holder { path, payload, stat })),
            }
        }
        Ok(None)
    }

    async fn client(&self) -> Result<Client, zookeeper_client::Error> {
        let mut kept = self.client.lock().await;
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let client = Client::connector().with_session_timeout(SESSION).connect(&self.hosts).await?;
        match client.create(MARKER, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
            Ok(_) | Err(zookeeper_client::Error::NodeExists) => Ok(kept.insert(client).clone()),
            Err(error) => Err(error),
        }
    }
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
    Ok(present_holder(&Ensemble::new(ports), name).await?.stat.ephemeral_owner)
}

/// Deletes the node of who holds the lock now.
pub(super) async fn delete_holder(ports: &[u16], name: &LockName) -> Result<(), LabError> {
    let ensemble = Ensemble::new(ports);
    let holder = present_holder(&ensemble, name).await?;
    let deleted = async { ensemble.client().await?.delete(&holder.path, None).await };
    deleted.await.map_err(|error| control(&error))
}

async fn present_holder(ensemble: &Ensemble, name: &LockName) -> Result<Holder, LabError> {
    let holder = ensemble.holder(name).await.map_err(|error| control(&error))?;
    holder.ok_or_else(|| LabError::run(format!("nobody holds {name} whom the fault could strike")))
}

fn control(error: &zookeeper_client::Error) -> LabError {
    LabError::control("ZooKeeper", "a look at the holder's node", error)
}

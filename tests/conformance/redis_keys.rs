//! What a Redis server keeps of a lock, read by the format that docs/protocols.md describes and not by the backends' own code.

use std::{collections::HashMap, time::Duration};

use lock_core::LockName;
use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

/// A holder, as one node has it: the writer, a reader, or one with a permit.
pub(crate) struct Holding {
    pub(crate) value: Vec<u8>,
    pub(crate) remaining: Duration,
    /// The number of its grant; for a writer also the last number that was given out, which a quorum agrees on.
    pub(crate) numbers: Vec<u64>,
}

/// A connection past the backends, patient with a busy machine.
pub(crate) async fn connection(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    let patience = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    client.get_multiplexed_async_connection_with_config(&config).await
}

pub(crate) fn lock_key(name: &LockName) -> String {
    format!("{{lock:{name}}}")
}

/// What one node keeps of a writer, of readers and of permits. All of it comes from one moment.
pub(crate) async fn holdings(mut node: MultiplexedConnection, lock: String) -> redis::RedisResult<Vec<Holding>> {
    let mut look = redis::pipe();
    look.atomic().get(&lock).pttl(&lock).hmget(format!("{lock}:token"), &["held", "counter"]).cmd("TIME");
    for (members, notes) in [(":readers", ":reading"), (":permits", ":permitted")] {
        look.zrange_withscores(format!("{lock}{members}"), 0, -1).hgetall(format!("{lock}{notes}"));
    }
    type Look = (Option<Vec<u8>>, i64, Vec<Option<u64>>, (u64, u64), MembersOf, NotesOf, MembersOf, NotesOf);
    let (value, remaining, numbers, (seconds, micros), readers, reading, permits, permitted): Look =
        look.query_async(&mut node).await?;
    let mut all = Vec::new();
    if let Some(value) = value {
        let remaining = u64::try_from(remaining).map_or(Duration::MAX, Duration::from_millis);
        all.push(Holding { value, remaining, numbers: numbers.into_iter().flatten().collect() });
    }
    let now = Duration::from_micros(seconds * 1_000_000 + micros);
    all.extend(members(readers, &reading, now));
    all.extend(members(permits, &permitted, now));
    Ok(all)
}

/// Members with the milliseconds at which they end, and the notes on them.
type MembersOf = Vec<(Vec<u8>, u64)>;
type NotesOf = HashMap<Vec<u8>, Vec<u8>>;

/// Those of the members whose leases run. A note begins with the number of the grant, its time and the lock delay in ms,
/// for which the member stays after its lease.
fn members(members: MembersOf, notes: &NotesOf, now: Duration) -> impl Iterator<Item = Holding> {
    members.into_iter().filter_map(move |(value, ends)| {
        let note = String::from_utf8_lossy(notes.get(&value)?);
        let mut parts = note.split(' ').map(str::parse);
        let (Some(Ok(number)), Some(Ok(_since)), Some(Ok(delay))) = (parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        let remaining = Duration::from_millis(ends).checked_sub(now + Duration::from_millis(delay))?;
        Some(Holding { value, remaining, numbers: vec![number] })
    })
}

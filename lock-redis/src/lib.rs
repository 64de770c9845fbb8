//! Locks, read-write locks and semaphores on Redis: keys with an expiry, scripts, and a watchdog that renews. On one server,
//! on the primary that sentinels name, or spread over a cluster.
//!
//! # Which promise
//! * At most one holder at a time, for as long as the server keeps its data and its clock runs evenly: the lock is a key
//!   that only its holder's value can extend or delete, and the holder's [validity](lock_core::Validity) ends before the
//!   key does, because it is counted from before the request was sent.
//! * A fencing token that rises with every grant of a name: a counter that is kept on the server, at or above its clock
//!   in microseconds. When the counter is lost (an eviction, a flush) or lags behind (a failover) it goes on from the
//!   server's clock, and rises provided that the clocks of servers and of clients that are ahead of them differ by less
//!   than the time since the last grant; see [`token`].
//! * One round trip and one command to acquire a free lock, one to release it. Those who wait stand in line on the server, and
//!   a release hands the lock to those who may hold it next: they are told, and need not ask.
//! * Grants in the order of arrival. Readers beside each other and never beside a writer; a reader that comes after a waiting
//!   writer waits for it. Each reader and each permit of a semaphore has an expiry of its own.
//! * A lock delay: after an abnormal end the lock stays closed for as long as its holder had asked for.
//! * Any other client that locks by `SET key value NX PX ttl` on the key `{lock:NAME}` is excluded, and excludes. To share locks
//!   with other libraries there is a strategy of its own, [`Strategy::Plain`].
//!
//! # What this does not guarantee
//! * **Redis replicates asynchronously**, with sentinels and in a cluster, too. When a primary fails before it has
//!   replicated the key, and a replica takes over, the replica grants the lock again while the old holder still believes in
//!   it. The same goes for a server that restarts without its data. `min_replicas` makes the first less likely, and not
//!   impossible. Where that matters, check the fencing token in the store that the lock protects, or use a quorum or
//!   ZooKeeper.
//! * The server's wall clock decides when a key expires: a jump forward ends leases early.
//! * A client of another library that takes `{lock:NAME}` by `SET NX PX` does not see readers, who are not in that key: do
//!   not use it beside a read-write lock of that name.
//! * A waiter that died is passed over when it was not heard of for three quarters of its ttl, or six seconds where that is less; the
//!   line may stand still for as long.
//! * While a cluster moves a slot, its locks are renewed and given back, but not granted.
//! * No TLS.
//!
//! # Example
//! ```no_run
//! use std::time::Duration;
//! use lock_core::Locks;
//! use lock_redis::{Config, Redis};
//!
//! # async fn example() -> Result<(), lock_core::Error> {
//! let redis = Redis::connect(Config::new("127.0.0.1", 6379).with_ttl(Duration::from_secs(10))).await?;
//! let locks = Locks::new(redis);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("held with fencing token {}", guard.token());
//! guard.release().await?;
//! locks.close(Duration::from_secs(1)).await
//! # }
//! ```
//!
//! # Failover
//! With [`Config::sentinel`] the sentinels are asked for the primary on each connection, and the server that they name is
//! asked whether it is one before anything is sent to it. With [`Config::cluster`] each lock is on the primary of its slot,
//! wherever that moves. A lost connection, an answer that did not come in time and a primary that takes no writes any more all
//! lead to a new look. Who waits goes on waiting, while an outage is bridged; who holds keeps the lock if the new
//! primary has it and a renewal reaches that in time, and else learns that it is lost. `min_replicas=n`
//! ([`Config::with_min_replicas`]) lets grants and renewals count only when `n` replicas have acknowledged them.
//!
//! # The order of arrival
//! Each waiter is heard of every two seconds, or four times in a ttl where that is more often; one that died or was cut off is
//! passed over after three times that. A lock that was handed over is its new holder's for two of these times at first, which is
//! what its guard says; the first renewal, 20 ms later, makes it a whole ttl.
//!
//! # Beside other libraries
//! With [`Strategy::Plain`] (`strategy=plain`) the lock key is `prefix:name`, or the bare name with an empty prefix, and holds a
//! plain string, as redis-py's `Lock`, `rslock` and others have it. Only the exclusive lock, in no order; a fencing token rises
//! with each grant of this library, and knows nothing of others.
//!
//! # On the server
//! See [`keys`] for the keys, and `docs/protocols.md` for what is done with them.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquisition;
mod backend;
mod client;
mod cluster;
mod config;
pub mod diagnose;
mod driver;
pub mod fence;
mod lease;
pub mod listing;
pub mod node;
mod plain;
pub mod protocol;
mod queue;
mod renewal;
mod revoke;
mod servers;
mod undo;
mod waiters;
mod watch;
pub mod wire;

pub use crate::{
    backend::Redis,
    config::{Config, Deployment, Sentinel, Strategy},
    driver::RedisDriver,
    protocol::{keys, token},
};

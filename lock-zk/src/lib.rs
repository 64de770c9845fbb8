//! The ZooKeeper backend: a fair queue of ephemeral sequential nodes.
//!
//! # Which promise
//! Waiters are granted in the order of their arrival, over all programs that use the same ensemble; readers share the
//! lock with the readers next to them in that order, and a semaphore has a queue of its own. A release wakes only those
//! who may hold now: one, or the readers next in line. The fencing token is the transaction number (`czxid`) of the
//! holder's node: it rises with each grant, through elections and restarts, and when the lock's directory is removed in
//! between.
//!
//! The locks of a connection share one session and its one heartbeat, or several when they are more than one session can
//! watch: about a thousand held locks with short names, 180 with names of 512 bytes. A guard knows by its own clock until
//! when the servers certainly keep its session; a program that is cut off or stopped knows that it lost the lock before the
//! next holder is granted. Once a session has ended, all its guards are lost, and the next acquisition opens a new one.
//!
//! # Which limits
//! - There is no ttl for a single lock: after a crash of its holder a lock is free when the session has expired, at most
//!   the negotiated time-out and a tick later.
//! - [`Config::tick_time`] must not be below the servers' `tickTime`, or validity is overstated. Servers that lengthen the
//!   session's time-out to two of their ticks, or shorten it below three of these, are refused; a longer tick that does
//!   not show in this way is taken on trust.
//! - Whoever may write to the lock's nodes can break the lock: a node that is deleted by somebody else is reported as
//!   [`Loss::Revoked`](lock_core::Loss::Revoked), after the fact, and data written to a holder's node looks like its release.
//! - [`Strategy::Herd`] is for comparison: unfair, only the exclusive lock, and all who wait wake at each release. A name is
//!   used with one strategy at a time; the second one is refused.
//! - No TLS and no authentication yet.
//! - Dropped without [`close`](lock_core::Backend::close) and with the program ended at once, locks stay until the
//!   session expires.
//!
//! # Beside other libraries
//! With [`Layout::Curator`] or [`Layout::Kazoo`] (`layout=curator`, `layout=kazoo`) contenders stand in one line with programs that
//! use Apache Curator or kazoo, in the order of arrival: a mutex with an `InterProcessMutex` or a `Lock`, a read-write lock with an
//! `InterProcessReadWriteLock` or a `ReadLock` and a `WriteLock`. A lock's name is its path below the root there. A hand-off takes
//! one more look, since those libraries do not mark their releases; and there are no semaphores.
//!
//! # What it costs
//! An uncontended acquisition is one round trip (a create and a list, written back to back), a release is one (a
//! transaction of two writes). A contender that waits sets two watches, in one more round trip, and is granted by the
//! news of the release: no request stands between a release and the next grant, also when that is the one of all
//! readers behind a writer. A writer behind readers, and whoever waits for a permit, is granted after one more look.
//! The first acquisition of a name makes its directory, which takes two more round trips; the servers remove it some
//! time after it was left empty. Beyond that a connection writes to a node of its own every half tick (of at least a
//! sixth of its session time-out; at most each sixth) while it holds or waits, whatever the number of locks of a session; and sends
//! one small request each sixth of the time-out when it is idle.
//!
//! # Example
//! ```no_run
//! # async fn run() -> Result<(), lock_core::Error> {
//! use std::time::Duration;
//!
//! let config = lock_zk::Config::new([("10.0.0.1", 2181), ("10.0.0.2", 2181), ("10.0.0.3", 2181)]).with_root("/app");
//! let locks = lock_core::Locks::new(lock_zk::ZooKeeper::connect(config).await?);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("held with token {}", guard.token());
//! guard.release().await?;
//! locks.close(Duration::from_secs(5)).await
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod backend;
mod config;
mod connection;
mod diagnose;
mod driver;
pub mod fence;
mod inspect;
mod lease;
mod listing;
mod node_path;
pub mod protocol;
mod revoke;
mod rights;
mod session;
mod session_pool;
mod thread;
mod watch;
pub mod wire;
mod withdraw;

pub use crate::{
    backend::ZooKeeper,
    config::{Config, Strategy},
    driver::ZooKeeperDriver,
    protocol::queue::Layout,
    rights::{Access, SignIn},
};

//! A distributed lock: one interface over ZooKeeper, Redis and Redlock, chosen by configuration.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock::Error> {
//! use std::time::Duration;
//!
//! let locks = lock::connect("memory://").await?; // or zk://..., redis://..., redlock://...
//!
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("held with fencing token {}", guard.token());
//! guard.release().await?;
//!
//! locks.close(Duration::from_secs(2)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which backend should I use?
//!
//! | you have | URL | you get |
//! |---|---|---|
//! | a ZooKeeper ensemble | `zk://h1,h2,h3/app` | the strictest: grants in the order of arrival, agreed by a majority of the servers, which keep them on disk. A lock of a program that died is free after the session's time limit |
//! | one Redis server | `redis://h` | the quickest: one round trip. If the server loses its memory (a restart without persistence), two holders are possible; the fencing token tells them apart |
//! | three or five Redis servers, independent of each other | `redlock://h1,h2,h3` | goes on while a minority of them is down; safe as long as their clocks run at about the same speed. Prepare them once, with [`Config::initialize`] or `lock redlock init` |
//! | one machine | `local:///dir` | no server: a fair queue of locked files. A lock ends with its process, at once; one that is stopped keeps it |
//! | only this process | `memory://` | tests and examples |
//!
//! If the lock only saves work done twice, take what you have. If it protects data, take ZooKeeper, and pass the fencing
//! token to the store in any case.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock::Error> {
//! // Programs ask what they need instead of naming a backend.
//! let locks = lock::connect("memory://").await?;
//! if !locks.capabilities().supports(lock::Feature::Fifo) {
//!     println!("{} grants in any order", locks.capabilities().backend);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What this does not guarantee
//!
//! **No lock over a network stops a program that was stopped itself.** A holder may be paused (by its host, a debugger, a
//! full disk) for longer than its lease lives; the server then grants the lock to another, and the first one wakes up and
//! writes. Three things help, and the last one alone is certain:
//!
//! * ask [`Guard::is_valid`] right before each step that matters: it is a clock read and an atomic load;
//! * let [`Guard::run`] drop the work as soon as the lock is lost, or [`Guard::transact`] undo it;
//! * pass [`Guard::token`] to the store, and let the store refuse a token below the highest that it has seen: in
//!   [`mod@fence`] are such checks for several kinds of stores. `docs/fencing.md` has them for SQL and a shell, too.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock::Error> {
//! # let locks = lock::connect("memory://").await?;
//! /// A store that a holder of yesterday cannot damage.
//! struct Store {
//!     highest: lock::FencingToken,
//!     text: String,
//! }
//! impl Store {
//!     fn write(&mut self, text: &str, token: lock::FencingToken) -> bool {
//!         if token < self.highest {
//!             return false;
//!         }
//!         self.highest = token;
//!         self.text = text.to_owned();
//!         true
//!     }
//! }
//!
//! let first = locks.mutex("report").lock().await?;
//! let old = first.token();
//! first.release().await?;
//! let second = locks.mutex("report").lock().await?;
//!
//! let mut store = Store { highest: second.token(), text: String::new() };
//! assert!(store.write("new", second.token()));
//! assert!(!store.write("late", old));
//! # Ok(())
//! # }
//! ```
//!
//! * **A lock is no queue of work**: which waiter is next is told only where
//!   [`Feature::Fifo`](crate::Feature) is promised.
//! * **Two names are two locks**: nothing here finds a deadlock between programs that take them in different orders. Take
//!   them together, with [`Locks::multi`].
//! * **An error is not a release**: after [`Error::Unavailable`] from [`Guard::release`] the lock may stand on the server
//!   until its ttl ends. The program does not hold it any more.
//! * **Returning from `main` is not closing**: call [`Locks::close`], or dropped guards leave
//!   their locks to their ttl. [`Locks::drain`] comes before it where work under way is to come to its end.
//!
//! # Configuration
//! See [`Config`]: a URL, a TOML file, or the environment (`LOCK_URL`, `LOCK_CONFIG`, `LOCK_PASSWORD`).
//!
//! # Features
//! The package of this library is called `fenced-lock`. `zk`, `redis`, `redlock`, `local` and `etcd` each build one backend in; all
//! but the last are on unless you turn them off. `tls-aws-lc-rs` (on) and `tls-ring` build encrypted connections in, `metrics` the
//! metrics of every lock, `blocking` the same locks for programs without a runtime.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
#[cfg(feature = "blocking")]
pub mod blocking;
mod config;
mod drivers;
pub mod fence;
mod identity;

#[doc(no_inline)]
pub use lock_core::{
    Abandoned, BootInstant, Capabilities, Cause, Clock, Committed, Contender, Diagnosis, DowngradeFailed, Election,
    Error, Fact, Feature, Fence, FencingToken, Finding, Guard, Leader, Leaders, LockName, Locks, LocksOptions, Loss,
    Mode, MultiGuard, MultiLock, Mutex, Operation, Owner, Permit, Reentrant, ReentrantGuard, Registry, RwLock,
    Semaphore, Severity, Snapshot, StaleToken, StateAfter, Term, Tokens, Validity, WriteGuard,
};

pub use crate::{
    config::{Config, ConfigBuilder, LOCK_CONFIG, LOCK_PASSWORD, LOCK_URL, SYSTEM_FILE},
    drivers::registry,
};
#[doc(no_inline)]
pub use lock_core::testing;
#[cfg(feature = "redlock")]
pub use lock_redlock::{DeploymentStatus, InitOptions, NodeState, NodeStatus, Replaced};

/// Connects to the service that `url` names; see [`Config`] for its form, and for the ways to connect by a file or by the
/// environment.
///
/// # Errors
/// [`Error::Config`] that names key, value and what is allowed; [`Error::Unavailable`] when the service cannot be reached
/// for as long as an outage is bridged (`outage_timeout`).
///
/// # Cancel safety
/// Nothing is lost when the future is dropped; what was connected is closed.
pub async fn connect(url: &str) -> Result<Locks, Error> {
    Config::from_url(url)?.connect().await
}

/// Connects as the environment says: `LOCK_URL` if it is set, else the file that `LOCK_CONFIG` names, else `/etc/lock.toml`.
///
/// # Errors
/// As those of [`connect`]; [`Error::Config`] when neither is set.
///
/// # Cancel safety
/// As that of [`connect`].
pub async fn connect_from_env() -> Result<Locks, Error> {
    match Config::from_env()? {
        Some(config) => config.connect().await,
        None => Err(Error::config(
            "LOCK_URL",
            "",
            "a URL in LOCK_URL, the path of a TOML file in LOCK_CONFIG, or /etc/lock.toml",
        )),
    }
}

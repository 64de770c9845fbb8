//! The same locks for programs without a runtime: the same names, and calls that block their thread.
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), lock::Error> {
//! let locks = lock::blocking::connect("memory://")?; // or zk://..., redis://..., redlock://...
//!
//! let guard = locks.mutex("orders/4711").timeout(Duration::from_secs(5)).lock()?;
//! println!("held with fencing token {}", guard.token());
//! guard.release()?;
//!
//! locks.close(Duration::from_secs(2))?;
//! # Ok(())
//! # }
//! ```
//!
//! Renewals go on while the program does something else: the first connection starts one thread, which serves all blocking
//! connections of the process for as long as the process lives. A guard that is dropped is released by that thread, without a
//! wait; as with [`crate::Locks`], a program that returns from `main` should close its connections.
//!
//! Every type is the one of that name in this crate, whose documentation holds for it; here is only what differs:
//!
//! * *Cancel safety* is no matter, since no call can be given up. Limit waits by `timeout`.
//! * [`Guard::lost`] waits for at most as long as it is told to.
//! * [`Guard::run`] cannot cut its operation off: it checks before and after. `transact` needs a runtime: it is not here.
//! * Streams are iterators.
//!
//! # Beside a runtime
//! Calls work inside an async function, too, whatever its runtime is, but block its thread like any other call that blocks:
//! use `spawn_blocking` there, or [`crate::Locks`] at once.

mod guards;
mod kinds;
mod locks;
mod streams;
mod waiting;

pub use self::{
    guards::{Guard, MultiGuard, Permit, ReentrantGuard, Term, WriteGuard},
    kinds::{Election, MultiLock, Mutex, Reentrant, RwLock, Semaphore},
    locks::Locks,
    streams::{Leaders, Snapshots},
};
use crate::{Config, Error};

/// Connects to the service that `url` names; see [`crate::connect`].
///
/// # Errors
/// Those of [`crate::connect`]; [`Error::Unavailable`] also when the thread cannot be started.
pub fn connect(url: &str) -> Result<Locks, Error> {
    Config::from_url(url)?.connect_blocking()
}

/// Connects as the environment says; see [`crate::connect_from_env`].
///
/// # Errors
/// Those of [`crate::connect_from_env`]; [`Error::Unavailable`] also when the thread cannot be started.
pub fn connect_from_env() -> Result<Locks, Error> {
    waiting::start()?;
    waiting::wait(crate::connect_from_env()).map(Locks::from)
}

impl Config {
    /// Connects, for a program without a runtime; see [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// Those of [`Config::connect`]; [`Error::Unavailable`] also when the thread of blocking connections cannot be started.
    pub fn connect_blocking(self) -> Result<Locks, Error> {
        waiting::start()?;
        waiting::wait(self.connect()).map(Locks::from)
    }
}

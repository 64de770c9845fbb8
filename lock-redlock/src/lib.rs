//! The Redlock backend: a majority of independent Redis servers holds the lock, so that it survives the loss of any
//! minority of them.
//!
//! # Which backend should I use?
//! This one where three or five Redis servers that know nothing of each other are at hand, and a lock has to stay both
//! safe and available while a minority of them is down. With one Redis, use `lock-redis`; with ZooKeeper, `lock-zk`.
//!
//! # What this does not guarantee
//! * The servers' clocks and this machine's must run at about the same *speed*: a lease is counted down on each of them. A
//!   server whose clock jumps ends its leases early; at a majority of exactly the minimal size, one is enough for two
//!   holders. The fencing token keeps the protected store safe from that.
//! * Fencing tokens rise whatever the clocks show while the servers keep their counters. When they lose them, the tokens
//!   rise by the clock, as long as the clocks differ by less than the time between two grants.
//! * Waiters are served about in the order of their arrival, which is no promise: a newcomer may come first. But a reader
//!   does not overtake a writer that has been waiting for it.
//! * Semaphores and lock delays are not offered: neither can be counted by majority.
//!
//! # Members and quarantine
//! A server that restarts without its data has forgotten for whom it voted, and could give a second holder the majority
//! that a first one still has. So each server stores which process of it the deployment knows. A process that is not
//! known, because it was restarted, flushed, or never marked, gives no vote for `max_ttl`, by when every lease that it may
//! have voted for has ended; held locks are carried on meanwhile by the others, and take it in again. While a majority is
//! in that state nothing is granted, and the error says so.
//!
//! An unmarked server cannot be told from one that lost everything. A new deployment is therefore marked once, by
//! [`init`]; if that is forgotten it becomes usable by itself, `max_ttl` after the first connection. Where every server
//! has each write on its disk before it answers (`appendfsync always`), nothing is ever forgotten, and
//! `restart_quarantine=off` does without all this.
//!
//! # Example
//! ```no_run
//! # async fn example() -> Result<(), lock_core::Error> {
//! use lock_core::{Locks, Settings};
//!
//! let mut settings = Settings::new("redlock");
//! settings.hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|host| (host.to_owned(), None)).into();
//! let config = lock_redlock::Config::from_settings(settings)?;
//! lock_redlock::init(&config).await?; // Once in the life of the deployment.
//!
//! let locks = Locks::new(lock_redlock::Redlock::connect(config).await?);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("{}", guard.token());
//! guard.release().await
//! # }
//! ```

mod acquisition;
mod backend;
#[doc(hidden)]
pub mod ballots;
mod changes;
mod cleaning;
mod config;
mod downgrade;
#[doc(hidden)]
pub mod holdings;
#[doc(hidden)]
pub mod kind;
mod lease;
mod look;
mod member;
mod panel;
mod places;
pub mod quorum;
mod renewal;
mod replies;
mod round;
#[doc(hidden)]
pub mod scripts;
pub mod token;
mod waiting;

pub use crate::{backend::Redlock, config::Config, member::init};

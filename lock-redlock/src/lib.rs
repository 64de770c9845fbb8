//! The Redlock backend: a majority of independent Redis servers holds the lock, so that it survives the loss of any
//! minority of them.
//!
//! # What this does not guarantee
//! * The servers' clocks and this machine's must run at about the same *speed*: a lease is counted down on each of them. A
//!   server whose clock jumps ends its leases early; at a majority of exactly the minimal size, one is enough for two
//!   holders. The fencing token protects the store from both writing.
//! * Waiters are served about in the order of their arrival, by courtesy of those who lose: no promise.
//! * A server that restarts without its data gives no vote for `max_ttl` (see [`init`]); while a majority is in that
//!   state, nothing is granted.
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
mod config;
mod holdings;
mod lease;
mod member;
mod panel;
pub mod quorum;
mod renewal;
mod round;
mod scripts;
pub mod token;
mod waiting;

pub use crate::{backend::Redlock, config::Config, member::init};

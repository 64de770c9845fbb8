//! The Redlock backend: a majority of independent Redis servers holds the lock, so that it survives the loss of any
//! minority of them.
//!
//! # Which backend should I use?
//! Use this crate with three or five Redis servers that know nothing of each other, where a lock has to stay both safe and
//! available while a minority of the servers is down. With one Redis, use `lock-redis`; with ZooKeeper, `lock-zk`.
//!
//! # What this does not guarantee
//! * The clocks of the servers and of this machine must run at about the same *speed*: a lease is counted down on each of
//!   them. A server whose clock jumps ends its leases early. Where a majority of exactly the minimal size has a lock, one
//!   such server is enough for two holders; the fencing token keeps the protected store safe.
//! * Fencing tokens rise whatever the clocks show, while the servers keep their counters. After a loss of counters, tokens
//!   rise by the clock, as long as the clocks differ by less than the time between two grants.
//! * Waiters are served about in the order of their arrival, without a promise: a newcomer may come first. But a reader does
//!   not overtake a waiting writer.
//! * Semaphores and lock delays are not offered: neither can be counted by majority.
//!
//! # Deployment
//! [`init`] makes servers a deployment, once: it writes an id, the members and the limits on each server. A client with other
//! servers or other limits is refused, and a server that is reached under two addresses has one vote.
//!
//! A server that restarts without its data has forgotten for whom it voted, and could give a second holder the majority
//! that a first holder still has. So each server also stores which of its processes the deployment knows. Another process
//! gives no vote for `max_ttl`, by when every lease that the server may have voted for has ended; the other servers carry
//! held locks on meanwhile, and the locks take the server in again. A server that lost even its membership becomes a member
//! again by itself, while a majority has kept theirs. When a majority has lost it, nothing is granted until [`init`] is
//! called again, and for `max_ttl` from then on; the error says so. Where every server has each write on its disk before it
//! answers (`appendfsync always`), nothing is ever forgotten, and `restart_quarantine=off` does without the quarantine.
//!
//! # Example
//! ```no_run
//! # async fn example() -> Result<(), lock_core::Error> {
//! use lock_core::{Locks, Settings};
//!
//! let mut settings = Settings::new("redlock");
//! settings.hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|host| (host.to_owned(), None)).into();
//! let config = lock_redlock::Config::from_settings(settings)?;
//! // Once in the life of the deployment, before any client connects.
//! lock_redlock::init(&config, lock_redlock::InitOptions::new().with_no_holders()).await?;
//!
//! let locks = Locks::new(lock_redlock::Redlock::connect(config).await?);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("{}", guard.token());
//! guard.release().await
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquisition;
mod backend;
mod cleanup;
mod client;
mod config;
mod diagnose;
mod driver;
mod inspect;
mod lease;
mod listing;
mod members;
mod nodes;
pub mod protocol;
mod revoke;
mod waiters;
mod watch;

pub use crate::{
    client::Redlock,
    config::Config,
    driver::RedlockDriver,
    members::{
        init::{InitOptions, init, init_in},
        replace::{Replaced, replace, replace_in},
        status::{DeploymentStatus, NodeState, NodeStatus, deployment_status},
    },
};

//! Locks on etcd: a fair queue of keys under a lease, decided by transactions.
//!
//! # Which promise
//! * At most one holder at a time: the contender whose key has the lowest create revision holds. etcd gives revisions through its
//!   log, so they are agreed upon by a majority.
//! * One round trip to acquire a free lock: one transaction enters the queue and looks who is first.
//! * Grants in the order of arrival. A waiter watches the one before it, so that a release wakes one.
//! * A fencing token that rises with every grant: the create revision of the holder's key. It needs no clock.
//! * The keys of a connection are under one lease of etcd, its session, which is renewed three times in `session_ttl`. A holder
//!   that was killed, stopped or cut off loses its locks when that ends. A guard's [validity](lock_core::Validity) is counted from
//!   before the renewal was sent, so it ends before the lease does.
//! * A guard learns within a third of `session_ttl` that somebody deleted its key.
//!
//! # What this does not guarantee
//! * etcd counts a lease in whole seconds and looks every 500 ms for those that ended. A dead holder's successor waits that much
//!   longer, and a new leader counts every lease anew from its election.
//! * A leader that was stopped and does not know of its successor ends leases too early (etcd issue 15247): easily in versions that
//!   lack pull request 16822 (in 3.4 it is 17465, of February 2024), rarely in later ones. Then two hold the lock until the first
//!   one renews its session. Some failover runs have shown it, on 3.4.23. Check the fencing token in the store that the lock protects.
//! * Locks for one holder alone: no readers, permits or lock delays.
//!
//! # TLS
//! `etcds://`, with the cargo feature `tls-aws-lc-rs` or `tls-ring`; [`EtcdDriver`] has the settings. The files of the certificates are
//! read at each connect. A program without a user that shows a certificate is the user of its common name, where etcd knows that.
//!
//! # Beside other clients
//! The lock `NAME` is the prefix `/locks/NAME/` (the path of the URL and the name, with every byte but letters, digits, `-` and `_`
//! written `%XX`), and a contender is a key under it, which is what `etcdctl lock` and the mutexes of etcd's Go client do: they
//! stand in the same queue.
//!
//! For the same reason the path of one program must not be the prefix of another's lock: every key under `/locks/app`, whoever made it
//! and for whichever lock, is a contender for the lock `app` of the programs whose path is `/locks`, which then waits for all of them.
//!
//! # Example
//! ```no_run
//! use std::time::Duration;
//! use lock_core::Locks;
//! use lock_etcd::{Config, Etcd};
//!
//! # async fn example() -> Result<(), lock_core::Error> {
//! let etcd = Etcd::connect(Config::new([("127.0.0.1", 2379)])).await?;
//! let locks = Locks::new(etcd);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("held with fencing token {}", guard.token());
//! guard.release().await?;
//! locks.close(Duration::from_secs(1)).await
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod config;
mod diagnose;
mod driver;
mod lease;
mod protocol;
mod session;
#[cfg(test)]
mod users;
mod wire;

pub use self::{backend::Etcd, config::Config, driver::EtcdDriver};

//! The backend of one machine: no server, only files that the kernel locks.
//!
//! # Which promise
//! Waiters are granted in the order of their arrival, over all programs of this machine that name the same directory. A
//! contender is a file that its owner has locked (`flock(2)`) for as long as it lives; so when a process dies, however it
//! dies, the kernel gives its locks back at once. A release wakes exactly one waiter, by the kernel's own news
//! (`inotify(7)`); where there is none, waiters look each second. Readers and writers, a downgrade without a gap, and
//! semaphores are in it.
//!
//! The fencing token is a counter in a file, on the disk before it is given out: it rises through crashes of programs and
//! of the machine. When the directory is deleted (or is on a file system in memory, and the machine restarts) it goes on
//! from the wall clock, in microseconds, and rises as long as that clock was not set back.
//!
//! # What this does not guarantee
//! - **A process that is stopped keeps its locks.** There is no lease and no ttl: a guard stays valid until it is given back
//!   or its process ends. One that is stopped just while it enters a queue, a matter of microseconds, keeps everybody out of
//!   that queue: they get [`Error::Unavailable`](lock_core::Error::Unavailable) after 5 s.
//! - One machine, one kernel, a file system of its own: NFS and SMB, whose locks are another thing, are refused. Containers that mount
//!   the same directory are fine.
//! - A process that dies while what it started goes on gives its locks back all the same, unless
//!   [`Config::inherit`](Config) is set, as `lock run` does: then they stay until all of those have ended.
//! - A child process that was forked without running another program shares its parent's locks, until it ends or the parent
//!   gives them back.
//! - Users do not share locks. A directory is used if it is this user's or root's, and nobody else may write to it, or it is
//!   sticky; the directories of its locks are made for one user alone, and those of others are refused, by
//!   [`Error::Config`](lock_core::Error::Config). In a directory that everybody may write to, each name is its first user's.
//!   The directories above it are yours to choose: who may rename one of them can lead programs to different places.
//! - Whoever may write to the directory of a lock (this user, and root) can break that lock. A contender's file that is deleted
//!   is reported as [`Loss::Revoked`](lock_core::Loss::Revoked) within a second, after the fact. A forced release
//!   ([`Locks::revoke`](lock_core::Locks::revoke)) is just that, and works against a process that is stopped, too.
//!
//! # What it costs
//! An uncontended acquisition makes one file and waits once for the disk, because of the token; a release deletes the file. A
//! lock that is held is one open file. What stays of a lock that nobody uses is its directory with one file of 32 bytes, the
//! counter, so that its token never falls; delete both when no program uses the lock, if there are too many.
//!
//! # Example
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let locks = lock_core::Locks::new(lock_local::Local::connect(lock_local::Config::new(directory.path().join("locks"))?)?);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("held with token {}", guard.token());
//! guard.release().await?;
//! locks.close(std::time::Duration::from_secs(1)).await?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod config;
pub mod counter;
mod driver;
mod files;
mod listing;
mod trust;
mod watch;

pub use crate::{backend::Local, config::Config, driver::LocalDriver};

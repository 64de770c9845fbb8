//! An example of a backend that lives in another repository: a lock service in an SQLite database file.
//!
//! `docs/writing-a-backend.md` walks through it.
//!
//! # Which promise
//! Waiters are granted in the order of their arrival, over all programs of this machine that name the same file. A
//! contender is a row with a lease: a holder that was killed loses the lock after its ttl, a waiter its place after five
//! seconds. Leases are counted on the boot-time clock, which all processes of a machine share; a row names the boot that
//! wrote it, so a lease of an earlier boot is over.
//!
//! The fencing token is the number of the row. SQLite never gives one twice, and a grant is on the disk before it is given
//! out: tokens rise through crashes of programs and of the machine. Whoever deletes the file, or restores an older copy,
//! raises the `era` of all programs.
//!
//! # What this does not guarantee
//! - One machine, one kernel, a file system of its own: SQLite's locks and its shared memory do not reach over NFS or SMB, and
//!   each machine would take the other's leases for those of an earlier boot. Containers that mount the same file are fine,
//!   unless one has a time namespace of its own.
//! - On a file system in memory the file is gone after a restart of the machine, and the tokens begin anew: raise the `era`.
//! - Whoever may write to the file can break its locks. A database that is deleted or replaced is noticed by the next
//!   renewal; until then others may hold the same locks in the new one.
//! - A waiter whose process stood still for five seconds has lost its place, and enters again at the end.
//!
//! # What it costs
//! An uncontended acquisition is one transaction that waits once for the disk; so is a release. All renewals of a connection
//! are one transaction. A waiter looks again after pauses of up to `look_again`, and these looks only read: nothing tells it
//! of a release.
//!
//! # Example
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}/locks.db?ttl=10s", directory.path().display());
//! let registry = lock::registry().with(lock_sqlite_example::SqliteDriver);
//! let locks = lock::Config::from_url(&url)?.connect_with(&registry).await?;
//! let guard = locks.mutex("orders/4711").lock().await?;
//! println!("held with token {}", guard.token());
//! guard.release().await?;
//! locks.close(std::time::Duration::from_secs(1)).await?;
//! # Ok(())
//! # }
//! ```

mod backend;
mod config;
mod database;
mod driver;
mod lease;
mod rows;
mod table;

#[doc(hidden)]
pub use crate::database::Failpoint;
pub use crate::{backend::Sqlite, config::Config, driver::SqliteDriver};

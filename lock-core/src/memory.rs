//! The memory backend: locks of one process. For tests, for development, and for a program that runs alone.
//!
//! It keeps every promise of the SPI, leases and their renewal included, so that a program which works on it works on the
//! others. Its servers are values: connections to the same [`MemoryServer`] compete, and a test may cut one off, stop the
//! server, or let it all run in virtual time. For the tests of programs there is [`testing`](crate::testing).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::{Locks, memory::{Config, Memory, MemoryServer}};
//!
//! let server = MemoryServer::new();
//! let locks = Locks::new(Memory::connect(Config::new(server))?);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! assert!(locks.mutex("orders/4711").try_lock().await?.is_none());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```

mod config;
mod connection;
mod contender;
mod driver;
mod lease;
mod link;
mod queue;
#[cfg(test)]
mod schedules;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod watch;

pub use self::{config::Config, connection::Memory, driver::MemoryDriver, server::MemoryServer};

/// The name of this backend.
const BACKEND: &str = "memory";

//! Fences: the part that the store plays.
//!
//! A holder that was stopped past its lease does not know that the lock is another's by now, and its write may be on its
//! way already. The store that the lock protects can refuse it, by the fencing token: here are fences for stores of several
//! kinds. What they have in common, and what to mind, is told in [`lock_core::fence`].
//!
//! | the store | the fence |
//! |---|---|
//! | memory of one process | [`Fence`] |
//! | a table of SQLite, PostgreSQL or MySQL | [`sql`] |
//! | Redis | `redis::FencedKey` (feature `redis`) |
//! | ZooKeeper | `zk::FencedNode` (feature `zk`) |
//!
//! The lock and the store need not be of one kind: a ZooKeeper lock may guard a table.
//!
//! Those of Redis and ZooKeeper take a client of the version that this crate is built with: the re-exported `redis::redis` and
//! `zk::zookeeper_client`. For a client of another version or kind, `FencedKey::set_call` and `zk::plan` give the same as values.

pub use lock_core::fence::{Fence, StaleToken, sql};

#[cfg(feature = "redis")]
pub use lock_redis::fence as redis;
#[cfg(feature = "zk")]
pub use lock_zk::fence as zk;

//! A laboratory for distributed locks: real servers as child processes, a proxy that breaks connections, load, and
//! reports.
//!
//! * [`servers`] starts Redis and ZooKeeper on free loopback ports and takes them down with the program, however it ends;
//! * [`proxy`] stands between a client and a server, and delays, holds or cuts.

mod error;
pub mod proxy;
pub mod servers;

pub use error::LabError;

//! A laboratory for distributed locks: real servers as child processes, a proxy that breaks connections, load, and
//! reports.
//!
//! * [`servers`] starts Redis and ZooKeeper on free loopback ports and takes them down with the program, however it ends;
//! * [`proxy`] stands between a client and a server, and delays, holds or cuts;
//! * [`deployment`] has the backends, each on one arrangement of servers: everything else goes over that list;
//! * [`compare`] runs the same load and the same faults on each of them;
//! * [`readwrite`] has readers and writers share one lock, and judges what was granted;
//! * [`failover`] strikes them under load, checks what the locks promise, and reports it;
//! * [`demo`] has many contenders queue for one lock;
//! * [`report`] has the parts of which every report is made;
//! * [`wait`] has what tests wait for.

pub mod compare;
pub mod demo;
pub mod deployment;
mod deployments;
mod error;
pub mod failover;
pub mod history;
pub mod holder;
pub mod latency;
pub mod load;
mod network;
mod options;
mod progress;
pub mod proxy;
pub mod readwrite;
pub mod report;
pub mod scrape;
pub mod servers;
mod truth;
pub mod wait;

pub use error::LabError;

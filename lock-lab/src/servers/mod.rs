//! Real servers as child processes of this program.
//!
//! Each listens on free loopback ports and keeps its data in a temporary directory, in the place that `LOCK_LAB_DATA` names or
//! among the temporary files. `start` returns when the very process
//! that was started has answered a command. A server ends with the value that started it, and with the program, whether
//! that returns, panics or is killed: the kernel is asked to kill the server with its parent, and a shell that sees the
//! program's end removes the directories.

mod certificates;
pub(crate) mod clock;
mod cluster;
mod command_counts;
pub(crate) mod http;
pub(crate) mod nodes;
pub(crate) mod ports;
pub(crate) mod process;
mod prometheus;
mod reaper;
mod redis;
pub(crate) mod rights;
mod sentinel;
pub(crate) mod until;
pub(crate) mod zookeeper;

pub(crate) use self::process::directory;
pub use self::{
    certificates::{Certificates, ClientCertificate, ServerCertificate},
    cluster::{Cluster, ClusterOptions},
    command_counts::{CommandCount, CommandCounts},
    nodes::RedisNodes,
    ports::free as free_port,
    prometheus::Prometheus,
    redis::{Redis, RedisOptions, connect_to_redis},
    sentinel::{Sentinel, SentinelOptions},
    zookeeper::{ZooKeeper, ZooKeeperOptions},
};

/// For how long servers bear the silence of each other that are started so, in milliseconds.
pub(crate) const SILENCE: u32 = 10_000;

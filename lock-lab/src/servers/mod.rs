//! Real servers as child processes of this program.
//!
//! Each listens on free loopback ports and keeps its data in a temporary directory. `start` returns when the very process
//! that was started has answered a command. A server ends with the value that started it, and with the program: when it
//! returns, panics or is killed ([`process`](self) has no server outlive it, and the directories are removed too).

pub(crate) mod ports;
mod process;
mod reaper;
mod redis;
mod zookeeper;

pub use self::{
    redis::{Redis, RedisNodes},
    zookeeper::ZooKeeper,
};

//! A Redis server in simulated time: it speaks RESP over the connections of a [`World`](crate::world::World), runs the Lua
//! scripts that are shipped, and keeps keys that end by its own clock.
//!
//! It knows the commands that locks use, and answers any other one with an error. What it answers and keeps is compared with
//! a real server by `lock-sim/tests/suite/redis_beside_a_real_one.rs`.

mod commands;
mod fleet;
mod lua;
mod msgpack;
mod network;
mod reply;
mod server;
mod store;
mod structs;
mod values;

pub use self::{
    fleet::{Fleet, Loses},
    lua::{Removal, load, run},
    network::{HostNetwork, PORTS, address, server_at},
    reply::{Reply, Requests},
    server::{Output, Recorded, RedisServer},
    store::{Entry, Seen, Store},
    values::{SortedSet, Value},
};

//! What the tests of this crate have in common is built once: they are one program.

#![allow(clippy::future_not_send, reason = "a simulated world is played on one thread")]

mod common;
mod cost;
mod ensemble;
mod faults;
mod herd;
mod layouts;
mod many;
mod model;
mod negotiated;
mod numbers;
mod other_libraries;
mod overloaded;
mod peers;
mod queue;
mod raw;
mod rights;
mod semaphore;
mod sessions;
mod shared;
mod shared_faults;
mod simulated_servers;
mod simulation;
mod snapshot;
mod watch;

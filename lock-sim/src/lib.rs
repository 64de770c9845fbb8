//! The algorithms of the locks on simulated servers: seeded schedules by the million, in virtual time.
//!
//! A [`Machine`] is one algorithm with a world around it: servers, clients, clocks that drift, messages that are late, lost
//! or sent twice, programs that stop and go on with what they knew. What decides is the very code that the backends run;
//! what is simulated is everything that it talks to. One seed is one schedule, and replays exactly, on every platform.
//!
//! A machine names its [`Safeguard`]s, each of which can be taken out. A [`Campaign`](campaign::Campaign) runs each machine with all of them,
//! which must find nothing, and once without each of them, which must find something: a check that cannot fail proves
//! nothing.
//!
//! # How a machine is written
//! - Its world is driven by an [`Agenda`]: events in virtual time. Whatever is random comes from one [`Chance`].
//! - A participant's clock is a [`LocalClock`], a connection's order is kept by a [`Pipe`].
//! - It counts what happened under the names that [`Machine::facts`] gives them, and writes what a person would want to read
//!   of a replay into the [`Trace`].

#![allow(clippy::future_not_send, reason = "a schedule runs on one thread")]

pub mod agenda;
pub mod campaign;
pub mod chance;
pub mod clock;
pub mod contest;
pub mod machine;
pub mod missed;
pub mod network;
pub mod one_redis;
pub mod redis;
pub mod redlock;
pub mod runner;
pub mod trace;
pub mod validity;
pub mod world;
pub mod zookeeper;

pub use crate::{
    agenda::{Agenda, MS, SECOND, Time, US},
    chance::Chance,
    clock::LocalClock,
    machine::{Counts, Fact, Machine, Outcome, Safeguard, Sort, Violation},
    missed::Missed,
    network::Pipe,
    trace::Trace,
};

/// A schedule allocates a lot, most of it in the interpreter of scripts.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Every machine.
#[must_use]
pub fn machines() -> Vec<&'static dyn Machine> {
    vec![
        &zookeeper::ZooKeeper,
        &redlock::Redlock,
        &one_redis::OneRedis::QUEUE,
        &one_redis::OneRedis::PLAIN,
        &validity::Cell,
    ]
}

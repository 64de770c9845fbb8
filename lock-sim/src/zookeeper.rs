//! ZooKeeper: the shipped backend on an ensemble of three servers.
//!
//! The programs use `lock_core::Locks` over `lock_zk::ZooKeeper`, as it is shipped, on hosts with clocks of their own. Below the
//! backend's wire stands an ensemble with what the protocol depends on: a leader with a log, sessions and their time-outs
//! by its own clock; followers that apply late, tell of their sessions' activity with their answers to pings, and go on
//! answering when they are cut off; elections that keep what is committed and lengthen every time-out; deposed leaders that
//! believe what they know; one-shot watches, in the order of the commits; connections that break in any moment.

pub mod alone;
mod client;
pub mod deployment;
mod ensemble;
mod fact;
mod fault;
mod invariant;
mod message;
mod profile;
mod program;
mod report;
mod safeguard;
mod schedule;
mod server;
mod state;
mod tree;
mod wire;

pub use self::message::{Answer, Down, Made, News, Op, Refusal, Reply, SessionId, Stat};

use self::state::Schedule;
use crate::{Fact, Machine, Outcome, Safeguard, Trace};

/// The shipped backend on a simulated ensemble.
#[derive(Debug)]
pub struct ZooKeeper;

impl Machine for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn about(&self) -> &'static str {
        "the shipped backend, on an ensemble of three"
    }

    fn tested(&self) -> u64 {
        1_000
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        &safeguard::SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        &fact::FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        lock_core::take_out(without.map(|place| safeguard::SAFEGUARDS[place].name));
        let outcome = Schedule::new(seed, trace).play();
        lock_core::take_out(None);
        outcome
    }
}

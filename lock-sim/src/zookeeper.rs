//! The queue on ZooKeeper: contenders on an ensemble of three servers.
//!
//! What decides is the backend's own code: the order of the queue and who stands where (`lock_zk::protocol::queue`), and the
//! arithmetic of the heartbeat (`lock_zk::protocol::heartbeat`). What the backend does with answers and events is done here as there,
//! step by step. Around it is an ensemble with what the rules depend on: a leader with a log, sessions and their time-outs
//! by its own clock; followers that apply late, tell of their sessions' activity with their answers to pings, and go on
//! answering when they are cut off; elections that keep what is committed and lengthen every time-out; deposed leaders that
//! believe what they know; one-shot watches, in the order of the commits; connections that break in any moment.

pub mod alone;
mod chore;
mod client;
mod contender;
mod ensemble;
mod fact;
mod guard;
mod holding;
mod line;
mod message;
mod oracle;
mod server;
mod tree;
mod view;
mod weather;
mod world;

pub use self::{
    message::{Answer, Down, Op, Refusal, Reply},
    tree::{News, SessionId},
};

use self::world::World;
use crate::{Fact, Machine, Outcome, Safeguard, Trace};

/// The queue on a simulated ensemble.
#[derive(Debug)]
pub struct ZooKeeper;

impl Machine for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn about(&self) -> &'static str {
        "the queue of ephemeral sequential nodes, on an ensemble of three"
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        &guard::SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        &fact::FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        World::new(seed, without, trace).play()
    }
}

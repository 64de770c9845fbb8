//! The quorum of Redlock with its token: votes, leases and what the nodes keep of them.
//!
//! The decisions are those of `lock-redlock`: when a vote is won, what a lost one means, what is undone where, which token
//! a grant has, until when it is valid, what a renewal sends and what its answers come to; the validity is the cell of
//! `lock-core`. The nodes are a model of the scripts, which are tested by themselves on real servers. In a part of the
//! schedules other servers take the places of members.
//!
//! What is checked: no two hold who exclude each other, in true time (M); the holder takes its grant for valid for no
//! longer than a majority keeps it (T); tokens are distinct, and those of grants that exclude each other rise in the order
//! of the grants (F); when all have given up what they had, nothing is left, at once and not only after the ttl, unless
//! requests arrived twice (O); and whatever has happened, the lock can be had while a majority is up (P).

mod client;
mod faults;
mod grants;
mod lease;
mod members;
pub mod node;
mod round;
mod rules;
mod settling;
mod weather;
mod world;

use self::{rules::Rules, world::World};
use crate::{Fact, Machine, Outcome, Safeguard, Trace};

/// A quorum of simulated nodes.
#[derive(Debug)]
pub struct Redlock;

impl Machine for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn about(&self) -> &'static str {
        "the quorum of three or five nodes with its token, its leases, readers and writers"
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        rules::SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        world::fact::FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        World::new(seed, Rules::without(without), trace).play()
    }
}

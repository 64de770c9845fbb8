//! The queue on ZooKeeper.

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
        &[]
    }

    fn facts(&self) -> &'static [Fact] {
        &[]
    }

    fn run(&self, _seed: u64, _without: Option<usize>, _trace: &mut Trace) -> Outcome {
        Outcome::default()
    }
}

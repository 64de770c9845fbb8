//! What is still to be given back on each node.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::{Backoff, BootInstant};
use lock_redis::{node::ScriptCall, scripts::held};

use crate::nodes::quorum::Quorum;

/// How many calls go to a node in one burst. After one that failed a single call finds out whether the node works again.
const BURST: usize = 256;
/// The first pause after a burst that failed is below this.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// And no later one is above this: what joins a node's list waits no longer for its first try.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Something that is to be given back on a node.
#[derive(Debug)]
pub(crate) struct PendingUndo {
    pub(crate) what: &'static str,
    pub(crate) call: ScriptCall,
    /// When it has ended by its ttl.
    pub(crate) until: BootInstant,
}

/// The list of one node. One task works it off, however long it is: a node that stands still leaves thousands of releases
/// unanswered before that is noticed, and a task for each of them, trying again and again, would take the time of those
/// who acquire on the other nodes.
#[derive(Debug, Default)]
pub(crate) struct UndoQueue(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    rest: Vec<PendingUndo>,
    is_running: bool,
}

impl UndoQueue {
    /// Adds to the list. Returns whether somebody has to begin to work it off.
    fn add(&self, rest: PendingUndo) -> bool {
        self.list(|list| {
            list.rest.push(rest);
            !mem::replace(&mut list.is_running, true)
        })
    }

    /// What is to be sent next, no more than `most`; with nothing the work is done.
    fn take(&self, most: usize) -> Vec<PendingUndo> {
        self.list(|list| {
            let burst = list.rest.len().min(most);
            list.is_running = burst > 0;
            list.rest.drain(..burst).collect()
        })
    }

    /// Adds what failed to the end of the list, and leaves out what has ended by now. Returns what that is.
    fn put_back(&self, failed: Vec<PendingUndo>, now: BootInstant) -> Vec<PendingUndo> {
        self.list(|list| {
            list.rest.extend(failed);
            list.rest.extract_if(.., |rest| rest.until <= now).collect()
        })
    }

    fn list<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Quorum {
    /// Sends again what was to be given back on `node`, until it is confirmed or has ended by its ttl.
    pub(crate) fn undo_later(self: &Arc<Self>, node: usize, rest: PendingUndo) {
        if self.undo_queues[node].add(rest) {
            self.cleanup().spawn(run(Arc::clone(self), node));
        }
    }
}

async fn run(quorum: Arc<Quorum>, node: usize) {
    let list = &quorum.undo_queues[node];
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut most = BURST;
    loop {
        let burst = list.take(most);
        if burst.is_empty() {
            return;
        }
        let calls: Vec<ScriptCall> = burst.iter().map(|rest| rest.call.clone()).collect();
        let answers = quorum.node(node).run(&calls).await;
        let mut failed = Vec::new();
        for (rest, answer) in burst.into_iter().zip(answers) {
            if let Err(error) = answer.and_then(|answer| held(&answer)) {
                tracing::debug!(what = rest.what, node = %quorum.address(node), %error, "not cleaned yet");
                failed.push(rest);
            }
        }
        if failed.is_empty() {
            backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            most = BURST;
            continue;
        }
        for rest in list.put_back(failed, quorum.clock().now()) {
            tracing::debug!(what = rest.what, node = %quorum.address(node), "left to its ttl");
        }
        most = 1;
        quorum.clock().sleep(backoff.pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock_redis::node::Script;

    static NOTHING: Script = Script::new("return 1");

    fn rest() -> PendingUndo {
        PendingUndo { what: "a test", call: ScriptCall::new(&NOTHING), until: BootInstant::from_nanos(1) }
    }

    #[test]
    fn one_task_works_a_list_off_and_the_next_begins_when_it_was_empty() {
        let list = UndoQueue::default();
        assert!(list.add(rest()) && !list.add(rest()));
        let burst = list.take(BURST);
        assert_eq!(burst.len(), 2);
        assert!(list.put_back(burst, BootInstant::from_nanos(0)).is_empty());
        assert!(!list.add(rest()), "it still is at work");
        assert_eq!(list.take(BURST).len(), 3);
        assert!(list.take(BURST).is_empty() && list.add(rest()));
    }

    #[test]
    fn a_long_list_goes_in_several_bursts() {
        let list = UndoQueue::default();
        for _ in 0..BURST + 1 {
            list.add(rest());
        }
        assert_eq!((list.take(BURST).len(), list.take(BURST).len()), (BURST, 1));
    }

    #[test]
    fn what_has_ended_is_left_out_once_the_node_was_tried() {
        let list = UndoQueue::default();
        for _ in 0..3 {
            list.add(rest());
        }
        let probe = list.take(1);
        assert_eq!(list.put_back(probe, BootInstant::from_nanos(1)).len(), 3);
        assert!(list.take(BURST).is_empty());
    }
}

//! What is still to be given back on one node.

use std::{
    mem,
    sync::{Mutex, PoisonError},
};

use lock_core::BootInstant;
use lock_redis::node::ScriptCall;

/// A script call that waits to be sent to one node and gives back what a client may hold there.
#[derive(Debug)]
pub(crate) struct PendingUndo {
    /// Names the call in the log.
    pub(crate) what: &'static str,
    pub(crate) call: ScriptCall,
    /// When the thing has ended by its ttl, whenever it was taken.
    pub(crate) until: BootInstant,
}

/// The pending undos of one node. One task works a queue off, however long it is: a node that stands still leaves
/// thousands of releases unanswered before that is noticed, and a task for each of them would take the time of those who
/// acquire on the other nodes.
#[derive(Debug, Default)]
pub(crate) struct UndoQueue(Mutex<WaitingUndos>);

/// The undos of one node that wait to be sent, behind the lock of an [`UndoQueue`].
#[derive(Debug, Default)]
struct WaitingUndos {
    undos: Vec<PendingUndo>,
    /// Whether a task works the queue off.
    is_running: bool,
}

impl UndoQueue {
    /// Adds to the queue. Returns whether a task has to be started.
    pub(crate) fn add(&self, undo: PendingUndo) -> bool {
        self.queue(|queue| {
            queue.undos.push(undo);
            !mem::replace(&mut queue.is_running, true)
        })
    }

    /// What is to be sent next, at most `most` calls. When nothing is left, the task has ended.
    pub(crate) fn take(&self, most: usize) -> Vec<PendingUndo> {
        self.queue(|queue| {
            let burst = queue.undos.len().min(most);
            queue.is_running = burst > 0;
            queue.undos.drain(..burst).collect()
        })
    }

    /// Puts failed calls at the end of the queue, then removes and returns those whose time is over.
    pub(crate) fn put_back(&self, failed: Vec<PendingUndo>, now: BootInstant) -> Vec<PendingUndo> {
        self.queue(|queue| {
            queue.undos.extend(failed);
            queue.undos.extract_if(.., |undo| undo.until <= now).collect()
        })
    }

    fn queue<T>(&self, work: impl FnOnce(&mut WaitingUndos) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use lock_redis::node::Script;

    use super::*;

    static NOTHING: Script = Script::new("return 1");

    fn queue_of(undos: usize) -> UndoQueue {
        let queue = UndoQueue::default();
        for _ in 0..undos {
            queue.add(undo());
        }
        queue
    }

    fn undo() -> PendingUndo {
        PendingUndo { what: "a test", call: ScriptCall::new(&NOTHING), until: BootInstant::from_nanos(1) }
    }

    #[test]
    fn one_task_works_a_queue_off_and_the_next_begins_when_it_was_empty() {
        let queue = UndoQueue::default();
        assert!(queue.add(undo()) && !queue.add(undo()));
        let burst = queue.take(9);
        assert_eq!(burst.len(), 2);
        assert!(queue.put_back(burst, BootInstant::from_nanos(0)).is_empty());
        assert!(!queue.add(undo()), "the task is still at work");
        assert_eq!(queue.take(9).len(), 3);
        assert!(queue.take(9).is_empty() && queue.add(undo()));
    }

    #[test]
    fn a_long_queue_goes_in_several_bursts() {
        let queue = queue_of(10);
        assert_eq!((queue.take(9).len(), queue.take(9).len()), (9, 1));
    }

    #[test]
    fn what_has_ended_is_left_out_once_the_node_was_tried() {
        let queue = queue_of(3);
        let probe = queue.take(1);
        assert_eq!(queue.put_back(probe, BootInstant::from_nanos(1)).len(), 3);
        assert!(queue.take(9).is_empty());
    }
}

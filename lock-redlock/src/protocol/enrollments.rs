//! On which nodes a waiter stands in line, or may yet be put there by what was sent before.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{nodes::replies::NoReply, waiters::Waiter};

/// The enrollments of one waiter, by node.
#[derive(Debug, Default)]
pub(crate) struct Enrollments(Mutex<Vec<Enrollment>>);

#[derive(Debug, Default, Clone, Copy)]
struct Enrollment {
    /// A request that lines it up was answered: it may stand there.
    answered: bool,
    /// How many more were made, and may come yet: not answered, or never to be.
    pending: usize,
}

impl Enrollments {
    /// Whether it stands there, or may yet.
    pub(crate) fn may_be_enrolled(&self, node: usize) -> bool {
        self.at(node, |enrollment| enrollment.answered || enrollment.pending > 0)
    }

    /// Whether something that lines it up may come there yet.
    pub(crate) fn has_pending(&self, node: usize) -> bool {
        self.at(node, |enrollment| enrollment.pending > 0)
    }

    fn at<T>(&self, node: usize, work: impl FnOnce(&mut Enrollment) -> T) -> T {
        let mut enrollments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if enrollments.len() <= node {
            enrollments.resize(node + 1, Enrollment::default());
        }
        work(&mut enrollments[node])
    }
}

/// A request that puts a waiter in line on a node. It counts as pending until it is known what became of it: when this is
/// only dropped, for good.
#[derive(Debug)]
pub(crate) struct PendingEnrollment {
    waiter: Arc<Waiter>,
    node: usize,
}

impl PendingEnrollment {
    pub(crate) fn new(waiter: &Arc<Waiter>, node: usize) -> Self {
        waiter.enrollments.at(node, |enrollment| enrollment.pending += 1);
        Self { waiter: Arc::clone(waiter), node }
    }

    /// It was answered, or not.
    pub(crate) fn answered(self, no_reply: Option<&NoReply>) {
        let was_sent = !matches!(no_reply, Some(NoReply::NotSent(_)));
        let is_known = !no_reply.is_some_and(NoReply::is_unknown);
        self.waiter.enrollments.at(self.node, |enrollment| {
            enrollment.answered |= was_sent;
            enrollment.pending -= usize::from(is_known);
        });
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Clock;
    use lock_redis::node::{NodeError, Value};

    use super::*;
    use crate::waiters::Waiters;

    fn waiter() -> Arc<Waiter> {
        Arc::new(Waiters::new("c".to_owned(), Clock::boot()).enter("a").0)
    }

    #[test]
    fn what_was_answered_does_not_come_any_more_and_what_was_not_sent_has_lined_nobody_up() {
        let waiter = waiter();
        let pending = [0, 1].map(|node| PendingEnrollment::new(&waiter, node));
        assert!(
            [0, 1].iter().all(|node| waiter.enrollments.has_pending(*node)) && !waiter.enrollments.may_be_enrolled(2)
        );
        let [answered, unsent] = pending;
        answered.answered(None);
        unsent.answered(Some(&NoReply::NotSent(String::new())));
        assert!(waiter.enrollments.may_be_enrolled(0) && !waiter.enrollments.may_be_enrolled(1));
        assert!(!waiter.enrollments.has_pending(0) && !waiter.enrollments.has_pending(1));
    }

    #[test]
    fn what_nobody_knows_of_may_come_for_ever() {
        let waiter = waiter();
        let unknown = NodeError::nonsense(&Value::Nil);
        assert!(unknown.is_unknown());
        PendingEnrollment::new(&waiter, 0).answered(Some(&NoReply::Failed(unknown)));
        drop(PendingEnrollment::new(&waiter, 1));
        PendingEnrollment::new(&waiter, 0).answered(None);
        assert!([0, 1].iter().all(|node| waiter.enrollments.has_pending(*node)));
    }
}

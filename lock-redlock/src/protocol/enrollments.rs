//! On which nodes a waiter is in the queue, or may yet be put there by a request that was sent before.

use std::sync::{Arc, Mutex, PoisonError};

/// The enrollments of one waiter, by node.
#[derive(Debug, Default)]
pub(crate) struct Enrollments(Mutex<Vec<Enrollment>>);

/// What is known of one waiter in the queue of one node.
#[derive(Debug, Default, Clone, Copy)]
struct Enrollment {
    /// A request that enrolls the waiter was sent and is settled, so the waiter may be in the queue.
    sent: bool,
    /// How many more requests may still arrive: they are not settled, or never will be.
    pending: usize,
}

impl Enrollments {
    /// Whether the waiter is in the queue of `node`, or may come there yet.
    pub(crate) fn may_be_enrolled(&self, node: usize) -> bool {
        self.at(node, |enrollment| enrollment.sent || enrollment.pending > 0)
    }

    /// Whether a request that enrolls the waiter may still arrive at `node`.
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

/// A request that enrolls a waiter on a node. Dropped without being settled, the request counts as pending for good.
#[derive(Debug)]
pub(crate) struct PendingEnrollment {
    enrollments: Arc<Enrollments>,
    node: usize,
}

impl PendingEnrollment {
    pub(crate) fn new(enrollments: &Arc<Enrollments>, node: usize) -> Self {
        enrollments.at(node, |enrollment| enrollment.pending += 1);
        Self { enrollments: Arc::clone(enrollments), node }
    }

    /// The request was sent or not, and may still arrive or not.
    pub(crate) fn settle(self, was_sent: bool, may_arrive: bool) {
        self.enrollments.at(self.node, |enrollment| {
            enrollment.sent |= was_sent;
            enrollment.pending -= usize::from(!may_arrive);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answered_request_is_not_pending_any_more_and_an_unsent_one_has_enrolled_nobody() {
        let waiter = Arc::new(Enrollments::default());
        let [answered, unsent] = [0, 1].map(|node| PendingEnrollment::new(&waiter, node));
        assert!([0, 1].iter().all(|node| waiter.has_pending(*node)) && !waiter.may_be_enrolled(2));
        answered.settle(true, false);
        unsent.settle(false, false);
        assert!(waiter.may_be_enrolled(0) && !waiter.may_be_enrolled(1));
        assert!(!waiter.has_pending(0) && !waiter.has_pending(1));
    }

    #[test]
    fn a_request_with_an_unknown_outcome_is_pending_for_ever() {
        let waiter = Arc::new(Enrollments::default());
        PendingEnrollment::new(&waiter, 0).settle(true, true);
        drop(PendingEnrollment::new(&waiter, 1));
        PendingEnrollment::new(&waiter, 0).settle(true, false);
        assert!([0, 1].iter().all(|node| waiter.has_pending(*node)));
    }
}

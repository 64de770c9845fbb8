//! On which nodes a waiter stands in line, or may yet be put there by what was sent before.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{replies::Silence, waiting::Waiter};

/// The places of one waiter, by node.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Place>>);

#[derive(Debug, Default, Clone, Copy)]
struct Place {
    /// A request that lines it up was answered: it may stand there.
    asked: bool,
    /// How many more were made, and may come yet: not answered, or never to be.
    coming: usize,
}

impl Places {
    /// Whether it stands there, or may yet.
    pub(crate) fn may_stand(&self, node: usize) -> bool {
        self.at(node, |place| place.asked || place.coming > 0)
    }

    /// Whether something that lines it up may come there yet.
    pub(crate) fn may_come(&self, node: usize) -> bool {
        self.at(node, |place| place.coming > 0)
    }

    fn at<T>(&self, node: usize, work: impl FnOnce(&mut Place) -> T) -> T {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() <= node {
            places.resize(node + 1, Place::default());
        }
        work(&mut places[node])
    }
}

/// A request that puts a waiter in line on a node. It counts as coming until it is known what became of it: when this is
/// only dropped, for good.
#[derive(Debug)]
pub(crate) struct Coming {
    waiter: Arc<Waiter>,
    node: usize,
}

impl Coming {
    pub(crate) fn new(waiter: &Arc<Waiter>, node: usize) -> Self {
        waiter.places.at(node, |place| place.coming += 1);
        Self { waiter: Arc::clone(waiter), node }
    }

    /// It was answered, or not.
    pub(crate) fn answered(self, silence: Option<&Silence>) {
        let was_sent = !matches!(silence, Some(Silence::NotSent(_)));
        let is_known = !silence.is_some_and(Silence::is_unknown);
        self.waiter.places.at(self.node, |place| {
            place.asked |= was_sent;
            place.coming -= usize::from(is_known);
        });
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Clock;
    use lock_redis::node::{NodeError, Value};

    use super::*;
    use crate::waiting::Waiters;

    fn waiter() -> Arc<Waiter> {
        Arc::new(Waiters::new("c".to_owned(), Clock::boot()).enter("a").0)
    }

    #[test]
    fn what_was_answered_does_not_come_any_more_and_what_was_not_sent_has_lined_nobody_up() {
        let waiter = waiter();
        let coming = [0, 1].map(|node| Coming::new(&waiter, node));
        assert!([0, 1].iter().all(|node| waiter.places.may_come(*node)) && !waiter.places.may_stand(2));
        let [answered, unsent] = coming;
        answered.answered(None);
        unsent.answered(Some(&Silence::NotSent(String::new())));
        assert!(waiter.places.may_stand(0) && !waiter.places.may_stand(1));
        assert!(!waiter.places.may_come(0) && !waiter.places.may_come(1));
    }

    #[test]
    fn what_nobody_knows_of_may_come_for_ever() {
        let waiter = waiter();
        let unknown = NodeError::nonsense(&Value::Nil);
        assert!(unknown.is_unknown());
        Coming::new(&waiter, 0).answered(Some(&Silence::Failed(unknown)));
        drop(Coming::new(&waiter, 1));
        Coming::new(&waiter, 0).answered(None);
        assert!([0, 1].iter().all(|node| waiter.places.may_come(*node)));
    }
}

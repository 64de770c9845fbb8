//! **M** by linearizability: whether the grants and ends of a lock can be put into one order that respects their times, in
//! which a lock is granted only when it is free, and each token is higher than the one before.
//!
//! An operation lasts from its call to its answer, and takes effect at one moment between. A grant lasts from the asking to
//! the grant. An end lasts from the moment when the holder stops believing to the confirmation of the release; without one
//! it may take effect at any later time. An acquisition with an unknown outcome, and the end of what it may have been
//! granted, are open to that side as well: both may also never have happened.
//!
//! The search is that of Wing and Gong with Lowe's memory of configurations, from the crate `todc-utils`. Its time rises
//! quickly with the number of operations under way at once, so a history is cut first, where the answer cannot depend on it:
//! at each grant. Right after the answer of a grant, and before its end is called, that holder has the lock in every valid
//! order. What was under way there has therefore taken effect before (the ends of earlier holders) or will after (the grants
//! of those who wait): each operation is on one side of the cut, and the next piece begins with that holder.

use std::ops::Range;

use lock_core::{BootInstant, FencingToken};
use todc_utils::{
    History,
    linearizability::{
        WGLChecker,
        history::Action::{self, Call, Response},
    },
    specifications::Specification,
};

use super::holds::{Hold, LockHolds};

/// An operation on the lock, for the linearizability checker. Holders are numbered by their places in the list of holds,
/// unknown ones beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockOperation {
    Grant(usize, FencingToken),
    End(usize),
    /// An acquisition with an unknown outcome.
    MayGrant(usize),
    /// The end of the lease that it may have had.
    MayEnd(usize),
}

/// The sequential specification of a mutex with fencing tokens, for the linearizability checker.
struct MutexSpecification;

impl Specification for MutexSpecification {
    type State = (Option<usize>, Option<FencingToken>);
    type Operation = LockOperation;

    fn init() -> Self::State {
        (None, None)
    }

    fn apply(operation: &LockOperation, &(holder, highest): &Self::State) -> (bool, Self::State) {
        match *operation {
            LockOperation::Grant(who, token) => {
                // Safeguard: the checker's lock is granted only when it is free
                // Safeguard: the checker's tokens rise
                (holder.is_none() && highest.is_none_or(|highest| token > highest), (Some(who), Some(token)))
            }
            LockOperation::End(who) => (holder == Some(who), (None, highest)),
            // What may have happened is always in order, and changes nothing where it cannot have.
            LockOperation::MayGrant(who) => (true, (holder.or(Some(who)), highest)),
            LockOperation::MayEnd(who) => (true, (holder.filter(|holder| *holder != who), highest)),
        }
    }
}

/// A [`LockOperation`] with the times of its call and its answer.
#[derive(Debug, Clone, Copy)]
struct TimedOperation {
    operation: LockOperation,
    called: BootInstant,
    answered: BootInstant,
}

/// At most so many unknown attempts are looked at in one piece. Leaving one out cannot change the answer, as an attempt that
/// never happened is one of its outcomes and no other operation needs that it did; their number is what costs time.
const UNKNOWN: usize = 6;

/// A piece of a recorded history that is not linearizable: no order of its grants and ends is that of a mutex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NonLinearizable {
    /// The holder before the piece.
    pub(super) before: Option<usize>,
    /// The grants in it, the last of which cannot be.
    pub(super) grants: Range<usize>,
}

/// All pieces without a valid order.
pub(super) fn contradictions(history: &LockHolds) -> Vec<NonLinearizable> {
    let mut found = Vec::new();
    let (mut before, mut first): (Option<usize>, usize) = (None, 0);
    for (place, hold) in history.holds.iter().enumerate() {
        if is_momentary(hold) && place + 1 < history.holds.len() {
            continue;
        }
        let grants = first..place + 1;
        if !is_linearizable(piece(history, before, grants.clone())) {
            found.push(NonLinearizable { before, grants });
        }
        (before, first) = (Some(place), place + 1);
    }
    found
}

/// Whether it ended with its own grant: no moment at which somebody held.
fn is_momentary(hold: &Hold) -> bool {
    hold.ended() <= hold.granted
}

/// The operations between the grant of `before` and that of the last of `grants`.
fn piece(history: &LockHolds, before: Option<usize>, grants: Range<usize>) -> Vec<TimedOperation> {
    let holds = &history.holds;
    let cut = holds[grants.end - 1].granted;
    let begin = before.map_or(BootInstant::from_nanos(0), |before| holds[before].granted);
    let mut operations = Vec::new();
    if let Some(place) = before {
        let first = LockOperation::Grant(place, holds[place].token);
        operations.push(TimedOperation { operation: first, called: begin, answered: begin });
        operations.extend(end(place, &holds[place], cut));
    }
    for place in grants {
        let hold = &holds[place];
        let operation = LockOperation::Grant(place, hold.token);
        operations.push(TimedOperation { operation, called: hold.asked.max(begin), answered: hold.granted });
        operations.extend(end(place, hold, cut).filter(|_| is_momentary(hold)));
    }
    let unknown = history.unknown.iter().enumerate().filter(|(_, one)| begin <= one.asked && one.asked < cut);
    for (number, one) in unknown.take(UNKNOWN) {
        let who = holds.len() + number;
        for operation in [LockOperation::MayGrant(who), LockOperation::MayEnd(who)] {
            operations.push(TimedOperation { operation, called: one.asked, answered: cut });
        }
    }
    operations
}

/// The end of a hold, if it may take effect by `cut`.
fn end(place: usize, hold: &Hold, cut: BootInstant) -> Option<TimedOperation> {
    let called = hold.ended().max(hold.granted);
    let answered = hold.released.map_or(cut, |released| released.min(cut));
    (called <= cut).then(|| TimedOperation {
        operation: LockOperation::End(place),
        called,
        answered: answered.max(called),
    })
}

fn is_linearizable(operations: Vec<TimedOperation>) -> bool {
    let mut actions: Vec<(BootInstant, bool, usize, Action<LockOperation>)> = Vec::new();
    for (number, one) in operations.into_iter().enumerate() {
        actions.push((one.called, false, number, Call(one.operation)));
        actions.push((one.answered, true, number, Response(one.operation)));
    }
    // What ends at the moment at which another begins is not before it: the clock may not tell.
    actions.sort_by_key(|(at, is_answer, number, _)| (*at, *is_answer, *number));
    let actions: Vec<_> = actions.into_iter().map(|(_, _, number, action)| (number, action)).collect();
    actions.is_empty() || WGLChecker::<MutexSpecification>::is_linearizable(History::from_actions(actions))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{
            fixtures::{at, held, token},
            holds::UnknownAttempt,
            overlap::overlaps,
        },
        *,
    };

    fn of(holds: Vec<Hold>) -> LockHolds {
        LockHolds { holds, unknown: Vec::new() }
    }

    #[test]
    fn grants_one_after_the_other_are_in_order() {
        let mut first = held(1, 0, 5, 50);
        (first.releasing, first.released) = (Some(at(20)), Some(at(25)));
        assert_eq!(contradictions(&of(vec![first, held(2, 0, 22, 40), held(3, 1, 41, 60)])), []);
    }

    #[test]
    fn a_grant_while_another_holds_is_none() {
        let found = contradictions(&of(vec![held(1, 0, 5, 50), held(2, 0, 49, 90), held(3, 0, 91, 99)]));
        assert_eq!(found, [NonLinearizable { before: Some(0), grants: 1..2 }]);
    }

    #[test]
    fn a_token_that_falls_is_none() {
        let found = contradictions(&of(vec![held(7, 0, 5, 10), held(6, 0, 11, 20)]));
        assert_eq!(found, [NonLinearizable { before: Some(0), grants: 1..2 }]);
    }

    #[test]
    fn a_release_with_an_unknown_outcome_may_take_effect_at_any_later_time() {
        let mut first = held(1, 0, 5, 500);
        first.releasing = Some(at(20));
        assert_eq!(contradictions(&of(vec![first, held(2, 100, 110, 120)])), []);
    }

    #[test]
    fn an_attempt_with_an_unknown_outcome_is_no_excuse_for_a_second_holder() {
        let mut history = of(vec![held(1, 0, 5, 50), held(2, 0, 49, 90)]);
        history.unknown = vec![UnknownAttempt { asked: at(1) }; 40];
        assert_eq!(contradictions(&history).len(), 1);
        history.holds[0] = held(1, 0, 5, 40);
        assert_eq!(contradictions(&history), []);
    }

    #[test]
    fn thousands_of_grants_are_decided_piece_by_piece() {
        let many = (1..5000).map(|number| held(number, 0, number * 10, number * 10 + 9)).collect();
        assert_eq!(contradictions(&of(many)), []);
    }

    /// The whole history in one piece.
    fn uncut(history: &LockHolds) -> bool {
        let far = at(1_000_000);
        let mut operations = Vec::new();
        for (place, hold) in history.holds.iter().enumerate() {
            let operation = LockOperation::Grant(place, hold.token);
            operations.push(TimedOperation { operation, called: hold.asked, answered: hold.granted });
            operations.extend(end(place, hold, far));
        }
        for (number, one) in history.unknown.iter().enumerate() {
            let who = history.holds.len() + number;
            operations.push(TimedOperation {
                operation: LockOperation::MayGrant(who),
                called: one.asked,
                answered: far,
            });
            operations.push(TimedOperation { operation: LockOperation::MayEnd(who), called: one.asked, answered: far });
        }
        is_linearizable(operations)
    }

    fn some_holds() -> impl Strategy<Value = LockHolds> {
        let hold = (0_u64..30, 0_u64..12, 0_u64..10, prop::option::of(0_u64..6), any::<bool>());
        let holds = prop::collection::vec(hold, 0..6);
        (holds, prop::collection::vec(0_u64..40, 0..3), any::<bool>()).prop_map(|(times, unknown, shuffled)| {
            let mut holds: Vec<_> = times
                .into_iter()
                .map(|(asked, waited, length, confirmed, released)| {
                    let granted = asked + waited;
                    let mut hold = held(granted, asked, granted, granted + length);
                    if released {
                        hold.releasing = Some(at(granted + length));
                        hold.released = confirmed.map(|after| at(granted + length + after));
                    }
                    hold
                })
                .collect();
            holds.sort_by_key(Hold::order);
            for (number, hold) in (1..).zip(&mut holds) {
                hold.token = token(if shuffled { hold.token.number } else { number });
            }
            let mut unknown: Vec<_> = unknown.into_iter().map(|asked| UnknownAttempt { asked: at(asked) }).collect();
            unknown.sort_by_key(|unknown| unknown.asked);
            LockHolds { holds, unknown }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_pieces_say_what_the_whole_says(history in some_holds()) {
            prop_assert_eq!(contradictions(&history).is_empty(), uncut(&history));
        }

        #[test]
        fn two_holders_at_once_are_always_a_contradiction(history in some_holds()) {
            if !overlaps(&history.holds).is_empty() {
                prop_assert!(!contradictions(&history).is_empty());
            }
        }
    }
}

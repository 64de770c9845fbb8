//! The fencing token of a quorum: one number out of what each node counts for itself.
//!
//! Every node is asked with the same proposal and answers `max(stored + 1, proposal)`, so nodes that nothing disturbed
//! agree, and the grant is complete in one round. Where they do not, the largest answer is written back, as a reader does
//! in an atomic register over a quorum (H. Attiya, A. Bar-Noy and D. Dolev, *Sharing memory robustly in message-passing
//! systems*, 1995).
//!
//! *Two grants have different tokens, and the one that was complete before the other began has the smaller.* Both count a
//! majority, so they share a node; there the two holdings do not overlap in time, so one came first. When it ended, that
//! node's counter had reached its grant's token: the node had answered it, or had confirmed the write-back *while that
//! very holding stood*. The other grant's answer from that node came later, so it is greater, and its token is the
//! greatest of its answers.

use crate::quorum::majority;

/// What a node that granted answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Which node.
    pub node: usize,
    /// The number that it gave to this holding.
    pub number: u64,
}

/// What follows from the answers of the nodes that granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The token of the grant, provided that the write-back succeeds.
    pub token: u64,
    /// The nodes that answered exactly the token. They count as confirmed.
    pub exact: Vec<usize>,
    /// The answers below the token, to be written back; empty when a majority of all nodes is exact.
    pub behind: Vec<Answer>,
}

/// Settles the token of a grant that these answers, of a majority of `nodes`, make up. `None` without answers.
#[must_use]
pub fn settle(answers: &[Answer], nodes: usize) -> Option<Settlement> {
    let token = answers.iter().map(|answer| answer.number).max()?;
    let (exact, mut behind): (Vec<Answer>, Vec<Answer>) = answers.iter().partition(|answer| answer.number == token);
    // A majority of all nodes has stored the token already: every later majority meets it.
    if exact.len() >= majority(nodes) {
        behind.clear();
    }
    Some(Settlement { token, exact: exact.iter().map(|answer| answer.node).collect(), behind })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answers(numbers: &[u64]) -> Vec<Answer> {
        numbers.iter().enumerate().map(|(node, &number)| Answer { node, number }).collect()
    }

    #[test]
    fn nodes_that_agree_need_no_second_round() {
        let settlement = settle(&answers(&[7, 7, 7]), 5).unwrap();
        assert_eq!((settlement.token, settlement.behind.len()), (7, 0));
    }

    #[test]
    fn an_exact_majority_of_those_that_answered_is_not_enough() {
        let settlement = settle(&answers(&[7, 7, 6]), 5).unwrap();
        assert_eq!(settlement.behind, [Answer { node: 2, number: 6 }]);
    }

    proptest! {
        #[test]
        fn exact_and_behind_are_all_who_answered_when_a_round_is_needed(
            numbers in proptest::collection::vec(0_u64..4, 3..=5)
        ) {
            let settlement = settle(&answers(&numbers), 5).unwrap();
            prop_assert_eq!(Some(&settlement.token), numbers.iter().max());
            if settlement.exact.len() < 3 {
                prop_assert_eq!(settlement.exact.len() + settlement.behind.len(), numbers.len());
            } else {
                prop_assert!(settlement.behind.is_empty());
            }
            prop_assert!(settlement.behind.iter().all(|answer| answer.number < settlement.token));
        }
    }
}

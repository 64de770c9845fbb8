//! The fencing token of a quorum: one number out of what each node counts for itself.
//!
//! Every node is asked with the same proposal and answers `max(stored + 1, proposal)`, so nodes that nothing disturbed
//! agree, and the grant is complete in one round. Where they do not, the largest answer is written back, as a reader does
//! in an atomic register over a quorum (H. Attiya, A. Bar-Noy and D. Dolev, *Sharing memory robustly in message-passing
//! systems*, 1995).
//!
//! *Two grants have different tokens, and the one that was complete before the other began has the smaller.* Both count a
//! majority, so they share a node; there the two lease do not overlap in time, so one came first. When it ended, that
//! node's counter had reached its grant's token: the node had answered it, or had confirmed the write-back *while that
//! very holding stood*. The other grant's answer from that node came later, so it is greater, and its token is the
//! greatest of its answers.
//!
//! *Readers* hold the lock together, so two of them may be given numbers by the nodes in turns, and the greatest answer of
//! one may be that of the other, each from another node. So a reader's token is a number that a majority has given to its
//! very holding, and a node gives a number once: where the first answers do not agree, the reader proposes a greater one,
//! until they do ([`Numbering`]). *Two readers have different tokens*, because their majorities share a node. *A reader's
//! token is above that of each writer before it and below that of each writer after it*: on the node that the two
//! majorities share, the two lease do not overlap in time, and the counter had reached the token of the first when that
//! one ended; what the node answered to the second came later. How often other readers raised the counter in between does
//! not matter, because it only rises.

use crate::protocol::votes::majority;

/// The number that a node gave to a holding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNumber {
    /// The node.
    pub node: usize,
    /// Its number of the holding.
    pub number: u64,
}

/// A node's answer to a request to give its holding another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renumbered {
    /// The holding has that number now.
    Done,
    /// The node's counter has passed the number, which another reader may have; it stands at this.
    Passed(u64),
    /// The holding is gone.
    Gone,
}

/// What follows from the answers of the nodes that granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The token of the grant, provided that the write-back succeeds.
    pub token: u64,
    /// The nodes that answered exactly the token, which count as confirmed.
    pub exact: Vec<usize>,
    /// The answers below the token, to be written back; empty when a majority of all nodes is exact.
    pub behind: Vec<NodeNumber>,
}

/// Settles the token of a grant by these answers, which are of a majority of `nodes`. `None` without answers.
#[must_use]
pub fn settle(answers: &[NodeNumber], nodes: usize) -> Option<Settlement> {
    let token = answers.iter().map(|answer| answer.number).max()?;
    let (exact, mut behind): (Vec<NodeNumber>, Vec<NodeNumber>) =
        answers.iter().partition(|answer| answer.number == token);
    // A majority of all nodes has stored the token already: every later majority meets it.
    if exact.len() >= majority(nodes) {
        behind.clear();
    }
    Some(Settlement { token, exact: exact.iter().map(|answer| answer.node).collect(), behind })
}

/// What becomes of a node that granted after the vote was won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Straggler {
    /// The node joins the lease as it is.
    Joins,
    /// The node joins the lease, if possible with the token as its number.
    JoinsAs(u64),
    /// The node does not join: another holder may have had the node since the grant.
    PassedBy,
}

/// What becomes of a node that gave `number` to the holding of a grant whose token was `token` by then.
///
/// *A later grant has left a counter above the token on each node of its majority*: on the node that the two majorities
/// share, its number came after the token, so its own token is greater, and a majority had that token. So a node whose
/// number does not pass the token was in no later majority, and a lease on a majority of such nodes had no other holder in
/// between. A node whose number passes the token may have been, if somebody deleted the lock where this grant had it: to
/// count the node in place of a lost one would hide that the lock was lost. More often other attempts have merely tried
/// there; then the next renewal takes the node, as any other that does not have the lease.
#[must_use]
pub const fn straggler(number: u64, token: u64) -> Straggler {
    // Safeguard: a late grant above the token does not join (Redlock)
    if number > token {
        Straggler::PassedBy
    } else if number == token {
        Straggler::Joins
    } else {
        Straggler::JoinsAs(token)
    }
}

/// The numbers that the nodes gave to a reader's holding, until a majority has given the same.
#[derive(Debug, Clone)]
pub struct Numbering {
    nodes: usize,
    numbers: Vec<NodeNumber>,
    /// The least number that is worth proposing.
    least: u64,
}

impl Numbering {
    /// The answers of the nodes that granted, out of `nodes` nodes.
    #[must_use]
    pub fn new(answers: Vec<NodeNumber>, nodes: usize) -> Self {
        let least = answers.iter().map(|answer| answer.number).max().unwrap_or(0);
        Self { nodes, numbers: answers, least }
    }

    /// The number that a majority of all nodes gave to this holding: its token.
    #[must_use]
    pub fn agreed(&self) -> Option<u64> {
        let given = |number: u64| self.numbers.iter().filter(|answer| answer.number == number).count();
        // Safeguard: a reader's token is a number of a majority (Redlock)
        self.numbers.iter().map(|answer| answer.number).find(|number| given(*number) >= majority(self.nodes))
    }

    /// What to propose next: the greatest known number and `lead` on top, so that other proposals of the moment stay below.
    #[must_use]
    pub const fn proposal(&self, lead: u64) -> u64 {
        self.least.saturating_add(lead)
    }

    /// The nodes to be asked for `proposal`, with the numbers that they gave.
    #[must_use]
    pub fn behind(&self, proposal: u64) -> Vec<NodeNumber> {
        self.numbers.iter().filter(|answer| answer.number < proposal).copied().collect()
    }

    /// `node` has given `number` to the holding instead.
    pub fn given(&mut self, node: usize, number: u64) {
        for answer in self.numbers.iter_mut().filter(|answer| answer.node == node) {
            answer.number = number;
        }
        self.least = self.least.max(number);
    }

    /// A node's counter stands at `counter`: another reader may have that number.
    pub fn passed(&mut self, counter: u64) {
        self.least = self.least.max(counter.saturating_add(1));
    }

    /// `node` does not have the holding any more, or by an unknown number.
    pub fn gone(&mut self, node: usize) {
        self.numbers.retain(|answer| answer.node != node);
    }

    /// Whether a majority can agree yet.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.numbers.len() >= majority(self.nodes)
    }

    /// The numbers, as far as they are known.
    #[must_use]
    pub fn numbers(&self) -> &[NodeNumber] {
        &self.numbers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answers(numbers: &[u64]) -> Vec<NodeNumber> {
        numbers.iter().enumerate().map(|(node, &number)| NodeNumber { node, number }).collect()
    }

    #[test]
    fn nodes_that_agree_need_no_second_round() {
        let settlement = settle(&answers(&[7, 7, 7]), 5).unwrap();
        assert_eq!((settlement.token, settlement.behind.len()), (7, 0));
    }

    #[test]
    fn an_exact_majority_of_those_that_answered_is_not_enough() {
        let settlement = settle(&answers(&[7, 7, 6]), 5).unwrap();
        assert_eq!(settlement.behind, [NodeNumber { node: 2, number: 6 }]);
    }

    #[test]
    fn a_late_number_joins_unless_it_passes_the_token() {
        assert_eq!(
            [6, 7, 8].map(|number| straggler(number, 7)),
            [Straggler::JoinsAs(7), Straggler::Joins, Straggler::PassedBy]
        );
    }

    #[test]
    fn readers_take_a_number_that_a_majority_gave_also_when_another_node_gave_a_greater_one() {
        assert_eq!(Numbering::new(answers(&[7, 9, 7, 7]), 5).agreed(), Some(7));
        assert_eq!(Numbering::new(answers(&[7, 9, 7]), 5).agreed(), None);
    }

    #[test]
    fn a_reader_proposes_what_no_node_is_known_to_have_passed() {
        let mut numbering = Numbering::new(answers(&[7, 9, 7]), 5);
        assert_eq!(numbering.proposal(0), 9);
        assert_eq!(numbering.behind(9), [NodeNumber { node: 0, number: 7 }, NodeNumber { node: 2, number: 7 }]);
        numbering.given(0, 9);
        numbering.passed(12);
        assert_eq!((numbering.agreed(), numbering.proposal(5)), (None, 18));
        for node in 0..3 {
            numbering.given(node, 18);
        }
        assert_eq!(numbering.agreed(), Some(18));
        numbering.gone(1);
        assert!(numbering.agreed().is_none() && !numbering.is_possible());
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

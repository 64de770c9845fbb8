//! Counting votes.

use std::cmp::Reverse;

/// The smallest number of nodes of which any two such groups share one.
#[must_use]
pub fn majority(nodes: usize) -> usize {
    // Safeguard: the majority check (Redlock)
    if lock_core::safeguard("majority") { nodes / 2 + 1 } else { nodes / 2 }
}

/// What is known of one node's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// The node has not answered yet.
    Pending,
    /// The node granted.
    Granted,
    /// The node certainly did not grant.
    Refused,
    /// The node did not answer in time, or its connection broke: it may have granted.
    Unknown,
}

/// The result of the votes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The nodes that have not answered will decide.
    Undecided,
    /// A majority granted. No further answer changes that.
    Granted,
    /// So many did not grant that a majority is out of reach.
    Impossible,
}

/// The votes of all nodes on one question.
#[derive(Debug, Clone)]
pub struct Votes(Vec<Vote>);

impl Votes {
    /// The votes of `nodes` nodes, none of which has answered.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self(vec![Vote::Pending; nodes])
    }

    /// Records the vote of `node`, unless one is recorded: the first answer counts.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn record(&mut self, node: usize, vote: Vote) {
        let known = &mut self.0[node];
        if *known == Vote::Pending {
            *known = vote;
        }
    }

    /// The result of the votes so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        // A majority of all nodes, never of the nodes that answered: two such groups need not share a node.
        let needed = majority(self.0.len());
        if self.count(Vote::Granted) >= needed {
            Verdict::Granted
        } else if self.count(Vote::Granted) + self.count(Vote::Pending) < needed {
            Verdict::Impossible
        } else {
            Verdict::Undecided
        }
    }

    /// How many nodes voted so.
    #[must_use]
    pub fn count(&self, vote: Vote) -> usize {
        self.0.iter().filter(|v| **v == vote).count()
    }

    /// What is known of each node's vote, by its index.
    #[must_use]
    pub fn as_slice(&self) -> &[Vote] {
        &self.0
    }
}

/// The `needed`-th largest of `values`: what at least `needed` of them reach. `None` when there are fewer.
///
/// With a majority for `needed`, the deadlines of a lease's nodes yield the deadline of the lease.
pub fn largest<T: Ord>(values: impl IntoIterator<Item = T>, needed: usize) -> Option<T> {
    smallest(values.into_iter().map(Reverse), needed).map(|Reverse(value)| value)
}

/// The `needed`-th smallest of `values`: when at least `needed` of them have come. `None` when there are fewer.
pub fn smallest<T: Ord>(values: impl IntoIterator<Item = T>, needed: usize) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    needed.checked_sub(1).and_then(|index| values.into_iter().nth(index))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vote() -> impl Strategy<Value = Vote> {
        prop_oneof![Just(Vote::Granted), Just(Vote::Refused), Just(Vote::Unknown)]
    }

    fn odd() -> impl Strategy<Value = usize> {
        prop_oneof![Just(3_usize), Just(5), Just(7)]
    }

    proptest! {
        #[test]
        fn two_majorities_share_a_node(nodes in 1_usize..50) {
            prop_assert!(2 * majority(nodes) > nodes);
        }

        #[test]
        fn a_verdict_once_given_stands_whatever_the_others_say(
            nodes in odd(),
            votes in proptest::collection::vec((0_usize..7, vote()), 0..20),
        ) {
            let mut all = Votes::new(nodes);
            let mut given = Verdict::Undecided;
            for (node, vote) in votes {
                all.record(node % nodes, vote);
                if given != Verdict::Undecided {
                    prop_assert_eq!(all.verdict(), given);
                }
                given = all.verdict();
            }
        }

        #[test]
        fn it_is_undecided_exactly_while_the_missing_answers_could_go_either_way(
            votes in proptest::collection::vec(proptest::option::of(vote()), 3..=7)
        ) {
            let mut all = Votes::new(votes.len());
            for (node, vote) in votes.iter().enumerate() {
                if let Some(vote) = vote {
                    all.record(node, *vote);
                }
            }
            let granted = votes.iter().filter(|vote| **vote == Some(Vote::Granted)).count();
            let open = votes.iter().filter(|vote| vote.is_none()).count();
            let needed = majority(votes.len());
            let expected = match () {
                () if granted >= needed => Verdict::Granted,
                () if granted + open >= needed => Verdict::Undecided,
                () => Verdict::Impossible,
            };
            prop_assert_eq!(all.verdict(), expected);
        }

        #[test]
        fn a_majority_of_the_deadlines_reaches_the_leases_own(
            deadlines in proptest::collection::vec(0_u32..100, 0..8),
            nodes in odd(),
        ) {
            let needed = majority(nodes);
            match largest(deadlines.clone(), needed) {
                None => prop_assert!(deadlines.len() < needed),
                Some(until) => {
                    prop_assert!(deadlines.iter().filter(|d| **d >= until).count() >= needed);
                    prop_assert!(deadlines.iter().filter(|d| **d > until).count() < needed);
                }
            }
        }

        #[test]
        fn by_the_nth_smallest_time_n_have_come(times in proptest::collection::vec(0_u32..100, 1..8), needed in 1_usize..8) {
            match smallest(times.clone(), needed) {
                None => prop_assert!(times.len() < needed),
                Some(at) => {
                    prop_assert!(times.iter().filter(|t| **t <= at).count() >= needed);
                    prop_assert!(times.iter().filter(|t| **t < at).count() < needed);
                }
            }
        }
    }

    #[test]
    fn the_first_answer_of_a_node_counts() {
        let mut votes = Votes::new(3);
        votes.record(1, Vote::Unknown);
        votes.record(1, Vote::Granted);
        assert_eq!(votes.as_slice(), [Vote::Pending, Vote::Unknown, Vote::Pending]);
    }
}

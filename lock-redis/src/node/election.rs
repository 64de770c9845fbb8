//! Which server is the primary, when sentinels do not agree: plain values, without a wire.

use super::Address;

/// The primary that one sentinel names, and the configuration epoch in which it became that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPrimary {
    /// The primary.
    pub(super) address: Address,
    /// A majority of all sentinels has agreed on each epoch, and each epoch has one primary. `None` where the sentinel does
    /// not tell.
    pub(super) epoch: Option<u64>,
}

/// Decides which server is the primary, from the answers of the sentinels as they come.
#[derive(Debug)]
pub(super) struct PrimaryElection {
    asked: usize,
    named: Vec<NamedPrimary>,
}

impl PrimaryElection {
    /// Among so many sentinels.
    pub(super) const fn among(asked: usize) -> Self {
        Self { asked, named: Vec::new() }
    }

    pub(super) fn answered(&mut self, named: NamedPrimary) {
        self.named.push(named);
    }

    /// How many have named a primary.
    pub(super) const fn answers(&self) -> usize {
        self.named.len()
    }

    /// How many have to: those whom a partition has cut off are fewer, so they elect nobody.
    pub(super) const fn needed(&self) -> usize {
        self.asked.div_ceil(2)
    }

    /// Whether more than half of all name the same.
    pub(super) fn is_agreed(&self) -> bool {
        let same = |named| self.named.iter().filter(|other| *other == named).count();
        self.named.iter().any(|named| 2 * same(named) > self.asked)
    }

    /// Those who may be the primary, the one that most name first: all that are named under the highest epoch, since what is
    /// named under a lower one has been replaced. `None` when too few have answered.
    pub(super) fn ranking(&self) -> Option<Vec<Address>> {
        // Safeguard: at least half of the sentinels elect a primary (Redis)
        if self.named.len() < self.needed() {
            return None;
        }
        let latest = self.named.iter().map(|named| named.epoch).max()?;
        // Safeguard: the primary is the one of the highest epoch (Redis)
        let votes = || self.named.iter().filter(|named| named.epoch == latest).map(|named| &named.address);
        let mut ranking: Vec<Address> = Vec::new();
        for address in votes() {
            if !ranking.contains(address) {
                ranking.push(address.clone());
            }
        }
        ranking.sort_by_key(|address| std::cmp::Reverse(votes().filter(|vote| *vote == address).count()));
        Some(ranking)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn among(asked: usize, answers: &[(u16, Option<u64>)]) -> PrimaryElection {
        let mut election = PrimaryElection::among(asked);
        for (port, epoch) in answers {
            election.answered(NamedPrimary { address: Address::new("h", *port), epoch: *epoch });
        }
        election
    }

    fn first(asked: usize, answers: &[(u16, Option<u64>)]) -> Option<u16> {
        among(asked, answers).ranking().map(|ranking| ranking[0].port)
    }

    #[test]
    fn the_highest_epoch_decides_and_then_the_number_of_those_who_name_it() {
        assert_eq!(first(3, &[(1, Some(1)), (2, Some(2)), (1, Some(1))]), Some(2));
        assert_eq!(first(3, &[(1, Some(1)), (2, Some(1)), (2, Some(1))]), Some(2));
        assert_eq!(first(3, &[(1, None), (2, Some(0)), (1, None)]), Some(2), "who tells no epoch may be out of date");
        assert_eq!(first(2, &[(1, None), (2, None)]), Some(1));
        let tie = among(2, &[(1, Some(7)), (2, Some(7))]).ranking().unwrap();
        assert_eq!(tie.len(), 2, "the servers themselves say which of them is one");
    }

    #[test]
    fn fewer_than_half_elect_nobody() {
        assert_eq!([1, 2, 3, 4, 5].map(|asked| PrimaryElection::among(asked).needed()), [1, 1, 2, 2, 3]);
        assert_eq!(first(3, &[(1, Some(1))]), None);
        assert_eq!(first(3, &[]), None);
        assert_eq!(first(1, &[(1, None)]), Some(1));
    }

    #[test]
    fn more_than_half_of_all_agree_before_the_others_have_answered() {
        assert!(among(3, &[(1, Some(1)), (1, Some(1))]).is_agreed());
        assert!(!among(3, &[(1, Some(1)), (1, Some(2))]).is_agreed());
        assert!(!among(4, &[(1, Some(1)), (1, Some(1))]).is_agreed());
    }

    proptest! {
        #[test]
        fn whoever_is_chosen_was_named_under_the_highest_epoch(
            asked in 1..6_usize, answers in proptest::collection::vec((1..4_u16, prop::option::of(0..3_u64)), 0..6),
        ) {
            let latest = answers.iter().map(|(_, epoch)| *epoch).max();
            for address in among(asked, &answers).ranking().unwrap_or_default() {
                prop_assert!(answers.iter().any(|(port, epoch)| *port == address.port && Some(*epoch) == latest));
            }
        }
    }
}

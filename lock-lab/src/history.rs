//! What happened to one lock, and what follows from it. Plain functions over values.

use std::time::Duration;

use lock_core::{BootInstant, FencingToken};

/// One grant, by the clock that all processes of the machine share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Which client was granted the lock.
    pub client: usize,
    /// When it asked.
    pub requested: BootInstant,
    /// When it knew that it was granted.
    pub granted: BootInstant,
    /// When it began to release, or when its validity ended.
    pub ended: BootInstant,
    /// Its fencing token.
    pub token: FencingToken,
}

impl Grant {
    /// How long it waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.granted.saturating_since(self.requested)
    }

    /// How long it held the lock by its own validity.
    #[must_use]
    pub fn held(&self) -> Duration {
        self.ended.saturating_since(self.granted)
    }

    /// How long it and `other` both held the lock, each by its own validity.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> Duration {
        self.ended.min(other.ended).saturating_since(self.granted.max(other.granted))
    }
}

/// All grants of one lock, in the order in which they were granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History(Vec<Grant>);

impl History {
    /// The history of these grants, given in any order.
    #[must_use]
    pub fn new(mut grants: Vec<Grant>) -> Self {
        grants.sort_by_key(|grant| grant.granted);
        Self(grants)
    }

    /// The grants in order.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }

    /// From the first grant to the end of the last.
    #[must_use]
    pub fn span(&self) -> Duration {
        let end = self.0.iter().map(|grant| grant.ended).max();
        self.0.first().zip(end).map_or(Duration::ZERO, |(first, end)| end.saturating_since(first.granted))
    }

    /// How often the lock went from one client to a different one.
    #[must_use]
    pub fn moves(&self) -> usize {
        self.0.windows(2).filter(|pair| pair[0].client != pair[1].client).count()
    }

    /// From the release of a client to the grant of a different one, for each such hand-off.
    #[must_use]
    pub fn hand_offs(&self) -> Vec<Duration> {
        let moves = self.0.windows(2).filter(|pair| pair[0].client != pair[1].client);
        moves.map(|pair| pair[1].granted.saturating_since(pair[0].ended)).collect()
    }

    /// The share of its span in which the lock was held.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        let span = self.span().as_secs_f64();
        if span == 0.0 { 0.0 } else { self.held().as_secs_f64() / span }
    }

    /// How many times somebody was granted the lock while another had been waiting for longer: one for each who had, so
    /// that a grant to the last of sixteen counts fifteen.
    #[must_use]
    pub fn overtakes(&self) -> usize {
        self.overtakes_by(Duration::ZERO)
    }

    /// [`History::overtakes`] of those who had been waiting for longer by more than `lead`: requests that are made within a
    /// moment may arrive in any order.
    #[must_use]
    pub fn overtakes_by(&self, lead: Duration) -> usize {
        let passed = |(index, grant): (usize, &Grant)| {
            self.0[index + 1..].iter().filter(|later| later.requested.saturating_add(lead) < grant.requested).count()
        };
        self.0.iter().enumerate().map(passed).sum()
    }

    /// [`History::overtakes`] for each grant that followed another one.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // Far fewer grants than a float counts exactly.
    pub fn overtakes_per_hand_off(&self) -> f64 {
        let hand_offs = self.0.len().saturating_sub(1);
        if hand_offs == 0 { 0.0 } else { self.overtakes() as f64 / hand_offs as f64 }
    }

    /// Pairs of grants that were valid at the same time.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        let with = |(index, grant): (usize, &Grant)| {
            self.0[index + 1..].iter().filter(|later| !grant.overlap(later).is_zero()).count()
        };
        self.0.iter().enumerate().map(with).sum()
    }

    /// Whether each grant's token is higher than that of the grant before it.
    #[must_use]
    pub fn tokens_rise(&self) -> bool {
        self.0.windows(2).all(|pair| pair[0].token < pair[1].token)
    }

    /// The longest time without a grant between `from` and `until`.
    #[must_use]
    pub fn longest_gap(&self, from: BootInstant, until: BootInstant) -> Duration {
        let within = self.0.iter().map(|grant| grant.granted).filter(|granted| (from..until).contains(granted));
        let mut before = from;
        let mut longest = Duration::ZERO;
        for granted in within.chain([until]) {
            longest = longest.max(granted.saturating_since(before));
            before = granted;
        }
        longest
    }

    /// For how long the lock was held at all; a time with two holders counts once.
    fn held(&self) -> Duration {
        let mut held = Duration::ZERO;
        let mut until = BootInstant::from_nanos(0);
        for grant in &self.0 {
            held += grant.ended.saturating_since(grant.granted.max(until));
            until = until.max(grant.ended);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Milliseconds: asked, granted, ended. The token is the place in the list.
    fn history(grants: &[(usize, u64, u64, u64)]) -> History {
        let at = |millis: u64| BootInstant::from_nanos(millis * 1_000_000);
        let grant = |(number, &(client, requested, granted, ended)): (u64, &(usize, u64, u64, u64))| Grant {
            client,
            requested: at(requested),
            granted: at(granted),
            ended: at(ended),
            token: FencingToken { era: 0, number },
        };
        History::new((0..).zip(grants).map(grant).collect())
    }

    #[test]
    fn only_hand_offs_between_different_clients_are_moves() {
        assert_eq!(history(&[(1, 0, 1, 2), (1, 2, 3, 4), (2, 0, 5, 6), (1, 4, 7, 8)]).moves(), 2);
        assert_eq!(history(&[]).moves(), 0);
    }

    #[test]
    fn a_hand_off_lasts_from_the_release_to_the_grant_of_another_client() {
        let history = history(&[(1, 0, 1, 2), (1, 2, 3, 4), (2, 0, 9, 10)]);
        assert_eq!(history.hand_offs(), [Duration::from_millis(5)]);
    }

    #[test]
    fn utilisation_is_the_time_held_over_the_time_passed() {
        let half = history(&[(1, 0, 10, 15), (2, 0, 20, 25), (1, 0, 25, 30)]);
        assert!((half.utilisation() - 0.75).abs() < 1e-9);
        assert!(history(&[]).utilisation().abs() < 1e-9);
    }

    #[test]
    fn a_time_with_two_holders_counts_once() {
        let both = history(&[(1, 0, 0, 10), (2, 0, 5, 20), (3, 0, 6, 7)]);
        assert!((both.utilisation() - 1.0).abs() < 1e-9);
        assert_eq!(both.overlaps(), 3);
    }

    #[test]
    fn a_grant_in_the_order_of_asking_overtakes_nobody() {
        assert_eq!(history(&[(1, 0, 10, 11), (2, 1, 12, 13), (3, 2, 14, 15)]).overtakes(), 0);
    }

    #[test]
    fn a_grant_to_the_last_of_three_overtakes_two() {
        let unfair = history(&[(3, 2, 10, 11), (1, 0, 12, 13), (2, 1, 14, 15)]);
        assert_eq!(unfair.overtakes(), 2);
        assert!((unfair.overtakes_per_hand_off() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn overlap_is_the_time_in_which_both_are_valid() {
        let two = history(&[(1, 0, 0, 10), (2, 0, 7, 20)]);
        let [first, second] = two.grants() else { panic!("two grants") };
        assert_eq!(first.overlap(second), Duration::from_millis(3));
        assert_eq!(history(&[(1, 0, 0, 10), (2, 0, 10, 20)]).overlaps(), 0);
    }

    #[test]
    fn tokens_rise_only_if_every_later_one_is_higher() {
        assert!(history(&[(1, 0, 1, 2), (2, 0, 3, 4)]).tokens_rise());
        assert!(!history(&[(1, 0, 3, 4), (2, 0, 1, 2)]).tokens_rise());
    }

    #[test]
    fn the_longest_gap_includes_the_edges() {
        let at = |millis: u64| BootInstant::from_nanos(millis * 1_000_000);
        let some = history(&[(1, 0, 10, 11), (1, 0, 20, 21), (1, 0, 60, 61)]);
        assert_eq!(some.longest_gap(at(15), at(70)), Duration::from_millis(40));
        assert_eq!(some.longest_gap(at(60), at(200)), Duration::from_millis(140));
        assert_eq!(history(&[]).longest_gap(at(1), at(3)), Duration::from_millis(2));
    }

    proptest! {
        #[test]
        fn a_lock_without_overlaps_is_never_used_for_more_than_all_the_time(steps: Vec<(usize, u8, u8)>) {
            let mut now = 0;
            let mut grants = Vec::new();
            for (client, pause, hold) in steps {
                now += u64::from(pause);
                let ended = now + u64::from(hold);
                grants.push((client, 0, now, ended));
                now = ended;
            }
            let history = history(&grants);
            prop_assert_eq!(history.overlaps(), 0);
            prop_assert!(history.utilisation() <= 1.0 + 1e-9);
            prop_assert!(history.moves() <= grants.len().saturating_sub(1));
        }
    }
}

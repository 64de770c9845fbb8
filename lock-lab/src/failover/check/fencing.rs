//! **F**: a store that checks the token never accepts a lower one after a higher, and a store that does not check it shows
//! what that is good for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    holds::Hold,
    verdict::{Chance, Verdict},
};
use crate::failover::events::{History, Write};

/// What the two registers saw, and in which order the tokens were given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fencing {
    /// Writes that arrived.
    pub writes: usize,
    /// Writes that the fenced register took although it had taken a higher token before.
    pub let_through: usize,
    /// Writes that the fenced register refused.
    pub refused: usize,
    /// Writes by which the register without a fence went back: each would have damaged what the lock protects.
    pub stale: usize,
    /// Grants with a token that was not above that of the grant before.
    pub fell: usize,
    /// Whether the fence held.
    pub verdict: Verdict,
}

/// `stale`: whether stale writes must show at the control. `fell` counts for nothing here but the report where `overlaps`
/// may happen: two servers that do not know of each other give out numbers on their own.
pub(super) fn fencing(history: &History, locks: &[Vec<Hold>], stale: Chance, tame: Option<&str>) -> Fencing {
    let let_through = lower_after_higher(&history.writes);
    let shown = history.writes.iter().filter(|write| write.went_back).count();
    let fell = locks.iter().flat_map(|holds| holds.windows(2)).filter(|pair| pair[1].token <= pair[0].token).count();
    let tame = match (tame, stale, shown) {
        (None, Chance::Certain, 0) => Some("the control without a fence shows no stale write"),
        (None, _, _) if history.writes.is_empty() => Some("nothing was written"),
        (tame, _, _) => tame,
    };
    let what = || format!("the fence let {let_through} writes with a lower token through");
    Fencing {
        writes: history.writes.len(),
        let_through,
        refused: history.writes.iter().filter(|write| !write.fenced).count(),
        stale: shown,
        fell,
        verdict: Verdict::of(let_through, Chance::Never, what, tame),
    }
}

/// Judged by the order of arrival alone, whatever the store says of itself.
fn lower_after_higher(writes: &[Write]) -> usize {
    let mut highest = BTreeMap::new();
    let mut count = 0;
    for write in writes.iter().filter(|write| write.fenced) {
        let highest = highest.entry(write.whose.lock).or_insert(write.token);
        count += usize::from(write.token < *highest);
        *highest = write.token.max(*highest);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{
        super::made_up::{MadeUp, held, kept},
        *,
    };

    #[test]
    fn a_fence_that_takes_a_lower_token_is_found_out() {
        let history = MadeUp::default()
            .wrote(1, kept(0, 1), 5, true, false)
            .wrote(2, kept(1, 1), 6, true, false)
            .wrote(3, kept(0, 1), 5, true, true)
            .done();
        let found = fencing(&history, &[], Chance::Possible, None);
        assert_eq!((found.let_through, found.stale, found.verdict.is_broken()), (1, 1, true));
    }

    #[test]
    fn a_refused_write_that_the_control_took_is_what_the_fence_is_for() {
        let history = MadeUp::default()
            .wrote(1, kept(1, 1), 6, true, false)
            .wrote(2, kept(0, 1), 5, false, true)
            .wrote(3, kept(1, 1), 6, true, false)
            .done();
        let found = fencing(&history, &[], Chance::Certain, None);
        assert_eq!((found.refused, found.stale, found.let_through), (1, 1, 0));
        assert_eq!(found.verdict, Verdict::Holds);
    }

    #[test]
    fn without_a_stale_write_at_the_control_the_fence_has_shown_nothing() {
        let history = MadeUp::default().wrote(1, kept(1, 1), 6, true, false).done();
        let found = fencing(&history, &[], Chance::Certain, None);
        assert!(matches!(found.verdict, Verdict::ProvesNothing { .. }));
        assert_eq!(fencing(&history, &[], Chance::Possible, None).verdict, Verdict::Holds);
        let silent = fencing(&History::default(), &[], Chance::Never, None);
        assert!(matches!(silent.verdict, Verdict::ProvesNothing { .. }));
    }

    #[test]
    fn tokens_that_do_not_rise_from_grant_to_grant_are_counted() {
        let holds = vec![held(7, 0, 1, 2), held(7, 2, 3, 4), held(9, 4, 5, 6), held(8, 6, 7, 8)];
        assert_eq!(fencing(&History::default(), &[holds], Chance::Never, None).fell, 2);
    }
}

//! Lost updates: read-modify-writes that the store acknowledged, and that are not in the value in the end.
//!
//! Each update is what it had read with one element more. So a register's last value is the last update that it took, all
//! that this one had read, all that *that* one had read, and so on; every other update that it took is lost.

use serde::{Deserialize, Serialize};

use crate::failover::events::Update;

/// What became of the updates, at the register behind the fence and at the one without.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Updates {
    /// Behind the fence.
    pub fenced: Counted,
    /// Without one, the control.
    pub unfenced: Counted,
}

/// What became of the updates at one register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// How many it took.
    pub acknowledged: usize,
    /// How many of these are not in its last value.
    pub lost: usize,
}

/// `updates` are in the order in which the store saw them.
pub(super) fn updates(updates: &[Update]) -> Updates {
    Updates {
        fenced: counted(updates.iter().map(|update| update.fenced.then_some(update.read.fenced))),
        unfenced: counted(updates.iter().map(|update| Some(update.read.unfenced))),
    }
}

/// Goes by what each update had read, where the register took it.
fn counted(read: impl Iterator<Item = Option<u64>>) -> Counted {
    let read: Vec<Option<u64>> = read.collect();
    let acknowledged = read.iter().flatten().count();
    let (mut kept, mut next) = (0, read.iter().rposition(Option::is_some));
    while let Some(place) = next {
        kept += 1;
        // What it had read came before it: a number that says otherwise ends the chain.
        let before =
            read[place].and_then(|number| usize::try_from(number).ok()).and_then(|number| number.checked_sub(1));
        // Safeguard: an update is there only if those that followed had read it (checker)
        next = before.filter(|before| *before < place);
    }
    Counted { acknowledged, lost: acknowledged - kept }
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixtures::{at, busy, token},
        *,
    };
    use crate::failover::events::Values;

    /// What each had read, of both registers alike, and whether the fence let it through.
    fn of(all: &[(u64, bool)]) -> Updates {
        let update = |(number, (read, fenced)): (u64, &(u64, bool))| Update {
            at: at(number),
            whose: busy(0, number),
            token: token(number),
            read: Values { fenced: *read, unfenced: *read },
            fenced: *fenced,
        };
        updates(&(1..).zip(all).map(update).collect::<Vec<_>>())
    }

    #[test]
    fn updates_of_which_each_has_read_the_one_before_are_all_there() {
        let all = Counted { acknowledged: 3, lost: 0 };
        assert_eq!(of(&[(0, true), (1, true), (2, true)]), Updates { fenced: all, unfenced: all });
        assert_eq!(of(&[]), Updates::default());
    }

    #[test]
    fn what_came_between_a_read_and_its_late_write_is_lost() {
        // The fourth had read the first: what the two between have added is gone, and so is it for those that follow.
        let found = of(&[(0, true), (1, true), (2, true), (1, true), (4, true)]);
        assert_eq!(found.unfenced, Counted { acknowledged: 5, lost: 2 });
        assert_eq!(found.fenced, found.unfenced);
    }

    #[test]
    fn what_the_fence_refused_was_not_acknowledged_and_has_lost_nothing() {
        let mut all = vec![(0, true), (1, true), (2, true), (1, false)];
        assert_eq!(of(&all).fenced, Counted { acknowledged: 3, lost: 0 });
        assert_eq!(of(&all).unfenced, Counted { acknowledged: 4, lost: 2 });
        // The next one has read the third at the one register, and the fourth at the other.
        all.push((3, true));
        assert_eq!(of(&all).fenced, Counted { acknowledged: 4, lost: 0 });
    }

    #[test]
    fn a_first_write_over_everything_loses_everything() {
        assert_eq!(of(&[(0, true), (1, true), (0, true)]).fenced, Counted { acknowledged: 3, lost: 2 });
    }
}

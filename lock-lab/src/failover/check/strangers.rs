//! **D**: a client whose settings disagree with those of the servers is refused, and granted nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::verdict::{Chance, Verdict};
use crate::failover::events::{Event, History, What};

/// The clients whose settings disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strangers {
    /// They are in the processes from this one on.
    pub first: usize,
    /// How many they are.
    pub clients: usize,
}

/// What became of the clients whose settings disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// How many they are.
    pub clients: usize,
    /// How many of them were refused because of their settings.
    pub refused: usize,
    /// How often, all together.
    pub times: usize,
    /// How many could connect, and asked for a lock.
    pub admitted: usize,
    /// How many grants they had.
    pub grants: usize,
    /// Whether all of them were refused, always.
    pub verdict: Verdict,
}

pub(super) fn refusals(history: &History, strangers: Strangers, tame: Option<&str>) -> Refusals {
    let theirs = || history.events.iter().filter(|event| event.whose.process >= strangers.first);
    let clients = |is: fn(&What) -> bool| -> usize {
        let client = |event: &Event| (event.whose.process, event.whose.client);
        theirs().filter(|event| is(&event.what)).map(client).collect::<BTreeSet<_>>().len()
    };
    let is_refusal = |what: &What| matches!(what, What::NotConnected { refused: true, .. });
    let refused = clients(is_refusal);
    let times = theirs().filter(|event| is_refusal(&event.what)).count();
    let admitted = clients(|what| matches!(what, What::Asked));
    let grants = theirs().filter(|event| matches!(event.what, What::Granted { .. })).count();
    let what = || {
        format!(
            "of {} clients that disagree with the deployment {admitted} could ask for a lock, and had {grants} grants",
            strangers.clients
        )
    };
    let missing = format!("only {refused} of {} clients that disagree were refused", strangers.clients);
    // Safeguard: a client that disagrees and was not refused proves nothing (checker)
    let tame = tame.or((refused < strangers.clients).then_some(missing.as_str()));
    // Safeguard: a client that disagrees and is let in breaks the promise (checker)
    let verdict = Verdict::of(admitted + grants, Chance::Never, what, tame);
    Refusals { clients: strangers.clients, refused, times, admitted, grants, verdict }
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixtures::{HistoryBuilder, busy},
        *,
    };

    /// Two clients, one in each of the processes 3 and 4.
    const STRANGERS: Strangers = Strangers { first: 3, clients: 2 };

    fn turned_away(history: HistoryBuilder, millis: u64, process: usize, refused: bool) -> HistoryBuilder {
        let what = What::NotConnected { error: "another list".into(), refused };
        history.event(millis, busy(process, 0), what)
    }

    fn of(history: HistoryBuilder) -> Refusals {
        refusals(&history.done(), STRANGERS, None)
    }

    fn both_refused() -> HistoryBuilder {
        let one = turned_away(HistoryBuilder::default().traffic(0, 2000, 0), 1001, 3, true);
        turned_away(turned_away(one, 1101, 3, true), 1002, 4, true)
    }

    #[test]
    fn clients_that_are_refused_whenever_they_come_are_as_it_should_be() {
        let found = of(both_refused());
        assert_eq!((found.refused, found.times, found.admitted, &found.verdict), (2, 3, 0, &Verdict::Holds));
    }

    #[test]
    fn one_that_is_let_in_breaks_the_promise_whether_or_not_it_is_granted_anything() {
        let found = of(both_refused().event(1200, busy(4, 1), What::Asked));
        assert_eq!((found.admitted, found.grants, found.verdict.is_broken()), (1, 0, true));
        let found = of(both_refused().granted(1200, 1201, busy(4, 1), 9_000, 1300));
        assert_eq!((found.admitted, found.grants, found.verdict.is_broken()), (1, 1, true));
    }

    #[test]
    fn one_that_was_never_refused_proves_nothing() {
        let silent = turned_away(HistoryBuilder::default().traffic(0, 2000, 0), 1001, 3, true);
        for history in [silent, turned_away(turned_away(HistoryBuilder::default(), 1, 3, true), 2, 4, false)] {
            let found = of(history);
            assert_eq!(found.refused, 1);
            assert!(matches!(found.verdict, Verdict::ProvesNothing { .. }), "{found:?}");
        }
    }
}

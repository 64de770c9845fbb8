//! **O**: nothing is left behind on a server.
//!
//! What a process had that ended in order is gone with it. Two things may stay for a while and no longer: what a process had
//! that was killed, or could not close its connections, until its leases have ended; and what a fault has left (a key that a
//! promoted replica has and whose deletion it never heard of), until a lease after the fault was over.
//!
//! Nor is a lock kept for somebody who does not know of it while others go on: what the servers were seen to hold while the
//! run went on is compared with how each attempt ended. A request that arrives long after it was given up, and locks for
//! nobody, is found by that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lock_core::BootInstant;
use serde::{Deserialize, Serialize};

use super::verdict::{Chance, Verdict};
use crate::failover::events::{Attempt, History, Lock, PostCheck, ProcessFault, Truth, What};

/// How long the servers may take over what they were sent by processes that have ended.
const AT_ONCE: Duration = Duration::from_millis(250);

/// What looking at the servers after the processes had ended found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResidueCheck {
    /// Number of looks at the servers.
    pub looks: usize,
    /// From the end of the last process until nothing was left, in milliseconds; `None` when something was at the last look.
    pub empty_after_ms: Option<f64>,
    /// From the end of the last process until nothing may be left, in milliseconds.
    pub due_ms: f64,
    /// What was left when it had to be gone: when all processes had ended, or before, for an attempt that had.
    pub left: Vec<String>,
    /// Whether nothing was left behind.
    pub verdict: Verdict,
}

/// What may be left on the servers after a run, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResidueBounds {
    /// How long what a dead process or a fault has left stays.
    pub(super) lingers: Duration,
    /// Whether something may be left.
    pub(super) chance: Chance,
}

/// By when the servers must have nothing of the locks any more, where what the dead leave stays for as long as `lingers`.
pub(in crate::failover) fn due(history: &History, after: &PostCheck, lingers: Duration) -> BootInstant {
    let was_killed = history.fault_events.iter().any(|struck| struck.fault == ProcessFault::Killed);
    let not_closed = history.events.iter().any(|event| matches!(event.what, What::NotClosed { .. }));
    // Counted from the end, and not from the death: the others may have passed on what a dead one had left, such as its
    // place in a line that is kept for all.
    // Safeguard: what a process has left that ended in order is found although it ends with its ttl (checker)
    let in_order = if was_killed || not_closed { lingers } else { AT_ONCE };
    after.ended.saturating_add(in_order).max(after.whole.saturating_add(lingers))
}

/// `None` when the servers were not looked at.
pub(super) fn residue(
    history: &History,
    samples: &[Truth],
    lingering: ResidueBounds,
    tame: Option<&str>,
) -> Option<ResidueCheck> {
    let after = history.post_check.as_ref()?;
    let due = due(history, after, lingering.lingers);
    let since_end = |at: BootInstant| millis(at.saturating_since(after.ended));
    // Nobody is there who could add anything, so whatever was seen at one late look was there when it had to be gone.
    let late = || after.looks.iter().filter(|look| look.asked > due);
    let mut left = late().find(|look| !look.left.is_empty()).map(|look| look.left.clone()).unwrap_or_default();
    let of_nobody = held_for_nobody(history, samples, after.whole, lingering.lingers);
    let at_the_end = left.len();
    left.extend(of_nobody);
    let empty = after.looks.iter().find(|look| look.is_nothing());
    let unread = match (empty, after.looks.last()) {
        (Some(_), _) => None,
        (None, Some(last)) if !last.silent.is_empty() => Some(format!("{} gave no answer", last.silent.join(", "))),
        (None, _) if late().next().is_none() => {
            Some("the servers were not looked at until nothing was left".to_owned())
        }
        (None, _) => None,
    };
    let what = || {
        let (count, from) = (left.len() - at_the_end, since_end(due));
        format!(
            "{at_the_end} left behind {from:.0} ms after the last process had ended, {count} locks held for nobody: {}",
            left.join(", ")
        )
    };
    let verdict = Verdict::of(left.len(), lingering.chance, what, tame.or(unread.as_deref()));
    Some(ResidueCheck {
        looks: after.looks.len(),
        empty_after_ms: empty.map(|look| since_end(look.answered)),
        due_ms: since_end(due),
        left,
        verdict,
    })
}

/// Locks that a server had for an attempt that had ended long before, when the fault had been over for long: each once.
fn held_for_nobody(history: &History, samples: &[Truth], whole: BootInstant, lingers: Duration) -> Vec<String> {
    let ended = ended(history);
    let mut found = BTreeSet::new();
    for sample in samples {
        let Some(payload) = sample.held.as_ref().and_then(|held| held.payload.clone()) else { continue };
        let Some(at) = ended.get(&(sample.lock, payload.clone())) else { continue };
        let since = sample.asked.saturating_since((*at).max(whole));
        // Safeguard: a lock that is held for nobody is found before it ends (checker)
        if since > lingers {
            found.insert((sample.lock, payload, sample.server.clone()));
        }
    }
    let words = |(lock, payload, server): (Lock, String, String)| {
        format!("{} for the attempt {payload}, which had ended, on {server}", lock.name())
    };
    found.into_iter().map(words).collect()
}

/// When each attempt had ended, by the lock and its text form: with its release or its failure, or with its process.
fn ended(history: &History) -> BTreeMap<(Lock, String), BootInstant> {
    let mut ends: BTreeMap<Attempt, Option<BootInstant>> = BTreeMap::new();
    for event in &history.events {
        match event.what {
            What::Asked => drop(ends.entry(event.whose).or_default()),
            What::NotGranted
            | What::Withdrawn
            | What::Failed { .. }
            | What::Unknown { .. }
            | What::Released
            | What::ReleaseFailed { .. } => drop(ends.insert(event.whose, Some(event.at))),
            _ => {}
        }
    }
    for struck in history.fault_events.iter().filter(|struck| struck.fault == ProcessFault::Killed) {
        for (_, end) in ends.iter_mut().filter(|(whose, end)| whose.process == struck.process && end.is_none()) {
            *end = Some(struck.at);
        }
    }
    ends.into_iter().filter_map(|(whose, end)| Some(((whose.lock, whose.to_string()), end?))).collect()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixtures::{HistoryBuilder, at, kept},
        *,
    };
    use crate::{deployment::Held, failover::events::Residue};

    const KEY: &str = "the key {lock:a} (for another 900 ms) on 127.0.0.1:6379";

    /// A look of 2 ms.
    fn look(asked: u64, left: &[&str]) -> Residue {
        let left = left.iter().map(|what| (*what).to_owned()).collect();
        Residue { asked: at(asked), answered: at(asked + 2), left, silent: Vec::new() }
    }

    /// The fault is over at 1 s, the last process has ended at 4 s.
    fn after(history: HistoryBuilder, looks: Vec<Residue>) -> History {
        let post_check = Some(PostCheck { whole: at(1000), ended: at(4000), looks });
        History { post_check, ..history.done() }
    }

    fn of(history: &History) -> ResidueCheck {
        let lingering = ResidueBounds { lingers: Duration::from_secs(1), chance: Chance::Never };
        residue(history, &[], lingering, None).unwrap()
    }

    #[test]
    fn servers_that_are_empty_at_the_first_look_are_as_they_should_be() {
        let found = of(&after(HistoryBuilder::default(), vec![look(4001, &[])]));
        assert_eq!((found.looks, found.empty_after_ms, &found.verdict), (1, Some(3.0), &Verdict::Holds));
    }

    #[test]
    fn what_a_process_that_ended_in_order_has_left_is_found_although_it_ends_with_its_ttl() {
        let looks = vec![look(4001, &[KEY]), look(4251, &[KEY]), look(4900, &[])];
        let found = of(&after(HistoryBuilder::default(), looks));
        assert!(found.verdict.is_broken(), "{found:?}");
        assert_eq!((found.left.as_slice(), found.due_ms), (&[KEY.to_owned()][..], 250.0));
        let Verdict::Broken { what } = found.verdict else { return };
        assert!(what.contains(KEY), "{what}");
    }

    #[test]
    fn what_a_killed_process_has_left_may_stay_until_its_lease_has_ended_and_no_longer() {
        let killed = || HistoryBuilder::default().struck(900, 0, ProcessFault::Killed);
        let found = of(&after(killed(), vec![look(4001, &[KEY]), look(4999, &[KEY]), look(5498, &[])]));
        assert_eq!((found.empty_after_ms, found.due_ms, &found.verdict), (Some(1500.0), 1000.0, &Verdict::Holds));
        let found = of(&after(killed(), vec![look(4001, &[KEY]), look(5001, &[KEY])]));
        assert!(found.verdict.is_broken(), "{found:?}");
    }

    #[test]
    fn what_could_not_be_given_back_may_stay_as_long_as_what_a_killed_one_had() {
        let error = "no answer".to_owned();
        let history = HistoryBuilder::default().event(3900, kept(1, 0), What::NotClosed { error });
        assert_eq!(of(&after(history, vec![look(4300, &[KEY]), look(4990, &[])])).verdict, Verdict::Holds);
    }

    #[test]
    fn what_a_fault_has_left_may_stay_for_a_lease_after_it_was_over() {
        let mut history = after(HistoryBuilder::default(), vec![look(4300, &[KEY]), look(4690, &[])]);
        let over = |history: &mut History, millis| history.post_check.as_mut().unwrap().whole = at(millis);
        over(&mut history, 3700);
        assert_eq!((of(&history).due_ms, of(&history).verdict), (700.0, Verdict::Holds));
        over(&mut history, 3200);
        assert!(of(&history).verdict.is_broken());
    }

    #[test]
    fn a_server_that_gives_no_answer_shows_nothing() {
        let silent = vec!["127.0.0.1:6379".to_owned()];
        let found = of(&after(HistoryBuilder::default(), vec![Residue { silent: silent.clone(), ..look(9000, &[]) }]));
        assert!(matches!(&found.verdict, Verdict::ProvesNothing { why } if why.contains(&silent[0])), "{found:?}");
        assert_eq!(found.empty_after_ms, None);
        // What another one has is left all the same.
        let found = of(&after(HistoryBuilder::default(), vec![Residue { silent, ..look(9000, &[KEY]) }]));
        assert!(found.verdict.is_broken());
    }

    #[test]
    fn looks_that_ended_too_early_show_nothing() {
        for looks in [Vec::new(), vec![look(4001, &[KEY])]] {
            assert!(matches!(of(&after(HistoryBuilder::default(), looks)).verdict, Verdict::ProvesNothing { .. }));
        }
    }

    #[test]
    fn servers_that_were_not_looked_at_have_no_verdict() {
        let lingering = ResidueBounds { lingers: Duration::ZERO, chance: Chance::Never };
        assert_eq!(residue(&HistoryBuilder::default().done(), &[], lingering, None), None);
    }

    /// What a server has for an attempt.
    fn sample(asked: u64, whose: Attempt) -> Truth {
        let held = Held { payload: Some(whose.to_string()), ..Held::default() };
        let (lock, server, moment) = (whose.lock, "one".to_owned(), at(asked));
        Truth { lock, round: asked, server, asked: moment, answered: moment, held: Some(held), closed_nanos: None }
    }

    fn of_samples(history: &History, samples: &[Truth]) -> ResidueCheck {
        let lingering = ResidueBounds { lingers: Duration::from_secs(1), chance: Chance::Never };
        residue(history, samples, lingering, None).unwrap()
    }

    #[test]
    fn a_lock_for_an_attempt_that_had_ended_long_before_is_found_although_it_goes_before_the_end() {
        let gave_up = |end| HistoryBuilder::default().event(500, kept(0, 1), What::Asked).event(700, kept(0, 1), end);
        let error = || "no answer".to_owned();
        for end in
            [What::NotGranted, What::Withdrawn, What::Unknown { error: error() }, What::Failed { error: error() }]
        {
            let history = after(gave_up(end.clone()), vec![look(4001, &[])]);
            let found = of_samples(&history, &[sample(2001, kept(0, 1))]);
            assert!(found.verdict.is_broken() && found.left.len() == 1, "{end:?}: {found:?}");
            assert!(found.left[0].contains("failover/kept") && found.left[0].contains("0/0/1"), "{found:?}");
            // Until a lease after the fault it may be there, whatever the fault held up.
            assert_eq!(of_samples(&history, &[sample(2000, kept(0, 1))]).verdict, Verdict::Holds);
        }
    }

    #[test]
    fn a_lock_of_a_killed_process_or_of_one_that_has_released_may_stay_for_a_lease_and_no_longer() {
        let killed = HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 9000).struck(2000, 0, ProcessFault::Killed);
        let released = HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 9000).released(1990, 2000, kept(0, 1));
        for history in [killed, released] {
            let history = after(history, vec![look(5001, &[])]);
            assert_eq!(of_samples(&history, &[sample(3000, kept(0, 1))]).verdict, Verdict::Holds);
            assert!(of_samples(&history, &[sample(3001, kept(0, 1))]).verdict.is_broken());
        }
    }

    #[test]
    fn a_lock_of_who_has_not_ended_is_nobody_elses() {
        let history = after(HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 9000), vec![look(4001, &[])]);
        assert_eq!(of_samples(&history, &[sample(3900, kept(0, 1)), sample(3900, kept(1, 7))]).verdict, Verdict::Holds);
    }
}

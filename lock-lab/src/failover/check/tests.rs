//! Whole histories, made up: sound ones that must pass, and each way to be broken that must be found out.

use super::{
    fixtures::{HistoryBuilder, at, kept, token},
    *,
};
use crate::{deployment::Held, failover::events::ProcessFault};

const AT: (u64, u64) = (1000, 3000);

fn checked(history: &History, samples: &[Truth], expected: &Expected) -> Findings {
    check(history, samples, Moments { fault: at(AT.0), end: at(AT.1) }, expected)
}

/// A holder that is stopped at 1 s until 2.5 s, another one that follows at 1.7 s, and what the first writes afterwards.
fn stopped_holder() -> HistoryBuilder {
    HistoryBuilder::default()
        .traffic(0, AT.1, 2)
        .granted(0, 5, kept(0, 1), 1, 1400)
        .wrote(900, kept(0, 1), 1, true, false)
        .struck(1001, 0, ProcessFault::Stopped)
        .granted(10, 1700, kept(1, 1), 2, 2700)
        .wrote(1710, kept(1, 1), 2, true, false)
        .struck(2500, 0, ProcessFault::Continued)
        .wrote(2501, kept(0, 1), 1, false, true)
        .lost(1000, 2502, kept(0, 1))
        .wrote(2600, kept(1, 1), 2, true, false)
        .released(2800, 2801, kept(1, 1))
}

fn of_stopped_holder() -> Expected {
    Expected { stale: Chance::Certain, losses: Chance::Certain, ..Expected::default() }
}

#[test]
fn a_stopped_holder_that_is_followed_and_fenced_off_is_as_it_should_be() {
    let found = checked(&stopped_holder().done(), &[], &of_stopped_holder());
    assert!(found.is_good(), "{found:?}");
    assert_eq!((found.fencing.stale, found.fencing.refused, found.losing.losers.len()), (1, 1, 1));
    assert_eq!(found.exclusion.overlaps, []);
    let holder = found.spans.iter().find(|span| span.whose == kept(0, 1)).unwrap();
    assert_eq!((holder.granted_ms, holder.ended_ms, holder.end), (-995.0, 400.0, Ending::RanOut));
    assert_eq!(holder.knew_ms, Some(1502.0));
    assert_eq!(found.progress.take_overs[0].next_grant_ms, Some(699.0));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Findings>(&json).unwrap(), found);
}

#[test]
fn two_holders_at_once_are_found_by_both_ways_of_looking() {
    let early = stopped_holder().granted(20, 1399, kept(3, 1), 9, 1500).done();
    let found = checked(&early, &[], &of_stopped_holder());
    assert_eq!((found.exclusion.overlaps.len(), found.exclusion.contradictions), (1, 2));
    assert!(found.exclusion.verdict.is_broken());
    assert_eq!(found.exclusion.overlaps[0].pair, [kept(0, 1), kept(3, 1)]);
    assert!(found.exclusion.first_contradiction.contains("3/0/1"), "{}", found.exclusion.first_contradiction);
    let allowed = Expected { overlaps: Chance::Possible, ..of_stopped_holder() };
    assert!(matches!(checked(&early, &[], &allowed).exclusion.verdict, Verdict::Expected { .. }));
}

#[test]
fn an_overlap_that_must_show_and_does_not_proves_nothing() {
    let expected = Expected { overlaps: Chance::Certain, ..of_stopped_holder() };
    let found = checked(&stopped_holder().done(), &[], &expected);
    assert!(matches!(found.exclusion.verdict, Verdict::ProvesNothing { .. }));
    assert!(!found.is_good());
}

#[test]
fn a_run_without_traffic_before_the_fault_proves_nothing() {
    let mut quiet = stopped_holder().done();
    quiet.events.retain(|event| event.whose.lock == Lock::Kept || event.at > at(AT.0));
    let found = checked(&quiet, &[], &of_stopped_holder());
    assert!(found.operations_per_second < 50.0);
    assert!(!found.is_good());
    for (letter, verdict) in found.verdicts() {
        assert!(matches!(verdict, Verdict::ProvesNothing { .. }), "{letter}: {verdict:?}");
    }
}

#[test]
fn a_validity_that_the_servers_do_not_keep_is_found() {
    let sample = |held| Truth {
        lock: Lock::Kept,
        round: 1,
        server: "one".into(),
        asked: at(990),
        answered: at(992),
        held,
        closed_nanos: None,
    };
    let held_by = |whose: Attempt, remaining: u64| {
        Some(Held { token: None, payload: Some(whose.to_string()), remaining_nanos: Some(remaining * 1_000_000) })
    };
    let expected = Expected { quorum: Some(Quorum::ONE), ..of_stopped_holder() };
    let of = |held| checked(&stopped_holder().done(), &[sample(held)], &expected).truthfulness.unwrap();
    assert_eq!(of(held_by(kept(0, 1), 410)).verdict, Verdict::Holds);
    assert_eq!(of(held_by(kept(0, 1), 400)).overstated_ms, 8.0);
    assert!(of(held_by(kept(1, 1), 900)).verdict.is_broken());
    assert!(of(None).verdict.is_broken());
}

#[test]
fn what_a_killed_process_asked_for_is_an_unknown_outcome() {
    let history = HistoryBuilder::default()
        .event(10, kept(0, 1), What::Asked)
        .struck(20, 0, ProcessFault::Killed)
        .granted(30, 40, kept(1, 1), 5, 90)
        .done();
    let holds = LockHolds::of(&history, Lock::Kept);
    assert_eq!((holds.unknown.len(), holds.holds.len(), holds.holds[0].token), (1, 1, token(5)));
}

#[test]
fn a_killed_process_holds_nothing_any_more() {
    let history =
        HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 1400).struck(1001, 0, ProcessFault::Killed).done();
    let hold = &LockHolds::of(&history, Lock::Kept).holds[0];
    assert_eq!(hold.end(), (at(1001), HoldEnd::Killed));
}

#[test]
fn a_run_in_which_nobody_was_kept_out_or_nothing_was_sent_again_proves_nothing_where_that_must_show() {
    let mut history = stopped_holder().done();
    let gap = checked(&history, &[], &of_stopped_holder()).progress.longest_gap_ms;
    let closed = |millis| Expected { closed: Some(Duration::from_secs_f64(millis / 1e3)), ..of_stopped_holder() };
    assert!(checked(&history, &[], &closed(gap - 0.1)).is_good());
    assert!(!checked(&history, &[], &closed(gap + 0.1)).is_good());
    let sent_again = Expected { retransmission: true, ..of_stopped_holder() };
    for (retransmitted, is_good) in [(None, false), (Some(0), false), (Some(1), true)] {
        history.retransmitted = retransmitted;
        assert_eq!(checked(&history, &[], &sent_again).is_good(), is_good, "{retransmitted:?}");
    }
}

#[test]
fn a_lock_that_was_lost_while_the_whole_machine_stood_still_proves_nothing_about_its_survival() {
    let mut history = HistoryBuilder::default().traffic(0, AT.1, 2).granted(0, 5, kept(0, 1), 1, 1400).wrote(
        9,
        kept(0, 1),
        1,
        true,
        false,
    );
    history = history.lost(1399, 1401, kept(0, 1));
    let mut history = history.done();
    let survives = Expected { survives: Some(Duration::from_millis(250)), ..Expected::default() };
    history.stood_still = Duration::from_millis(250);
    assert!(checked(&history, &[], &survives).progress.verdict.is_broken());
    history.stood_still = Duration::from_millis(251);
    assert!(matches!(checked(&history, &[], &survives).progress.verdict, Verdict::ProvesNothing { .. }));
}

#[test]
fn a_lock_that_nobody_has_while_the_whole_machine_stands_still_proves_nothing_about_its_going_on() {
    let mut history = HistoryBuilder::default().traffic(0, AT.0, 2).done();
    let half = Duration::from_millis((AT.1 - AT.0) / 2);
    history.stood_still = half;
    assert!(checked(&history, &[], &Expected::default()).progress.verdict.is_broken());
    history.stood_still = half + Duration::from_millis(1);
    assert!(matches!(checked(&history, &[], &Expected::default()).progress.verdict, Verdict::ProvesNothing { .. }));
}

#[test]
fn a_run_whose_wall_clocks_agree_proves_nothing_where_they_must_be_apart() {
    let of_process = |process| Attempt { lock: Lock::Busy, process, client: 0, attempt: 0 };
    let with = |ahead: u64| {
        let ready = |seconds: u64| What::Ready { wall_micros: seconds * 1_000_000 };
        stopped_holder().event(1, of_process(0), ready(100 + ahead)).event(2, of_process(1), ready(100)).done()
    };
    let expected = Expected { clocks_apart: Duration::from_secs(25), ..of_stopped_holder() };
    assert!(checked(&with(50), &[], &expected).is_good());
    assert!(!checked(&with(0), &[], &expected).is_good());
}

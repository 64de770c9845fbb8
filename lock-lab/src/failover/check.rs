//! The checker: what a recorded run says about each promise. Plain functions over values.
//!
//! * **M** no two holders inside their own validity: by interval sweep, and by linearizability, which also knows of attempts
//!   with an unknown outcome and of the order of the tokens;
//! * **F** the fence never lets a lower token through after a higher one;
//! * **L** a holder that lost knows it;
//! * **T** validity is never overstated against what the servers hold;
//! * **P** the lock goes on;
//! * **O** nothing is left behind on a server;
//! * **D** a client whose settings disagree with those of the servers is refused, and granted nothing.
//!
//! A run says something only when it had real traffic before the fault, and when what the fault must lead to did show.

mod fencing;
#[cfg(test)]
mod fixtures;
mod holds;
mod linear;
mod losing;
mod overlap;
mod progress;
mod residue;
mod strangers;
mod truth;
mod updates;
mod verdict;

use std::{collections::BTreeMap, time::Duration};

use lock_core::{BootInstant, FencingToken};
use serde::{Deserialize, Serialize};

pub(super) use self::residue::due;
pub use self::{
    fencing::Fencing,
    losing::{Loser, Losing},
    progress::{Progress, TakeOver},
    residue::ResidueCheck,
    strangers::{Refusals, Strangers},
    truth::{Quorum, Truthfulness},
    updates::{Counted, Updates},
    verdict::{Chance, Verdict},
};
use self::{
    fencing::UnfencedControl,
    holds::{Hold, HoldEnd, LockHolds},
    overlap::Overlap,
    progress::ProgressBounds,
    residue::ResidueBounds,
};
use crate::failover::events::{Attempt, Event, History, Lock, Truth, What, text};

/// When the fault struck, and until when the run was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moments {
    /// When the fault began.
    pub fault: BootInstant,
    /// When the clients were told to stop.
    pub end: BootInstant,
}

impl Moments {
    /// Milliseconds from the fault; before it they are negative.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // Minutes in nanoseconds.
    pub fn ms(self, at: BootInstant) -> f64 {
        let nanos = i128::from(at.as_nanos()) - i128::from(self.fault.as_nanos());
        nanos as f64 / 1e6
    }
}

/// What is to be expected of a run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Expected {
    /// How many operations a second there must be before the fault.
    pub traffic: f64,
    /// Whether two may hold at once (M).
    pub overlaps: Chance,
    /// Whether the control without a fence must show a stale write (F).
    pub stale: Chance,
    /// Whether the control without a fence must lose an update (F).
    pub lost_update: Chance,
    /// Whether a holder must lose the lock (L).
    pub losses: Chance,
    /// Whether validity may be overstated (T).
    pub overstated: Chance,
    /// On how many servers a holder has to be kept (T); `None` when the servers were not looked at.
    pub quorum: Option<Quorum>,
    /// Whether the locks may stay away until the end of the run, or longer than their bounds (P).
    pub stops: Chance,
    /// From the death of a holder to the next grant, at most (P).
    pub crash_bound: Option<Duration>,
    /// Without a grant of the busy lock, at most (P).
    pub gap_bound: Option<Duration>,
    /// That the kept lock survives the fault, unless its holder is struck (P), where no thread stood still for longer than
    /// this; `None` where that is not promised.
    pub survives: Option<Duration>,
    /// Without a grant of the busy lock, at least: shorter, the servers did not keep it closed as they must have.
    pub closed: Option<Duration>,
    /// Whether the kernel must have sent packets again.
    pub retransmission: bool,
    /// By how much the wall clocks of two processes must have been apart, at least.
    pub clocks_apart: Duration,
    /// Whether something may be left on the servers in the end (O).
    pub left: Chance,
    /// How long what a dead process or a fault has left stays, at most (O).
    pub lingers: Duration,
    /// The clients that must be refused (D); `None` where all agree.
    pub strangers: Option<Strangers>,
}

impl Default for Expected {
    /// Every promise is kept, and fifty operations a second.
    fn default() -> Self {
        Self {
            traffic: 50.0,
            overlaps: Chance::Never,
            stale: Chance::Possible,
            lost_update: Chance::Possible,
            losses: Chance::Possible,
            overstated: Chance::Never,
            quorum: None,
            stops: Chance::Never,
            crash_bound: None,
            gap_bound: None,
            survives: None,
            closed: None,
            retransmission: false,
            clocks_apart: Duration::ZERO,
            left: Chance::Never,
            lingers: Duration::ZERO,
            strangers: None,
        }
    }
}

/// What a run says. Times are in milliseconds from the fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Acquisitions and releases a second before the fault, counted over its last second.
    pub operations_per_second: f64,
    /// Grants in the whole run.
    pub grants: usize,
    /// Attempts that ended without one, and certainly left nothing.
    pub failed: usize,
    /// Attempts and releases with an unknown outcome.
    pub unknown: usize,
    /// M.
    pub exclusion: Exclusion,
    /// F.
    pub fencing: Fencing,
    /// L.
    pub losing: Losing,
    /// T; `None` when the servers were not looked at.
    pub truthfulness: Option<Truthfulness>,
    /// P.
    pub progress: Progress,
    /// O; `None` when the servers were not looked at after the processes had ended.
    pub residue: Option<ResidueCheck>,
    /// D; `None` when all clients agreed with the servers.
    pub refusals: Option<Refusals>,
    /// Every hold, for the picture.
    pub spans: Vec<Span>,
}

impl Findings {
    /// The verdict on each promise, by its letter.
    #[must_use]
    pub fn verdicts(&self) -> Vec<(char, &Verdict)> {
        let mut all = vec![
            ('M', &self.exclusion.verdict),
            ('F', &self.fencing.verdict),
            ('L', &self.losing.verdict),
            ('P', &self.progress.verdict),
        ];
        all.extend(self.truthfulness.as_ref().map(|truth| ('T', &truth.verdict)));
        all.extend(self.residue.as_ref().map(|residue| ('O', &residue.verdict)));
        all.extend(self.refusals.as_ref().map(|refusals| ('D', &refusals.verdict)));
        all
    }

    /// Whether the run counts, and no promise was broken.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.verdicts().iter().all(|(_, verdict)| verdict.is_good())
    }
}

/// **M** no two holders inside their own validity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Pairs of holds that were valid at the same time.
    pub overlaps: Vec<Both>,
    /// The longest of them.
    pub longest_ms: f64,
    /// Pieces of the history that have no valid order; an overlap is one, and so is a token that does not rise.
    pub contradictions: usize,
    /// The first of these, in words; empty without one.
    pub first_contradiction: String,
    /// Whether the lock was held by one at a time.
    pub verdict: Verdict,
}

/// Two holds that were valid at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Both {
    /// Whose.
    pub pair: [Attempt; 2],
    /// From when.
    pub from_ms: f64,
    /// Until when.
    pub until_ms: f64,
}

/// One hold, for a picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Whose.
    pub whose: Attempt,
    /// With which token.
    #[serde(with = "text")]
    pub token: FencingToken,
    /// From when.
    pub granted_ms: f64,
    /// Until when it was held by its holder's own validity.
    pub ended_ms: f64,
    /// Its last deadline.
    pub valid_until_ms: f64,
    /// When its holder knew that it was lost, if it was.
    pub knew_ms: Option<f64>,
    /// How it ended.
    pub end: Ending,
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By its release.
    Released,
    /// The holder was told that it is lost.
    Lost,
    /// Its validity ran out.
    RanOut,
    /// Its process was killed.
    Killed,
}

/// Checks a run: what the processes and the store recorded, samples of what the servers held, and when the fault was.
#[must_use]
pub fn check(history: &History, samples: &[Truth], at: Moments, expected: &Expected) -> Findings {
    let locks: BTreeMap<Lock, LockHolds> =
        Lock::ALL.into_iter().map(|lock| (lock, LockHolds::of(history, lock))).collect();
    let holds: BTreeMap<Lock, Vec<Hold>> = locks.iter().map(|(lock, all)| (*lock, all.holds.clone())).collect();
    let lists: Vec<Vec<Hold>> = holds.values().cloned().collect();
    let of = |lock| holds.get(&lock).map_or(&[][..], Vec::as_slice);
    let operations_per_second = operations_per_second(history, at.fault);
    let tame = tame(history, of(Lock::Busy), at, expected);
    let tame = tame.as_deref();
    // A lock that is lost while everything stands still is nobody's failure.
    let stood_still = expected.survives.is_some_and(|longest| history.stood_still > longest);
    let bounds = ProgressBounds {
        crash: expected.crash_bound,
        gap: expected.gap_bound,
        survives: expected.survives.is_some() && !stood_still,
        stood_still: history.stood_still * 2 > at.end.saturating_since(at.fault),
        stops: expected.stops,
    };
    let still = format!("the machine stood still for {:?}, so a lock may not survive", history.stood_still);
    let unsteady = tame.or(stood_still.then_some(still.as_str()));
    let control = UnfencedControl { stale: expected.stale, lost_update: expected.lost_update };
    let lingering = ResidueBounds { lingers: expected.lingers, chance: expected.left };
    Findings {
        operations_per_second,
        grants: lists.iter().map(Vec::len).sum(),
        failed: count(history, |what| matches!(what, What::NotGranted | What::Failed { .. })),
        unknown: count(history, |what| {
            matches!(what, What::Unknown { .. } | What::ReleaseFailed { unknown: true, .. })
        }),
        exclusion: exclusion(&locks, at, expected.overlaps, tame),
        fencing: fencing::fencing(history, &lists, control, tame),
        losing: losing::losing(history, &lists, at, expected.losses, tame),
        truthfulness: expected
            .quorum
            .map(|quorum| truth::truthfulness(samples, &holds, quorum, expected.overstated, tame)),
        progress: progress::progress(history, [of(Lock::Busy), of(Lock::Kept)], at, bounds, unsteady),
        residue: residue::residue(history, samples, lingering, tame),
        refusals: expected.strangers.map(|strangers| strangers::refusals(history, strangers, tame)),
        spans: lists.iter().flatten().map(|hold| span(hold, at)).collect(),
    }
}

/// Why a run proves nothing about any promise, if so.
fn tame(history: &History, busy: &[Hold], at: Moments, expected: &Expected) -> Option<String> {
    let rate = operations_per_second(history, at.fault);
    if rate < expected.traffic {
        return Some(format!("{rate:.0} operations a second before the fault, fewer than {}", expected.traffic));
    }
    let gap = progress::longest_gap(busy, at.fault, at.end);
    // Safeguard: where the servers must keep the lock closed, a run in which they do not proves nothing (checker)
    if let Some(closed) = expected.closed.filter(|closed| gap < *closed) {
        return Some(format!(
            "nobody was kept out for longer than {gap:?}, where the lock must be closed for {closed:?}"
        ));
    }
    let sent_again = history.retransmitted.unwrap_or_default() > 0;
    if expected.retransmission && !sent_again {
        return Some("no packet was sent again".to_owned());
    }
    let apart = clocks_apart(history);
    (apart < expected.clocks_apart).then(|| format!("the wall clocks of the processes were only {apart:?} apart"))
}

/// How far the wall clocks of two processes were apart at most, as they said of themselves.
fn clocks_apart(history: &History) -> Duration {
    let ready = |event: &Event| match event.what {
        // Both count on; what is left is when the boot-time clock began, by that wall clock.
        What::Ready { wall_micros } => Some(i128::from(wall_micros) * 1000 - i128::from(event.at.as_nanos())),
        _ => None,
    };
    let began = || history.events.iter().filter_map(ready);
    let apart = began().max().unwrap_or_default() - began().min().unwrap_or_default();
    Duration::from_nanos(u64::try_from(apart).unwrap_or_default())
}

/// Acquisitions and releases that ended in the last second before the fault, or in the time that there was.
#[allow(clippy::cast_precision_loss)] // Thousands.
pub(super) fn operations_per_second(history: &History, fault: BootInstant) -> f64 {
    let done = |event: &&Event| matches!(event.what, What::Granted { .. } | What::Released) && event.at < fault;
    let Some(first) = history.events.iter().find(|event| event.what == What::Asked) else { return 0.0 };
    let from = fault.saturating_sub(Duration::from_secs(1)).max(first.at);
    let window = fault.saturating_since(from).as_secs_f64();
    let operations = history.events.iter().filter(done).filter(|event| event.at >= from).count();
    if window > 0.0 { operations as f64 / window } else { 0.0 }
}

fn count(history: &History, is: impl Fn(&What) -> bool) -> usize {
    history.events.iter().filter(|event| is(&event.what)).count()
}

fn exclusion(locks: &BTreeMap<Lock, LockHolds>, at: Moments, chance: Chance, tame: Option<&str>) -> Exclusion {
    let (mut both, mut contradictions, mut first_contradiction) = (Vec::new(), 0, String::new());
    let mut longest = Duration::ZERO;
    for all in locks.values() {
        for Overlap { pair, length } in overlap::overlaps(&all.holds) {
            let [one, other] = pair.map(|place| &all.holds[place]);
            longest = longest.max(length);
            both.push(Both {
                pair: [one.whose, other.whose],
                from_ms: at.ms(other.granted),
                until_ms: at.ms(other.granted.saturating_add(length)),
            });
        }
        let found = linear::contradictions(all);
        contradictions += found.len();
        if let Some(first) = found.first().filter(|_| first_contradiction.is_empty()) {
            first_contradiction = words(first, &all.holds, at);
        }
    }
    let what = || {
        let longest = longest.as_secs_f64() * 1e3;
        format!("{} overlaps, the longest of {longest:.1} ms; {first_contradiction}", both.len())
    };
    let verdict = Verdict::of(both.len().max(contradictions), chance, what, tame);
    Exclusion { overlaps: both, longest_ms: longest.as_secs_f64() * 1e3, contradictions, first_contradiction, verdict }
}

fn words(found: &linear::NonLinearizable, holds: &[Hold], at: Moments) -> String {
    let last = &holds[found.grants.end - 1];
    let grant = format!("{} was granted {} at {:.1} ms", last.whose, last.token, at.ms(last.granted));
    match found.before.map(|before| &holds[before]) {
        Some(before) => {
            let ended = at.ms(before.ended());
            format!(
                "{grant}, which cannot come after {} with {}, valid until {ended:.1} ms",
                before.whose, before.token
            )
        }
        None => grant,
    }
}

fn span(hold: &Hold, at: Moments) -> Span {
    let (ended, end) = hold.end();
    Span {
        whose: hold.whose,
        token: hold.token,
        granted_ms: at.ms(hold.granted),
        ended_ms: at.ms(ended),
        valid_until_ms: at.ms(hold.valid_until()),
        knew_ms: hold.invalid.map(|(knew, _)| at.ms(knew)).or(hold.lost.as_ref().map(|(told, _)| at.ms(*told))),
        end: match end {
            HoldEnd::Released => Ending::Released,
            HoldEnd::Lost => Ending::Lost,
            HoldEnd::RanOut => Ending::RanOut,
            HoldEnd::Killed => Ending::Killed,
        },
    }
}

#[cfg(test)]
mod tests;

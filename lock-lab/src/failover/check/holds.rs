//! From events to holds: who held which lock from when to when, by its own validity.

use std::collections::BTreeMap;

use lock_core::{BootInstant, FencingToken};

use crate::failover::events::{Attempt, Event, History, Lock, ProcessFault, What};

/// One grant in a recorded history, from the request for the lock to the end of the holder's validity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) whose: Attempt,
    pub(super) asked: BootInstant,
    pub(super) granted: BootInstant,
    pub(super) token: FencingToken,
    /// Each deadline, and from when the holder knew it.
    pub(super) deadlines: Vec<(BootInstant, BootInstant)>,
    /// When `lost()` had resolved, and why it did.
    pub(super) lost: Option<(BootInstant, String)>,
    /// When a look first said that it is not held, and when the last one before had not.
    pub(super) invalid: Option<(BootInstant, Option<BootInstant>)>,
    pub(super) releasing: Option<BootInstant>,
    /// When the release was confirmed.
    pub(super) released: Option<BootInstant>,
    /// When its process was killed, if it held the lock until then.
    pub(super) killed: Option<BootInstant>,
}

/// How a [`Hold`] ended: by a release, a loss, the end of its validity, or the death of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldEnd {
    Released,
    Lost,
    RanOut,
    Killed,
}

impl Hold {
    /// The last deadline that the holder knew of.
    pub(super) fn valid_until(&self) -> BootInstant {
        self.deadlines.last().map_or(self.granted, |(_, until)| *until)
    }

    /// The deadline that the holder knew of at `at`; `None` before it was granted.
    pub(super) fn deadline_at(&self, at: BootInstant) -> Option<BootInstant> {
        self.deadlines.iter().rev().find(|(known, _)| *known <= at).map(|(_, until)| *until)
    }

    /// Until when the holder believed to hold, and why not longer. A process that was killed believes nothing.
    pub(super) fn end(&self) -> (BootInstant, HoldEnd) {
        let ends = [
            (self.releasing, HoldEnd::Released),
            (self.killed, HoldEnd::Killed),
            (self.lost.as_ref().map(|(at, _)| *at), HoldEnd::Lost),
            (self.invalid.map(|(at, _)| at), HoldEnd::Lost),
        ];
        let told = ends.into_iter().filter_map(|(at, end)| Some((at?, end))).min_by_key(|(at, _)| *at);
        let until = self.valid_until();
        match told {
            // Safeguard: a hold ends with its validity, whatever was reported later (checker)
            Some((at, end)) if at <= until => (at, end),
            _ => (until, HoldEnd::RanOut),
        }
    }

    /// Holds are kept in this order: by their grants, and of several at the same moment the shortest first.
    pub(super) fn order(&self) -> (BootInstant, BootInstant) {
        (self.granted, self.ended())
    }

    pub(super) fn ended(&self) -> BootInstant {
        self.end().0
    }

    /// Whether it lost the lock while it held it: not by its own release, and not by its death.
    pub(super) fn is_loser(&self) -> bool {
        self.lost.is_some() || self.invalid.is_some()
    }
}

/// An attempt in a recorded history of which nobody knows whether the servers granted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnknownAttempt {
    pub(super) asked: BootInstant,
}

/// The holds of one lock in a recorded history, and the attempts with an unknown outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LockHolds {
    /// In the order of their grants.
    pub(super) holds: Vec<Hold>,
    /// In the order of asking.
    pub(super) unknown: Vec<UnknownAttempt>,
}

impl LockHolds {
    /// What `history` tells of `lock`.
    pub(super) fn of(history: &History, lock: Lock) -> Self {
        let mut asked = BTreeMap::new();
        let mut holds: BTreeMap<Attempt, Hold> = BTreeMap::new();
        let mut unknown = Vec::new();
        for event in history.events.iter().filter(|event| event.whose.lock == lock) {
            match &event.what {
                What::Asked => {
                    asked.insert(event.whose, event.at);
                }
                What::Granted { token, valid_until } => {
                    let from = asked.remove(&event.whose).unwrap_or(event.at);
                    holds.insert(event.whose, granted(event, from, *token, *valid_until));
                }
                What::Unknown { .. } | What::Withdrawn => {
                    unknown.push(UnknownAttempt { asked: asked.remove(&event.whose).unwrap_or(event.at) });
                }
                What::NotGranted | What::Failed { .. } => {
                    asked.remove(&event.whose);
                }
                _ => {
                    if let Some(hold) = holds.get_mut(&event.whose) {
                        note(hold, event);
                    }
                }
            }
        }
        // Whoever was killed while it asked may have been granted.
        unknown.extend(asked.into_values().map(|asked| UnknownAttempt { asked }));
        unknown.sort_by_key(|unknown| unknown.asked);
        let mut holds: Vec<_> = holds.into_values().collect();
        for struck in history.fault_events.iter().filter(|struck| struck.fault == ProcessFault::Killed) {
            for hold in holds.iter_mut().filter(|hold| hold.whose.process == struck.process) {
                if hold.granted <= struck.at && hold.releasing.is_none() {
                    hold.killed = Some(struck.at);
                }
            }
        }
        holds.sort_by_key(Hold::order);
        Self { holds, unknown }
    }
}

fn granted(event: &Event, asked: BootInstant, token: FencingToken, valid_until: BootInstant) -> Hold {
    Hold {
        whose: event.whose,
        asked,
        granted: event.at,
        token,
        deadlines: vec![(event.at, valid_until)],
        lost: None,
        invalid: None,
        releasing: None,
        released: None,
        killed: None,
    }
}

fn note(hold: &mut Hold, event: &Event) {
    match &event.what {
        What::Extended { valid_until } => hold.deadlines.push((event.at, *valid_until)),
        What::Lost { loss } => hold.lost = Some((event.at, loss.clone())),
        What::FirstInvalid { last_valid } => hold.invalid = Some((event.at, *last_valid)),
        What::Releasing => hold.releasing = Some(event.at),
        What::Released => hold.released = Some(event.at),
        _ => {}
    }
}

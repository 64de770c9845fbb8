//! The process's own looks at the validity of what it holds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use lock_core::{BootInstant, Loss, Validity};
use rustix::{thread::nanosleep, time::Timespec};

use super::reports::EventWriter;
use crate::{
    LabError,
    failover::events::{Attempt, What, now},
};

/// The time between two looks of the thread that looks.
const EVERY: Duration = Duration::from_millis(2);

/// Reads the validity of everything that the process holds every few milliseconds, on a thread of its own.
#[derive(Debug)]
pub(super) struct ValidityProbe {
    held: Mutex<BTreeMap<Attempt, ProbedGrant>>,
    reports: Arc<EventWriter>,
}

/// One grant that a [`ValidityProbe`] reads, with what it has read so far.
#[derive(Debug)]
struct ProbedGrant {
    validity: Validity,
    deadline: BootInstant,
    last_valid: Option<BootInstant>,
    /// A look has said that it is not held any more.
    invalid: bool,
    /// `lost()` has resolved.
    told: bool,
}

impl ValidityProbe {
    /// Looks every few milliseconds, on a thread of its own: a program's runtime may stand still.
    pub(super) fn start(reports: Arc<EventWriter>) -> Result<Arc<Self>, LabError> {
        let looks = Arc::new(Self { held: Mutex::default(), reports });
        let looking = Arc::clone(&looks);
        let look = move || {
            loop {
                // Safeguard: a thread of its own looks at the validity, whatever the runtime does (worker)
                looking.look_at_all();
                block_for(EVERY);
            }
        };
        let started = thread::Builder::new().name("looks".into()).spawn(look);
        started.map_err(|error| LabError::io("starting a thread", error))?;
        Ok(looks)
    }

    /// A hold begins, with this deadline as it was reported.
    pub(super) fn begin(&self, whose: Attempt, validity: Validity, deadline: BootInstant) {
        self.held().insert(whose, ProbedGrant { validity, deadline, last_valid: None, invalid: false, told: false });
    }

    /// Looks whether it is held.
    pub(super) fn look(&self, whose: Attempt) -> bool {
        self.held().get_mut(&whose).is_some_and(|held| look(whose, held, &self.reports))
    }

    fn look_at_all(&self) {
        for (whose, held) in self.held().iter_mut() {
            look(*whose, held, &self.reports);
        }
    }

    /// `lost()` has resolved.
    pub(super) fn told(&self, whose: Attempt, loss: Loss) {
        // After the release it always does.
        if let Some(held) = self.held().get_mut(&whose).filter(|held| !held.told) {
            held.told = true;
            self.reports.event(whose, What::Lost { loss: format!("{loss:?}") });
        }
    }

    /// The hold ends by a release that begins now. Not yet, when a look says that it is lost and `lost()` has not resolved,
    /// unless `anyway`.
    pub(super) fn end(&self, whose: Attempt, anyway: bool) -> bool {
        let mut held = self.held();
        // The client may be the first to know, as after a stop of the whole process.
        // Safeguard: a hold does not end before a look at it (worker)
        if held.get_mut(&whose).is_some_and(|held| !look(whose, held, &self.reports) && !held.told && !anyway) {
            return false;
        }
        if held.remove(&whose).is_some() {
            self.reports.event(whose, What::Releasing);
        }
        true
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Attempt, ProbedGrant>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One look. Under the lock of all holds, so that no look is reported after the end.
fn look(whose: Attempt, held: &mut ProbedGrant, reports: &EventWriter) -> bool {
    let before = now();
    let is_valid = held.validity.is_valid();
    if is_valid {
        held.last_valid = Some(before);
        // Read after the look: at least the deadline that it went by.
        if let Some(deadline) = held.validity.valid_until().filter(|deadline| *deadline > held.deadline) {
            held.deadline = deadline;
            reports.event(whose, What::Extended { valid_until: deadline });
        }
    } else if !held.invalid {
        held.invalid = true;
        reports.event(whose, What::FirstInvalid { last_valid: held.last_valid });
    }
    is_valid
}

/// Blocks the calling thread.
pub(crate) fn block_for(time: Duration) {
    let mut left = Timespec::try_from(time).unwrap_or_default();
    // A signal, as that to go on after a stop, cuts it short.
    while let rustix::thread::NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Clock;

    use super::*;
    use crate::failover::events::Lock;

    #[test]
    fn a_hold_that_was_lost_since_the_last_look_is_not_ended_before_its_loss_is_told() {
        let reports = EventWriter::to_standard_output(0).unwrap();
        let looks = ValidityProbe { held: Mutex::default(), reports };
        let whose = Attempt { lock: Lock::Kept, process: 0, client: 0, attempt: 1 };
        let deadline = now().saturating_add(Duration::from_secs(60));
        let validity = Validity::new(Clock::boot(), deadline);
        looks.begin(whose, validity.clone(), deadline);
        assert!(looks.look(whose));
        validity.end(Loss::Revoked);
        assert!(!looks.end(whose, false));
        looks.told(whose, Loss::Revoked);
        assert!(looks.end(whose, false));
    }
}

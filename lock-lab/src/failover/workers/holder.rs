//! Who holds a lock while a run goes on.

use std::collections::{BTreeMap, BTreeSet};

use lock_core::{BootInstant, FencingToken};

use crate::failover::events::{Attempt, History, Lock, ProcessFault, What, now};

/// The holder of a lock, as far as the processes have reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The attempt that was granted.
    pub whose: Attempt,
    /// Fencing token of the grant.
    pub token: FencingToken,
    /// Latest deadline that was reported.
    pub valid_until: BootInstant,
}

/// The holder of a lock at `now`, going by what was reported. The lists are in the order of their arrival.
fn holder_at(history: &History, lock: Lock, now: BootInstant) -> Option<Holder> {
    let is_dead = |whose: Attempt| {
        history
            .fault_events
            .iter()
            .any(|struck| struck.process == whose.process && struck.fault == ProcessFault::Killed)
    };
    let (mut over, mut deadlines) = (BTreeSet::new(), BTreeMap::new());
    for event in history.events.iter().rev().filter(|event| event.whose.lock == lock) {
        match event.what {
            What::Releasing | What::Lost { .. } | What::FirstInvalid { .. } => drop(over.insert(event.whose)),
            // The latest comes first.
            What::Extended { valid_until } => drop(deadlines.entry(event.whose).or_insert(valid_until)),
            What::Granted { token, valid_until } => {
                let valid_until = deadlines.get(&event.whose).copied().unwrap_or(valid_until);
                // A holder that was stopped or cut off does not say that its hold is over.
                let holds = now < valid_until && !over.contains(&event.whose) && !is_dead(event.whose);
                if holds {
                    return Some(Holder { whose: event.whose, token, valid_until });
                }
            }
            _ => {}
        }
    }
    None
}

pub(super) fn holder(history: &History, lock: Lock) -> Option<Holder> {
    holder_at(history, lock, now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::events::{Event, FaultEvent};

    const fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    const fn kept(process: usize) -> Attempt {
        Attempt { lock: Lock::Kept, process, client: 0, attempt: 1 }
    }

    fn granted(process: usize, millis: u64, until: u64) -> Event {
        let token = FencingToken { era: 0, number: millis };
        Event { at: at(millis), whose: kept(process), what: What::Granted { token, valid_until: at(until) } }
    }

    fn of(events: &[Event], fault_events: &[FaultEvent], now: u64) -> Option<usize> {
        let history = History {
            events: events.to_vec(),
            writes: Vec::new(),
            fault_events: fault_events.to_vec(),
            ..History::default()
        };
        holder_at(&history, Lock::Kept, at(now)).map(|holder| holder.whose.process)
    }

    #[test]
    fn the_holder_is_who_was_granted_and_has_not_ended() {
        let extended = Event { at: at(20), whose: kept(0), what: What::Extended { valid_until: at(200) } };
        let over = Event { at: at(30), whose: kept(0), what: What::Releasing };
        assert_eq!(of(&[granted(0, 10, 100)], &[], 50), Some(0));
        assert_eq!(of(&[granted(0, 10, 100)], &[], 100), None);
        assert_eq!(of(&[granted(0, 10, 100), extended.clone()], &[], 150), Some(0));
        assert_eq!(of(&[granted(0, 10, 100), extended, over], &[], 50), None);
        let killed = FaultEvent { at: at(40), process: 0, fault: ProcessFault::Killed };
        assert_eq!(of(&[granted(0, 10, 100)], &[killed], 50), None);
    }

    #[test]
    fn a_stopped_holder_whose_validity_is_over_does_not_hold_although_it_never_said_so() {
        let released = Event { at: at(130), whose: kept(1), what: What::Releasing };
        assert_eq!(of(&[granted(0, 10, 100), granted(1, 110, 300), released], &[], 140), None);
    }
}

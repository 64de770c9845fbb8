//! The table against a model, under random schedules.
//!
//! The model has no queue and no holders, but one list of contenders in the order of their arrival, and one rule: a
//! contender holds as soon as nobody before it stands in its way.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::sync::watch;

use super::{
    contender::{Attempt, ServerTime, WaiterState},
    queue::EnterOutcome,
    table::LockTable,
};
use crate::{BootInstant, Contender, LockName, Mode};

/// One step of a random schedule: what a contender does, or how much time passes.
#[derive(Debug, Clone, Copy)]
enum ScheduleStep {
    Enters {
        mode: Mode,
        ttl: u64,
        delay: u64,
        waits: bool,
    },
    Leaves(usize),
    /// A waiter that is gone without a word.
    Vanishes(usize),
    Renews(usize),
    Downgrades(usize),
    IsDeleted,
    Passes(u64),
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        2 => Just(Mode::Exclusive),
        4 => Just(Mode::Read),
        // Mostly the same number.
        4 => prop_oneof![1 => 1_u32..4, 6 => Just(2)].prop_map(|of| Mode::Permit { of: NonZeroU32::new(of).unwrap() }),
    ]
}

fn steps() -> impl Strategy<Value = ScheduleStep> {
    // Whom it concerns is counted from the newest.
    prop_oneof![
        8 => (modes(), 1_u64..30, prop_oneof![2 => Just(0), 1 => 1_u64..20], prop::bool::weighted(0.8))
            .prop_map(|(mode, ttl, delay, waits)| ScheduleStep::Enters { mode, ttl, delay, waits }),
        5 => (0_usize..12).prop_map(ScheduleStep::Leaves),
        1 => (0_usize..12).prop_map(ScheduleStep::Vanishes),
        4 => (0_usize..12).prop_map(ScheduleStep::Renews),
        2 => (0_usize..12).prop_map(ScheduleStep::Downgrades),
        1 => Just(ScheduleStep::IsDeleted),
        4 => (1_u64..10).prop_map(ScheduleStep::Passes),
    ]
}

/// The state of one contender in the [`QueueModel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelState {
    Waits,
    Holds {
        until: u64,
    },
    /// Gone in disorder; its place is closed.
    Closed {
        until: u64,
    },
}

/// A contender in the [`QueueModel`]: its request and its state.
#[derive(Debug)]
struct ModelContender {
    id: u64,
    mode: Mode,
    ttl: u64,
    delay: u64,
    state: ModelState,
}

/// A simple model of the lock and the semaphore of one name: contenders in the order of their arrival.
#[derive(Debug, Default)]
struct QueueModel(Vec<ModelContender>);

impl QueueModel {
    fn is_free(&self, before: usize, mode: Mode) -> bool {
        let before = &self.0[..before];
        match mode {
            Mode::Exclusive => before.iter().all(|other| matches!(other.mode, Mode::Permit { .. })),
            Mode::Read => before.iter().all(|other| other.mode != Mode::Exclusive),
            Mode::Permit { of } => {
                let permits = before.iter().filter(|other| matches!(other.mode, Mode::Permit { .. }));
                permits.count() < of.get() as usize
            }
        }
    }

    fn settle(&mut self, now: u64) {
        for person in &mut self.0 {
            if let ModelState::Holds { until } = person.state
                && until <= now
            {
                person.state = ModelState::Closed { until: until + person.delay };
            }
        }
        self.0.retain(|person| !matches!(person.state, ModelState::Closed { until } if until <= now));
        for place in 0..self.0.len() {
            if self.0[place].state == ModelState::Waits && self.is_free(place, self.0[place].mode) {
                self.0[place].state = ModelState::Holds { until: now + self.0[place].ttl };
            }
        }
    }

    fn permits(&self) -> Option<NonZeroU32> {
        let live = self.0.iter().filter(|person| !matches!(person.state, ModelState::Closed { .. }));
        live.into_iter().find_map(|person| match person.mode {
            Mode::Permit { of } => Some(of),
            _ => None,
        })
    }

    fn holder(&mut self, id: u64) -> Option<&mut ModelContender> {
        self.0.iter_mut().find(|person| person.id == id && matches!(person.state, ModelState::Holds { .. }))
    }

    /// Those in one of its lines, without whose places are closed.
    fn ids(&self, holds: bool, permits: bool) -> Vec<u64> {
        let here = self.0.iter().filter(|person| match person.state {
            ModelState::Waits => !holds,
            ModelState::Holds { .. } => holds,
            ModelState::Closed { .. } => false,
        });
        here.filter(|person| matches!(person.mode, Mode::Permit { .. }) == permits).map(|person| person.id).collect()
    }
}

/// The memory server's [`LockTable`] and the [`QueueModel`], which take the same steps and are compared after each.
#[derive(Default)]
struct ModelComparison {
    table: LockTable,
    model: QueueModel,
    now: u64,
    entered: u64,
    places: Vec<(u64, watch::Receiver<WaiterState>)>,
    /// Every grant, by its number, with whose it is.
    grants: Vec<(u64, u64, Mode)>,
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn moment(now: u64) -> ServerTime {
    ServerTime { at: BootInstant::from_nanos(now * 1_000_000_000), wall_micros: now }
}

impl ModelComparison {
    fn take(&mut self, step: ScheduleStep) {
        let (now, name) = (moment(self.now), name());
        self.model.settle(self.now);
        let whom = |newest: usize| self.entered.saturating_sub(newest as u64);
        match step {
            ScheduleStep::Enters { mode, ttl, delay, waits } => self.enters(mode, ttl, delay, waits),
            ScheduleStep::Leaves(newest) => {
                let id = whom(newest);
                let held = self.model.holder(id).is_some();
                assert_eq!(self.table.leave(now, &name, id), held);
                self.model.0.retain(|person| person.id != id || matches!(person.state, ModelState::Closed { .. }));
                self.places.retain(|place| place.0 != id);
            }
            ScheduleStep::Vanishes(newest) => {
                let id = whom(newest);
                self.places.retain(|place| place.0 != id);
                self.model.0.retain(|person| person.id != id || person.state != ModelState::Waits);
            }
            ScheduleStep::Renews(newest) => {
                let id = whom(newest);
                let until = self.now;
                let renewed = self.model.holder(id).map(|it| it.state = ModelState::Holds { until: until + it.ttl });
                assert_eq!(self.table.renew(now, &name, id), renewed.is_some());
            }
            ScheduleStep::Downgrades(newest) => {
                let id = whom(newest);
                let writer = self.model.holder(id).filter(|holder| holder.mode == Mode::Exclusive);
                if let Some(writer) = writer {
                    writer.mode = Mode::Read;
                    assert!(self.table.downgrade(now, &name, id));
                }
            }
            ScheduleStep::IsDeleted => {
                self.table.delete(now, &name);
                for person in &mut self.model.0 {
                    if let ModelState::Holds { .. } = person.state {
                        person.state = ModelState::Closed { until: self.now + person.delay };
                    }
                }
            }
            ScheduleStep::Passes(seconds) => self.now += seconds,
        }
        self.model.settle(self.now);
    }

    fn enters(&mut self, mode: Mode, ttl: u64, delay: u64, waits: bool) {
        self.entered += 1;
        let id = self.entered;
        let (ttl, delay) = (Duration::from_secs(ttl), Duration::from_secs(delay));
        let attempt = Attempt { id, mode, ttl, delay, payload: Arc::new([]) };
        let disagrees = matches!((mode, self.model.permits()), (Mode::Permit { of }, Some(there)) if of != there);
        let free = self.model.is_free(self.model.0.len(), mode);
        match self.table.enter(moment(self.now), &name(), attempt, waits) {
            EnterOutcome::Disagrees { .. } => return assert!(disagrees),
            EnterOutcome::Refused => return assert!(!disagrees && !free && !waits),
            EnterOutcome::Granted(_) => assert!(!disagrees && free),
            EnterOutcome::Queued(place) => {
                assert!(!disagrees && !free && waits);
                self.places.push((id, place));
            }
        }
        let (ttl, delay) = (ttl.as_secs(), delay.as_secs());
        self.model.0.push(ModelContender { id, mode, ttl, delay, state: ModelState::Waits });
    }

    /// Holders and queue are those of the model, and each promise holds by itself, too.
    fn check(&mut self) {
        let snapshot = self.table.snapshot(moment(self.now), &name());
        for permits in [false, true] {
            let ids = |contenders: &[Contender]| -> Vec<u64> {
                let is_permit = |it: &&Contender| matches!(it.mode, Some(Mode::Permit { .. })) == permits;
                contenders.iter().filter(is_permit).map(|it| it.id.parse().unwrap()).collect()
            };
            assert_eq!(ids(&snapshot.holders), self.model.ids(true, permits), "holders");
            assert_eq!(ids(&snapshot.queue), self.model.ids(false, permits), "queue");
        }
        let count = |wanted: Mode| snapshot.holders.iter().filter(|holder| holder.mode == Some(wanted)).count();
        assert!(count(Mode::Exclusive) <= 1, "two writers");
        assert!(count(Mode::Exclusive) == 0 || count(Mode::Read) == 0, "a reader beside a writer");
        for holder in &snapshot.holders {
            let (id, token, mode) = (holder.id.parse().unwrap(), holder.token.unwrap(), holder.mode.unwrap());
            if let Mode::Permit { of } = mode {
                assert!(count(mode) <= of.get() as usize, "a permit too many");
            }
            let until = self.now + holder.remaining.unwrap().as_secs();
            assert_eq!(self.model.holder(id).unwrap().state, ModelState::Holds { until }, "its own lease");
            match self.grants.iter().find(|grant| grant.1 == id) {
                // Its mode may have changed, its number has not.
                Some(known) => assert_eq!(known.0, token),
                None => self.granted(token, id, mode),
            }
        }
    }

    /// In the order of arrival, with a number above that of each earlier grant: within one line.
    fn granted(&mut self, token: u64, id: u64, mode: Mode) {
        let is_permit = |mode: Mode| matches!(mode, Mode::Permit { .. });
        let earlier = self.grants.iter().filter(|grant| is_permit(grant.2) == is_permit(mode));
        for (before, whose, _) in earlier {
            assert!(*before < token, "the number {token} after {before}");
            assert!(*whose < id, "{id} was overtaken by {whose}");
        }
        self.grants.push((token, id, mode));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn holders_and_queue_are_as_the_order_of_arrival_says(schedule in prop::collection::vec(steps(), 1..80)) {
        let mut both = ModelComparison::default();
        for step in schedule {
            both.take(step);
            both.check();
        }
        // When all are gone nothing is left.
        for id in 1..=both.entered {
            both.table.leave(moment(both.now), &name(), id);
        }
        both.table.settle(moment(both.now + 1000), &name());
        assert!(both.table.is_empty());
    }
}

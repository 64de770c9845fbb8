//! Where a run is recorded while it goes on.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{
    events::{Event, FaultEvent, History, ProcessFault, Update, Write, now},
    registers::Registers,
};

/// The history of a run while it goes on, with news of each change.
#[derive(Debug)]
pub(crate) struct RunRecord {
    state: Mutex<RecordState>,
    /// Number of changes so far.
    news: watch::Sender<usize>,
}

/// The state behind a [`RunRecord`]: the history so far, the registers, and the processes that have ended.
#[derive(Debug, Default)]
pub(crate) struct RecordState {
    pub(crate) history: History,
    /// Processes whose output has ended.
    pub(crate) ended: BTreeSet<usize>,
    registers: Registers,
}

impl Default for RunRecord {
    fn default() -> Self {
        Self { state: Mutex::default(), news: watch::Sender::new(0) }
    }
}

impl RunRecord {
    pub(crate) fn event(&self, event: Event) {
        self.state().history.events.push(event);
        self.changed();
    }

    pub(crate) fn fault(&self, process: usize, fault: ProcessFault) {
        let mut state = self.state();
        state.history.fault_events.push(FaultEvent { at: now(), process, fault });
        drop(state);
        self.changed();
    }

    pub(crate) fn ended(&self, process: usize) {
        self.state().ended.insert(process);
        self.changed();
    }

    /// Applies a request to the registers and records what it wrote, as one step.
    pub(crate) fn apply<A>(&self, apply: impl FnOnce(&mut Registers) -> (A, Option<Write>, Option<Update>)) -> A {
        let mut state = self.state();
        let (answer, write, update) = apply(&mut state.registers);
        state.history.writes.extend(write);
        state.history.updates.extend(update);
        drop(state);
        self.changed();
        answer
    }

    /// What there is so far.
    pub(crate) fn history(&self) -> History {
        self.state().history.clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn news(&self) -> watch::Receiver<usize> {
        self.news.subscribe()
    }

    fn changed(&self) {
        self.news.send_modify(|count| *count += 1);
    }
}

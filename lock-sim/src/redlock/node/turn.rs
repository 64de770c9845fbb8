//! Whose turn it is when somebody is gone, and who waits (`turn.lua`, `undo.lua`, and the line in `head.lua`).

use super::{
    INTENT_KEPT, Intent, Line, Ms, Place, RESERVATION, Reserved, TOMBSTONE, Value, Vote, WAITERS_KEPT, Waiter, Work,
};

impl Work<'_> {
    pub(super) fn undo(&mut self, value: Value, tombstone: bool, line: Line) -> bool {
        let held = self.holder().is_some_and(|holder| holder == value || !self.checks.own_value);
        let read = self.reader(value).is_some();
        if held {
            (self.node.lock, self.node.held) = (None, None);
        }
        if read {
            self.node.readers.retain(|reader| reader.value != value);
        }
        if tombstone && self.checks.tombstone && (!(held || read) || self.checks.tombstone_always) {
            self.node.tombstones.retain(|(other, _)| *other != value);
            self.node.tombstones.push((value, self.ms + TOMBSTONE));
        }
        let (mut turn, mut intent) = (false, false);
        let stays = matches!(line, Line::Stay { .. });
        match line {
            Line::None => {}
            Line::Stay { reads: true, place } => self.reader_waits(place),
            Line::Stay { reads: false, place } => {
                self.stand_in_line(place);
                self.writer_waits(place);
            }
            Line::Leave { reads, waiter } => {
                if reads {
                    self.node.waiting.retain(|(_, other)| *other != waiter);
                } else {
                    self.node.waiters.retain(|(_, other)| *other != waiter);
                    intent = self.writer_gone(waiter);
                }
                if self.node.reservation.is_some_and(|(reserved, _)| reserved == Reserved::For(waiter)) {
                    self.node.reservation = None;
                    turn = true;
                }
            }
        }
        self.pass_turn(Passed { held, read, stays, turn, intent });
        held || read
    }

    fn pass_turn(&mut self, passed: Passed) {
        let Passed { held, read, stays, turn, intent } = passed;
        if self.node.lock.is_some() {
            return;
        }
        let free = self.node.readers.is_empty();
        if free && held {
            if !stays && !self.wake_readers() {
                self.wake_a_writer();
            }
        } else if free && read && stays {
            self.wake_a_writer();
        } else if free && (read || turn) {
            if !self.wake_a_writer() {
                self.wake_readers();
            }
        } else if intent {
            self.wake_readers();
        }
    }

    fn wake(&mut self, waiter: Waiter) -> bool {
        let bit = 1 << waiter;
        self.node.woken |= self.node.listeners & bit;
        self.node.listeners & bit != 0
    }

    fn wake_a_writer(&mut self) -> bool {
        while !self.node.waiters.is_empty() {
            let (_, waiter) = self.node.waiters.remove(0);
            if self.wake(waiter) {
                self.node.reservation = Some((Reserved::For(waiter), self.ms + RESERVATION));
                return true;
            }
        }
        false
    }

    pub(super) fn wake_readers(&mut self) -> bool {
        self.node.waiting.retain(|(came, _)| came.is_some());
        let (first, _) = self.writers_before(self.now);
        let mut woken = false;
        let mut waiting = std::mem::take(&mut self.node.waiting);
        waiting.retain_mut(|(came, waiter)| {
            if first.is_some_and(|first| *came >= Some(first)) {
                return true;
            }
            let hears = self.wake(*waiter);
            *came = None;
            woken |= hears;
            hears
        });
        self.node.waiting = waiting;
        if woken {
            self.node.reservation = Some((Reserved::Readers, self.ms + RESERVATION));
        }
        woken
    }

    /// When the first of the writers that wait came, and for how many ms those that came no later than `came` keep readers
    /// out.
    pub(super) fn writers_before(&self, came: u64) -> (Option<u64>, Ms) {
        let first = self.node.intents.iter().map(|intent| intent.came).min();
        let before = self.node.intents.iter().filter(|intent| intent.came <= came);
        (first, before.map(|intent| (intent.ends - self.ms).max(1)).max().unwrap_or(0))
    }

    pub(super) fn writer_lines_up(&mut self, vote: &Vote) {
        if let Some(place) = vote.place {
            self.stand_in_line(place);
            self.writer_waits(place);
        }
    }

    pub(super) fn reader_lines_up(&mut self, vote: &Vote) {
        if let Some(place) = vote.place {
            self.reader_waits(place);
        }
    }

    fn stand_in_line(&mut self, place: Place) {
        // The first place that it was given stays.
        if !self.node.waiters.iter().any(|(_, other)| *other == place.waiter) {
            let came = (self.now.saturating_sub(place.waited * 1000), place.waiter);
            let at = self.node.waiters.partition_point(|other| *other < came);
            self.node.waiters.insert(at, came);
        }
        self.node.waiters_end = self.ms + WAITERS_KEPT;
    }

    fn writer_waits(&mut self, place: Place) {
        let ends = self.ms + INTENT_KEPT;
        match self.node.intents.iter_mut().find(|intent| intent.waiter == place.waiter) {
            Some(intent) => intent.ends = ends,
            None => {
                let came = self.now.saturating_sub(place.waited * 1000);
                self.node.intents.push(Intent { waiter: place.waiter, came, ends });
            }
        }
    }

    fn reader_waits(&mut self, place: Place) {
        let came = self.now.saturating_sub(place.waited * 1000);
        self.node.waiting.retain(|(_, other)| *other != place.waiter);
        self.node.waiting.push((Some(came), place.waiter));
        self.node.waiting_end = self.ms + WAITERS_KEPT;
    }

    pub(super) fn writer_gone(&mut self, waiter: Waiter) -> bool {
        let before = self.node.intents.len();
        self.node.intents.retain(|intent| intent.waiter != waiter);
        self.node.intents.len() < before
    }
}

/// What an undo gave up.
#[derive(Clone, Copy)]
struct Passed {
    held: bool,
    read: bool,
    stays: bool,
    turn: bool,
    intent: bool,
}

//! One node: what the scripts of lock-redlock do on a Redis server, step by step, in the words of the scripts. The scripts
//! themselves are tested on real servers, in `lock-redlock/src/nodes/scripts/tests.rs`; that the two are the same,
//! `lock-redlock/tests/simulated_node.rs` tries out.

mod call;
mod kept;
mod turn;

use std::time::Duration;

use lock_redlock::protocol::{ballots::Ballot, token::Renumbered};

use self::call::Ms;
pub use self::call::{
    ALL, Call, Checks, INTENT_KEPT, Line, Place, RESERVATION, Said, TOMBSTONE, Value, Vote, WAITERS_KEPT, Waiter,
};
pub use self::kept::Kept;

#[derive(Debug, Clone, Copy)]
struct Lock {
    value: Value,
    ends: Ms,
}

#[derive(Debug, Clone, Copy)]
struct Reader {
    value: Value,
    ends: Ms,
    number: u64,
}

/// A writer that waits.
#[derive(Debug, Clone, Copy)]
struct Intent {
    waiter: Waiter,
    came: u64,
    ends: Ms,
}

/// For whom the lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// For the readers that were woken.
    Readers,
    /// For this writer.
    For(Waiter),
}

/// The keys of one lock on one node, and those that are the node's own.
#[derive(Debug, Clone, Default)]
pub struct Node {
    lock: Option<Lock>,
    counter: Option<u64>,
    /// What the token key says of the writer.
    held: Option<(Value, u64)>,
    tombstones: Vec<(Value, Ms)>,
    readers: Vec<Reader>,
    intents: Vec<Intent>,
    /// Writers by when they came.
    waiters: Vec<(u64, Waiter)>,
    waiters_end: Ms,
    /// Readers by when they came; `None` for those whose turn it is.
    waiting: Vec<(Option<u64>, Waiter)>,
    waiting_end: Ms,
    reservation: Option<(Reserved, Ms)>,
    /// Whether it has the stamp of a member.
    is_marked: bool,
    /// The process that the deployment knows; `None` where nodes forget nothing.
    run: Option<u32>,
    /// The longest ttl of the deployment, by its record.
    max_ttl: Ms,
    quarantine: Option<Ms>,
    /// Who listens: a bit for each waiter.
    pub listeners: u64,
    /// Who was woken by the last call: a bit for each waiter.
    pub woken: u64,
}

impl Node {
    /// A node of a new deployment, that was marked as a member, in its process `run`. `max_ttl` is in milliseconds.
    #[must_use]
    pub fn marked(run: u32, max_ttl: u64) -> Self {
        Self { is_marked: true, run: Some(run), max_ttl, ..Self::default() }
    }

    /// Whether it has the stamp of a member: it was marked, and has not lost its data since.
    #[must_use]
    pub const fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Makes a node that has lost its data a member again (`enlist.lua`); `now` in microseconds of the node's clock.
    pub fn enlist(&mut self, now: u64, run: u32, max_ttl: u64, checks: Checks) {
        if self.is_marked {
            return;
        }
        if checks.quarantine {
            self.quarantine = Some(now / 1000 + max_ttl);
        }
        (self.is_marked, self.run, self.max_ttl) = (true, Some(run), max_ttl);
    }

    /// What it knows of its process is of another one.
    pub const fn is_of_run(&mut self, run: u32) {
        self.run = Some(run);
    }

    /// Does what a script does, at `now` in microseconds of the node's clock, in its process `run`.
    pub fn take(&mut self, now: u64, run: u32, call: &Call, checks: Checks) -> Said {
        self.woken = 0;
        self.expire(now / 1000);
        let mut work = Work { node: self, now, ms: now / 1000, checks };
        match *call {
            Call::Vote(vote) => Said::Ballot(work.vote(&vote, run)),
            Call::Renumber { reads: false, value, number, token } => Said::Done(work.write_back(value, number, token)),
            Call::Renumber { reads: true, value, number, token } => {
                Said::Renumbered(work.renumber(value, number, token))
            }
            Call::Extend { reads, value, ttl, number } => Said::Done(work.extend(reads, value, ttl, number)),
            Call::Rejoin { reads: false, value, ttl, token } => Said::Ballot(work.rejoin(value, ttl, token)),
            Call::Rejoin { reads: true, value, ttl, token } => Said::Ballot(work.rejoin_read(value, ttl, token)),
            Call::Downgrade { value, ttl, number, token } => Said::Done(work.downgrade(value, ttl, number, token)),
            Call::Undo { value, tombstone, line } => Said::Done(work.undo(value, tombstone, line)),
        }
    }

    /// Removes what has ended. A key with `n` ms left is gone after `n + 1`.
    fn expire(&mut self, ms: Ms) {
        let over = |ends: Ms| ends < ms;
        self.lock = self.lock.filter(|lock| !over(lock.ends));
        self.tombstones.retain(|(_, ends)| !over(*ends));
        self.reservation = self.reservation.filter(|(_, ends)| !over(*ends));
        self.quarantine = self.quarantine.filter(|ends| !over(*ends));
        self.readers.retain(|reader| !over(reader.ends));
        self.intents.retain(|intent| !over(intent.ends));
        if over(self.waiters_end) {
            self.waiters.clear();
        }
        if over(self.waiting_end) {
            self.waiting.clear();
        }
    }

    /// What a server without its data has; the keys of a lock only, or all.
    pub fn forget(&mut self, all: bool) {
        let Self { is_marked, run, max_ttl, quarantine, listeners, .. } = *self;
        *self = Self { listeners, ..Self::default() };
        if !all {
            (self.is_marked, self.run, self.max_ttl, self.quarantine) = (is_marked, run, max_ttl, quarantine);
        }
    }

    /// The counter and what stands beside it are gone.
    pub fn forget_counter(&mut self) {
        (self.counter, self.held) = (None, None);
    }

    /// The counter stands at that at least.
    pub fn raise_counter(&mut self, number: u64) {
        self.counter = self.counter.max(Some(number));
    }

    /// Ends what its expiry would end, as if its time had come: the writer's holding.
    pub fn end_writer(&mut self) {
        self.lock = None;
    }

    /// Somebody deletes the holdings of all.
    pub fn end_all(&mut self) {
        self.lock = None;
        self.readers.clear();
    }

    /// As for a writer, a reader's.
    pub fn end_reader(&mut self, value: Value) {
        self.readers.retain(|reader| reader.value != value);
    }

    /// As for a writer, what is kept for those who were woken.
    pub fn end_reservation(&mut self) {
        self.reservation = None;
    }

    /// Whether the lock is kept for those who were woken.
    #[must_use]
    pub const fn is_reserved(&self) -> bool {
        self.reservation.is_some()
    }

    /// The last millisecond in which it keeps the lock for that attempt; `None` when it does not.
    #[must_use]
    pub fn keeps(&self, value: Value) -> Option<u64> {
        let writer = self.lock.filter(|lock| lock.value == value).map(|lock| lock.ends);
        let reader = self.readers.iter().find(|reader| reader.value == value).map(|reader| reader.ends);
        writer.max(reader)
    }

    /// The last millisecond in which it gives no vote, being the process `run`: for another than it knows, that is not
    /// known yet.
    #[must_use]
    pub fn is_silent_until(&self, run: u32) -> Option<u64> {
        if self.is_marked && self.run == Some(run) { self.quarantine } else { Some(u64::MAX) }
    }

    /// Whether somebody holds here, at that millisecond.
    #[must_use]
    pub fn is_held(&self, ms: u64) -> bool {
        self.lock.is_some_and(|lock| lock.ends >= ms) || self.readers.iter().any(|reader| reader.ends >= ms)
    }

    /// Whether anything but the counter is left at that millisecond.
    #[must_use]
    pub fn is_clean(&mut self, ms: u64) -> bool {
        self.expire(ms);
        self.lock.is_none()
            && self.readers.is_empty()
            && self.tombstones.is_empty()
            && self.intents.is_empty()
            && self.waiters.is_empty()
            && self.waiting.is_empty()
            && self.reservation.is_none()
            && self.quarantine.is_none()
    }

    /// The counter.
    #[must_use]
    pub const fn counter(&self) -> Option<u64> {
        self.counter
    }
}

/// A script at work.
struct Work<'a> {
    node: &'a mut Node,
    now: u64,
    ms: Ms,
    checks: Checks,
}

impl Work<'_> {
    fn vote(&mut self, vote: &Vote, run: u32) -> Ballot {
        if !self.node.is_marked {
            return Ballot::Stranger(String::new());
        }
        if self.checks.quarantine {
            if self.node.run != Some(run) && self.checks.run {
                self.node.quarantine = Some(self.ms + self.node.max_ttl);
                self.node.run = Some(run);
                return Ballot::Quarantined(millis(self.node.max_ttl));
            }
            if let Some(ends) = self.node.quarantine {
                return Ballot::Quarantined(self.left(ends));
            }
        }
        if self.is_buried(vote.value) {
            return Ballot::Undone;
        }
        if vote.reads { self.acquire_read(vote) } else { self.acquire(vote) }
    }

    fn acquire(&mut self, vote: &Vote) -> Ballot {
        if let Some(lock) = self.node.lock {
            if lock.value != vote.value {
                self.writer_lines_up(vote);
                return Ballot::Held { remaining: Some(self.left(lock.ends)), holder: holder(lock.value) };
            }
            if let Some((value, number)) = self.node.held
                && value == vote.value
            {
                return Ballot::Granted(number);
            }
        }
        if self.checks.writer_behind_readers
            && let Some(last) = self.last_reader()
        {
            self.writer_lines_up(vote);
            return Ballot::Read(self.left(last));
        }
        let waiter = vote.place.map(|place| place.waiter);
        if let Some((reserved, ends)) = self.node.reservation
            && Some(reserved) != waiter.map(Reserved::For)
        {
            self.writer_lines_up(vote);
            return Ballot::Reserved(self.left(ends));
        }
        let number = self.number_of_grant(vote.proposal);
        self.node.lock = Some(Lock { value: vote.value, ends: self.ms + vote.ttl });
        self.node.counter = Some(number);
        self.node.held = Some((vote.value, number));
        if let Some(waiter) = waiter {
            self.node.waiters.retain(|(_, other)| *other != waiter);
            self.writer_gone(waiter);
        }
        self.node.reservation = None;
        Ballot::Granted(number)
    }

    fn acquire_read(&mut self, vote: &Vote) -> Ballot {
        if self.checks.reader_behind_writer
            && let Some(lock) = self.node.lock
        {
            self.reader_lines_up(vote);
            return Ballot::Held { remaining: Some(self.left(lock.ends)), holder: holder(lock.value) };
        }
        if let Some(reader) = self.reader(vote.value) {
            return Ballot::Granted(reader.number);
        }
        let reservation = self.node.reservation;
        if let Some((Reserved::For(_), ends)) = reservation {
            self.reader_lines_up(vote);
            return Ballot::Reserved(self.left(ends));
        }
        let is_woken = |place: Place| self.node.waiting.contains(&(None, place.waiter));
        let woken = reservation.is_some() && vote.place.is_some_and(is_woken);
        let waited = vote.place.map_or(0, |place| place.waited);
        let (_, behind) = self.writers_before(self.now.saturating_sub(waited * 1000));
        if behind > 0 && !woken && self.checks.intent {
            self.reader_lines_up(vote);
            return Ballot::Behind(millis(behind));
        }
        let number = self.number_of_grant(vote.proposal);
        self.let_read(vote.value, vote.ttl, number);
        self.node.counter = Some(number);
        if let Some(place) = vote.place {
            self.node.waiting.retain(|(_, other)| *other != place.waiter);
        }
        Ballot::Granted(number)
    }

    fn number_of_grant(&self, proposal: u64) -> u64 {
        let ahead = proposal.min(self.now + 60_000_000);
        let number = if ahead + 250_000 < self.now && self.checks.clock_floor { self.now } else { ahead };
        self.node.counter.map_or(number, |stored| number.max(stored + 1))
    }

    fn extend(&mut self, reads: bool, value: Value, ttl: Ms, number: u64) -> bool {
        let (ends, compare) = (self.ms + ttl, self.checks.renewal_number);
        if reads {
            let reader = self.node.readers.iter_mut().find(|reader| reader.value == value);
            return match reader {
                Some(reader) if !compare || reader.number == number => {
                    reader.ends = ends;
                    true
                }
                _ => false,
            };
        }
        if self.holder() != Some(value) || (compare && self.node.held.map(|held| held.1) != Some(number)) {
            return false;
        }
        self.node.lock = Some(Lock { value, ends });
        true
    }

    fn write_back(&mut self, value: Value, number: u64, token: u64) -> bool {
        if self.holder() != Some(value) {
            return false;
        }
        let held = self.node.held.map(|held| held.1);
        if held == Some(token) {
            return true;
        }
        if held != Some(number) && self.checks.write_back_number {
            return false;
        }
        self.raise_counter(token);
        self.node.held = Some((value, token));
        true
    }

    fn renumber(&mut self, value: Value, number: u64, proposal: u64) -> Renumbered {
        match self.reader(value) {
            Some(reader) if reader.number == proposal => return Renumbered::Done,
            Some(reader) if reader.number == number => {}
            _ => return Renumbered::Gone,
        }
        let counter = self.node.counter.unwrap_or(0);
        if counter >= proposal && self.checks.number_once {
            return Renumbered::Passed(counter);
        }
        self.raise_counter(proposal);
        for reader in self.node.readers.iter_mut().filter(|reader| reader.value == value) {
            reader.number = proposal;
        }
        Renumbered::Done
    }

    fn rejoin(&mut self, value: Value, ttl: Ms, token: u64) -> Ballot {
        if !self.node.is_marked {
            return Ballot::Stranger(String::new());
        }
        if let Some(lock) = self.node.lock
            && lock.value != value
            && self.checks.rejoin_if_free
        {
            return Ballot::Held { remaining: Some(self.left(lock.ends)), holder: holder(lock.value) };
        }
        if let Some(last) = self.last_reader()
            && self.checks.rejoin_if_free
        {
            return Ballot::Read(self.left(last));
        }
        if self.is_buried(value) {
            return Ballot::Undone;
        }
        self.node.lock = Some(Lock { value, ends: self.ms + ttl });
        self.raise_counter(token);
        self.node.held = Some((value, token));
        Ballot::Granted(token)
    }

    fn rejoin_read(&mut self, value: Value, ttl: Ms, token: u64) -> Ballot {
        if !self.node.is_marked {
            return Ballot::Stranger(String::new());
        }
        let holder_here = self.holder();
        if let Some(lock) = self.node.lock
            && lock.value != value
            && self.checks.rejoin_if_free
        {
            return Ballot::Held { remaining: Some(self.left(lock.ends)), holder: holder(lock.value) };
        }
        if self.is_buried(value) {
            return Ballot::Undone;
        }
        if holder_here == Some(value) {
            (self.node.lock, self.node.held) = (None, None);
        }
        self.let_read(value, ttl, token);
        self.raise_counter(token);
        Ballot::Granted(token)
    }

    fn downgrade(&mut self, value: Value, ttl: Ms, number: u64, token: u64) -> bool {
        if self.holder() != Some(value) {
            return self.reader(value).is_some_and(|reader| reader.number == token);
        }
        if self.node.held.map(|held| held.1) != Some(number) && self.checks.downgrade_number {
            return false;
        }
        (self.node.lock, self.node.held) = (None, None);
        self.let_read(value, ttl, token);
        self.raise_counter(token);
        self.wake_readers();
        true
    }

    fn raise_counter(&mut self, number: u64) {
        self.node.counter = self.node.counter.max(Some(number));
    }

    fn let_read(&mut self, value: Value, ttl: Ms, number: u64) {
        let reader = Reader { value, ends: self.ms + ttl, number };
        self.node.readers.retain(|other| other.value != value);
        self.node.readers.push(reader);
    }

    fn reader(&self, value: Value) -> Option<Reader> {
        self.node.readers.iter().find(|reader| reader.value == value).copied()
    }

    fn last_reader(&self) -> Option<Ms> {
        self.node.readers.iter().map(|reader| reader.ends).max()
    }

    fn holder(&self) -> Option<Value> {
        self.node.lock.map(|lock| lock.value)
    }

    fn is_buried(&self, value: Value) -> bool {
        self.node.tombstones.iter().any(|(other, _)| *other == value)
    }

    const fn left(&self, ends: Ms) -> Duration {
        millis(ends.saturating_sub(self.ms))
    }
}

const fn millis(ms: Ms) -> Duration {
    Duration::from_millis(ms)
}

/// How an attempt's value looks to those who are refused by it.
#[must_use]
pub fn holder(value: Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

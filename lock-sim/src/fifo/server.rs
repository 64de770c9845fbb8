//! The server: what the scripts of the queue do, step by step, as `fifo/scripts/*.lua` of lock-redis do it. That the two are
//! the same, `lock-redis/tests/simulated_line.rs` tries out.

use std::collections::BTreeMap;

/// Which attempt; and which client it is of.
pub type Value = u32;

/// Milliseconds of the server's clock.
pub type Ms = u64;

/// What the scripts do not do when it is taken out.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    /// Every script hands a free lock to the first in line before it does anything else.
    pub promote_first: bool,
    /// The dead are passed over.
    pub skip_dead: bool,
    /// A heartbeat that finds the lock held by its sender arms the whole ttl.
    pub rearm: bool,
    /// An undo leaves a tombstone.
    pub tombstone: bool,
    /// Also where it has found something.
    pub tombstone_always: bool,
}

/// With everything in place.
pub const ALL: Checks =
    Checks { promote_first: true, skip_dead: true, rearm: true, tombstone: true, tombstone_always: true };

/// A request to the server.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// Takes the lock, or stands in line if it `waits`.
    Enter {
        /// Of whom.
        value: Value,
        /// How long the lock is its own without a renewal.
        ttl: Ms,
        /// For how long it is when it is handed over.
        claim: Ms,
        /// How long it counts as alive without a heartbeat.
        alive: Ms,
        /// Whether it waits.
        waits: bool,
    },
    /// Says that one in line is alive, and asks how it stands.
    Beat {
        /// Of whom.
        value: Value,
        /// How long the lock is its own, if it is granted, without a renewal.
        ttl: Ms,
        /// How long it counts as alive without another one.
        alive: Ms,
    },
    /// Of the grant of that number only, if there is one.
    Renew {
        /// Of whom.
        value: Value,
        /// How long the lock is its own from now on.
        ttl: Ms,
        /// Of which grant.
        number: Option<u64>,
    },
    /// A release, or an undo.
    Leave {
        /// Of whom.
        value: Value,
        /// An undo leaves a tombstone.
        is_undo: bool,
    },
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It holds the lock, with this number.
    Granted(u64),
    /// It stands in line.
    InLine {
        /// How many stand before it.
        ahead: usize,
        /// How long the holder has the lock unless it is renewed.
        left: Ms,
        /// The newest number that was given out.
        newest: u64,
    },
    /// Another holds it, and it does not wait.
    Held,
    /// It was undone before.
    Undone,
    /// It stands in no line and holds nothing.
    Gone,
    /// Whether it had what it renewed or gave back.
    Done(bool),
}

/// One that stands in line.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    value: Value,
    claim: Ms,
    alive: Ms,
}

/// What the scripts leave of one lock, for a comparison with a real server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Who holds it, and the last millisecond in which it does.
    pub lock: Option<(Value, Ms)>,
    /// The newest number, if one was given out.
    pub counter: Option<u64>,
    /// Who stands in line, each with the millisecond from which on it counts as dead.
    pub line: Vec<(Value, Ms)>,
    /// Which attempts were undone, each with the last millisecond in which that is remembered.
    pub tombstones: BTreeMap<Value, Ms>,
}

/// The keys of one lock.
#[derive(Debug, Default)]
pub struct Server {
    lock: Option<(Value, Ms)>,
    /// The newest number, and whose it is.
    counter: u64,
    line: Vec<Waiter>,
    /// The last millisecond in which the keys of the line are there: with nobody heard of for so long, all of it goes, and
    /// a heartbeat that is later than that revives nobody.
    line_ends: Ms,
    tombstones: Vec<(Value, Ms)>,
    /// To whom the lock was handed over by the last call, and with which number.
    pub told: Vec<(Value, u64)>,
    /// A newcomer was granted although somebody stood in line who was alive.
    pub overtaken: bool,
}

impl Server {
    /// Does what a script does, at `now` in microseconds of the server's clock.
    pub fn take(&mut self, now: u64, call: Call, checks: Checks) -> Said {
        let ms = now / 1_000;
        self.told.clear();
        self.overtaken = false;
        self.lock = self.lock.filter(|(_, ends)| *ends >= ms);
        self.tombstones.retain(|(_, ends)| *ends >= ms);
        if self.line_ends < ms {
            self.line.clear();
        }
        match call {
            Call::Enter { value, ttl, claim, alive, waits } => {
                self.promote_if(checks.promote_first, now, checks);
                if self.holds(value) {
                    self.lock = Some((value, ms + ttl));
                    return Said::Granted(self.counter);
                }
                if self.tombstones.iter().any(|(other, _)| *other == value) {
                    return Said::Undone;
                }
                if self.lock.is_none() {
                    self.overtaken = self.line.iter().any(|waiter| waiter.alive > ms && waiter.value != value);
                    return Said::Granted(self.grant(value, ttl, now));
                }
                if !waits {
                    return Said::Held;
                }
                if !self.freshen(value, ms + alive) {
                    if self.line.is_empty() {
                        self.line_ends = 0;
                    }
                    self.line.push(Waiter { value, claim, alive: 0 });
                    self.freshen(value, ms + alive);
                }
                self.standing(self.line.len() - 1, ms)
            }
            Call::Beat { value, ttl, alive } => {
                self.freshen(value, ms + alive);
                self.promote_if(checks.promote_first, now, checks);
                if self.holds(value) {
                    if checks.rearm {
                        self.lock = Some((value, ms + ttl));
                    }
                    return Said::Granted(self.counter);
                }
                match self.line.iter().position(|waiter| waiter.value == value) {
                    Some(ahead) => self.standing(ahead, ms),
                    None => Said::Gone,
                }
            }
            Call::Renew { value, ttl, number } => {
                let holds = self.holds(value) && number.is_none_or(|number| number == self.counter);
                if holds {
                    self.lock = Some((value, ms + ttl));
                }
                Said::Done(holds)
            }
            Call::Leave { value, is_undo } => {
                let (held, before) = (self.holds(value), self.line.len());
                if held {
                    self.lock = None;
                } else {
                    self.line.retain(|waiter| waiter.value != value);
                }
                let had = held || self.line.len() < before;
                if is_undo && checks.tombstone && (checks.tombstone_always || !had) {
                    self.tombstones.push((value, ms + 5_000));
                }
                // A release hands over in any case.
                self.promote(now, checks);
                Said::Done(had)
            }
        }
    }

    /// One in line counts as alive up to that millisecond. Returns whether it stands there.
    fn freshen(&mut self, value: Value, until: Ms) -> bool {
        let Some(waiter) = self.line.iter_mut().find(|waiter| waiter.value == value) else { return false };
        waiter.alive = until;
        self.line_ends = self.line_ends.max(until);
        true
    }

    fn promote_if(&mut self, promotes: bool, now: u64, checks: Checks) {
        if promotes {
            self.promote(now, checks);
        }
    }

    fn promote(&mut self, now: u64, checks: Checks) {
        let ms = now / 1_000;
        if checks.skip_dead {
            self.line.retain(|waiter| waiter.alive > ms);
        }
        if self.lock.is_none() && !self.line.is_empty() {
            let first = self.line.remove(0);
            let number = self.grant(first.value, first.claim, now);
            self.told.push((first.value, number));
        }
    }

    fn grant(&mut self, value: Value, ttl: Ms, now: u64) -> u64 {
        self.line.retain(|waiter| waiter.value != value);
        self.counter = now.max(self.counter + 1);
        self.lock = Some((value, now / 1_000 + ttl));
        self.counter
    }

    fn standing(&self, ahead: usize, ms: Ms) -> Said {
        let left = self.lock.map_or(0, |(_, ends)| ends.saturating_sub(ms));
        Said::InLine { ahead, left, newest: self.counter }
    }

    fn holds(&self, value: Value) -> bool {
        self.lock.is_some_and(|(holder, _)| holder == value)
    }

    /// The last millisecond in which it keeps the lock for that attempt.
    #[must_use]
    pub fn keeps(&self, value: Value) -> Option<Ms> {
        self.lock.filter(|(holder, _)| *holder == value).map(|(_, ends)| ends)
    }

    /// Whether somebody holds the lock or stands in line, at that millisecond.
    #[must_use]
    pub fn is_in_use(&self, ms: Ms) -> bool {
        self.lock.is_some_and(|(_, ends)| ends >= ms) || self.line.iter().any(|waiter| waiter.alive > ms)
    }

    /// What it keeps, at that millisecond.
    #[must_use]
    pub fn kept(&self, ms: Ms) -> Kept {
        let lasts = |ends: &Ms| *ends >= ms;
        let line = self.line.iter().filter(|_| lasts(&self.line_ends));
        Kept {
            lock: self.lock.filter(|(_, ends)| lasts(ends)),
            counter: Some(self.counter).filter(|counter| *counter > 0),
            line: line.map(|waiter| (waiter.value, waiter.alive)).collect(),
            tombstones: self.tombstones.iter().copied().filter(|(_, ends)| lasts(ends)).collect(),
        }
    }
}

//! The server: what the scripts of the queue do, step by step, as `fifo/scripts/*.lua` of lock-redis do it.

/// Which attempt; and which client it is of.
pub(super) type Value = u32;

/// Milliseconds of the server's clock.
pub(super) type Ms = u64;

/// What the scripts do not do when it is taken out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checks {
    /// Every script hands a free lock to the first in line before it does anything else.
    pub(super) promote_first: bool,
    /// The dead are passed over.
    pub(super) skip_dead: bool,
    /// A heartbeat that finds the lock held by its sender arms the whole ttl.
    pub(super) rearm: bool,
    /// An undo leaves a tombstone.
    pub(super) tombstone: bool,
    /// Also where it has found something.
    pub(super) tombstone_always: bool,
}

/// A request to the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Enter {
        value: Value,
        ttl: Ms,
        claim: Ms,
        alive: Ms,
        waits: bool,
    },
    Beat {
        value: Value,
        ttl: Ms,
        alive: Ms,
    },
    /// Of the grant of that number only, if there is one.
    Renew {
        value: Value,
        ttl: Ms,
        number: Option<u64>,
    },
    /// A release, or an undo.
    Leave {
        value: Value,
        is_undo: bool,
    },
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Granted(u64),
    InLine { ahead: usize, left: Ms, newest: u64 },
    Held,
    Undone,
    Gone,
    Done(bool),
}

/// One that stands in line.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    value: Value,
    claim: Ms,
    alive: Ms,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    lock: Option<(Value, Ms)>,
    /// The newest number, and whose it is.
    counter: u64,
    line: Vec<Waiter>,
    tombstones: Vec<(Value, Ms)>,
    /// To whom the lock was handed over by the last call, and with which number.
    pub(super) told: Vec<(Value, u64)>,
    /// A newcomer was granted although somebody stood in line who was alive.
    pub(super) overtaken: bool,
}

impl Server {
    pub(super) fn take(&mut self, now: u64, call: Call, checks: Checks) -> Said {
        let ms = now / 1_000;
        self.told.clear();
        self.overtaken = false;
        self.lock = self.lock.filter(|(_, ends)| *ends >= ms);
        self.tombstones.retain(|(_, ends)| *ends >= ms);
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
                match self.line.iter_mut().find(|waiter| waiter.value == value) {
                    Some(waiter) => waiter.alive = ms + alive,
                    None => self.line.push(Waiter { value, claim, alive: ms + alive }),
                }
                self.standing(self.line.len() - 1, ms)
            }
            Call::Beat { value, ttl, alive } => {
                if let Some(waiter) = self.line.iter_mut().find(|waiter| waiter.value == value) {
                    waiter.alive = ms + alive;
                }
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
    pub(super) fn keeps(&self, value: Value) -> Option<Ms> {
        self.lock.filter(|(holder, _)| *holder == value).map(|(_, ends)| ends)
    }

    /// Whether somebody holds the lock or stands in line, at that millisecond.
    pub(super) fn is_in_use(&self, ms: Ms) -> bool {
        self.lock.is_some_and(|(_, ends)| ends >= ms) || self.line.iter().any(|waiter| waiter.alive > ms)
    }
}

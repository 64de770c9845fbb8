//! The state of a memory server: who holds what and who waits, as plain values. Every method is told the time.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{BootInstant, Contender, LockName, Snapshot};

/// All locks of a server. Fencing tokens come from one counter for all names, so a name that nobody uses leaves nothing.
#[derive(Debug, Default)]
pub(super) struct Table {
    lines: HashMap<LockName, Line>,
    last_token: u64,
}

#[derive(Debug, Default)]
struct Line {
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Holder {
    id: u64,
    token: u64,
    ends_at: BootInstant,
    payload: Arc<[u8]>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    ttl: Duration,
    payload: Arc<[u8]>,
    granted: oneshot::Sender<Grant>,
}

/// A grant and the moment that its lease counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) at: BootInstant,
}

/// One attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) id: u64,
    pub(super) ttl: Duration,
    pub(super) payload: Arc<[u8]>,
}

#[derive(Debug)]
pub(super) enum Entered {
    Granted(Grant),
    Queued(oneshot::Receiver<Grant>),
    Refused,
}

impl Table {
    /// Takes the lock, or a place in its queue if the attempt waits.
    pub(super) fn enter(&mut self, now: BootInstant, name: &LockName, attempt: Attempt, wait: bool) -> Entered {
        self.promote(now, name);
        if let Some(line) = self.lines.get_mut(name) {
            // A line is kept only while somebody holds the lock.
            if !wait {
                return Entered::Refused;
            }
            let (granted, grant) = oneshot::channel();
            let Attempt { id, ttl, payload } = attempt;
            line.queue.push_back(Waiter { id, ttl, payload, granted });
            return Entered::Queued(grant);
        }
        let grant = self.next_grant(now);
        self.lines.entry(name.clone()).or_default().holder = Some(Holder::new(attempt, grant));
        Entered::Granted(grant)
    }

    /// Gives up the lock or the place in its queue. Returns whether the attempt held the lock.
    pub(super) fn leave(&mut self, now: BootInstant, name: &LockName, id: u64) -> bool {
        self.promote(now, name);
        let Some(line) = self.lines.get_mut(name) else { return false };
        line.queue.retain(|waiter| waiter.id != id);
        let held = line.holder.as_ref().is_some_and(|holder| holder.id == id);
        if held {
            line.holder = None;
            self.promote(now, name);
        }
        held
    }

    /// Counts the holder's lease from now. Returns whether it still held the lock.
    pub(super) fn renew(&mut self, now: BootInstant, name: &LockName, id: u64, ttl: Duration) -> bool {
        self.promote(now, name);
        let holder = self.lines.get_mut(name).and_then(|line| line.holder.as_mut()).filter(|holder| holder.id == id);
        holder.map(|holder| holder.ends_at = now.saturating_add(ttl)).is_some()
    }

    /// Takes the lock from whoever holds it, as an operator would.
    pub(super) fn delete(&mut self, now: BootInstant, name: &LockName) {
        if let Some(line) = self.lines.get_mut(name) {
            line.holder = None;
        }
        self.promote(now, name);
    }

    /// When the present holder's lease ends.
    pub(super) fn ends_at(&self, name: &LockName) -> Option<BootInstant> {
        self.lines.get(name)?.holder.as_ref().map(|holder| holder.ends_at)
    }

    /// Ends a lease that ran out, and grants the lock to the longest waiter that is still there.
    pub(super) fn promote(&mut self, now: BootInstant, name: &LockName) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if line.holder.as_ref().is_some_and(|holder| now < holder.ends_at) {
            return;
        }
        let Some(mut line) = self.lines.remove(name) else { return };
        while let Some(waiter) = line.queue.pop_front() {
            let grant = self.next_grant(now);
            if waiter.granted.send(grant).is_ok() {
                let attempt = Attempt { id: waiter.id, ttl: waiter.ttl, payload: waiter.payload };
                line.holder = Some(Holder::new(attempt, grant));
                self.lines.insert(name.clone(), line);
                return;
            }
        }
    }

    pub(super) fn snapshot(&mut self, now: BootInstant, name: &LockName) -> Snapshot {
        self.promote(now, name);
        let Some(line) = self.lines.get(name) else { return Snapshot::default() };
        let holders = line.holder.iter().map(|holder| {
            Contender::new(holder.id.to_string())
                .with_payload(holder.payload.to_vec())
                .with_token(holder.token)
                .with_remaining(holder.ends_at.saturating_since(now))
        });
        let queue = line
            .queue
            .iter()
            .filter(|waiter| !waiter.granted.is_closed())
            .map(|waiter| Contender::new(waiter.id.to_string()).with_payload(waiter.payload.to_vec()));
        Snapshot::new(holders.collect(), queue.collect())
    }

    fn next_grant(&mut self, at: BootInstant) -> Grant {
        self.last_token += 1;
        Grant { token: self.last_token, at }
    }
}

impl Holder {
    fn new(attempt: Attempt, grant: Grant) -> Self {
        let Attempt { id, ttl, payload } = attempt;
        Self { id, token: grant.token, ends_at: grant.at.saturating_add(ttl), payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn attempt(id: u64) -> Attempt {
        Attempt { id, ttl: TTL, payload: Arc::new([]) }
    }

    fn name() -> LockName {
        LockName::new("a").unwrap()
    }

    fn queued(entered: Entered) -> oneshot::Receiver<Grant> {
        match entered {
            Entered::Queued(grant) => grant,
            other => panic!("queued, not {other:?}"),
        }
    }

    #[test]
    fn the_longest_waiter_that_is_still_there_is_next() {
        let mut table = Table::default();
        assert!(matches!(table.enter(at(0), &name(), attempt(1), false), Entered::Granted(_)));
        let gone = queued(table.enter(at(1), &name(), attempt(2), true));
        let mut next = queued(table.enter(at(2), &name(), attempt(3), true));
        let mut last = queued(table.enter(at(3), &name(), attempt(4), true));
        drop(gone);
        assert!(table.leave(at(4), &name(), 1));
        assert_eq!(next.try_recv().unwrap().at, at(4));
        assert!(last.try_recv().is_err());
    }

    #[test]
    fn a_lease_that_ran_out_is_not_renewed_and_its_successor_stays() {
        let mut table = Table::default();
        table.enter(at(0), &name(), attempt(1), false);
        assert!(matches!(table.enter(at(10), &name(), attempt(2), false), Entered::Granted(_)));
        assert!(!table.renew(at(10), &name(), 1, TTL));
        assert!(!table.leave(at(10), &name(), 1));
        assert!(table.leave(at(11), &name(), 2));
    }

    #[test]
    fn nothing_is_left_of_a_free_lock_and_tokens_still_rise() {
        let mut table = Table::default();
        let mut last = 0;
        for id in 0..10 {
            let Entered::Granted(grant) = table.enter(at(0), &name(), attempt(id), false) else { panic!("free") };
            assert!(grant.token > last);
            last = grant.token;
            table.leave(at(0), &name(), id);
            assert!(table.lines.is_empty());
        }
    }
}

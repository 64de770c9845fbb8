//! One line: its holders, those who wait, and the places that a lock delay keeps closed.
//!
//! The lock of a name and the permits of a name are a line each; they differ only in what room there is for a mode.

use std::{collections::VecDeque, convert::Infallible, num::NonZeroU32};

use tokio::sync::watch;

use super::contender::{Attempt, Grant, Holder, ServerTime, Waiter, WaiterState};
use crate::{BootInstant, Contender, Mode, Snapshot};

/// The queue of one lock or one semaphore of the memory server: its waiters, its holders, and the places that a lock
/// delay keeps closed.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// In the order of their grants, which is that of their arrival.
    holders: Vec<Holder>,
    queue: VecDeque<Waiter>,
    closed: Vec<ClosedPlace>,
    /// Whether a contender came, went or was granted since that was last asked.
    changed: bool,
}

/// The place of a lease that ended without a release, kept closed by a lock delay to the contenders that the lease kept
/// out.
#[derive(Debug)]
struct ClosedPlace {
    mode: Mode,
    until: BootInstant,
}

/// The outcome for a contender that entered a [`WaitQueue`]: granted, queued or refused.
#[derive(Debug)]
pub(super) enum EnterOutcome {
    Granted(Grant),
    Queued(watch::Receiver<WaiterState>),
    /// There is no room, and the attempt does not wait.
    Refused,
    /// The oldest contender named another number of permits.
    Disagrees {
        asked: NonZeroU32,
        there: NonZeroU32,
    },
}

impl WaitQueue {
    /// Takes the lock, or a place in the queue if the attempt waits.
    pub(super) fn enter(
        &mut self,
        now: ServerTime,
        attempt: Attempt,
        wait: bool,
        last_token: &mut u64,
    ) -> EnterOutcome {
        if let (Some(asked), Some(there)) = (attempt.mode.permits(), self.permits())
            && asked != there
        {
            return EnterOutcome::Disagrees { asked, there };
        }
        // Whoever comes while somebody waits goes behind: a reader, too, beside whom there would be room.
        // Safeguard: who comes while somebody waits goes behind (memory)
        if self.queue.is_empty() && self.has_room(attempt.mode) {
            let grant = next_grant(now, last_token);
            self.holders.push(Holder::new(attempt, grant, now));
            self.changed = true;
            return EnterOutcome::Granted(grant);
        }
        if !wait {
            return EnterOutcome::Refused;
        }
        let (waiter, place) = Waiter::new(attempt, now);
        self.queue.push_back(waiter);
        self.changed = true;
        EnterOutcome::Queued(place)
    }

    /// Gives up the lock or the place in the queue, in order: nothing stays closed. Returns whether the attempt held the
    /// lock.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        let (holders, waiters) = (self.holders.len(), self.queue.len());
        self.holders.retain(|holder| holder.attempt.id != id);
        self.queue.retain(|waiter| waiter.attempt.id != id);
        let held = self.holders.len() != holders;
        self.changed |= held || self.queue.len() != waiters;
        held
    }

    /// Counts the holder's lease from now. Returns whether it is still a holder.
    pub(super) fn renew(&mut self, now: ServerTime, id: u64) -> bool {
        let renewed = self.holder(id).map(|holder| holder.ends_at = now.at.saturating_add(holder.attempt.ttl));
        renewed.is_some()
    }

    /// The numbers of the holders, with the ends of their leases.
    pub(super) fn leases(&self) -> impl Iterator<Item = (u64, BootInstant)> {
        self.holders.iter().map(|holder| (holder.attempt.id, holder.ends_at))
    }

    /// Makes a reader of a writer, in one step. Returns whether it is still a holder.
    pub(super) fn downgrade(&mut self, id: u64) -> bool {
        let downgraded = self.holder(id).map(|holder| holder.attempt.mode = Mode::Read).is_some();
        self.changed |= downgraded;
        downgraded
    }

    /// Takes the lock from whoever holds it.
    pub(super) fn delete(&mut self, now: ServerTime) {
        for holder in &mut self.holders {
            holder.ends_at = now.at;
        }
        self.settle_leases(now);
    }

    /// Takes the lock from the holder with this token, whose lock delay begins. Returns the holder as it was.
    pub(super) fn revoke(&mut self, now: ServerTime, token: u64) -> Option<Contender> {
        // Safeguard: a forced release compares the number (memory)
        let holder = self.holders.iter_mut().find(|holder| holder.token == token)?;
        let shown = holder.contender(now);
        holder.ends_at = now.at;
        self.settle_leases(now);
        Some(shown)
    }

    /// Brings the line up to the present: ends what has run out, and grants what there is room for.
    pub(super) fn settle(&mut self, now: ServerTime, last_token: &mut u64) {
        self.settle_leases(now);
        while let Some(mode) = self.first_mode() {
            if !self.has_room(mode) {
                break;
            }
            let grant = next_grant(now, last_token);
            let granted = self.queue.pop_front().and_then(|waiter| waiter.granted(grant, now));
            self.holders.extend(granted);
            self.changed = true;
        }
        if let Some(next) = self.next_end() {
            for waiter in &self.queue {
                waiter.look_again(now, next);
            }
        }
    }

    /// Whether a contender came, went or was granted since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// When something ends by itself next: a lease that is not renewed, or a lock delay. In a settled line `None` means that
    /// nothing at all is left of it: who waits, waits for one of these.
    pub(super) fn next_end(&self) -> Option<BootInstant> {
        let leases = self.holders.iter().map(|holder| holder.ends_at);
        leases.chain(self.closed.iter().map(|place| place.until)).min()
    }

    pub(super) fn show(&self, now: ServerTime, snapshot: &mut Snapshot) {
        snapshot.holders.extend(self.holders.iter().map(|holder| holder.contender(now)));
        snapshot.queue.extend(self.queue.iter().filter(|waiter| waiter.is_there()).map(Waiter::contender));
    }

    /// Whether a contender of that mode may hold beside those who do.
    fn has_room(&self, mode: Mode) -> bool {
        let taken = self.holders.iter().map(|holder| holder.attempt.mode).chain(self.closed.iter().map(|it| it.mode));
        // Safeguard: a contender has room only beside those who leave it some (memory)
        mode.waits_for(taken.map(|other| Ok::<_, Infallible>(((), other)))) == Ok(None)
    }

    /// How many permits there are: what the oldest contender named. A settled queue begins with one that is still there.
    fn permits(&self) -> Option<NonZeroU32> {
        let holder = self.holders.first().map(|holder| holder.attempt.mode);
        holder.or_else(|| self.queue.front().map(|waiter| waiter.attempt.mode))?.permits()
    }

    fn holder(&mut self, id: u64) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.attempt.id == id)
    }

    /// Ends the leases that have run out, and the lock delays.
    fn settle_leases(&mut self, now: ServerTime) {
        for ended in self.holders.extract_if(.., |holder| holder.ends_at <= now.at) {
            // From the end of the lease, however late it is noticed.
            let until = ended.ends_at.saturating_add(ended.attempt.delay);
            self.closed.push(ClosedPlace { mode: ended.attempt.mode, until });
            self.changed = true;
        }
        // Safeguard: a lock delay keeps the place closed (memory)
        self.closed.retain(|place| now.at < place.until);
    }

    /// What the first of those who are still there waits for.
    fn first_mode(&mut self) -> Option<Mode> {
        while self.queue.front().is_some_and(|waiter| !waiter.is_there()) {
            self.queue.pop_front();
            self.changed = true;
        }
        self.queue.front().map(|waiter| waiter.attempt.mode)
    }
}

fn next_grant(now: ServerTime, last_token: &mut u64) -> Grant {
    *last_token += 1;
    Grant { token: *last_token, at: now.at }
}

//! Validity: until when a holder may act, by its own clock.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering, fence},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{BootInstant, Clock, Loss, observe::Hold, safeguard};

/// What a lease of `ttl`, asked for by a request that was *sent* at `sent_at`, gives its holder: the ttl less one per
/// cent for clocks that run at different speeds, and less 2 ms for the servers' own granularity.
#[must_use]
pub fn deadline(sent_at: BootInstant, ttl: Duration) -> BootInstant {
    if !safeguard("margin") {
        return sent_at.saturating_add(ttl);
    }
    // Safeguard: the margin of validity
    sent_at.saturating_add(ttl.saturating_sub(ttl / 100).saturating_sub(Duration::from_millis(2)))
}

/// The shared cell behind one grant: a deadline on the boot-time clock, or the reason why the lock is lost.
///
/// A backend advances it on each acknowledged renewal; everybody else reads it: a clock read and an atomic load, no lock,
/// no message from another task. Whoever sees it run out makes that final, so no reader that saw *lost* can see *valid*
/// again, however the renewing task was paused.
#[derive(Clone)]
pub struct Validity {
    cell: Arc<ValidityState>,
    clock: Clock,
}

/// The atomic state that the clones of one [`Validity`] share.
struct ValidityState {
    /// A deadline in nanoseconds, or (below `LOSSES.len()`) an index into `LOSSES`.
    state: AtomicU64,
    /// What to give as the reason should the deadline pass: an index into `LOSSES`.
    suspicion: AtomicU8,
    /// In nanoseconds: no renewal moves the deadline beyond this.
    limit: AtomicU64,
    /// It has ended, or a limit was set.
    ended: Notify,
    /// What operators see of the hold; not set where nobody looks, and for what no program holds.
    hold: OnceLock<Box<Hold>>,
}

/// Losses by their code in the cell. The boot-time clock has long passed these few nanoseconds.
const LOSSES: [Loss; 8] = [
    Loss::Expired,
    Loss::Unreachable,
    Loss::Revoked,
    Loss::SessionEnded,
    Loss::Closed,
    Loss::Released,
    Loss::MaxHoldExceeded,
    Loss::Denied,
];

fn code(loss: Loss) -> u8 {
    match loss {
        Loss::Expired => 0,
        Loss::Unreachable => 1,
        Loss::Revoked => 2,
        Loss::SessionEnded => 3,
        Loss::Closed => 4,
        Loss::Released => 5,
        Loss::MaxHoldExceeded => 6,
        Loss::Denied => 7,
    }
}

fn decode(state: u64) -> Result<BootInstant, Loss> {
    match usize::try_from(state).ok().and_then(|code| LOSSES.get(code)) {
        Some(loss) => Err(*loss),
        None => Ok(BootInstant::from_nanos(state)),
    }
}

/// A value of the cell that was read while it was valid: what [`Validity::advance`] starts from.
#[derive(Debug, Clone, Copy)]
pub struct Observed(u64);

impl Validity {
    /// A validity that ends at `until`.
    #[must_use]
    pub fn new(clock: Clock, until: BootInstant) -> Self {
        let floor = LOSSES.len() as u64;
        let cell = ValidityState {
            state: AtomicU64::new(until.as_nanos().max(floor)),
            suspicion: AtomicU8::new(code(Loss::Expired)),
            limit: AtomicU64::new(u64::MAX),
            ended: Notify::new(),
            hold: OnceLock::new(),
        };
        Self { cell: Arc::new(cell), clock }
    }

    /// The clock that it is counted on.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Whether the holder may act now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.read().is_ok()
    }

    /// Until when the holder may act, unless it is renewed or lost before; `None` when it is lost.
    #[must_use]
    pub fn valid_until(&self) -> Option<BootInstant> {
        self.read().ok()
    }

    /// How long the holder may still act; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.read().map_or(Duration::ZERO, |until| until.saturating_since(self.clock.now()))
    }

    /// Why the lock is lost; `None` while it is held.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.read().err()
    }

    /// Resolves when the lock is lost, with the reason.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> Loss {
        loop {
            let ended = self.cell.ended.notified();
            let until = match self.read() {
                Ok(until) => until,
                Err(loss) => return loss,
            };
            tokio::select! {
                biased;
                () = ended => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
    }

    /// Reads the cell before a renewal is sent. `None` when it is lost: then nothing is to be renewed.
    #[must_use]
    pub fn observe(&self) -> Option<Observed> {
        self.read().ok().map(|_| Observed(self.cell.state.load(Ordering::Acquire)))
    }

    /// Moves the deadline to `until` after an acknowledged renewal. Does nothing when `until` is no gain.
    ///
    /// Returns whether the lock is still held. False also when the deadline had already passed, although the server
    /// granted the renewal: lost is final.
    pub fn advance(&self, from: Observed, until: BootInstant) -> bool {
        let mut seen = from.0;
        loop {
            let Ok(current) = decode(seen) else { return false };
            // Safeguard: catalogue: a renewal after the deadline is none
            // Safeguard: whoever sees validity end makes that final
            if self.clock.now() >= current {
                let latest = self.cell.state.load(Ordering::Acquire);
                if latest == seen {
                    return self.read().is_ok();
                }
                // Another renewal came first: this one still counts from where that one left off.
                seen = latest;
                continue;
            }
            if until <= current {
                return self.is_valid();
            }
            match self.replace(seen, until.as_nanos(), "compare-and-swap") {
                Ok(()) => {
                    self.cell.suspicion.store(code(Loss::Expired), Ordering::Relaxed);
                    // A limit may have passed, which no renewal moves.
                    return self.is_valid();
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Ends it now. The first reason stays. A lock whose deadline passed unseen has run out, whatever `loss` says.
    pub fn end(&self, loss: Loss) {
        let mut seen = self.cell.state.load(Ordering::Acquire);
        while let Ok(until) = decode(seen) {
            let ran_out = loss != Loss::Released && self.clock.now() >= self.limited(until);
            let reason = if ran_out { self.reason_to_run_out(until) } else { loss };
            match self.replace(seen, code(reason).into(), "first-reason") {
                Ok(()) => return self.has_ended(reason),
                Err(now) => seen = now,
            }
        }
    }

    /// Lets it end at `limit` with [`Loss::MaxHoldExceeded`], however often it is renewed. A later limit than one that is set
    /// changes nothing.
    pub fn limit(&self, limit: BootInstant) {
        self.cell.limit.fetch_min(limit.as_nanos(), Ordering::AcqRel);
        // Those who wait for the end have slept towards a later one.
        self.cell.ended.notify_waiters();
    }

    /// Stores `new` over the very value that was judged, and over no other; fails with the value that is there instead.
    fn replace(&self, judged: u64, new: u64, upheld: &'static str) -> Result<(), u64> {
        if !safeguard(upheld) {
            self.cell.state.store(new, Ordering::Release);
            return Ok(());
        }
        self.cell.state.compare_exchange(judged, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn limited(&self, until: BootInstant) -> BootInstant {
        if !safeguard("limit") {
            return until;
        }
        until.min(BootInstant::from_nanos(self.cell.limit.load(Ordering::Acquire)))
    }

    fn reason_to_run_out(&self, until: BootInstant) -> Loss {
        if self.limited(until) < until { Loss::MaxHoldExceeded } else { self.suspicion() }
    }

    /// Notes what will be the reason if the deadline passes; an advance clears it.
    pub fn set_expiry_cause(&self, loss: Loss) {
        let before = self.cell.suspicion.swap(code(loss), Ordering::Relaxed);
        // The first renewal that was missed since the last one that was acknowledged.
        if before == code(Loss::Expired)
            && matches!(loss, Loss::Unreachable | Loss::Denied)
            && let (Some(hold), Ok(until)) = (self.cell.hold.get(), self.deadline())
        {
            hold.renewal_missed(|| self.limited(until).saturating_since(self.clock.now()));
        }
    }

    /// The deadline as the last acknowledged request left it, passed or not, without the limit.
    pub(crate) fn deadline(&self) -> Result<BootInstant, Loss> {
        decode(self.cell.state.load(Ordering::Acquire))
    }

    /// Tells `hold` when the validity ends, or now when it has ended already.
    pub(crate) fn observe_hold(&self, hold: Box<Hold>) {
        if self.cell.hold.set(hold).is_err() {
            return;
        }
        // Either the end is seen here, or whoever ends it sees the hold: see `has_ended`.
        fence(Ordering::SeqCst);
        if let (Err(loss), Some(hold)) = (self.deadline(), self.cell.hold.get()) {
            hold.ended(loss);
        }
    }

    /// What operators see of the hold.
    pub(crate) fn hold(&self) -> Option<&Hold> {
        self.cell.hold.get().map(AsRef::as_ref)
    }

    /// The reason has just been written into the cell.
    fn has_ended(&self, reason: Loss) {
        self.cell.ended.notify_waiters();
        // The counterpart of the fence in `observe_hold`.
        fence(Ordering::SeqCst);
        if let Some(hold) = self.cell.hold.get() {
            hold.ended(reason);
        }
    }

    fn suspicion(&self) -> Loss {
        LOSSES[usize::from(self.cell.suspicion.load(Ordering::Relaxed))]
    }

    fn read(&self) -> Result<BootInstant, Loss> {
        let mut seen = self.cell.state.load(Ordering::Acquire);
        loop {
            let until = decode(seen)?;
            // Safeguard: no renewal moves the end of the maximum holding time
            let limited = self.limited(until);
            if self.clock.now() < limited {
                return Ok(limited);
            }
            // Seen expired: final from here on, unless a renewal came first, which is then judged anew.
            let reason = self.reason_to_run_out(until);
            if !safeguard("seen-is-final") {
                return Err(reason);
            }
            match self.replace(seen, code(reason).into(), "seen-is-final") {
                Ok(()) => {
                    self.has_ended(reason);
                    return Err(reason);
                }
                Err(now) => seen = now,
            }
        }
    }
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Validity").field(&self.read()).finish()
    }
}

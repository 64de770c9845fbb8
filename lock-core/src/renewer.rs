//! The renewer: one task that renews all leases of a connection, in batches.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::{
    BootInstant, Clock, Context, Validity,
    due::{DueTimes, wait},
    observe::Observer,
};

/// How many leases go into one batch, so that a hand-off is not stuck behind thousands of renewals.
const BATCH: usize = 256;

/// Renews a batch of leases on the server: what a backend gives its [`Renewer`].
#[async_trait]
pub trait Renew: Send + Sync + 'static {
    /// What is renewed.
    type Lease: Send + Sync + 'static;

    /// Sends all renewals of `batch` together and ends within the backend's time limit for one request. For each lease:
    /// read [`Validity::observe`] before sending, [`Validity::advance`] on an acknowledgement,
    /// [`Validity::end`] when the server denies it, [`Validity::set_expiry_cause`] when no answer came.
    async fn renew(&self, batch: &[Arc<Self::Lease>]);
}

/// Renews leases for as long as they are kept. Its one task ends with the renewer.
pub struct Renewer<L> {
    shared: Arc<RenewerState<L>>,
}

/// Keeps one lease renewed. No renewal is sent after it was dropped; one that is under way by then may still arrive, so what
/// is cleaned up later is gone by itself one ttl after its answer at the latest.
pub struct RenewalHandle<L> {
    shared: Weak<RenewerState<L>>,
    id: u64,
}

/// The state that a [`Renewer`], its handles and its task share.
struct RenewerState<L> {
    clock: Clock,
    observer: Observer,
    schedule: Mutex<RenewalSchedule<L>>,
    changed: Notify,
}

/// The leases of a [`Renewer`], and when each is due for renewal. An entry is in `due` unless its renewal is under way.
struct RenewalSchedule<L> {
    entries: BTreeMap<u64, ScheduledLease<L>>,
    due: DueTimes,
    next_id: u64,
    closed: bool,
}

/// One lease in the [`RenewalSchedule`].
struct ScheduledLease<L> {
    lease: Arc<L>,
    validity: Validity,
    every: Duration,
    due: BootInstant,
    /// By when it was wanted earlier, while its renewal was under way.
    wanted: Option<BootInstant>,
}

impl<L: Send + Sync + 'static> Renewer<L> {
    /// A renewer that renews by `how`, in `context`.
    pub fn new<R: Renew<Lease = L>>(context: &Context, how: Arc<R>) -> Self {
        let (entries, due) = (BTreeMap::new(), DueTimes::default());
        let schedule = RenewalSchedule { entries, due, next_id: 0, closed: false };
        let shared = Arc::new(RenewerState {
            clock: context.clock(),
            observer: context.observer().clone(),
            schedule: Mutex::new(schedule),
            changed: Notify::new(),
        });
        drop(context.spawn(run(Arc::clone(&shared), how)));
        Self { shared }
    }

    /// Renews `lease` after each `every`, until the returned value is dropped or the lease is lost. A renewal that
    /// brought nothing is repeated after a sixth of that, or a third of what is left of the lease.
    pub fn keep(&self, lease: Arc<L>, validity: Validity, every: Duration) -> RenewalHandle<L> {
        let due = self.shared.clock.now().saturating_add(every);
        let (id, wakes) = self.shared.schedule(|schedule| {
            let id = schedule.next_id;
            schedule.next_id += 1;
            schedule.entries.insert(id, ScheduledLease { lease, validity, every, due, wanted: None });
            (id, schedule.due.add(due, id))
        });
        if wakes {
            self.shared.changed.notify_one();
        }
        RenewalHandle { shared: Arc::downgrade(&self.shared), id }
    }
}

impl<L> Drop for Renewer<L> {
    fn drop(&mut self) {
        self.shared.schedule(|schedule| schedule.closed = true);
        self.shared.changed.notify_one();
    }
}

impl<L> RenewalHandle<L> {
    /// Has the next renewal sent at `at`, unless one is due before. While a renewal is under way, that means one more
    /// after it.
    pub fn renew_by(&self, at: BootInstant) {
        let Some(shared) = self.shared.upgrade() else { return };
        if shared.schedule(|schedule| schedule.hasten(self.id, at)) {
            shared.changed.notify_one();
        }
    }
}

impl<L> Drop for RenewalHandle<L> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.schedule(|schedule| {
            if let Some(entry) = schedule.entries.remove(&self.id) {
                schedule.due.remove(entry.due, self.id);
            }
        });
    }
}

impl<L> RenewerState<L> {
    fn schedule<T>(&self, work: impl FnOnce(&mut RenewalSchedule<L>) -> T) -> T {
        work(&mut self.schedule.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<L> RenewalSchedule<L> {
    /// Takes what is due now, and with it what is due a little later, so that leases of one moment travel together.
    fn take_due(&mut self, now: BootInstant) -> Vec<u64> {
        let first = self.due.first().filter(|(due, _)| *due <= now);
        let slack = first.and_then(|(_, id)| self.entries.get(&id)).map_or(Duration::ZERO, |entry| entry.every / 8);
        self.due.take(now.saturating_add(slack)).collect()
    }

    fn put_back(&mut self, id: u64, due: BootInstant) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.due = entry.wanted.take().map_or(due, |wanted| wanted.min(due));
            // The task is at work, and looks after it.
            let _ = self.due.add(entry.due, id);
        }
    }

    /// Returns whether the task has to be woken for it.
    fn hasten(&mut self, id: u64, at: BootInstant) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        if !self.due.remove(entry.due, id) {
            entry.wanted = Some(entry.wanted.map_or(at, |wanted| wanted.min(at)));
            return false;
        }
        entry.due = entry.due.min(at);
        self.due.add(entry.due, id)
    }
}

async fn run<R: Renew>(shared: Arc<RenewerState<R::Lease>>, renewer: Arc<R>) {
    loop {
        let now = shared.clock.now();
        let (closed, due) = shared.schedule(|schedule| (schedule.closed, schedule.take_due(now)));
        if closed {
            return;
        }
        for ids in due.chunks(BATCH) {
            renew(&shared, renewer.as_ref(), ids).await;
        }
        if due.is_empty() {
            let first = shared.schedule(|schedule| schedule.due.sleep());
            wait(shared.clock, first, &shared.changed).await;
        }
    }
}

/// The shortest pause after a renewal that brought nothing.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// How long to wait after a renewal that brought nothing: shorter when not much is left of the lease, which need not have
/// been granted for a whole ttl.
fn pause(every: Duration, left: Duration) -> Duration {
    (every / 6).min(left / 3).max(SHORTEST_PAUSE)
}

/// One renewal of a batch, with what was read before it was sent.
struct SentRenewal {
    id: u64,
    validity: Validity,
    every: Duration,
    /// Until when the lease was held.
    until: BootInstant,
    /// The same without the limit of a maximum holding time, which no renewal moves.
    deadline: BootInstant,
    /// Whether the lease was still to be renewed when the answer came.
    is_kept: bool,
}

async fn renew<R: Renew>(shared: &RenewerState<R::Lease>, renewer: &R, ids: &[u64]) {
    let started = shared.clock.now();
    let mut batch = Vec::with_capacity(ids.len());
    let mut renewals = Vec::with_capacity(ids.len());
    shared.schedule(|schedule| {
        for id in ids {
            let Some(entry) = schedule.entries.get(id) else { continue };
            if let Some(until) = entry.validity.valid_until() {
                batch.push(Arc::clone(&entry.lease));
                let deadline = entry.validity.deadline().unwrap_or(until);
                let validity = entry.validity.clone();
                renewals.push(SentRenewal { id: *id, validity, every: entry.every, until, deadline, is_kept: true });
            } else {
                schedule.entries.remove(id);
            }
        }
    });
    if batch.is_empty() {
        return;
    }
    renewer.renew(&batch).await;
    let now = shared.clock.now();
    shared.schedule(|schedule| {
        for renewal in &mut renewals {
            let SentRenewal { id, every, .. } = *renewal;
            renewal.is_kept = schedule.entries.contains_key(&id);
            match renewal.validity.valid_until() {
                Some(until) if until > renewal.until => schedule.put_back(id, started.saturating_add(every)),
                // Safeguard: catalogue: a renewal that failed is followed by another
                Some(until) => schedule.put_back(id, now.saturating_add(pause(every, until.saturating_since(now)))),
                None => {
                    schedule.entries.remove(&id);
                }
            }
        }
    });
    shared.observer.renewed(now.saturating_since(started));
    for renewal in renewals.iter().filter(|renewal| renewal.is_kept) {
        shared.observer.renewal(renewal.deadline, renewal.validity.deadline(), now);
    }
}

impl<L> fmt::Debug for Renewer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.shared.schedule(|schedule| schedule.entries.len());
        f.debug_struct("Renewer").field("kept", &kept).finish_non_exhaustive()
    }
}

impl<L> fmt::Debug for RenewalHandle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewalHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

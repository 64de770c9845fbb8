//! One client of a worker process.

use std::{pin::pin, sync::Arc, time::Duration};

use lock::Locks;
use lock_core::{Clock, Error, FencingToken, Guard};
use tokio::{sync::watch, task::JoinHandle};

use super::{ClientOrders, Worker, looks::ValidityProbe, reports::EventWriter};
use crate::{
    LabError,
    failover::{
        events::{Attempt, Lock, What, now},
        sink::{Answer, StoreConnection},
    },
};

/// One client of a worker process, which acquires a lock and writes to the store until it is told to quit.
pub(super) struct Client {
    number: usize,
    is_careless: bool,
    shared: ClientContext,
    locks: Locks,
    store: StoreConnection,
    attempts: u64,
}

/// What all clients of a worker process share: its options, the orders, and where events are reported.
#[derive(Clone)]
pub(super) struct ClientContext {
    pub(super) worker: Arc<Worker>,
    pub(super) reports: Arc<EventWriter>,
    pub(super) looks: Arc<ValidityProbe>,
    pub(super) wanted: watch::Receiver<ClientOrders>,
}

/// How long a client pauses after an error.
const PAUSE: Duration = Duration::from_millis(10);
/// How many writes a careless client does after it was told that the lock is lost.
const CARELESS_WRITES: usize = 20;
/// For how long a client that has seen its loss waits for `lost()`, which resolves at once.
const TELL_LIMIT: Duration = Duration::from_secs(2);

impl Client {
    pub(super) fn new(number: usize, shared: ClientContext, locks: Locks, store: StoreConnection) -> Self {
        let is_careless = number < shared.worker.careless;
        Self { number, is_careless, shared, locks, store, attempts: 0 }
    }

    /// Takes its lock again and again until it is to quit; gives its connection back, to be closed.
    pub(super) async fn run(mut self) -> Result<Locks, LabError> {
        let lock = if self.number == 0 { Lock::Kept } else { Lock::Busy };
        loop {
            let mut wanted = self.shared.wanted.clone();
            let is_wanted = |wanted: &ClientOrders| wanted.quit || lock == Lock::Busy || wanted.keep;
            // The other side lives as long as the process.
            let Ok(now) = wanted.wait_for(is_wanted).await.map(|wanted| *wanted) else { break };
            if now.quit {
                break;
            }
            self.once(lock).await?;
            if lock == Lock::Busy && !now.rest.is_zero() {
                // Until it is to quit, at the latest.
                let quits = wanted.wait_for(|wanted| wanted.quit);
                let _ = Clock::boot().timeout(now.rest, quits).await;
            }
        }
        Ok(self.locks)
    }

    /// Resolves when this lock is not wanted any more.
    async fn unwanted(&self, lock: Lock) {
        let is_over = |wanted: &ClientOrders| wanted.quit || (lock == Lock::Kept && !wanted.keep);
        let _ = self.shared.wanted.clone().wait_for(is_over).await;
    }

    /// Asks once, and holds what it is granted.
    async fn once(&mut self, lock: Lock) -> Result<(), LabError> {
        self.attempts += 1;
        let whose = Attempt { lock, process: self.shared.reports.process, client: self.number, attempt: self.attempts };
        let mutex = self.locks.mutex(lock.name()).payload(whose.to_string().into_bytes());
        let mutex = if lock == Lock::Busy { mutex.timeout(self.shared.worker.wait) } else { mutex };
        self.shared.reports.event(whose, What::Asked);
        let answer = tokio::select! {
            biased;
            answer = mutex.lock() => answer,
            () = self.unwanted(lock) => {
                self.shared.reports.event(whose, What::Withdrawn);
                return Ok(());
            }
        };
        match answer {
            Ok(guard) => return self.held(whose, guard).await,
            Err(Error::NotAcquired { .. }) => self.shared.reports.event(whose, What::NotGranted),
            Err(error) => {
                let text = error.to_string();
                // Whatever else is wrong was seen before anything was sent.
                let what = match error {
                    Error::Unavailable { .. } | Error::Lost { .. } => What::Unknown { error: text },
                    _ => What::Failed { error: text },
                };
                self.shared.reports.event(whose, what);
                Clock::boot().sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    async fn held(&mut self, whose: Attempt, guard: Guard) -> Result<(), LabError> {
        // Without a deadline it is lost already: held for no time at all.
        let deadline = guard.valid_until().unwrap_or_else(now);
        self.shared.reports.event(whose, What::Granted { token: guard.token(), valid_until: deadline });
        self.shared.looks.begin(whose, guard.validity().clone(), deadline);
        let telling = self.tell(whose, &guard);
        let worked = self.work(whose, &guard).await;
        let _ = self.wait_for_news(whose, telling).await;
        match guard.release().await {
            Ok(()) => self.shared.reports.event(whose, What::Released),
            Err(error) => {
                let unknown = !matches!(error, Error::Lost { .. });
                self.shared.reports.event(whose, What::ReleaseFailed { error: error.to_string(), unknown });
            }
        }
        worked
    }

    /// Reports when `lost()` resolves, beside whatever the client does.
    fn tell(&self, whose: Attempt, guard: &Guard) -> JoinHandle<()> {
        let (looks, validity) = (Arc::clone(&self.shared.looks), guard.validity().clone());
        tokio::spawn(async move { looks.told(whose, validity.lost().await) })
    }

    /// Begins the release; for a lock that was seen to be lost, when `lost()` has said so, too.
    async fn wait_for_news(&self, whose: Attempt, mut telling: JoinHandle<()>) -> Option<()> {
        let ended = self.shared.looks.end(whose, false);
        if !ended {
            let told = Clock::boot().timeout(TELL_LIMIT, &mut telling).await;
            self.shared.looks.end(whose, true);
            told?.ok()?;
        }
        telling.abort();
        Some(())
    }

    /// Works under the lock until the hold is over, or lost.
    async fn work(&mut self, whose: Attempt, guard: &Guard) -> Result<(), LabError> {
        match whose.lock {
            Lock::Busy => self.update(whose, guard).await,
            Lock::Kept => self.write_on(whose, guard).await,
        }
    }

    /// Reads, takes its time, and writes back what it has read with an element more.
    async fn update(&mut self, whose: Attempt, guard: &Guard) -> Result<(), LabError> {
        if !self.is_careless && !self.shared.looks.look(whose) {
            return Ok(());
        }
        let (token, checked) = (guard.token(), !self.is_careless);
        let read = self.store.read(whose, token).await?;
        let thinks = self.shared.worker.write_every.min(self.shared.worker.hold);
        if self.is_lost_within(thinks, guard).await {
            return Ok(());
        }
        if checked && !self.shared.looks.look(whose) {
            return Ok(());
        }
        let answer = self.store.update(whose, token, read).await?;
        self.wrote(whose, token, answer);
        self.is_lost_within(self.shared.worker.hold.saturating_sub(thinks), guard).await;
        Ok(())
    }

    /// Waits for so long; whether a careful client was told meanwhile that it has lost the lock.
    async fn is_lost_within(&self, time: Duration, guard: &Guard) -> bool {
        tokio::select! {
            () = Clock::boot().sleep(time) => false,
            _ = guard.lost(), if !self.is_careless => true,
        }
    }

    /// Writes again and again until the hold is over.
    async fn write_on(&mut self, whose: Attempt, guard: &Guard) -> Result<(), LabError> {
        let clock = Clock::boot();
        let mut wanted = self.shared.wanted.clone();
        let mut over = pin!(async move { drop(wanted.wait_for(|wanted| wanted.quit || !wanted.keep).await) });
        let mut late = 0;
        loop {
            if !self.is_careless && !self.shared.looks.look(whose) {
                return Ok(());
            }
            let answer = self.store.write(whose, guard.token()).await?;
            self.wrote(whose, guard.token(), answer);
            if guard.validity().loss().is_some() {
                late += 1;
            }
            // It goes on before it looks at what it was told.
            if late > CARELESS_WRITES {
                return Ok(());
            }
            tokio::select! {
                () = &mut over => return Ok(()),
                () = clock.sleep(self.shared.worker.write_every) => {}
                _ = guard.lost(), if !self.is_careless => return Ok(()),
            }
        }
    }

    fn wrote(&self, whose: Attempt, token: FencingToken, answer: Answer) {
        let (fenced, went_back) = (answer.fenced, answer.went_back);
        self.shared.reports.event(whose, What::Wrote { token, checked: !self.is_careless, fenced, went_back });
    }
}

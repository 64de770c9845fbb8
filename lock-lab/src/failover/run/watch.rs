//! What the servers really hold, looked up while a run goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use lock_core::Clock;
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    LabError,
    failover::{
        events::{Lock, Truth, now},
        scene::Observer,
        worker::block_for,
    },
};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(40);

/// The time for which a thread sleeps that measures how late it wakes.
const NAP: Duration = Duration::from_millis(5);

/// What a [`TruthWatch`] has observed: what the servers held, and for how long the machine stood still.
#[derive(Debug)]
pub(super) struct Observations {
    pub(super) truths: Vec<Truth>,
    /// The longest time by which a thread with nothing to do was late: the machine stood still, or was too busy.
    pub(super) stood_still: Duration,
}

/// A task that reads the ground truth of both locks periodically, and a thread that notices when the machine stands
/// still. They end with this.
#[derive(Debug)]
pub(super) struct TruthWatch {
    stop: watch::Sender<bool>,
    task: JoinHandle<Vec<Truth>>,
    is_over: Arc<AtomicBool>,
    still: Option<thread::JoinHandle<Duration>>,
}

impl TruthWatch {
    pub(super) fn start(observer: Observer) -> Result<Self, LabError> {
        let (stop, stopped) = watch::channel(false);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let still = thread::Builder::new().name("still".into()).spawn(move || longest_delay(&over));
        let still = Some(still.map_err(|error| LabError::io("starting a thread", error))?);
        Ok(Self { stop, task: tokio::spawn(look(observer, stopped)), is_over, still })
    }

    /// Everything that was seen.
    pub(super) async fn finish(mut self) -> Result<Observations, LabError> {
        self.stop.send_replace(true);
        self.is_over.store(true, Ordering::Release);
        let truths = LabError::joined((&mut self.task).await)?;
        // It ends within a nap.
        let still = self.still.take().and_then(|still| still.join().ok());
        Ok(Observations { truths, stood_still: still.unwrap_or_default() })
    }
}

impl Drop for TruthWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.task.abort();
    }
}

/// Takes naps until it is over, and says by how much the longest was longer than it should be.
fn longest_delay(is_over: &AtomicBool) -> Duration {
    let (mut longest, mut before) = (Duration::ZERO, now());
    while !is_over.load(Ordering::Acquire) {
        block_for(NAP);
        let after = now();
        longest = longest.max(after.saturating_since(before).saturating_sub(NAP));
        before = after;
    }
    longest
}

async fn look(observer: Observer, mut stopped: watch::Receiver<bool>) -> Vec<Truth> {
    let clock = Clock::boot();
    let mut seen = Vec::new();
    for round in 0.. {
        for lock in Lock::ALL {
            seen.extend(observer.truth(lock, round).await);
        }
        // A sender that is gone has nobody who asks for the rest.
        let told = clock.timeout(EVERY, stopped.wait_for(|stopped| *stopped)).await;
        if told.is_some() {
            break;
        }
    }
    seen
}

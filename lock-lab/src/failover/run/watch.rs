//! What the servers really hold, looked up while a run goes on.

use std::time::Duration;

use lock_core::Clock;
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    LabError,
    failover::{
        events::{Lock, Truth},
        scene::Observer,
    },
};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(40);

/// A task that looks at both locks again and again. It ends with this.
#[derive(Debug)]
pub(super) struct Watch {
    stop: watch::Sender<bool>,
    task: JoinHandle<Vec<Truth>>,
}

impl Watch {
    pub(super) fn start(observer: Observer) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(look(observer, stopped)) }
    }

    /// Everything that was seen.
    pub(super) async fn finish(mut self) -> Result<Vec<Truth>, LabError> {
        self.stop.send_replace(true);
        LabError::joined((&mut self.task).await)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
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

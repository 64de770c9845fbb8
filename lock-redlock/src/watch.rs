//! Watching a lock: every node publishes its grants and releases.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use lock_core::{Error, LockName, Snapshot};

use crate::{
    inspect::inspect,
    nodes::{quorum::Quorum, scripts::LockKeys, subscriptions::Subscriptions},
};

/// The longest time between two looks: nobody announces a lease that ends by itself, and servers may forbid publishing.
const AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// The time between two looks while no majority can be subscribed to or inspected.
const UNHEARD: Duration = Duration::from_millis(250);

/// The state of a stream that watches one lock, and gives a snapshot for each change.
struct Watcher {
    quorum: Arc<Quorum>,
    name: LockName,
    subscriptions: Subscriptions,
    /// The last item; `None` before the first, and after an error.
    shown: Option<Snapshot>,
    /// How long to wait before the next look; `None` before the first.
    pause: Option<Duration>,
}

/// The snapshots of `name`, now and after each change.
pub(crate) fn follow(quorum: Arc<Quorum>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let subscriptions = subscribe(&quorum, &name);
    let watcher = Watcher { quorum, name, subscriptions, shown: None, pause: None };
    futures::stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await, watcher)) }).boxed()
}

fn subscribe(quorum: &Quorum, name: &LockName) -> Subscriptions {
    Subscriptions::new(quorum, &LockKeys::new(&quorum.config.prefix, name).common().changes())
}

impl Watcher {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        loop {
            if let Some(pause) = self.pause {
                // Each node announces its grant: the look after the last announcement sees a majority.
                let _ = self.quorum.clock().timeout(pause, self.subscriptions.changed()).await;
            }
            if self.subscriptions.is_outdated(&self.quorum) {
                self.subscriptions = subscribe(&self.quorum, &self.name);
            }
            self.subscriptions.mark_unchanged();
            self.pause = Some(if self.subscriptions.is_confirmed() { AT_LEAST_EVERY } else { UNHEARD });
            match inspect(&self.quorum, &self.name).await {
                Ok(snapshot) => {
                    if self.shown.as_ref().is_none_or(|shown| !shown.is_like(&snapshot)) {
                        self.shown = Some(snapshot.clone());
                        return Ok(snapshot);
                    }
                }
                Err(error) => {
                    self.shown = None;
                    // A connection that breaks again and again is no reason to look more often.
                    self.quorum.clock().sleep(UNHEARD).await;
                    return Err(error);
                }
            }
        }
    }
}

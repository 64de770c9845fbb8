//! Following a lock: every node says when somebody was granted it or gave it back.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use lock_core::{Error, LockName, Snapshot};

use crate::{
    inspect::inspect,
    nodes::{quorum::Quorum, scripts::LockKeys, subscriptions::Subscriptions},
};

/// How often it is looked at all the same: for leases that end by themselves, which nobody announces, and should the
/// servers not let anybody publish.
const AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// And how often while no majority can be listened to, or looked at.
const UNHEARD: Duration = Duration::from_millis(250);

struct Watcher {
    quorum: Arc<Quorum>,
    name: LockName,
    subscriptions: Subscriptions,
    /// What the last item showed; `None` before the first, and after an error.
    shown: Option<Snapshot>,
    pause: Option<Duration>,
}

/// The changes of `name`.
pub(crate) fn follow(quorum: Arc<Quorum>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let subscriptions = listen(&quorum, &name);
    let watcher = Watcher { quorum, name, subscriptions, shown: None, pause: None };
    futures::stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await, watcher)) }).boxed()
}

fn listen(quorum: &Quorum, name: &LockName) -> Subscriptions {
    Subscriptions::new(quorum, &LockKeys::new(&quorum.config.prefix, name).common().changes())
}

impl Watcher {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        loop {
            if let Some(pause) = self.pause {
                // A grant is announced by each node that gives it: the look that follows the last of these sees a majority.
                let _ = self.quorum.clock().timeout(pause, self.subscriptions.changed()).await;
            }
            if self.subscriptions.is_outdated(&self.quorum) {
                self.subscriptions = listen(&self.quorum, &self.name);
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
                    // News that a connection broke, and broke again, are no reason to look more often.
                    self.quorum.clock().sleep(UNHEARD).await;
                    return Err(error);
                }
            }
        }
    }
}

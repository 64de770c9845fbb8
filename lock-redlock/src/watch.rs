//! Following a lock: every node says when somebody was granted it or gave it back.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use lock_core::{Error, LockName, Snapshot};

use crate::{look::look, panel::Panel, scripts::LockKeys, waiting::Ear};

/// How often it is looked at all the same: for leases that end by themselves, which nobody announces, and should the
/// servers not let anybody publish.
const AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// And how often while no majority can be listened to, or looked at.
const UNHEARD: Duration = Duration::from_millis(250);

struct Follower {
    panel: Arc<Panel>,
    name: LockName,
    ear: Ear,
    /// What the last item showed; `None` before the first, and after an error.
    shown: Option<Snapshot>,
    pause: Option<Duration>,
}

/// The changes of `name`.
pub(crate) fn follow(panel: Arc<Panel>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let ear = listen(&panel, &name);
    let follower = Follower { panel, name, ear, shown: None, pause: None };
    futures::stream::unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) }).boxed()
}

fn listen(panel: &Panel, name: &LockName) -> Ear {
    Ear::new(panel, &LockKeys::new(&panel.config.prefix, name).common().changes())
}

impl Follower {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        loop {
            if let Some(pause) = self.pause {
                // A grant is announced by each node that gives it: the look that follows the last of these sees a majority.
                let _ = self.panel.clock().timeout(pause, self.ear.news()).await;
            }
            if self.ear.misses_a_server(&self.panel) {
                self.ear = listen(&self.panel, &self.name);
            }
            self.ear.look();
            self.pause = Some(if self.ear.is_confirmed() { AT_LEAST_EVERY } else { UNHEARD });
            match look(&self.panel, &self.name).await {
                Ok(snapshot) => {
                    if self.shown.as_ref().is_none_or(|shown| !shown.is_like(&snapshot)) {
                        self.shown = Some(snapshot.clone());
                        return Ok(snapshot);
                    }
                }
                Err(error) => {
                    self.shown = None;
                    // News that a connection broke, and broke again, are no reason to look more often.
                    self.panel.clock().sleep(UNHEARD).await;
                    return Err(error);
                }
            }
        }
    }
}

//! Following a name by what the server announces.

use std::{sync::Arc, time::Duration};

use futures_core::stream::BoxStream;
use tokio::sync::watch;

use super::{MemoryServer, link::ServerLink};
use crate::{Error, LockName, Snapshot};

/// How long after an error the next one follows, while the server stays out of reach.
const PAUSE: Duration = Duration::from_millis(250);

/// How `name` is, and again whenever a contender comes, goes or is granted.
pub(super) fn announced(link: Arc<ServerLink>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let announcements = ChangeSubscription::new(link.server.clone(), name);
    let follower = WatchState { link, announcements, given: None };
    Box::pin(futures_util::stream::unfold(follower, |mut follower| async move {
        let closed = follower.link.closed.clone();
        let item = closed.run_until_cancelled(follower.next()).await?;
        Some((item, follower))
    }))
}

/// The state of a stream that watches one name on the memory server, with the item that the stream gave last.
struct WatchState {
    link: Arc<ServerLink>,
    announcements: ChangeSubscription,
    given: Option<LastItem>,
}

/// The item that a watching stream gave last: a snapshot, or a failure.
enum LastItem {
    State(Snapshot),
    Failure,
}

impl WatchState {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        if let Some(LastItem::Failure) = self.given {
            let clock = self.link.server.clock();
            let _ = clock.timeout(PAUSE, self.link.reaches(true)).await;
        }
        loop {
            if let Err(error) = self.link.check_reachable() {
                self.given = Some(LastItem::Failure);
                return Err(error);
            }
            let state = self.announcements.state();
            if !matches!(&self.given, Some(LastItem::State(given)) if given.is_like(&state)) {
                self.given = Some(LastItem::State(state.clone()));
                return Ok(state);
            }
            tokio::select! {
                biased;
                () = self.announcements.next() => {}
                _ = self.link.reaches(false) => {}
            }
        }
    }
}

/// A subscription to the memory server's announcements of changes to one name.
struct ChangeSubscription {
    server: MemoryServer,
    name: LockName,
    /// `None` once it was given back.
    heard: Option<watch::Receiver<()>>,
}

impl ChangeSubscription {
    fn new(server: MemoryServer, name: LockName) -> Self {
        let heard = Some(server.table(|table, _| table.follow(&name)));
        Self { server, name, heard }
    }

    /// How the name is now. What is announced from here on is later.
    fn state(&mut self) -> Snapshot {
        let (name, heard) = (&self.name, &mut self.heard);
        self.server.table(|table, now| {
            let state = table.snapshot(now, name);
            // Under the same lock: an announcement is either in this state, or comes after it.
            if let Some(heard) = heard {
                heard.mark_unchanged();
            }
            state
        })
    }

    /// Waits for an announcement, or until something under the name ends by itself.
    async fn next(&mut self) {
        let next_end = self.server.table(|table, _| table.next_end(&self.name));
        let ends = async {
            match next_end {
                Some(at) => self.server.clock().sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let announced = async {
            match &mut self.heard {
                Some(heard) => heard.changed().await.is_ok(),
                None => false,
            }
        };
        tokio::select! {
            biased;
            _ = announced => {}
            () = ends => {}
        }
    }
}

impl Drop for ChangeSubscription {
    fn drop(&mut self) {
        if let Some(heard) = self.heard.take() {
            self.server.table(|table, _| table.unfollow(&self.name, heard));
        }
    }
}

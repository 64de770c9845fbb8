//! Looking at a name, and following it by what is published about it.

use std::{sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use lock_core::{BootInstant, Error, LockName, Snapshot};

use crate::{
    client::Client,
    node::{FailureKind, Node, Subscription},
    protocol::{keys::Keys, look},
};

/// Changes that follow each other within this are merged into one look.
const MERGED: Duration = Duration::from_millis(10);

/// How long after an error the next look follows, and after a look while nothing would be heard.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest time between two looks: what other libraries do with the lock key is not published, and not what users do
/// who may not publish.
const UNHEARD: Duration = Duration::from_secs(1);

/// A key with `n` ms left is gone after `n + 1`.
const GRAIN: Duration = Duration::from_millis(1);

/// For how long after a look the server publishes changes: they are looked at again before that is over.
const HEARD: Duration = Duration::from_secs(5);

/// Who holds `name` and who waits for it.
pub(crate) async fn look(client: &Client, name: &LockName) -> Result<Snapshot, Error> {
    look_on(client, name, &client.keys(name)?, Duration::ZERO).await
}

/// The same, and wants changes to be published for so long.
async fn look_on(client: &Client, name: &LockName, keys: &Keys, wanted: Duration) -> Result<Snapshot, Error> {
    let call = || look::look(keys, wanted);
    let answer = match client.servers.call(call()).await {
        Err(error) if error.kind() == FailureKind::Connection => client.servers.call(call()).await,
        answer => answer,
    };
    let seen = answer.and_then(|answer| look::seen(&answer)).map_err(|error| client.unavailable(error))?;
    seen.ok_or_else(|| client.other_format(name))
}

/// Follows a name: how it is, and again whenever that has changed.
pub(crate) fn followed(client: Arc<Client>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let keys = match client.keys(&name) {
        Ok(keys) => keys,
        Err(error) => return stream::iter([Err(error)]).boxed(),
    };
    let node = client.node_for(&keys);
    let subscription = node.subscribe(&keys.changes());
    let follower = WatchState { client, name, keys, node, subscription, given: LastItem::Nothing };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let closed = follower.client.closed.clone();
        let item = closed.run_until_cancelled(follower.next()).await?;
        Some((item, follower))
    }))
}

/// The state that a stream which watches one lock keeps between two items.
struct WatchState {
    client: Arc<Client>,
    name: LockName,
    keys: Keys,
    /// Whose channel it is.
    node: Node,
    subscription: Subscription,
    given: LastItem,
}

/// The item that a watching stream gave last: nothing yet, a snapshot, or a failure.
enum LastItem {
    Nothing,
    State(Snapshot),
    Failure,
}

/// The state of the subscription to the changes of a lock before a look, to tell whether a change came after that.
struct ChangesMark {
    changes: u64,
    would_hear: bool,
}

impl WatchState {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        match self.given {
            LastItem::Nothing => {}
            LastItem::State(_) => self.client.clock().sleep(MERGED).await,
            LastItem::Failure => self.client.clock().sleep(PAUSE).await,
        }
        loop {
            self.listen();
            // Before the look: what is published from here on is about a later state.
            let before =
                ChangesMark { changes: self.subscription.changes(), would_hear: self.subscription.is_confirmed() };
            match look_on(&self.client, &self.name, &self.keys, HEARD).await {
                Ok(state) => {
                    let look_again = self.client.clock().now().saturating_add(first_end(&state, before.would_hear));
                    if !matches!(&self.given, LastItem::State(given) if given.is_like(&state)) {
                        self.given = LastItem::State(state.clone());
                        return Ok(state);
                    }
                    self.until_changed(&before, look_again).await;
                }
                Err(error) => {
                    self.given = LastItem::Failure;
                    return Err(error);
                }
            }
        }
    }

    /// Listens where the lock is: it may be somewhere else by now.
    fn listen(&mut self) {
        let node = self.client.node_for(&self.keys);
        if !node.is(&self.node) {
            self.subscription = node.subscribe(&self.keys.changes());
            self.node = node;
        }
    }

    /// Waits for something that is published, or until a holder's lease has ended, or until messages would be heard.
    async fn until_changed(&mut self, before: &ChangesMark, look_again: BootInstant) {
        let clock = self.client.clock();
        let mut confirmed = self.subscription.clone();
        let heard = async {
            self.subscription.changed_since(before.changes).await;
            clock.sleep(MERGED).await;
        };
        let would_hear_now = async {
            if before.would_hear {
                std::future::pending::<()>().await;
            }
            confirmed.confirmed().await;
        };
        tokio::select! {
            biased;
            () = heard => {}
            () = would_hear_now => {}
            () = clock.sleep_until(look_again) => {}
        }
    }
}

/// After how long to look again though nothing was heard: an end by itself is not published.
fn first_end(state: &Snapshot, would_hear: bool) -> Duration {
    let first = state.holders.iter().filter_map(|holder| holder.remaining).min();
    let longest = if would_hear { UNHEARD } else { PAUSE };
    first.map_or(longest, |first| longest.min(first.saturating_add(GRAIN)))
}

//! Looking at a name, and following it by what is published about it.

use std::{sync::Arc, time::Duration};

use futures::stream::{self, BoxStream};
use lock_core::{Backend, BootInstant, Contender, Error, LockName, Mode, Snapshot};

use crate::{
    Redis,
    node::{FailureKind, Node, Subscription},
    scripts::{self, Holder, Look},
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

impl Redis {
    /// Who holds `name`.
    pub(crate) async fn look(&self, name: &LockName) -> Result<Snapshot, Error> {
        let call = || scripts::inspect(&self.keys(name));
        let answer = match self.servers().call(call()).await {
            Err(error) if error.kind() == FailureKind::Connection => self.servers().call(call()).await,
            answer => answer,
        };
        let look = answer.and_then(|answer| scripts::look(&answer)).map_err(|error| self.unavailable(error))?;
        Ok(snapshot(look))
    }
}

pub(crate) fn snapshot(look: Look) -> Snapshot {
    let alone = look.alone.into_iter().map(|holder| contender(holder, Mode::Exclusive));
    let readers = look.readers.into_iter().map(|holder| contender(holder, Mode::Read));
    let permits = look.permits.into_iter().map(|holder| {
        let of = holder.of.and_then(std::num::NonZeroU32::new).unwrap_or(std::num::NonZeroU32::MIN);
        contender(holder, Mode::Permit { of })
    });
    Snapshot::new(alone.chain(readers).chain(permits).collect(), Vec::new())
}

fn contender(holder: Holder, mode: Mode) -> Contender {
    let mut contender = Contender::new(String::from_utf8_lossy(&holder.value)).with_payload(holder.payload);
    (contender.token, contender.remaining) = (holder.number, holder.remaining);
    contender = contender.with_mode(mode);
    match holder.since {
        Some(since) => contender.with_since_micros(since),
        None => contender,
    }
}

/// Follows a name: how it is, and again whenever that has changed.
pub(crate) fn followed(redis: Arc<Redis>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
    let node = redis.node_for(&name);
    let subscription = node.subscribe(&redis.keys(&name).changes());
    let follower = Follower { redis, name, node, subscription, given: Given::Nothing };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let closed = follower.redis.closed().clone();
        let item = closed.run_until_cancelled(follower.next()).await?;
        Some((item, follower))
    }))
}

struct Follower {
    redis: Arc<Redis>,
    name: LockName,
    /// Whose channel it is.
    node: Node,
    subscription: Subscription,
    given: Given,
}

/// What the stream gave last.
enum Given {
    Nothing,
    State(Snapshot),
    Failure,
}

/// What was known of the channel before a look.
struct Before {
    changes: u64,
    would_hear: bool,
}

impl Follower {
    async fn next(&mut self) -> Result<Snapshot, Error> {
        match self.given {
            Given::Nothing => {}
            Given::State(_) => self.redis.clock().sleep(MERGED).await,
            Given::Failure => self.redis.clock().sleep(PAUSE).await,
        }
        loop {
            self.listen();
            // Before the look: what is published from here on is about a later state.
            let before = Before { changes: self.subscription.changes(), would_hear: self.subscription.is_confirmed() };
            match self.redis.inspect(&self.name).await {
                Ok(state) => {
                    let look_again = self.redis.clock().now().saturating_add(first_end(&state, before.would_hear));
                    if !matches!(&self.given, Given::State(given) if given.is_like(&state)) {
                        self.given = Given::State(state.clone());
                        return Ok(state);
                    }
                    self.until_changed(&before, look_again).await;
                }
                Err(error) => {
                    self.given = Given::Failure;
                    return Err(error);
                }
            }
        }
    }

    /// Listens where the lock is: it may be somewhere else by now.
    fn listen(&mut self) {
        let node = self.redis.node_for(&self.name);
        if !node.is(&self.node) {
            self.subscription = node.subscribe(&self.redis.keys(&self.name).changes());
            self.node = node;
        }
    }

    /// Waits for something that is published, or until a holder's lease has ended, or until messages would be heard.
    async fn until_changed(&mut self, before: &Before, look_again: BootInstant) {
        let clock = self.redis.clock();
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

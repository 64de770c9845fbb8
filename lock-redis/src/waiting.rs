//! Waiting for a lock: subscribed to its releases, with the holder's remaining ttl as the fallback.

use std::{sync::Arc, time::Duration};

use lock_core::{Backoff, Error, Lease, Request};
use tokio_util::sync::CancellationToken;

use crate::{
    Redis,
    attempt::Tried,
    lines::{Front, SeenHeld},
    node::NodeError,
};

/// When to look again at a lock that has no expiry, and so is none of ours: its release may not be published.
const WITHOUT_EXPIRY: Duration = Duration::from_secs(1);

/// A key with `n` ms left is gone after `n + 1`.
const GRAIN: Duration = Duration::from_millis(1);

impl Redis {
    /// Waits until granted or stopped.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        request: &Request,
        ttl: Duration,
        stop: &CancellationToken,
    ) -> Result<Box<dyn Lease>, Error> {
        let arrived = self.clock().now();
        let place = self.lines().join(&request.name);
        let mut front = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(Error::Cancelled),
            front = place.first() => front,
            // The first in line bridges the outage; whoever is behind it does not begin anew after it.
            () = self.node().out(arrived) => return Err(self.out()),
        };
        loop {
            if let Some(held) = front.held_until(self.clock().now()) {
                self.sleep_while_held(&mut front, held, stop).await?;
                continue;
            }
            let changes = self.listening(&mut front, request);
            match self.try_once(request, ttl, stop).await {
                Ok(Tried::Granted { attempt, number, sent_at }) => {
                    // The next in line need not ask: it is held by us, and our release will be published.
                    let look_again = sent_at.saturating_add(ttl);
                    front.held = changes.map(|changes| SeenHeld { changes, look_again });
                    front.failing_since = None;
                    return Ok(self.grant(request, attempt, number, ttl, sent_at));
                }
                Ok(Tried::Held(left)) => {
                    front.failing_since = None;
                    let look_again = left.map_or(WITHOUT_EXPIRY, |left| left.saturating_add(GRAIN));
                    let look_again = self.clock().now().saturating_add(look_again);
                    match changes {
                        Some(changes) => front.held = Some(SeenHeld { changes, look_again }),
                        // Releases since the try were missed: subscribe, then try once more.
                        None => self.listen(&mut front, request, stop).await?,
                    }
                }
                Ok(Tried::Stopped) => return Err(Error::Cancelled),
                Err(error) => self.bridge(&mut front, error, stop).await?,
            }
        }
    }

    /// How many messages have come, to be read before a try; `None` while no message would come.
    fn listening(&self, front: &mut Front, request: &Request) -> Option<u64> {
        if front.subscription.is_none() {
            front.subscription = self.node().listening(&self.keys(&request.name).channel());
        }
        let subscription = front.subscription.as_ref().filter(|subscription| subscription.is_confirmed())?;
        Some(subscription.changes())
    }

    async fn listen(&self, front: &mut Front, request: &Request, stop: &CancellationToken) -> Result<(), Error> {
        let subscribe = || self.node().subscribe(&self.keys(&request.name).channel());
        let subscription = front.subscription.get_or_insert_with(subscribe);
        let since = self.clock().now();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = subscription.confirmed() => Ok(()),
            () = self.node().out(since) => Err(self.out()),
        }
    }

    /// Sleeps until there was a message, the holder's lease has run out, or the subscription connection was lost.
    async fn sleep_while_held(&self, front: &mut Front, held: SeenHeld, stop: &CancellationToken) -> Result<(), Error> {
        let Some(subscription) = &mut front.subscription else { return Ok(()) };
        let since = self.clock().now();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = subscription.changed_since(held.changes) => Ok(()),
            () = self.clock().sleep_until(held.look_again) => Ok(()),
            () = self.node().out(since) => Err(self.out()),
        }
    }

    /// Waits a moment after a failed try, unless it has failed for too long.
    async fn bridge(&self, front: &mut Front, error: NodeError, stop: &CancellationToken) -> Result<(), Error> {
        let now = self.clock().now();
        let since = *front.failing_since.get_or_insert(now);
        let limit = self.node().config().connect_timeout;
        if !error.is_temporary() || now.saturating_since(since) >= limit {
            return Err(self.unavailable(error));
        }
        tracing::debug!(%error, "trying again");
        // The longer it fails, the longer the pauses; `since` outlives a waiter, a back-off kept here would not.
        let bound = (limit / 10).max(now.saturating_since(since) / 4);
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = self.clock().sleep(Backoff::new(bound, bound).pause()) => Ok(()),
        }
    }

    fn out(&self) -> Error {
        let limit = self.node().config().connect_timeout;
        Error::no_answer(self.url(), format!("nothing has succeeded on it for {limit:?}"))
    }
}

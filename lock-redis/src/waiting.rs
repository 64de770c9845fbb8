//! Waiting for a lock: subscribed to its releases, with the holder's remaining ttl as the fallback.

use std::{sync::Arc, time::Duration};

use lock_core::{Backoff, BootInstant, Error, Lease, LockName, Request};
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

/// How long a client that gave the lock to others who waited for it lets them go first, should it want it again. A
/// hand-off takes a fraction of that; without it a client that takes the lock again at once is always faster than those
/// who first have to hear of its release.
const COURTESY: Duration = Duration::from_millis(1);

/// How many of those who hear of a release try at once, on average.
const AT_ONCE: f64 = 5.0;

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
        if let Some(look_again) = self.lines().others_go_first(&request.name, self.clock().now()) {
            self.listen(&mut front, request, stop).await?;
            front.held = self.listening(&mut front, request).map(|changes| SeenHeld { changes, look_again });
        }
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
                Ok(Tried::Held(left) | Tried::InLine { left, .. }) => {
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
                Err(error) => self.bridge(&mut front.failing_since, error, stop).await?,
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

    /// Waits until releases are heard of, but not for ever: a user who may not subscribe looks again now and then.
    async fn listen(&self, front: &mut Front, request: &Request, stop: &CancellationToken) -> Result<(), Error> {
        let subscribe = || self.node().subscribe(&self.keys(&request.name).channel());
        let subscription = front.subscription.get_or_insert_with(subscribe);
        let since = self.clock().now();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = subscription.confirmed() => Ok(()),
            () = self.clock().sleep(self.node().config().response_timeout) => Ok(()),
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
            () = subscription.changed_since(held.changes) => {
                let (changes, listeners) = subscription.latest();
                let look_again = self.clock().now().saturating_add(hold_back(listeners, fastrand::f64(), fastrand::f64()));
                front.held = Some(SeenHeld { changes, look_again });
                Ok(())
            }
            () = self.clock().sleep_until(held.look_again) => Ok(()),
            () = self.node().out(since) => Err(self.out()),
        }
    }

    /// Waits a moment after a failed try, unless it has failed for too long.
    pub(crate) async fn bridge(
        &self,
        failing_since: &mut Option<BootInstant>,
        error: NodeError,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let now = self.clock().now();
        let since = *failing_since.get_or_insert(now);
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

    /// Notes a release that so many clients heard of.
    pub(crate) fn released(&self, name: &LockName, listeners: u64) {
        let ourselves = u64::from(listeners > 0 && self.node().listening(&self.keys(name).channel()).is_some());
        if listeners > ourselves {
            let now = self.clock().now();
            self.lines().let_others_go_first(name, now, now.saturating_add(COURTESY));
        }
    }

    pub(crate) fn out(&self) -> Error {
        let limit = self.node().config().connect_timeout;
        Error::no_answer(self.url(), format!("nothing has succeeded on it for {limit:?}"))
    }
}

/// How long to hold back after a release that so many clients heard of. A few try at once; the others leave it to them,
/// for a time that is chosen at random, so that somebody comes soon, should none of the few want it any more. All of them
/// trying at once would keep the server busy with refusals while it should be granting.
fn hold_back(listeners: u64, chance: f64, share: f64) -> Duration {
    let listeners = f64::from(u32::try_from(listeners).unwrap_or(u32::MAX));
    if chance * listeners < AT_ONCE {
        return Duration::ZERO;
    }
    Duration::from_millis(1).mul_f64(share * listeners.min(50.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_few_listeners_all_try_at_once(listeners in 0..=5_u64, chance in 0.0..1.0_f64, share in 0.0..1.0_f64) {
            prop_assert_eq!(hold_back(listeners, chance, share), Duration::ZERO);
        }

        #[test]
        fn nobody_holds_back_for_long(listeners: u64, chance in 0.0..1.0_f64, share in 0.0..1.0_f64) {
            prop_assert!(hold_back(listeners, chance, share) <= Duration::from_millis(50));
        }
    }

    #[test]
    fn of_many_listeners_about_five_try_at_once() {
        let at_once = (0..1_000).filter(|at| hold_back(100, f64::from(*at) / 1_000.0, 0.5).is_zero()).count();
        assert_eq!(at_once, 50, "of a thousand, each with a hundred listeners");
    }
}

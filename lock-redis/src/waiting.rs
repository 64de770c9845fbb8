//! Waiting: subscribed to releases, with the holder's remaining ttl as the fallback, or a few seconds where that is longer.

use std::{sync::Arc, time::Duration};

use lock_core::{Backoff, BootInstant, Error, Lease, LockName};
use tokio_util::sync::CancellationToken;

use crate::{
    Redis,
    attempt::{Granted, Tried, Wanted},
    kind::{Family, Kind},
    lines::{Front, LineOf, Place, SeenHeld},
    node::NodeError,
    scripts::InLine,
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

impl Wanted<'_> {
    fn line(&self) -> LineOf {
        (self.kind.family(), self.request.name.clone())
    }

    fn channel(&self, redis: &Redis) -> String {
        self.kind.family().channel(&redis.keys(&self.request.name))
    }
}

impl Redis {
    /// Waits until granted or stopped.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        stop: &CancellationToken,
    ) -> Result<Box<dyn Lease>, Error> {
        // Those who share do not wait for each other, unless somebody waits already.
        let mut was_refused = false;
        if wanted.kind != Kind::Alone && !self.lines().has(&wanted.line()) {
            match self.try_once(wanted, None, stop).await {
                Ok(Tried::Granted(granted)) => return Ok(self.grant(wanted.request, granted)),
                Ok(Tried::Held(_) | Tried::InLine { .. }) => was_refused = true,
                Ok(Tried::Permits(there)) => return Err(wanted.disagreement(there)),
                Ok(Tried::Stopped) => return Err(Error::Cancelled),
                Err(error) if !error.is_temporary() => return Err(self.unavailable(error)),
                Err(error) => tracing::debug!(%error, "trying again"),
            }
        }
        let writer = (wanted.kind == Kind::Alone).then(|| self.waiting_writer(wanted));
        let place = self.lines().join(wanted.line(), writer);
        let granted = self.wait_in_line(wanted, &place, was_refused, stop).await;
        if granted.is_err() {
            self.withdraw(wanted, &place).await;
        }
        // Safeguard: catalogue: each try counts from its own sending (Redis)
        granted.map(|granted| self.grant(wanted.request, granted))
    }

    async fn wait_in_line(
        &self,
        wanted: &Wanted<'_>,
        place: &Place<'_>,
        was_refused: bool,
        stop: &CancellationToken,
    ) -> Result<Granted, Error> {
        let node = self.node_for(&wanted.request.name);
        let mut front = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(Error::Cancelled),
            front = place.first() => front,
            // The first in line bridges the outage; whoever is behind it does not begin anew after it.
            () = node.out(wanted.arrived) => return Err(self.out()),
            () = self.stay_announced(wanted, place) => return Err(Error::Cancelled),
        };
        if let Some(look_again) = self.lines().others_go_first(&wanted.line(), self.clock().now()) {
            self.listen(&mut front, wanted, stop).await?;
            let changes = self.listening(&mut front, wanted);
            front.held = changes.map(|changes| SeenHeld { changes, look_again, keeps_out: None });
        }
        if was_refused && self.listening(&mut front, wanted).is_none() {
            self.listen(&mut front, wanted, stop).await?;
        }
        loop {
            if let Some(held) = front.held_until(wanted.kind, self.clock().now()) {
                self.sleep_while_held(&mut front, held, wanted, place, stop).await?;
                continue;
            }
            let changes = self.listening(&mut front, wanted);
            match self.try_in_line(wanted, place, stop).await {
                Ok(Tried::Granted(granted)) => {
                    front.failing_since = None;
                    front.held = changes.and_then(|changes| self.held_by_us(&granted, changes));
                    return Ok(granted);
                }
                Ok(Tried::Held(left) | Tried::InLine { at: InLine { left, .. }, .. }) => {
                    front.failing_since = None;
                    let look_again = self.clock().now().saturating_add(self.unheard(left));
                    match changes {
                        Some(changes) => {
                            front.held = Some(SeenHeld { changes, look_again, keeps_out: Some(wanted.kind) });
                        }
                        // Releases since the try were missed: subscribe, then try once more.
                        // Safeguard: catalogue: a waiter looks again once it listens (Redis)
                        None => self.listen(&mut front, wanted, stop).await?,
                    }
                }
                Ok(Tried::Permits(there)) => return Err(wanted.disagreement(there)),
                Ok(Tried::Stopped) => return Err(Error::Cancelled),
                Err(error) => self.bridge(&mut front.failing_since, error, stop).await?,
            }
        }
    }

    /// How many messages have come, to be read before a try; `None` while no message would come.
    fn listening(&self, front: &mut Front, wanted: &Wanted<'_>) -> Option<u64> {
        let node = self.node_for(&wanted.request.name);
        if front.listening.as_ref().is_some_and(|(known, _)| !known.is(&node)) {
            // The lock has moved. What was counted on the channel says nothing about another one.
            (front.listening, front.held) = (None, None);
        }
        if front.listening.is_none() {
            let subscription = node.listening(&wanted.channel(self));
            front.listening = subscription.map(|subscription| (node, subscription));
        }
        let (_, subscription) = front.listening.as_ref().filter(|(_, subscription)| subscription.is_confirmed())?;
        Some(subscription.changes())
    }

    /// Waits until releases are heard of, but not for ever: a user who may not subscribe looks again now and then.
    async fn listen(&self, front: &mut Front, wanted: &Wanted<'_>, stop: &CancellationToken) -> Result<(), Error> {
        let subscribe = || {
            let node = self.node_for(&wanted.request.name);
            let subscription = node.subscribe(&wanted.channel(self));
            (node, subscription)
        };
        let (node, subscription) = front.listening.get_or_insert_with(subscribe);
        let since = self.clock().now();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = subscription.confirmed() => Ok(()),
            () = self.clock().sleep(self.servers().config().response_timeout) => Ok(()),
            () = node.out(since) => Err(self.out()),
        }
    }

    /// Sleeps until there was a message, the holder's lease has run out, or the subscription connection was lost.
    async fn sleep_while_held(
        &self,
        front: &mut Front,
        held: SeenHeld,
        wanted: &Wanted<'_>,
        place: &Place<'_>,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let Some((node, subscription)) = &mut front.listening else { return Ok(()) };
        let since = self.clock().now();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = subscription.changed_since(held.changes) => {
                let (changes, listeners) = subscription.latest();
                let look_again = self.clock().now().saturating_add(hold_back(listeners, fastrand::f64(), fastrand::f64()));
                front.held = Some(SeenHeld { changes, look_again, keeps_out: None });
                Ok(())
            }
            () = self.clock().sleep_until(held.look_again) => Ok(()),
            () = node.out(since) => Err(self.out()),
            () = self.stay_announced(wanted, place) => Ok(()),
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
        let limits = self.servers().config();
        if !error.is_temporary() || now.saturating_since(since) >= limits.outage_limit() {
            return Err(self.unavailable(error));
        }
        tracing::debug!(%error, "trying again");
        // The longer it fails, the longer the pauses; `since` outlives a waiter, a back-off kept here would not.
        let bound = (limits.connect_timeout / 10).max(now.saturating_since(since) / 4);
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Cancelled),
            () = self.clock().sleep(Backoff::new(bound, bound).pause()) => Ok(()),
        }
    }

    /// Notes a release that so many clients heard of.
    pub(crate) fn released(&self, family: Family, name: &LockName, listeners: u64) {
        let heard = |channel: String| self.node_for(name).listening(&channel).is_some();
        let ourselves = u64::from(listeners > 0 && heard(family.channel(&self.keys(name))));
        if listeners > ourselves {
            let now = self.clock().now();
            self.lines().let_others_go_first((family, name.clone()), now, now.saturating_add(COURTESY));
        }
    }

    /// After a grant of the lock to one of this client the next in line need not ask: it is held, and the release will be
    /// published. Beside a reader, or a permit, it may come in at once.
    fn held_by_us(&self, granted: &Granted, changes: u64) -> Option<SeenHeld> {
        let look_again = granted.sent_at.saturating_add(self.unheard(Some(granted.holding.ttl)));
        (granted.holding.kind == Kind::Alone).then_some(SeenHeld { changes, look_again, keeps_out: None })
    }

    /// After how long to look again, if nothing is heard of a lock that its holder still has for this long.
    fn unheard(&self, left: Option<Duration>) -> Duration {
        unheard(left, self.longest_silence(), fastrand::f64())
    }

    pub(crate) fn out(&self) -> Error {
        let limit = self.servers().config().outage_limit();
        Error::no_answer(self.url(), format!("nothing has succeeded on it for {limit:?}"))
    }
}

/// After how long to look again at a lock that its holder has for this long, `None` without an end: when that ends, and
/// earlier should it be long, because a release may not be heard of (somebody deleted the key, or may not publish). Of many
/// who wait not all look at once.
fn unheard(left: Option<Duration>, longest: Duration, chance: f64) -> Duration {
    let left = left.map_or(WITHOUT_EXPIRY, |left| left.saturating_add(GRAIN));
    // Safeguard: a waiter that hears nothing looks by itself (Redis)
    left.min(longest.mul_f64(1.0 - chance / 4.0))
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
        fn one_who_hears_nothing_looks_within_the_limit_and_not_long_before_it(
            left in proptest::option::of(0..86_400_000_u64), longest in 100..86_400_000_u64, chance in 0.0..1.0_f64,
        ) {
            let (left, longest) = (left.map(Duration::from_millis), Duration::from_millis(longest));
            let ends = left.map_or(WITHOUT_EXPIRY, |left| left + GRAIN);
            let unheard = unheard(left, longest, chance);
            prop_assert!(unheard <= longest && unheard <= ends && unheard >= ends.min(longest.mul_f64(0.74)));
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

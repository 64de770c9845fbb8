//! Acquiring by the strategy `plain`: whoever comes tries to set one key, clients of other libraries, too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use lock_core::{Backoff, BootInstant, Error, Feature, Lease, Mode, Request, Wait};
use tokio_util::sync::CancellationToken;

use crate::{
    acquisition::{AttemptAnswer, EnterCall},
    client::Client,
    lease::Leases,
    node::{Node, Subscription},
    protocol::{
        answers::Entered,
        attempt::{Attempt, Kind},
        keys::Keys,
    },
};

/// A key with `n` ms left is gone after `n + 1`.
const GRAIN: Duration = Duration::from_millis(1);

/// Those whom one release wakes do not all try in the same moment.
const SPREAD: Duration = Duration::from_millis(2);

/// For how many times the pause between two looks a waiter has releases published. The note of it is written anew when less
/// than half is left, and then it lasts beyond the next look.
const NOTED: u32 = 4;

/// Acquires locks by the strategy `plain`, and lets the waiters of this client ask the server one at a time.
pub(crate) struct PlainStrategy {
    client: Arc<Client>,
    leases: Leases,
    lines: LocalQueues,
    look_again: Duration,
}

/// One acquisition by the strategy `plain`.
struct PlainAcquisition<'a> {
    plain: &'a PlainStrategy,
    request: &'a Request,
    keys: Keys,
    stop: &'a CancellationToken,
    /// The channel of releases, and the node on which it is listened to.
    listening: Option<(Node, Subscription)>,
}

/// The state of the subscription to the releases of a lock before an attempt, to tell whether a release came after that.
#[derive(Clone, Copy)]
struct ReleasesMark {
    changes: u64,
    confirmation: Option<u64>,
}

impl PlainStrategy {
    pub(crate) fn new(client: &Arc<Client>, leases: Leases, look_again: Duration) -> Self {
        Self { client: Arc::clone(client), leases, lines: LocalQueues::default(), look_again }
    }

    /// Acquires in no promised order.
    pub(crate) async fn acquire(&self, request: &Request, stop: &CancellationToken) -> Result<Box<dyn Lease>, Error> {
        if request.mode != Mode::Exclusive {
            return Err(Error::unsupported(Feature::ReadWrite, self.client.config.deployment.scheme()));
        }
        let keys = self.client.keys(&request.name)?;
        let mut acquisition = PlainAcquisition { plain: self, request, keys, stop, listening: None };
        match request.wait {
            Wait::UntilStopped => acquisition.wait().await,
            Wait::No => acquisition.try_now().await,
        }
    }
}

impl PlainAcquisition<'_> {
    async fn try_now(&mut self) -> Result<Box<dyn Lease>, Error> {
        let (attempt, AttemptAnswer { sent_at, entered }) = match self.send(Duration::ZERO).await {
            (attempt, Ok(answered)) => (attempt, answered),
            (_, Err(error)) => return Err(self.plain.client.unavailable(error)),
        };
        match entered {
            Some(Entered::Granted(number)) => Ok(self.lease(attempt, number, sent_at)),
            Some(Entered::Held { .. } | Entered::Undone) => Err(Error::NotAcquired { name: self.request.name.clone() }),
            Some(_) => Err(self.plain.client.other_format(&self.request.name)),
            None => Err(Error::Cancelled),
        }
    }

    /// Waits until those of this client who came before have the lock or have given up, and then tries until it is granted.
    async fn wait(&mut self) -> Result<Box<dyn Lease>, Error> {
        let PlainStrategy { client, lines, look_again, .. } = self.plain;
        let place = lines.join(self.keys.lock());
        let _first = {
            let node = client.node_for(&self.keys);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Error::Cancelled),
                first = place.first() => first,
                never = node.report(&self.request.outage) => match never {},
            }
        };
        loop {
            let before = self.before();
            let (attempt, answered) = self.send(*look_again * NOTED).await;
            let left = match answered {
                Err(error) => return Err(client.unavailable(error)),
                Ok(AttemptAnswer { sent_at, entered: Some(Entered::Granted(number)) }) => {
                    return Ok(self.lease(attempt, number, sent_at));
                }
                Ok(AttemptAnswer { entered: Some(Entered::Held { left, .. }), .. }) => left,
                // Undone by itself: only a request that was repeated in vain is.
                Ok(AttemptAnswer { entered: Some(Entered::Undone), .. }) => Some(Duration::ZERO),
                Ok(AttemptAnswer { entered: Some(_), .. }) => return Err(client.other_format(&self.request.name)),
                Ok(AttemptAnswer { entered: None, .. }) => return Err(Error::Cancelled),
            };
            self.request.outage.answered();
            self.until_worth_a_try(before, left).await?;
        }
    }

    /// Sends one attempt, with a value of its own: what is still on its way about an earlier one is not about this.
    async fn send(&self, waits: Duration) -> (Arc<Attempt>, Result<AttemptAnswer, crate::node::NodeError>) {
        let PlainStrategy { client, .. } = self.plain;
        let ttl = self.request.ttl.unwrap_or(client.config.ttl);
        let attempt = Attempt::new(self.keys.clone(), Kind::Plain, client.values.next(), ttl, Duration::ZERO);
        let attempt = Arc::new(attempt);
        let call = attempt.take(client.proposals.next(), &self.request.payload, waits);
        let answered = EnterCall { client, attempt: &attempt, call, stop: self.stop }.run().await;
        (attempt, answered)
    }

    fn lease(&self, attempt: Arc<Attempt>, number: u64, sent_at: BootInstant) -> Box<dyn Lease> {
        let validity = self.plain.client.validity(sent_at, attempt.ttl);
        self.plain.leases.grant(&self.request.name, attempt, number, validity)
    }

    /// What is known of releases by now: to be read before a try, so that none is missed after it. Listens where the lock is,
    /// which may be somewhere else by now; before the first try only if somebody does already.
    fn before(&mut self) -> Option<ReleasesMark> {
        let (node, channel) = (self.plain.client.node_for(&self.keys), self.keys.releases());
        let listening = self.listening.take().filter(|(known, _)| known.is(&node));
        let subscription = listening.map(|(_, subscription)| subscription).or_else(|| node.listening(&channel));
        let before = subscription.as_ref().map(|subscription| ReleasesMark {
            changes: subscription.changes(),
            confirmation: subscription.confirmation(),
        });
        self.listening = subscription.map(|subscription| (node, subscription));
        before
    }

    /// Waits until the lock may be free: a release is published, the holder's lease ends, messages may have been missed, or
    /// nobody was heard of for long enough.
    async fn until_worth_a_try(&mut self, before: Option<ReleasesMark>, left: Option<Duration>) -> Result<(), Error> {
        let PlainStrategy { client, look_again, .. } = self.plain;
        let clock = client.clock();
        let (node, mut subscription) = self.listening.take().unwrap_or_else(|| {
            let node = client.node_for(&self.keys);
            let subscription = node.subscribe(&self.keys.releases());
            (node, subscription)
        });
        // A first subscription has missed whatever was published before.
        let before = before.unwrap_or_else(|| ReleasesMark { changes: subscription.changes(), confirmation: None });
        // Other libraries publish nothing. Whatever begins together does not stay together.
        // Safeguard: who waits looks again by itself (Redis, plain)
        let pause = look_again.saturating_sub(Backoff::new(*look_again / 8, *look_again / 8).pause());
        let pause = left.map_or(pause, |left| pause.min(left.saturating_add(GRAIN)));
        let mut confirmed = subscription.clone();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(Error::Cancelled),
            () = async {
                // Safeguard: who waits hears of a release (Redis, plain)
                subscription.changed_since(before.changes).await;
                clock.sleep(Backoff::new(SPREAD, SPREAD).pause()).await;
            } => {}
            () = confirmed.confirmed_anew(before.confirmation) => {}
            () = clock.sleep(pause) => {}
            never = node.report(&self.request.outage) => match never {},
        }
        self.listening = Some((node, confirmed));
        Ok(())
    }
}

/// The queues of the waiters of this client, by their lock keys. Only the first waiter of each asks the server, so a release
/// costs a request of each client, and not of each waiter.
#[derive(Default)]
struct LocalQueues {
    lines: Arc<Mutex<HashMap<String, Weak<LocalQueue>>>>,
}

/// The queue of the waiters of this client for one lock. This mutex is fair: whoever has it is the first.
type LocalQueue = tokio::sync::Mutex<()>;

/// The place of one waiter in a [`LocalQueue`], which the waiter leaves by dropping this value.
struct LocalPlace {
    lines: Arc<Mutex<HashMap<String, Weak<LocalQueue>>>>,
    key: String,
    line: Option<Arc<LocalQueue>>,
}

impl LocalQueues {
    /// Joins a line, at its end.
    fn join(&self, key: &str) -> LocalPlace {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let line = Arc::new(LocalQueue::default());
            lines.insert(key.to_owned(), Arc::downgrade(&line));
            line
        });
        LocalPlace { lines: Arc::clone(&self.lines), key: key.to_owned(), line: Some(line) }
    }
}

impl LocalPlace {
    /// Resolves when this place is the first one.
    async fn first(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.line {
            Some(line) => Some(line.lock().await),
            None => None,
        }
    }
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.line = None;
        // Joining needs the map, so nobody comes in between.
        if lines.get(&self.key).is_some_and(|line| line.strong_count() == 0) {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_gone_when_the_last_one_leaves_it() {
        let lines = LocalQueues::default();
        let (first, second) = (lines.join("a"), lines.join("a"));
        let turn = first.first().await;
        let mut next = Box::pin(second.first());
        assert!(futures::poll!(&mut next).is_pending());
        drop(turn);
        drop(first);
        assert!(futures::poll!(&mut next).is_ready());
        assert_eq!(lines.lines.lock().unwrap().len(), 1);
        drop(next);
        drop(second);
        assert!(lines.lines.lock().unwrap().is_empty());
    }
}

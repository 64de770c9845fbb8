//! Acquiring by the queue: entering, and standing in line until it is one's turn.

use std::{sync::Arc, time::Duration};

use lock_core::{Error, Lease, RenewalHandle, Request, Validity, Wait};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    acquisition::{AttemptAnswer, EnterCall},
    client::Client,
    lease::Leases,
    node::{NodeError, Subscription},
    protocol::{
        answers::{Entered, Standing, done},
        attempt::{Ask, Attempt, Kind},
        claim::{HandedOver, Rhythm, claimed_until},
    },
    renewal::held,
    undo::{bury, go_on, undo},
    waiters::{RegisteredWaiter, WaitResult, Waiter, WaiterState, Waiters},
};

/// How long a grant that was handed over is held before its first renewal. One that is given back before spares it.
const FIRST_RENEWAL: Duration = Duration::from_millis(20);

/// Acquires locks by the strategy `queue`: contenders wait in a queue on the server. Clones share everything.
#[derive(Clone)]
pub(crate) struct QueueStrategy {
    client: Arc<Client>,
    leases: Leases,
    waiters: Waiters,
}

/// One acquisition by the strategy `queue`.
struct QueueAcquisition<'a> {
    queue: &'a QueueStrategy,
    request: &'a Request,
    kind: Kind,
    stop: &'a CancellationToken,
}

/// Why a waiter has left the queue.
enum WaitExit {
    /// The server has ended the wait.
    Turn(WaiterState, WaitResult),
    /// It was told to stop.
    Stopped,
}

impl QueueStrategy {
    pub(crate) fn new(client: &Arc<Client>, leases: Leases) -> Self {
        Self { client: Arc::clone(client), leases, waiters: Waiters::new(client) }
    }

    /// Acquires in the order of arrival.
    pub(crate) async fn acquire(&self, request: &Request, stop: &CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let Self { client, leases, waiters } = self;
        let kind = Kind::of(request.mode)?;
        let (ttl, delay) = (request.ttl.unwrap_or(client.config.ttl), request.delay.unwrap_or_default());
        let waits = request.wait == Wait::UntilStopped;
        let acquisition = QueueAcquisition { queue: self, request, kind, stop };
        loop {
            // A value of its own each time: what is still on its way about an earlier attempt is not about this.
            let attempt = Arc::new(Attempt::new(client.keys(&request.name)?, kind, client.values.next(), ttl, delay));
            // Before anything is sent: the message may come before the answer.
            let registered = waits.then(|| waiters.register(client, &attempt));
            let listening = if waits { self.listening(&attempt) } else { None };
            let waits = waits.then_some(client.channel.as_str());
            let ask = Ask { proposal: client.proposals.next(), payload: &request.payload, waits };
            let entering = EnterCall { client, attempt: &attempt, call: attempt.enter(&ask), stop };
            let AttemptAnswer { sent_at, entered } = entering.run().await.map_err(|error| client.unavailable(error))?;
            match (entered, registered) {
                (Some(Entered::Granted(number)), _) => {
                    return Ok(leases.grant(&request.name, attempt, number, client.validity(sent_at, ttl)));
                }
                (Some(Entered::InLine(at)), Some(registered)) => {
                    request.outage.answered();
                    attempt.note_waited();
                    registered.waiter.answered(sent_at, Standing::InLine(at));
                    // Boxed: who is granted at once reserves no memory for it.
                    if let Some(lease) = Box::pin(acquisition.wait_for_turn(&registered, listening)).await? {
                        return Ok(lease);
                    }
                }
                // Undone by itself: only a request that was repeated in vain is.
                (Some(Entered::Undone), Some(_)) => {}
                (Some(Entered::Held { more, .. }), _) => {
                    go_on(client, &attempt, more);
                    return Err(Error::NotAcquired { name: request.name.clone() });
                }
                (Some(Entered::Undone | Entered::InLine(_)), None) => {
                    return Err(Error::NotAcquired { name: request.name.clone() });
                }
                (Some(Entered::Permits(there)), _) => return Err(acquisition.disagreement(there)),
                (Some(Entered::OtherFormat), _) => return Err(client.other_format(&request.name)),
                (None, _) => return Err(Error::Cancelled),
            }
        }
    }

    /// A confirmed subscription, and which confirmation it is: a request that is sent after this misses no message.
    fn listening(&self, attempt: &Attempt) -> Option<(Subscription, u64)> {
        let subscription = self.client.node_for(&attempt.keys).listening(&self.client.channel)?;
        let confirmation = subscription.confirmation()?;
        Some((subscription, confirmation))
    }
}

impl QueueAcquisition<'_> {
    /// The refusal of one who names another number of permits than those who hold one or wait for one.
    fn disagreement(&self, there: u64) -> Error {
        let there = u32::try_from(there).ok().and_then(std::num::NonZeroU32::new).unwrap_or(std::num::NonZeroU32::MAX);
        let asked = if let Kind::Permit(asked) = self.kind { asked } else { there };
        Error::permits(&self.request.name, asked, there)
    }

    /// Waits for its turn, heartbeat after heartbeat. Whoever does not wait for it any more leaves the queue.
    async fn wait_for_turn(
        &self,
        registered: &RegisteredWaiter,
        listening: Option<(Subscription, u64)>,
    ) -> Result<Option<Box<dyn Lease>>, Error> {
        let QueueStrategy { client, waiters, .. } = self.queue;
        let waiter = &registered.waiter;
        let beats = waiters.beat(waiter);
        let ended = self.until_its_turn(waiter, &beats, listening).await;
        drop(beats);
        match ended {
            WaitExit::Turn(state, end) => {
                self.take_turn(waiter, state, end).await.map_err(|error| client.unavailable(error))
            }
            WaitExit::Stopped => {
                give_up(client, &waiter.attempt).await;
                Err(Error::Cancelled)
            }
        }
    }

    async fn until_its_turn(
        &self,
        waiter: &Waiter,
        beats: &RenewalHandle<Waiter>,
        listening: Option<(Subscription, u64)>,
    ) -> WaitExit {
        let QueueStrategy { client, waiters, .. } = self.queue;
        // Messages come from any server of a cluster, so it hears of its grant should the lock move meanwhile.
        let node = client.node_for(&waiter.attempt.keys);
        let (mut subscription, mut looked_under) = match listening {
            Some((subscription, confirmation)) => (subscription, Some(confirmation)),
            None => (waiters.listen(client, &node), None),
        };
        let mut following = waiter.follow();
        // One for all of the wait: another one would not know that an outage was told, and not tell that it is over.
        let mut report = std::pin::pin!(node.report(&self.request.outage));
        loop {
            let state = *following.borrow_and_update();
            if let Some(end) = state.end {
                return WaitExit::Turn(state, end);
            }
            if let Some(at) = state.beat_at {
                beats.renew_by(at);
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return WaitExit::Stopped,
                () = changed(&mut following) => {}
                () = subscription.confirmed_anew(looked_under) => {
                    // Messages may have been missed before: look, now that none is missed any more.
                    looked_under = subscription.confirmation();
                    beats.renew_by(client.clock().now());
                }
                never = &mut report => match never {},
            }
        }
    }

    /// Makes a lease of what came at the end of a wait; `None` when there is nothing (any more).
    async fn take_turn(
        &self,
        waiter: &Waiter,
        state: WaiterState,
        end: WaitResult,
    ) -> Result<Option<Box<dyn Lease>>, NodeError> {
        let QueueStrategy { client, leases, .. } = self.queue;
        let (name, attempt) = (&self.request.name, &waiter.attempt);
        // What others wrote is acknowledged to nobody here: where that has to be, it is delivered once it is renewed.
        // Safeguard: a lock that is handed over is delivered when enough replicas have it (Redis)
        let is_enough = client.servers.config().replicas.is_none();
        let number = match end {
            WaitResult::Gone => {
                bury(client, attempt);
                return Ok(None);
            }
            WaitResult::Found { number, sent_at } if is_enough => {
                let validity = client.validity(sent_at, attempt.ttl);
                return Ok(Some(leases.grant(name, Arc::clone(attempt), number, validity)));
            }
            WaitResult::Found { number, .. } => number,
            WaitResult::HandedOver(grant) => {
                go_on(client, attempt, grant.more);
                if let Some(lease) = self.claim(waiter, state, grant).filter(|_| is_enough) {
                    return Ok(Some(lease));
                }
                grant.number
            }
        };
        // Too little is left of it, or it cannot be told how much: it is delivered once it is renewed, and counts from that.
        let sent_at = client.clock().now();
        let sent = client.servers.call_replicated(attempt.renew(number)).await;
        let renewed = sent.answer.and_then(|answer| held(&answer));
        match renewed.and_then(|is_held| if is_held { sent.acknowledged.map(|()| true) } else { Ok(false) }) {
            Ok(true) => {
                let validity = client.validity(sent_at, attempt.ttl);
                Ok(Some(leases.grant(name, Arc::clone(attempt), number, validity)))
            }
            denied => {
                undo(client, attempt, None);
                denied.map(|_| None)
            }
        }
    }

    /// A lease for as long as a grant lasts that was handed over.
    fn claim(&self, waiter: &Waiter, state: WaiterState, grant: HandedOver) -> Option<Box<dyn Lease>> {
        let QueueStrategy { client, leases, .. } = self.queue;
        let rhythm = Rhythm::of(waiter.attempt.ttl);
        let until = claimed_until(state.in_line?, grant, rhythm, client.clock().now())?;
        let (clock, attempt) = (client.clock(), Arc::clone(&waiter.attempt));
        let lease = leases.grant(&self.request.name, attempt, grant.number, Validity::new(clock, until));
        lease.renew_by(clock.now().saturating_add(FIRST_RENEWAL.min(rhythm.beat / 8)));
        Some(lease)
    }
}

/// Leaves the queue, and gives the lock back if that was handed over meanwhile.
async fn give_up(client: &Arc<Client>, attempt: &Arc<Attempt>) {
    let left = client.clock().timeout(client.response_timeout(), client.servers.call(attempt.leave())).await;
    match left.map(|answer| answer.and_then(|answer| done(&answer))) {
        Some(Ok(left)) => {
            go_on(client, attempt, left.more);
            bury(client, attempt);
        }
        _ => undo(client, attempt, None),
    }
}

async fn changed(following: &mut watch::Receiver<WaiterState>) {
    // The sender is the waiter's own, so it is there.
    let _ = following.changed().await;
}

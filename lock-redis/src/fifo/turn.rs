//! Acquiring in turn: entering, and standing in line until it is one's turn.

use std::sync::Arc;

use lock_core::{Error, Lease, LockName, RenewalHandle, Request, Snapshot, Wait};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Fifo,
    board::{End, News, OnBoard, Place},
    rhythm::Rhythm,
    scripts::{self, Standing},
};
use crate::{
    Redis,
    attempt::{Tried, Wanted},
    kind::Holding,
    node::{FailureKind, NodeError, Subscription},
    scripts::{Ask, held},
    watch::snapshot,
};

/// How a wait in line ended.
enum Ended {
    /// The lock was handed over or found.
    Turn(News, End),
    /// It was told to stop.
    Stopped,
    /// Nothing has succeeded on the server for too long.
    Out,
}

impl Redis {
    /// Acquires in the order of arrival.
    pub(crate) async fn acquire_in_turn(
        self: &Arc<Self>,
        fifo: &Fifo,
        wanted: &Wanted<'_>,
        stop: &CancellationToken,
    ) -> Result<Box<dyn Lease>, Error> {
        let request = wanted.request;
        let mut failing_since = None;
        loop {
            // An attempt of its own each time: what is still on its way about an earlier one is not about this.
            let holding = wanted.holding_by(self.attempt(&request.name).in_line());
            let waiting = fifo.board.add(Place::new(self.clock(), holding.clone()));
            let subscription =
                (request.wait == Wait::UntilStopped).then(|| fifo.known_subscription(self, &request.name)).flatten();
            match self.enter(fifo, holding, request, stop).await {
                Ok(Tried::Granted(granted)) => return Ok(self.grant(request, granted)),
                Ok(Tried::InLine { sent_at, at }) => {
                    failing_since = None;
                    waiting.place.answered(sent_at, Standing::InLine(at));
                    match self.wait_for_turn(fifo, &waiting, subscription, stop).await {
                        Ended::Turn(news, end) => match self.take_turn(request, &waiting.place, news, end).await {
                            Ok(Some(lease)) => return Ok(lease),
                            // It was passed over: it starts again, at the end.
                            Ok(None) => {}
                            Err(error) => self.bridge(&mut failing_since, error, stop).await?,
                        },
                        Ended::Stopped => return Err(Error::Cancelled),
                        Ended::Out => return Err(self.out()),
                    }
                }
                Ok(Tried::Held(_) | Tried::Permits(_)) if request.wait == Wait::No => {
                    return Err(Error::NotAcquired { name: request.name.clone() });
                }
                // Undone by itself: only a request that was repeated in vain is.
                Ok(Tried::Held(_) | Tried::Permits(_)) => {}
                Ok(Tried::Stopped) => return Err(Error::Cancelled),
                Err(error) if request.wait == Wait::No => return Err(self.unavailable(error)),
                Err(error) => self.bridge(&mut failing_since, error, stop).await?,
            }
        }
    }

    async fn enter(
        &self,
        fifo: &Fifo,
        holding: Holding,
        request: &Request,
        stop: &CancellationToken,
    ) -> Result<Tried, NodeError> {
        let ask = Ask { delay: holding.delay, ..Ask::new(holding.ttl, self.proposals().next(), &request.payload) };
        let enter = scripts::enter(&holding.attempt, &ask, request.wait == Wait::UntilStopped, &fifo.channel);
        self.try_this(holding, enter, stop).await
    }

    /// Waits for its turn, heartbeat after heartbeat. Whoever does not wait for it any more gives its place up.
    async fn wait_for_turn(
        &self,
        fifo: &Fifo,
        waiting: &OnBoard,
        known: Option<(Subscription, u64)>,
        stop: &CancellationToken,
    ) -> Ended {
        let place = &waiting.place;
        let beats = fifo.places.keep(Arc::clone(place), place.beating.clone(), Rhythm::of(place.holding.ttl).beat);
        let ended = self.until_its_turn(fifo, place, &beats, known, stop).await;
        drop(beats);
        match ended {
            Ended::Turn(..) => {}
            Ended::Stopped => self.give_up(place).await,
            Ended::Out => self.undo(&place.holding, None),
        }
        ended
    }

    async fn until_its_turn(
        &self,
        fifo: &Fifo,
        place: &Place,
        beats: &RenewalHandle<Place>,
        known: Option<(Subscription, u64)>,
        stop: &CancellationToken,
    ) -> Ended {
        // Messages come from any server of a cluster, so it hears of its grant should the lock move meanwhile.
        let node = self.servers().node_for(&place.holding.attempt.keys);
        let (mut subscription, mut looked_under) = match known {
            Some((subscription, confirmation)) => (subscription, Some(confirmation)),
            None => (fifo.listen(&node), None),
        };
        let since = self.clock().now();
        let mut following = place.follow();
        loop {
            let news = *following.borrow_and_update();
            if let Some(end) = news.end {
                return Ended::Turn(news, end);
            }
            if let Some(at) = news.look_again {
                beats.renew_by(at);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ended::Stopped,
                () = changed(&mut following) => {}
                () = subscription.confirmed_anew(looked_under) => {
                    // Messages may have been missed before: look, now that none is missed any more.
                    looked_under = subscription.confirmation();
                    beats.renew_by(self.clock().now());
                }
                () = node.out(since) => return Ended::Out,
            }
        }
    }

    /// Gives a place up, and the lock if that was handed over meanwhile.
    async fn give_up(&self, place: &Place) {
        let limit = self.servers().config().response_timeout;
        let left = self.clock().timeout(limit, self.servers().call(place.holding.release())).await;
        if left.is_none_or(|answer| answer.and_then(|answer| held(&answer)).is_err()) {
            self.undo(&place.holding, None);
        } else {
            self.bury(&place.holding);
        }
    }

    pub(crate) async fn look_at_the_line(&self, name: &LockName) -> Result<Snapshot, Error> {
        let look = || scripts::look(&self.keys(name));
        let answer = match self.servers().call(look()).await {
            Err(error) if error.kind() == FailureKind::Connection => self.servers().call(look()).await,
            answer => answer,
        };
        let (look, queue) =
            answer.and_then(|answer| scripts::seen(&answer)).map_err(|error| self.unavailable(error))?;
        Ok(Snapshot::new(snapshot(look).holders, queue))
    }
}

impl Fifo {
    /// A confirmed subscription, and which confirmation it is: a request that is sent after this misses no message.
    fn known_subscription(&self, redis: &Redis, name: &LockName) -> Option<(Subscription, u64)> {
        let subscription = redis.node_for(name).listening(&self.channel)?;
        let confirmation = subscription.confirmation()?;
        Some((subscription, confirmation))
    }
}

async fn changed(following: &mut watch::Receiver<News>) {
    // The sender is the place's own, so it is there.
    let _ = following.changed().await;
}

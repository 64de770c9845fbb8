//! An acquisition: rounds of voting until one is won, with a pause between two rounds.

mod attempt;
mod round;

use std::{
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::nodes::scripts::held;
use lock_core::{Backoff, Error, LockName, Outage, Request, Validity, Wait};
use tokio_util::sync::CancellationToken;

use self::{
    attempt::Attempt,
    round::{Grant, Round, RoundResult},
};
use crate::{
    client::Redlock,
    lease::{RedlockLease, shared::SharedLease},
    nodes::{
        requests::ask,
        scripts::{Claim, LockKeys, intent_kept},
    },
    protocol::{
        ballots::{UndoKind, VoteLost},
        kind::LockKind,
    },
    waiters::Listener,
};

/// How often an attempt that does not wait tries again when nobody has a majority: then nobody holds the lock.
const TRIES: u32 = 4;
/// The upper limit of the first pause after a vote that nobody won: about a round trip.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// The upper limit of all pauses after such votes.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// The upper limit of all pauses while no majority votes.
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// A waiter looks again after this at the latest: a waiter before it that stopped in its turn, or a holder that is no client
/// of this library, wakes nobody.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);
/// Spreads the waiters that see the same lease end.
const SCATTER: Duration = Duration::from_millis(20);

/// One acquisition of a lock on a Redlock deployment: its attempt, and what is remembered from one round of voting to the next.
pub(crate) struct Acquisition {
    redlock: Arc<Redlock>,
    name: LockName,
    /// The present attempt. Each round has a value of its own, so that the undo of one round never meets another.
    attempt: Attempt,
    /// `None` for an acquisition that does not wait.
    listener: Option<Listener>,
    rounds: u32,
    /// How many nodes answered in the last round.
    answered: usize,
    backoff: Backoff,
    /// The pauses while no majority votes.
    outage_backoff: Backoff,
    /// Where it is reported that no majority votes.
    outage: Outage,
    stop: CancellationToken,
}

impl Acquisition {
    pub(crate) fn new(redlock: Arc<Redlock>, kind: LockKind, request: Request, stop: CancellationToken) -> Self {
        let quorum = &redlock.quorum;
        let keys = LockKeys::new(&quorum.config.prefix, &request.name);
        let entered = (request.wait != Wait::No).then(|| redlock.waiters.enter(keys.common().lock()));
        let (waiter, listener) = entered.map(|(waiter, listener)| (Arc::new(waiter), listener)).unzip();
        let ttl = request.ttl.unwrap_or_else(|| quorum.ttl());
        let claim = Claim { kind, keys, value: String::new(), ttl, payload: request.payload };
        Self {
            name: request.name,
            attempt: Attempt { claim, waiter },
            listener,
            rounds: 0,
            answered: 0,
            backoff: new_backoff(),
            outage_backoff: Backoff::new(FIRST_PAUSE, LONGEST_OUTAGE_PAUSE),
            outage: request.outage,
            stop,
            redlock,
        }
    }

    pub(crate) async fn run(mut self) -> Result<RedlockLease, Error> {
        loop {
            if self.stop.is_cancelled() {
                self.leave().await;
                return Err(Error::Cancelled);
            }
            let mut round = self.begin_round();
            let result = round.run(&self.stop).await;
            self.answered = round.answered();
            self.redlock.quorum.show();
            let lost = match result {
                RoundResult::Won(grant) => return Ok(self.hold(round, grant)),
                RoundResult::Lost(lost) => lost,
                RoundResult::Stopped => {
                    // Safeguard: catalogue: an interrupted acquisition is withdrawn (Redlock)
                    round.undo().wait().await;
                    return Err(Error::Cancelled);
                }
            };
            if let Some(error) = self.give_up(&round, lost) {
                // Safeguard: catalogue: a failed acquisition is undone (Redlock)
                // Safeguard: catalogue: a lost vote is undone (Redlock)
                round.undo().wait().await;
                return Err(error);
            }
            round.yield_votes();
            self.pause(lost).await;
        }
    }

    fn begin_round(&mut self) -> Box<Round> {
        self.rounds += 1;
        self.attempt.claim.value = self.redlock.values.next();
        if let Some(listener) = &mut self.listener {
            listener.mark_unchanged();
        }
        Box::new(Round::begin(&self.redlock.quorum, self.attempt.clone(), self.redlock.proposals.next()))
    }

    /// The error of the acquisition; `None` when another round is made.
    fn give_up(&mut self, round: &Round, lost: VoteLost) -> Option<Error> {
        let waits = self.attempt.waiter.is_some();
        match lost {
            VoteLost::Outage | VoteLost::Late => {
                let error = round.unavailable(lost == VoteLost::Late);
                if !waits || matches!(error, Error::Refused { .. }) {
                    return Some(error);
                }
                // Within the acquisition, so that it keeps its place in the queue.
                self.outage.failed(error);
                None
            }
            VoteLost::Behind(_) | VoteLost::Contested => {
                self.outage.answered();
                let goes_on = waits || (lost == VoteLost::Contested && self.rounds < TRIES);
                (!goes_on).then(|| Error::NotAcquired { name: self.name.clone() })
            }
        }
    }

    /// Waits until another round is worth it.
    async fn pause(&mut self, lost: VoteLost) {
        let quorum = &self.redlock.quorum;
        let limit = match lost {
            VoteLost::Behind(limit) => {
                self.backoff = new_backoff();
                self.outage_backoff = Backoff::new(FIRST_PAUSE, LONGEST_OUTAGE_PAUSE);
                limit.min(longest_sleep(self.attempt.claim.ttl)) + SCATTER.mul_f64(fastrand::f64())
            }
            VoteLost::Contested => self.backoff.pause(),
            VoteLost::Outage | VoteLost::Late => self.outage_backoff.pause(),
        };
        let changed = async {
            match &mut self.listener {
                Some(listener) => listener.changed(quorum, &self.attempt.claim.keys).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed => {}
            () = quorum.clock().sleep(limit) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Leaves the queue between two rounds. Waits for no more nodes than have answered of late.
    async fn leave(&self) {
        if self.rounds == 0 || self.attempt.waiter.is_none() {
            return;
        }
        let quorum = Arc::clone(&self.redlock.quorum);
        let attempt = self.attempt.clone();
        let leave =
            |node| if attempt.may_be_enrolled(node) { attempt.undo(node, UndoKind::Plain, false) } else { None };
        let mut left = ask(&quorum, leave, held);
        // Safeguard: a waiter leaves the line of a node that was away when it left (Redlock)
        let replies = left.collect(self.answered.min(quorum.majority())).await;
        quorum.cleanup().clone().spawn(async move { attempt.finish_leaving(&quorum, replies, left).await });
    }

    fn hold(self, round: Box<Round>, grant: Grant) -> RedlockLease {
        let redlock = self.redlock;
        redlock.proposals.seen(grant.token);
        let shared = Arc::new(SharedLease {
            quorum: Arc::clone(&redlock.quorum),
            name: self.name,
            claim: self.attempt.claim,
            token: grant.token,
            validity: Validity::new(redlock.quorum.clock(), grant.until),
            lease: Mutex::new(grant.lease),
        });
        if !round.is_complete() {
            redlock.quorum.cleanup().spawn(round.finish(Arc::clone(&shared)));
        }
        RedlockLease::new(shared, Arc::clone(&redlock.renewer))
    }
}

/// Shorter than the time after which the nodes forget the waiter.
fn longest_sleep(ttl: Duration) -> Duration {
    LONGEST_SLEEP.min(intent_kept(ttl) * 2 / 5)
}

fn new_backoff() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

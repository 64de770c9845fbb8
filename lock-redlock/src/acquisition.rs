//! An acquisition: rounds of voting until one is won, with a wait for one's turn between them.

pub(crate) mod round;

use std::{sync::Arc, time::Duration};

use lock_core::{Backoff, BootInstant, Error, LockName, Request, Validity, Wait};
use lock_redis::scripts::held;
use tokio_util::sync::CancellationToken;

use crate::{
    acquisition::round::{Attempt, Lost, Round, Won, leave_line},
    backend::Redlock,
    lease::{RedlockLease, SharedLease},
    nodes::{
        quorum::unavailable,
        scripts::{LockKeys, intent_kept},
    },
    protocol::{ballots::minimum_remainder, kind::LockKind, votes::Verdict},
    waiters::Listener,
};

/// How often one that does not wait tries again when nobody has a majority: then nobody holds the lock.
const TRIES: u32 = 4;
/// The first pause after a vote that nobody won is below this: about a round trip.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// And no later one is above this.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// A waiter looks again after this at the latest, should it not be told: a waiter before it that stopped in its turn, or
/// a holder that is no client of this library, tells nobody.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);
/// Waiters that see the same lease end do not all come in the same moment.
const SCATTER: Duration = Duration::from_millis(20);

pub(crate) struct Acquisition {
    redlock: Arc<Redlock>,
    name: LockName,
    /// What is tried; each round has a value of its own, so that the undo of one never meets another.
    attempt: Attempt,
    /// `None` for one that does not wait.
    listener: Option<Listener>,
    id: String,
    rounds: u32,
    backoff: Backoff,
    /// Since when no majority votes.
    outage: Option<BootInstant>,
    stop: CancellationToken,
}

/// How a round ended.
enum Ended {
    Won(Box<Round>, Won),
    Lost(Box<Round>, Lost),
    Stopped(Box<Round>),
}

impl Acquisition {
    pub(crate) fn new(redlock: Arc<Redlock>, kind: LockKind, request: Request, stop: CancellationToken) -> Self {
        let keys = LockKeys::new(&redlock.quorum.config.prefix, &request.name);
        let entered = (request.wait != Wait::No).then(|| redlock.waiters.enter(keys.common().lock()));
        let (waiter, listener) = entered.map(|(waiter, listener)| (Arc::new(waiter), listener)).unzip();
        let attempt = Attempt {
            kind,
            keys,
            value: String::new(),
            ttl: request.ttl.unwrap_or_else(|| redlock.quorum.ttl()),
            payload: request.payload,
            waiter,
        };
        Self {
            name: request.name,
            attempt,
            listener,
            id: redlock.quorum.context.unique_id(),
            rounds: 0,
            backoff: new_backoff(),
            outage: None,
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
            let lost = match self.round().await {
                Ended::Won(round, won) => return Ok(self.hold(*round, won)),
                Ended::Stopped(round) => {
                    round.undo().wait().await;
                    return Err(Error::Cancelled);
                }
                Ended::Lost(round, lost) => match self.gives_up(lost) {
                    Ok(lost) => {
                        round.yield_votes();
                        lost
                    }
                    Err(error) => {
                        round.undo().wait().await;
                        return Err(error);
                    }
                },
            };
            self.pause(lost).await;
        }
    }

    async fn round(&mut self) -> Ended {
        self.rounds += 1;
        self.attempt.value = format!("{}:{}", self.id, self.rounds);
        if let Some(listener) = &mut self.listener {
            listener.mark_unchanged();
        }
        let quorum = &self.redlock.quorum;
        let proposal = self.redlock.proposals.next();
        let mut round = Box::new(Round::begin(quorum, self.attempt.clone(), proposal));
        let verdict = tokio::select! {
            biased;
            verdict = round.decide() => verdict,
            () = self.stop.cancelled() => return Ended::Stopped(round),
        };
        if verdict != Verdict::Granted {
            let lost = round.lost();
            return Ended::Lost(round, lost);
        }
        let won = tokio::select! {
            biased;
            won = round.settle() => won,
            () = self.stop.cancelled() => return Ended::Stopped(round),
        };
        match won {
            Some(won) => Ended::Won(round, won),
            None if round.is_late() => {
                let least = minimum_remainder(self.attempt.ttl);
                let what = format!("answers in time to leave {least:?} of the ttl");
                let late = unavailable(quorum, &what, []);
                Ended::Lost(round, Lost::Late(late))
            }
            None => Ended::Lost(round, Lost::Contested),
        }
    }

    /// Whether that was the last round, and with what.
    fn gives_up(&mut self, lost: Lost) -> Result<Lost, Error> {
        let now = self.redlock.quorum.clock().now();
        let is_late = matches!(lost, Lost::Late(_));
        match lost {
            Lost::Outage(error) | Lost::Late(error) => {
                // An outage that comes during a wait is bridged. One that is met at once is reported at once.
                let since = *self.outage.get_or_insert(now);
                let bridged = now.saturating_since(since) < self.redlock.quorum.config.connect_timeout;
                if self.attempt.waiter.is_some() && bridged && (self.rounds > 1 || is_late) {
                    Ok(Lost::Outage(error))
                } else {
                    Err(error)
                }
            }
            other => {
                self.outage = None;
                let again = matches!(other, Lost::Contested) && self.rounds < TRIES;
                if self.attempt.waiter.is_some() || again {
                    Ok(other)
                } else {
                    Err(Error::NotAcquired { name: self.name.clone() })
                }
            }
        }
    }

    /// Waits until another round is worth it.
    async fn pause(&mut self, lost: Lost) {
        let quorum = Arc::clone(&self.redlock.quorum);
        let limit = match lost {
            Lost::Behind(limit) => {
                self.backoff = new_backoff();
                limit.min(longest_sleep(self.attempt.ttl)) + SCATTER.mul_f64(fastrand::f64())
            }
            Lost::Contested | Lost::Outage(_) | Lost::Late(_) => self.backoff.pause(),
        };
        let changed = async {
            match &mut self.listener {
                Some(listener) => listener.changed(&quorum, &self.attempt.keys).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed => {}
            () = quorum.clock().sleep(limit) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Leaves the line between two rounds.
    async fn leave(&self) {
        if self.rounds == 0 || self.attempt.waiter.is_none() {
            return;
        }
        let quorum = Arc::clone(&self.redlock.quorum);
        let leave = |node| self.attempt.may_be_enrolled(node).then(|| self.attempt.undo(node, false, false).into());
        let mut left = quorum.ask(leave, held);
        let answers = left.collect(&quorum, quorum.majority()).await;
        let attempt = self.attempt.clone();
        quorum.cleanup().clone().spawn(async move { leave_line(&quorum, &attempt, answers, left).await });
    }

    fn hold(self, round: Round, won: Won) -> RedlockLease {
        let redlock = self.redlock;
        redlock.proposals.seen(won.token);
        let validity = Validity::new(redlock.quorum.clock(), won.until);
        let is_complete = round.is_complete();
        let attempt = Attempt { waiter: None, ..self.attempt.clone() };
        let lock =
            SharedLease::new(Arc::clone(&redlock.quorum), self.name, attempt, won.token, validity.clone(), won.lease);
        let lock = Arc::new(lock);
        if !is_complete {
            redlock.quorum.cleanup().spawn(round.finish(Arc::clone(&lock)));
        }
        let kept = redlock.renewer.keep(Arc::clone(&lock), validity, lock.ttl() / 3);
        RedlockLease::new(lock, kept, redlock)
    }
}

/// Before the nodes forget that it waits.
fn longest_sleep(ttl: Duration) -> Duration {
    LONGEST_SLEEP.min(intent_kept(ttl) * 2 / 5)
}

fn new_backoff() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

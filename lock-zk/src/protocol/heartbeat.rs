//! Until when a session is certainly alive: arithmetic over the times of its requests, without a wire.
//!
//! A server answers from what it knows, and a follower that is cut off from its leader knows nothing of the session's
//! end. Even an acknowledged *write* says only that the leader had the session alive when the write came by, not when
//! the leader last heard of it: a follower tells of its sessions' activity with its answers to the leader's pings.
//!
//! What an acknowledged write does prove rests on two things. A leader that runs sends its pings, at least one in a tick,
//! and one that wakes sends at once what was due. And what a follower and its leader say to each other arrives in order.
//! So take three requests: one that was answered (the follower knows of it); then, a tick later or more, one that passed
//! through the leader and was answered (the leader ran after the first, and has sent a ping since, ahead of that
//! answer); and then a write, sent after that second answer had come. The follower had answered the ping before it passed
//! the write on: when the leader handled the write it had heard of the first request. No pause and no delay, of whomever
//! and however long, changes that. A connection to another server changes nothing, either: the leader counts anew
//! when a session moves, before it takes a write from there.

use std::{collections::VecDeque, time::Duration};

use lock_core::{BootInstant, safeguard, validity};

/// What an answered request proves about the session: a committed write, a `sync`, or any other request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestProof {
    /// A write that the ensemble committed: its leader had the session alive at that moment.
    Write,
    /// A `sync`: it was answered by the leader, which was running.
    Sync,
    /// Anything else that was answered: the session was active, and its leader will hear of it.
    Touch,
}

/// The tick that is counted with: the servers', but no less than a sixth of the session's time-out. A longer one is as
/// safe, and a session that is many ticks long needs no heartbeat in each of them.
#[must_use]
pub(crate) fn counted_tick(timeout: Duration, tick: Duration) -> Duration {
    tick.max(timeout / 6)
}

/// The times of a session's answered requests, oldest first, thinned out to one per grain of time.
#[derive(Debug, Default)]
struct RequestLog(VecDeque<AnsweredRequest>);

/// When one request was sent, and when its answer was received.
#[derive(Debug, Clone, Copy)]
struct AnsweredRequest {
    sent: BootInstant,
    received: BootInstant,
}

impl RequestLog {
    /// Keeps it unless one of the same grain is there already: the older one stays, which is the careful choice.
    fn note(&mut self, answered: AnsweredRequest, timeout: Duration) {
        let grain = timeout / 64;
        if self.0.back().is_some_and(|newest| answered.sent < newest.sent.saturating_add(grain)) {
            return;
        }
        while self.0.front().is_some_and(|oldest| oldest.sent.saturating_add(timeout) < answered.sent) {
            self.0.pop_front();
        }
        self.0.push_back(answered);
    }

    /// When the newest of those was sent whose answer was there by `moment`.
    fn newest_by(&self, moment: BootInstant) -> Option<BootInstant> {
        self.0.iter().rev().find(|answered| answered.received <= moment).map(|answered| answered.sent)
    }
}

/// The record of one session's answered requests, and the deadline until which they prove the session alive.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    timeout: Duration,
    tick: Duration,
    /// All that were answered.
    answered: RequestLog,
    /// Those that passed through the leader.
    led: RequestLog,
    deadline: BootInstant,
}

impl Heartbeat {
    /// A session with the negotiated `timeout` that was asked for at `sent` and is established.
    ///
    /// Creating a session is itself a write, and the leader counts the time-out from the moment when it handles it,
    /// which is after `sent`: this first deadline needs no older request, and the leader need not hear of it again.
    #[must_use]
    pub(crate) fn new(timeout: Duration, tick: Duration, sent: BootInstant) -> Self {
        let deadline = validity::deadline(sent, timeout);
        let tick = counted_tick(timeout, tick);
        let answered = RequestLog(VecDeque::from([AnsweredRequest { sent, received: sent }]));
        Self { timeout, tick, answered, led: RequestLog::default(), deadline }
    }

    /// Until when the session is certainly alive on the servers.
    #[must_use]
    pub(crate) const fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// Whether a grant may begin at `now`: the session is certain to live, and for a while. A grant that is about to end is
    /// none: the next heartbeat gives a better one, or none.
    #[must_use]
    pub(crate) fn admits(&self, now: BootInstant) -> bool {
        self.deadline.saturating_since(now) >= self.timeout / 8
    }

    /// Notes that the request sent at `sent` was answered at `received`. Returns whether the deadline moved.
    ///
    /// `sent` may be earlier than the real moment (a request that waited in the client), never later, and `received` later
    /// than that, never earlier: both only make the deadline earlier.
    pub(crate) fn answered(&mut self, request: RequestProof, sent: BootInstant, received: BootInstant) -> bool {
        let received = if safeguard("answered-before") { received } else { sent };
        let answered = AnsweredRequest { sent, received };
        self.answered.note(answered, self.timeout);
        if request != RequestProof::Touch {
            self.led.note(answered, self.timeout);
        }
        request == RequestProof::Write && self.proves(sent)
    }

    /// What the acknowledged write that was sent at `sent` proves.
    fn proves(&mut self, sent: BootInstant) -> bool {
        // The leader ran after it, and its follower had that answer before the write. A leader that has just woken may be
        // faster with an answer than with the ping that is due: the quarter of a tick is for that ping to overtake.
        // Safeguard: the leader was seen running before the write was sent (ZooKeeper)
        let Some(ran) = self.led.newest_by(sent.saturating_sub(self.tick / 4)) else { return false };
        // The follower knew of it a tick before that, so a ping has asked for it since.
        // Safeguard: a write proves only what was answered a tick before the leader was seen running (ZooKeeper)
        let heard = ran.saturating_sub(self.tick);
        let proven = self.answered.newest_by(heard);
        let Some(proven) = (if safeguard("tick-before") { proven } else { Some(sent) }) else { return false };
        let deadline = validity::deadline(proven, self.timeout);
        let moved = deadline > self.deadline;
        self.deadline = self.deadline.max(deadline);
        moved
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(1000);
    const TICK: Duration = Duration::from_millis(200);

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    fn fresh() -> Heartbeat {
        Heartbeat::new(TIMEOUT, TICK, at(0))
    }

    #[test]
    fn a_new_session_lives_for_its_timeout_less_the_margin() {
        assert_eq!(fresh().deadline(), at(988));
    }

    #[test]
    fn a_write_counts_from_what_was_answered_a_tick_before_an_earlier_request_to_the_leader() {
        let mut heartbeat = fresh();
        for sent in [100, 250, 298, 390] {
            assert!(!heartbeat.answered(RequestProof::Touch, at(sent), at(sent + 5)));
        }
        assert!(!heartbeat.answered(RequestProof::Sync, at(500), at(501)));
        assert!(heartbeat.answered(RequestProof::Write, at(560), at(561)));
        assert_eq!(heartbeat.deadline(), at(250 + 988), "what was sent at 298 was not answered a tick before 500");
    }

    #[test]
    fn the_request_that_shows_the_leader_running_was_answered_before_the_write_was_sent() {
        let mut heartbeat = fresh();
        heartbeat.answered(RequestProof::Touch, at(100), at(101));
        heartbeat.answered(RequestProof::Sync, at(400), at(700));
        assert!(!heartbeat.answered(RequestProof::Write, at(690), at(701)), "they waited for the leader together");
        assert!(!heartbeat.answered(RequestProof::Write, at(749), at(750)), "the ping may be late by that much");
        assert!(heartbeat.answered(RequestProof::Write, at(751), at(752)));
        assert_eq!(heartbeat.deadline(), at(100 + 988));
    }

    #[test]
    fn reads_alone_prove_nothing() {
        let mut heartbeat = fresh();
        for sent in (0..5000).step_by(50) {
            assert!(!heartbeat.answered(RequestProof::Touch, at(sent), at(sent + 1)));
        }
        assert_eq!(heartbeat.deadline(), at(988));
    }

    #[test]
    fn a_follower_that_answers_reads_shows_no_leader_running() {
        let mut heartbeat = fresh();
        for sent in (0..900).step_by(50) {
            heartbeat.answered(RequestProof::Touch, at(sent), at(sent + 1));
        }
        assert!(!heartbeat.answered(RequestProof::Write, at(900), at(901)));
    }

    #[test]
    fn steady_heartbeats_give_a_session_most_of_its_timeout() {
        for tick in [10, 200] {
            let (tick, mut heartbeat) =
                (Duration::from_millis(tick), Heartbeat::new(TIMEOUT, Duration::from_millis(tick), at(0)));
            let period = TIMEOUT.min(counted_tick(TIMEOUT, tick) / 2);
            let period = u64::try_from(period.as_millis()).unwrap();
            let mut least = 1000;
            for beat in 10..100 {
                let sent = beat * period;
                least = heartbeat.deadline().saturating_since(at(sent)).as_millis().min(if beat > 20 {
                    least
                } else {
                    1000
                });
                heartbeat.answered(RequestProof::Write, at(sent), at(sent + 2));
            }
            assert!(least >= 480, "{least} ms left of {TIMEOUT:?} just before a heartbeat");
        }
    }

    #[test]
    fn the_record_stays_small() {
        let mut heartbeat = fresh();
        for sent in 0..20_000 {
            heartbeat.answered(RequestProof::Write, at(sent), at(sent));
        }
        assert!(heartbeat.answered.0.len() < 80, "{}", heartbeat.answered.0.len());
        assert!(heartbeat.led.0.len() < 80, "{}", heartbeat.led.0.len());
    }

    /// A model of an ensemble: a leader that is paused once, and a follower that is the client's server and may be cut off
    /// from it, in the very moment in which it wakes as well as in any other. The leader hears of a request when the
    /// follower answers its next ping, counts the time-out from then, and ends the session when that has passed.
    #[derive(Debug)]
    struct EnsembleModel {
        period: u64,
        phase: u64,
        pause: (u64, u64),
        /// From then on the leader hears nothing of the follower. What it had sent by then arrives.
        cut: u64,
        heard: Vec<u64>,
    }

    impl EnsembleModel {
        /// When something that would happen at `moment` happens on the leader.
        fn awake(&self, moment: u64) -> u64 {
            if (self.pause.0..self.pause.1).contains(&moment) { self.pause.1 } else { moment }
        }

        /// When the leader hears of what the follower knew at `moment`, if it does.
        fn hears(&self, moment: u64) -> Option<u64> {
            // What was due in the pause is sent when it ends.
            let from = moment.min(self.pause.0).saturating_sub(self.phase) / self.period;
            let mut pings = (from..).map(|number| self.awake(self.phase + number * self.period));
            let asked = pings.find(|asked| *asked > moment)?;
            (asked < self.cut).then_some(asked)
        }

        /// When the session ends if nothing more is heard: after the first gap of a time-out. A leader that wakes up judges
        /// before it listens.
        fn end(&self) -> u64 {
            let mut heard = self.heard.clone();
            heard.sort_unstable();
            let mut last = 0;
            for next in heard {
                if self.awake(last + 1000) <= next {
                    break;
                }
                last = next;
            }
            self.awake(last + 1000)
        }
    }

    fn a_request() -> impl Strategy<Value = (u64, RequestProof)> {
        let gap = prop_oneof![1..=20_u64, 1..=166_u64, 1..=400_u64];
        (
            gap,
            prop_oneof![
                Just(RequestProof::Write),
                Just(RequestProof::Write),
                Just(RequestProof::Sync),
                Just(RequestProof::Touch)
            ],
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn the_deadline_is_never_later_than_the_end_on_the_leader(
            tick in prop_oneof![Just(20_u64), Just(100), Just(166), Just(200)],
            shares in (50..=100_u64, 0..100_u64),
            requests in proptest::collection::vec(a_request(), 1..40),
            pause in (0..4000_u64, prop_oneof![1..300_u64, 1..3000_u64]),
            cut in proptest::option::of(prop_oneof![Just(None), (0..5000_u64).prop_map(Some)]),
        ) {
            let period = tick * shares.0 / 100;
            let pause = (pause.0, pause.0 + pause.1);
            let cut = cut.map_or(u64::MAX, |cut| cut.unwrap_or(pause.1));
            let mut ensemble = EnsembleModel { period, phase: period * shares.1 / 100, pause, cut, heard: vec![0] };
            let mut heartbeat = Heartbeat::new(TIMEOUT, Duration::from_millis(tick), at(0));
            let (mut now, mut answered) = (0, 0);
            for (gap, request) in requests {
                now += gap;
                if request != RequestProof::Touch {
                    let handled = ensemble.awake(now);
                    if now >= cut || handled >= ensemble.end() {
                        break;
                    }
                    answered = handled.max(answered);
                }
                answered = answered.max(now);
                heartbeat.answered(request, at(now), at(answered));
                ensemble.heard.extend(ensemble.hears(now));
            }
            prop_assert!(heartbeat.deadline() <= at(ensemble.end()), "{:?} {:?}", heartbeat, ensemble);
        }
    }
}

//! Until when a session is certainly alive: arithmetic over the times of its requests, without a wire.
//!
//! A server answers from what it knows, and a follower that is cut off from its leader knows nothing of the session's
//! end. Even an acknowledged *write* says only that the leader had the session alive when the write came by, not when
//! the leader last heard of it: a follower tells of its sessions' activity with its answers to the leader's pings, up to
//! a tick later. So a write alone proves nothing about its own moment; it proves that what was sent at least a tick
//! before it has reached the leader by then, or the leader would have counted from something older and the write could
//! still have been just in time.

use std::{collections::VecDeque, time::Duration};

use lock_core::{BootInstant, validity};

/// What an answered request proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A write that the ensemble committed: its leader had the session alive at that moment.
    Write,
    /// Anything else that was answered: the session was active, and its leader will hear of it.
    Touch,
}

/// The tick that is counted with: the servers', but no less than a sixth of the session's time-out. A longer one is as
/// safe, and answers may take as long without telling of a pause: on a machine that is merely slow, a session that is
/// many ticks long is not lost for one late answer.
#[must_use]
pub fn counted_tick(timeout: Duration, tick: Duration) -> Duration {
    tick.max(timeout / 6)
}

/// The record of one session's answered requests, and the deadline that follows.
#[derive(Debug)]
pub struct Heartbeat {
    timeout: Duration,
    tick: Duration,
    /// When the answered requests were sent, oldest first, thinned out to one per grain.
    sent: VecDeque<BootInstant>,
    /// Only requests sent after this count, see `answered`.
    after: BootInstant,
    deadline: BootInstant,
}

impl Heartbeat {
    /// A session with the negotiated `timeout` that was asked for at `sent` and is established.
    ///
    /// Creating a session is itself a write, and the leader counts the time-out from the moment when it handles it,
    /// which is after `sent`: this first deadline needs no older request.
    #[must_use]
    pub fn new(timeout: Duration, tick: Duration, sent: BootInstant) -> Self {
        let deadline = validity::deadline(sent, timeout);
        let tick = counted_tick(timeout, tick);
        Self { timeout, tick, sent: VecDeque::from([sent]), after: sent, deadline }
    }

    /// Until when the session is certainly alive on the servers.
    #[must_use]
    pub const fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// Whether a grant may begin at `now`: the session is certain to live, and for a while. A grant that is about to end is
    /// none: the next heartbeat gives a better one, or none.
    #[must_use]
    pub fn admits(&self, now: BootInstant) -> bool {
        self.deadline.saturating_since(now) >= self.timeout / 8
    }

    /// Notes that the request sent at `sent` was answered at `received`. Returns whether the deadline moved.
    ///
    /// `sent` may be earlier than the real moment (a request that waited in the client), never later: that only makes
    /// the deadline earlier.
    pub fn answered(&mut self, request: Request, sent: BootInstant, received: BootInstant) -> bool {
        if received.saturating_since(sent) > self.tick {
            // Somebody on the way was paused, and it may have been the leader: it wakes with what it knew before, and
            // may handle a write before it hears of what followers were told meanwhile. Only what is sent from now on
            // is heard of within a tick again.
            self.after = self.after.max(received);
            self.sent.clear();
            return false;
        }
        if sent < self.after {
            return false;
        }
        self.note(sent);
        if request == Request::Touch {
            return false;
        }
        // The newest request that the leader has heard of by the time of this write.
        let heard = sent.saturating_sub(self.tick);
        let Some(proven) = self.sent.iter().rev().find(|earlier| **earlier <= heard) else { return false };
        let deadline = validity::deadline(*proven, self.timeout);
        let moved = deadline > self.deadline;
        self.deadline = self.deadline.max(deadline);
        moved
    }

    /// Keeps `sent` unless one of the same grain is there already: the older one stays, which is the careful choice.
    fn note(&mut self, sent: BootInstant) {
        let grain = self.timeout / 64;
        if self.sent.back().is_some_and(|newest| sent < newest.saturating_add(grain)) {
            return;
        }
        while self.sent.front().is_some_and(|oldest| oldest.saturating_add(self.timeout) < sent) {
            self.sent.pop_front();
        }
        self.sent.push_back(sent);
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
    fn a_write_counts_from_the_newest_request_at_least_a_tick_before_it() {
        let mut heartbeat = fresh();
        for sent in [100, 250, 390] {
            assert!(!heartbeat.answered(Request::Touch, at(sent), at(sent + 1)));
        }
        assert!(heartbeat.answered(Request::Write, at(500), at(501)));
        assert_eq!(heartbeat.deadline(), at(250 + 988));
    }

    #[test]
    fn reads_alone_prove_nothing() {
        let mut heartbeat = fresh();
        for sent in (0..5000).step_by(50) {
            assert!(!heartbeat.answered(Request::Touch, at(sent), at(sent + 1)));
        }
        assert_eq!(heartbeat.deadline(), at(988));
    }

    #[test]
    fn after_a_slow_answer_only_later_requests_count() {
        let mut heartbeat = fresh();
        heartbeat.answered(Request::Touch, at(300), at(301));
        assert!(!heartbeat.answered(Request::Write, at(600), at(900)), "it took longer than a tick itself");
        assert!(!heartbeat.answered(Request::Write, at(750), at(901)), "sent before the pause was over");
        assert!(!heartbeat.answered(Request::Write, at(980), at(981)), "nothing sent since is a tick older");
        assert!(!heartbeat.answered(Request::Write, at(1100), at(1101)), "nor now");
        assert!(heartbeat.answered(Request::Write, at(1180), at(1181)));
        assert_eq!(heartbeat.deadline(), at(980 + 988));
    }

    #[test]
    fn the_record_stays_small() {
        let mut heartbeat = fresh();
        for sent in 0..20_000 {
            heartbeat.answered(Request::Write, at(sent), at(sent));
        }
        assert!(heartbeat.sent.len() < 80, "{}", heartbeat.sent.len());
    }

    /// What goes wrong in the model.
    #[derive(Debug, Clone, Copy)]
    enum Fault {
        /// The leader is paused from then for that long.
        Pause(u64, u64),
        /// The client's server is cut off from the leader right after the last answer: what the leader has not heard by
        /// then, it never hears.
        CutOff,
    }

    /// A model of an ensemble: the leader hears of a request up to a tick after it was sent, unless it was paused; it
    /// counts the time-out from when it hears, and ends the session when that has passed.
    #[derive(Debug)]
    struct Leader {
        heard: Vec<u64>,
        pause: (u64, u64),
    }

    impl Leader {
        /// When something that would happen at `moment` happens, given the pause.
        fn awake(&self, moment: u64) -> u64 {
            if (self.pause.0..self.pause.1).contains(&moment) { self.pause.1 } else { moment }
        }

        /// When the session ends if nothing more is sent: the first gap of a time-out between two things heard. A leader
        /// that wakes up judges before it listens.
        fn end(&self) -> u64 {
            let mut heard = self.heard.clone();
            heard.sort_unstable();
            let mut last = 0;
            for next in heard {
                if self.awake(last + 1000) <= next {
                    return self.awake(last + 1000);
                }
                last = next;
            }
            self.awake(last + 1000)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn the_deadline_is_never_later_than_the_end_on_the_leader(
            tick in prop_oneof![Just(20_u64), Just(100), Just(166), Just(200)],
            requests in proptest::collection::vec((1..=166_u64, 0..=100_u64, any::<bool>()), 1..40),
            fault in prop_oneof![Just(Fault::CutOff), (0..4000_u64, 1..3000_u64).prop_map(|(at, long)| Fault::Pause(at, long))],
        ) {
            let pause = if let Fault::Pause(at, long) = fault { (at, at + long) } else { (0, 0) };
            let mut leader = Leader { heard: vec![0], pause };
            let mut heartbeat = Heartbeat::new(TIMEOUT, Duration::from_millis(tick), at(0));
            let mut answers = Vec::new();
            let mut now = 0;
            for (gap, percent, write) in requests {
                now += gap;
                let lag = tick * percent / 100;
                // Every request of this backend passes through the leader: its answer waits for the leader to wake.
                let handled = leader.awake(now);
                if handled > leader.end() {
                    break;
                }
                leader.heard.push(leader.awake(now + lag));
                answers.push((if write { Request::Write } else { Request::Touch }, now, handled + 1));
            }
            if let (Fault::CutOff, Some((_, last, _))) = (fault, answers.last()) {
                leader.heard.retain(|heard| heard <= last);
            }
            for (request, sent, received) in answers {
                heartbeat.answered(request, at(sent), at(received));
            }
            prop_assert!(heartbeat.deadline() <= at(leader.end()), "{:?} {:?}", heartbeat, leader);
        }
    }
}

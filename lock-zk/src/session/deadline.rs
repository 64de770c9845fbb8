//! The guards of a session, and until when they are valid.

use std::{collections::BTreeMap, time::Duration};

use lock_core::{BootInstant, Clock, Loss, Validity, safeguard};
use tokio_util::sync::CancellationToken;

use crate::protocol::heartbeat::{Heartbeat, RequestProof};

/// One guard in [`GuardDeadlines`]: its validity, and the signal that its grant was lost before its session.
#[derive(Debug)]
struct GuardEntry {
    validity: Validity,
    /// Cancelled when the grant was lost although the session lived on.
    lapsed: CancellationToken,
}

/// A new grant that was entered in [`GuardDeadlines`], with its validity.
#[derive(Debug)]
pub(crate) struct Admission {
    /// What [`GuardDeadlines::dismiss`] takes.
    pub(crate) number: u64,
    pub(crate) validity: Validity,
    /// Cancelled should the grant be lost while the session lives on: its node is still there then, and nobody else would
    /// ever remove it.
    pub(crate) lapsed: CancellationToken,
}

/// The deadline until which the guards of one session are valid, advanced by the session's [`Heartbeat`].
#[derive(Debug)]
pub(super) struct GuardDeadlines {
    timeout: Duration,
    heartbeat: Heartbeat,
    /// The deadline that the guards were last told.
    published: BootInstant,
    guards: BTreeMap<u64, GuardEntry>,
    next: u64,
    /// How often the session was connected again.
    reconnects: u64,
    /// Up to which of these connections it is known that the servers kept to the time-out.
    verified: u64,
    /// A connection was lost before it was known what its server made of the time-out.
    in_doubt: bool,
    ended: bool,
}

impl GuardDeadlines {
    /// Those of a session without guards, which counts by `heartbeat` with the negotiated `timeout`.
    pub(super) const fn new(timeout: Duration, heartbeat: Heartbeat) -> Self {
        let published = heartbeat.deadline();
        let guards = BTreeMap::new();
        let (next, reconnects, verified) = (0, 0, 0);
        Self { timeout, heartbeat, published, guards, next, reconnects, verified, in_doubt: false, ended: false }
    }

    pub(super) const fn deadline(&self) -> BootInstant {
        self.heartbeat.deadline()
    }

    pub(super) fn guards(&self) -> usize {
        self.guards.len()
    }

    /// Notes an answered request, and tells the guards when their deadline moved by enough to be worth it.
    pub(super) fn answered(&mut self, request: RequestProof, sent: BootInstant, received: BootInstant) {
        if self.heartbeat.answered(request, sent, received) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let deadline = self.heartbeat.deadline();
        if !self.is_verified() || deadline < self.published.saturating_add(self.timeout / 32) {
            return;
        }
        self.published = deadline;
        self.guards.retain(|_, guard| {
            let renewed = guard.validity.observe().is_some_and(|seen| guard.validity.advance(seen, deadline));
            // One that is being released right now removes its node itself: a second removal in the same moment would
            // have the first one find nothing, and the holder told that its lock was lost.
            // Safeguard: the node of a holder that is releasing it is removed once (ZooKeeper)
            if !renewed && guard.validity.loss() != Some(Loss::Released) {
                guard.lapsed.cancel();
            }
            renewed
        });
    }

    /// Begins the validity of a grant. `None` when the session has ended, or is not certain to live right now.
    pub(super) fn admit(&mut self, clock: Clock) -> Option<Admission> {
        let is_running = self.heartbeat.admits(clock.now()) || !safeguard("running-session");
        if self.ended || !self.is_verified() || !is_running {
            return None;
        }
        let validity = Validity::new(clock, self.heartbeat.deadline());
        let number = self.next;
        self.next += 1;
        let lapsed = CancellationToken::new();
        self.guards.insert(number, GuardEntry { validity: validity.clone(), lapsed: lapsed.clone() });
        Some(Admission { number, validity, lapsed })
    }

    /// Forgets a grant.
    pub(super) fn dismiss(&mut self, number: u64) {
        self.guards.remove(&number);
    }

    /// Notes what will be the reason if the guards run out.
    pub(super) fn set_expiry_cause(&self, loss: Loss) {
        for guard in self.guards.values() {
            guard.validity.set_expiry_cause(loss);
        }
    }

    /// Ends the validity of every guard for that reason; later grants are refused.
    pub(super) fn end(&mut self, loss: Loss) {
        self.ended = true;
        for guard in self.guards.values() {
            guard.validity.end(loss);
        }
    }

    /// Lets no deadline move and nobody be granted the lock until it is known that the servers kept to the time-out. Returns
    /// the number of the connection. The guards that are there keep the deadline that they have: it is worth nothing if the
    /// time-out is a shorter one now, and they are lost as soon as that is known.
    ///
    /// A client asks on its next connection for the time-out that it was given on the last one. So a server with a lower limit
    /// shortens the session for good, and a connection that was lost before that was known leaves a doubt which a look at the
    /// next server does not end.
    pub(super) fn reconnected(&mut self) -> u64 {
        // Safeguard: a connection that was lost before its time-out was verified leaves a doubt (ZooKeeper)
        self.in_doubt |= !self.is_verified() && safeguard("doubted-timeout");
        self.reconnects += 1;
        self.reconnects
    }

    /// Whether that is the latest connection.
    pub(super) const fn is_latest(&self, connection: u64) -> bool {
        self.reconnects == connection
    }

    /// Whether the session may have been connected to any server since the time-out was last verified.
    pub(super) const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// The servers kept to the time-out on that connection, and on those before it.
    pub(super) fn verify(&mut self, connection: u64) {
        if self.is_latest(connection) {
            (self.verified, self.in_doubt) = (connection, false);
            self.publish();
        }
    }

    const fn is_verified(&self) -> bool {
        self.verified >= self.reconnects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines() -> GuardDeadlines {
        let (timeout, tick) = (Duration::from_secs(10), Duration::from_secs(2));
        GuardDeadlines::new(timeout, Heartbeat::new(timeout, tick, BootInstant::from_nanos(1)))
    }

    #[test]
    fn a_heartbeat_leaves_the_node_of_a_holder_that_releases_it_to_the_release() {
        let (timeout, tick, clock) = (Duration::from_secs(10), Duration::from_secs(2), Clock::boot());
        let begun = clock.now();
        let after = |seconds| begun.saturating_add(Duration::from_secs(seconds));
        let mut deadlines = GuardDeadlines::new(timeout, Heartbeat::new(timeout, tick, begun));
        let [released, expired, held] = [(); 3].map(|()| deadlines.admit(clock).expect("the session is alive"));
        released.validity.end(Loss::Released);
        expired.validity.end(Loss::Expired);
        for (request, at) in [(RequestProof::Touch, 1), (RequestProof::Sync, 3), (RequestProof::Write, 4)] {
            deadlines.answered(request, after(at), after(at));
        }
        assert!(held.validity.valid_until() > Some(after(10)), "the deadline moved");
        assert!(!released.lapsed.is_cancelled(), "the release removes its node");
        assert!(expired.lapsed.is_cancelled(), "nobody else removes this node");
        assert!(!held.lapsed.is_cancelled());
    }

    #[test]
    fn a_connection_that_is_lost_before_its_time_out_is_verified_leaves_a_doubt_until_one_is_verified() {
        let mut deadlines = deadlines();
        let first = deadlines.reconnected();
        assert!(!deadlines.is_verified() && !deadlines.is_in_doubt());
        let second = deadlines.reconnected();
        assert!(deadlines.is_in_doubt(), "the first server may have shortened the time-out");
        deadlines.verify(first);
        assert!(!deadlines.is_verified() && deadlines.is_in_doubt(), "that answer came too late");
        deadlines.verify(second);
        assert!(deadlines.is_verified() && !deadlines.is_in_doubt());
        deadlines.reconnected();
        assert!(!deadlines.is_verified() && !deadlines.is_in_doubt(), "the one before it was verified");
    }
}

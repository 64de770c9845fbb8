//! The guards of a session, and until when they are valid.

use std::{collections::BTreeMap, time::Duration};

use lock_core::{BootInstant, Clock, Loss, Validity, safeguard};
use tokio_util::sync::CancellationToken;

use crate::protocol::heartbeat::{Heartbeat, Request};

/// A guard, as its session sees it.
#[derive(Debug)]
struct GuardEntry {
    validity: Validity,
    /// Cancelled when the grant was lost although the session lived on.
    lapsed: CancellationToken,
}

/// A grant that has begun.
#[derive(Debug)]
pub(crate) struct Admission {
    /// What [`GuardDeadlines::dismiss`] takes.
    pub(crate) number: u64,
    pub(crate) validity: Validity,
    /// Cancelled should the grant be lost while the session lives on: its node is still there then, and nobody else would
    /// ever remove it.
    pub(crate) lapsed: CancellationToken,
}

/// Until when the guards of a session are valid.
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
    ended: bool,
}

impl GuardDeadlines {
    /// Those of a session without guards, which counts by `heartbeat` with the negotiated `timeout`.
    pub(super) const fn new(timeout: Duration, heartbeat: Heartbeat) -> Self {
        let published = heartbeat.deadline();
        let guards = BTreeMap::new();
        Self { timeout, heartbeat, published, guards, next: 0, reconnects: 0, verified: 0, ended: false }
    }

    pub(super) const fn deadline(&self) -> BootInstant {
        self.heartbeat.deadline()
    }

    pub(super) fn guards(&self) -> usize {
        self.guards.len()
    }

    /// Notes an answered request, and tells the guards when their deadline moved by enough to be worth it.
    pub(super) fn answered(&mut self, request: Request, sent: BootInstant, received: BootInstant) {
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
            if !renewed {
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
    pub(super) const fn reconnected(&mut self) -> u64 {
        self.reconnects += 1;
        self.reconnects
    }

    /// Whether that is the latest connection.
    pub(super) const fn is_latest(&self, connection: u64) -> bool {
        self.reconnects == connection
    }

    /// The servers kept to the time-out on that connection.
    pub(super) fn verify(&mut self, connection: u64) {
        self.verified = self.verified.max(connection);
        self.publish();
    }

    const fn is_verified(&self) -> bool {
        self.verified >= self.reconnects
    }
}

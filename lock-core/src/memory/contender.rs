//! Those in a line: attempts, waiters, holders.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{BootInstant, Clock, Contender, Mode, clock::wall_micros};

/// The present moment on both clocks of the memory server: the boot-time clock that leases run on, and the wall clock.
/// Leases run on the first; the second is for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerTime {
    pub(super) at: BootInstant,
    pub(super) wall_micros: u64,
}

impl ServerTime {
    pub(super) fn now(clock: Clock) -> Self {
        Self { at: clock.now(), wall_micros: wall_micros() }
    }
}

/// One attempt to acquire on the memory server: what its request asked for, and its unique number.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// Different for all attempts of a server.
    pub(super) id: u64,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    /// How long its place stays closed after an abnormal end of its lease.
    pub(super) delay: Duration,
    pub(super) payload: Arc<[u8]>,
}

/// A grant of the memory server: its fencing token, and the moment from which its lease counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) at: BootInstant,
}

/// What the memory server tells a waiter: to look again later, or its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaiterState {
    /// It waits. Then a lease ends, unless it is renewed, or a lock delay; a server has nobody who would look on his own.
    InLine { look_again: BootInstant },
    /// It holds.
    Granted(Grant),
}

/// A contender that waits in a [`WaitQueue`](super::queue::WaitQueue) of the memory server.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) attempt: Attempt,
    pub(super) since: ServerTime,
    place: watch::Sender<WaiterState>,
}

/// A contender that the memory server has granted, with the end of its lease.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) attempt: Attempt,
    pub(super) ends_at: BootInstant,
    pub(super) token: u64,
    since: ServerTime,
}

impl Waiter {
    pub(super) fn new(attempt: Attempt, now: ServerTime) -> (Self, watch::Receiver<WaiterState>) {
        let (place, told) = watch::channel(WaiterState::InLine { look_again: now.at });
        (Self { attempt, since: now, place }, told)
    }

    /// Whether anybody still waits for this place.
    pub(super) fn is_there(&self) -> bool {
        !self.place.is_closed()
    }

    /// Tells it when to look again: only when that is earlier than what it knows or when it has looked, so that neither a
    /// renewal nor a grant to another wakes those in line.
    pub(super) fn look_again(&self, now: ServerTime, at: BootInstant) {
        self.place.send_if_modified(|place| match place {
            // Safeguard: a waiter looks again when a lease may end earlier (memory)
            WaiterState::InLine { look_again } if at < *look_again || *look_again <= now.at => {
                *look_again = at;
                true
            }
            _ => false,
        });
    }

    /// Tells it of its grant; `None` when nobody listens.
    pub(super) fn granted(self, grant: Grant, now: ServerTime) -> Option<Holder> {
        self.place.send(WaiterState::Granted(grant)).ok()?;
        Some(Holder::new(self.attempt, grant, now))
    }

    pub(super) fn contender(&self) -> Contender {
        self.attempt.contender().with_since_micros(self.since.wall_micros)
    }
}

impl Holder {
    pub(super) fn new(attempt: Attempt, grant: Grant, now: ServerTime) -> Self {
        let ends_at = grant.at.saturating_add(attempt.ttl);
        Self { attempt, ends_at, token: grant.token, since: now }
    }

    pub(super) fn contender(&self, now: ServerTime) -> Contender {
        self.attempt
            .contender()
            .with_token(self.token)
            .with_remaining(self.ends_at.saturating_since(now.at))
            .with_since_micros(self.since.wall_micros)
    }
}

impl Attempt {
    fn contender(&self) -> Contender {
        Contender::new(self.id.to_string()).with_payload(self.payload.to_vec()).with_mode(self.mode)
    }
}

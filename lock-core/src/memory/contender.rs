//! Those in a line: attempts, waiters, holders.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{BootInstant, Clock, Contender, Mode, clock::wall_micros};

/// The present moment on both of a server's clocks. Leases run on the first; the second is for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: BootInstant,
    pub(super) wall_micros: u64,
}

impl Moment {
    pub(super) fn now(clock: Clock) -> Self {
        Self { at: clock.now(), wall_micros: wall_micros() }
    }
}

/// One attempt.
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

/// A grant and the moment that its lease counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) at: BootInstant,
}

/// What a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits. Then a lease ends, unless it is renewed, or a lock delay; a server has nobody who would look on his own.
    InLine { look_again: BootInstant },
    /// It holds.
    Granted(Grant),
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) attempt: Attempt,
    pub(super) since: Moment,
    place: watch::Sender<Place>,
}

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) attempt: Attempt,
    pub(super) ends_at: BootInstant,
    token: u64,
    since: Moment,
}

impl Waiter {
    pub(super) fn new(attempt: Attempt, now: Moment) -> (Self, watch::Receiver<Place>) {
        let (place, told) = watch::channel(Place::InLine { look_again: now.at });
        (Self { attempt, since: now, place }, told)
    }

    /// Whether anybody still waits for this place.
    pub(super) fn is_there(&self) -> bool {
        !self.place.is_closed()
    }

    /// Tells it when to look again: only when that is earlier than what it knows or when it has looked, so that neither a
    /// renewal nor a grant to another wakes those in line.
    pub(super) fn look_again(&self, now: Moment, at: BootInstant) {
        self.place.send_if_modified(|place| match place {
            Place::InLine { look_again } if at < *look_again || *look_again <= now.at => {
                *look_again = at;
                true
            }
            _ => false,
        });
    }

    /// Tells it of its grant; `None` when nobody listens.
    pub(super) fn granted(self, grant: Grant, now: Moment) -> Option<Holder> {
        self.place.send(Place::Granted(grant)).ok()?;
        Some(Holder::new(self.attempt, grant, now))
    }

    pub(super) fn contender(&self) -> Contender {
        self.attempt.contender().with_since_micros(self.since.wall_micros)
    }
}

impl Holder {
    pub(super) fn new(attempt: Attempt, grant: Grant, now: Moment) -> Self {
        let ends_at = grant.at.saturating_add(attempt.ttl);
        Self { attempt, ends_at, token: grant.token, since: now }
    }

    pub(super) fn contender(&self, now: Moment) -> Contender {
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

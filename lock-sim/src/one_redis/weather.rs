//! What kind of schedule it is.

use std::{num::NonZeroU32, time::Duration};

use lock_redis::Config;

use super::wall;
use crate::{
    Chance, LocalClock, MS, SECOND, Time,
    world::{HostClocks, Wires},
};

/// The kind of faults that a schedule has, by which it is known what may be excused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What one server has to bear without losing anything.
    Usual,
    /// The server loses its data, so two may hold. All clocks are right: then only they make tokens rise.
    Losing,
    /// Somebody deletes the lock, or the server's clock jumps forward.
    Meddled,
}

/// The settings of one schedule, drawn from its seed: clients, ttls, clocks, network and faults.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    pub(super) kind: Kind,
    pub(super) clients: usize,
    pub(super) ttl: Time,
    pub(super) ttls_differ: bool,
    pub(super) shares: bool,
    pub(super) is_crowded: bool,
    /// How many permits there are, where these are what clients compete for.
    pub(super) permits: Option<NonZeroU32>,
    /// The lock delay that all ask for; 0 for none.
    pub(super) delay: Time,
    /// How often all connections are reset.
    pub(super) resets: u64,
    pub(super) end: Time,
    pub(super) wires: Wires,
    pub(super) faults: u64,
    drift: i64,
    offset: i64,
}

impl Weather {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let kind = match chance.below(100) {
            0..70 => Kind::Usual,
            70..85 => Kind::Losing,
            _ => Kind::Meddled,
        };
        // Requests come late, down connections that were given up long ago.
        let is_straggling = chance.one_in(5);
        let ttl = if is_straggling { 4_000 * MS } else { chance.one_of(&[300, 1_000, 1_000, 4_000]) * MS };
        let most = chance.one_of(&[MS, 5 * MS, 20 * MS]);
        let wires = Wires {
            least: MS / 10,
            most,
            late: if is_straggling { 1_500 * MS } else { chance.one_of(&[10 * MS, ttl / 4]) },
            late_per_mille: if is_straggling { 120 } else { chance.one_of(&[0, 10, 60]) },
            lost_per_mille: chance.one_of(&[0, 0, 10, 60]),
            resent_within: if is_straggling { chance.one_of(&[400, 8_000]) * MS } else { 400 * MS },
            ..Wires::default()
        };
        let is_crowded = chance.one_in(16);
        let mut weather = Self {
            kind,
            clients: if is_crowded { 4 } else { 2 + chance.place(3) },
            ttl,
            ttls_differ: !is_straggling && chance.one_in(3),
            shares: is_crowded || chance.one_in(2),
            is_crowded,
            permits: None,
            delay: 0,
            resets: if is_straggling { chance.between(3, 12) } else { 0 },
            end: if is_straggling {
                SECOND + chance.mostly_short(6 * SECOND)
            } else {
                ttl + chance.mostly_short(3 * ttl)
            },
            wires,
            faults: chance.below(6),
            drift: if kind == Kind::Losing { 0 } else { chance.one_of(&[0, 1_000, 4_500]) },
            offset: if kind == Kind::Losing { 0 } else { chance.one_of(&[0, 100_000_000, 3_000_000_000]) },
        };
        if !weather.is_crowded && chance.one_in(5) {
            (weather.shares, weather.permits) = (false, NonZeroU32::new(chance.one_of(&[1, 2, 3])));
        }
        if chance.one_in(4) {
            weather.delay = chance.one_of(&[100, 600, 2_000]) * MS;
        }
        if weather.is_late_in_line() {
            weather.ttl = SECOND;
            weather.wires.late_per_mille = 250;
        }
        weather
    }

    /// The same with a lock for one holder at a time and nothing else.
    pub(super) const fn exclusive(mut self) -> Self {
        (self.shares, self.is_crowded, self.permits, self.delay) = (false, false, None, 0);
        self
    }

    /// Whether somebody may be granted the lock, not hear of it in time, and come once more by a request that was
    /// on its way all the time.
    pub(super) fn is_late_in_line(&self) -> bool {
        self.resets > 0 && self.clients == 3
    }

    /// Whether some of those who wait die.
    pub(super) fn is_deadly(&self) -> bool {
        self.clients == 4 && self.faults % 2 == 1
    }

    /// The clocks of a client.
    pub(super) fn clocks(&self, chance: &mut Chance) -> HostClocks {
        let drift = chance.signed(-self.drift, self.drift);
        HostClocks::new(chance.below(SECOND), drift, chance.signed(-self.offset, self.offset))
    }

    /// The clock of the server.
    pub(super) fn server_clock(&self, chance: &mut Chance) -> LocalClock {
        wall(chance.signed(-self.offset, self.offset), chance.signed(-self.drift, self.drift))
    }

    /// How long a client waits for the server.
    pub(super) fn limits(&self, config: Config, chance: &mut Chance) -> Config {
        let [connect, response] = [chance.one_of(&[100, 300, 1_000]), chance.one_of(&[60, 150, 500])];
        config
            .with_connect_timeout(Duration::from_millis(connect))
            .with_response_timeout(Duration::from_millis(response))
    }
}

//! What kind of schedule it is.

use std::time::Duration;

use lock_redis::{Config, Queue};

use super::wall;
use crate::{
    Chance, LocalClock, MS, SECOND, Time,
    world::{HostClocks, Wires},
};

/// What a schedule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What one server has to bear without losing anything.
    Usual,
    /// The server loses its data, so two may hold. All clocks are right: then only they make tokens rise.
    Losing,
    /// Somebody deletes the lock, or the server's clock jumps forward.
    Meddled,
}

/// What the world of a schedule is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    pub(super) kind: Kind,
    pub(super) queue: Queue,
    pub(super) clients: usize,
    pub(super) ttl: Time,
    pub(super) ttls_differ: bool,
    pub(super) shares: bool,
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
        let ttl = chance.one_of(&[300, 1_000, 1_000, 4_000]) * MS;
        let most = chance.one_of(&[MS, 5 * MS, 20 * MS]);
        let wires = Wires {
            least: MS / 10,
            most,
            late: chance.one_of(&[10 * MS, ttl / 4]),
            late_per_mille: chance.one_of(&[0, 10, 60]),
            lost_per_mille: chance.one_of(&[0, 0, 10, 60]),
            ..Wires::default()
        };
        Self {
            kind,
            queue: if chance.one_in(2) { Queue::None } else { Queue::Fifo },
            clients: 2 + chance.place(3),
            ttl,
            ttls_differ: chance.one_in(3),
            shares: chance.one_in(2),
            end: ttl * chance.between(3, 8),
            wires,
            faults: chance.below(6),
            drift: if kind == Kind::Losing { 0 } else { chance.one_of(&[0, 1_000, 4_500]) },
            offset: if kind == Kind::Losing { 0 } else { chance.one_of(&[0, 100_000_000, 3_000_000_000]) },
        }
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

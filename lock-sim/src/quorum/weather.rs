//! What kind of schedule it is.

use crate::{
    Chance, LocalClock, MS, SECOND, Time,
    redis::Loses,
    world::{HostClocks, Wires},
};

/// What a schedule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything that the algorithm has to bear.
    Usual,
    /// The wall clock of servers jumps, which may let two hold.
    Jumps,
    /// Somebody deletes the lock on servers, which may let two hold, too.
    Deletions,
}

/// What the world of a schedule is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    pub(super) kind: Kind,
    pub(super) servers: usize,
    pub(super) clients: usize,
    pub(super) ttl: Time,
    pub(super) max_ttl: Time,
    pub(super) ttls_differ: bool,
    pub(super) shares: bool,
    pub(super) is_replacing: bool,
    pub(super) is_rolling: bool,
    pub(super) end: Time,
    pub(super) wires: Wires,
    pub(super) faults: u64,
    drift: i64,
    offset: i64,
}

impl Weather {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let kind = match chance.below(100) {
            0..80 => Kind::Usual,
            80..88 => Kind::Jumps,
            _ => Kind::Deletions,
        };
        let ttl = chance.one_of(&[300, 500, 1_000]) * MS;
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
            servers: if chance.one_in(3) { 5 } else { 3 },
            clients: 2 + chance.place(3),
            ttl,
            max_ttl: chance.one_of(&[1_000, 1_000, 1_500]) * MS,
            ttls_differ: chance.one_in(4),
            shares: chance.one_in(2),
            is_replacing: kind == Kind::Usual && chance.one_in(4),
            is_rolling: kind == Kind::Usual && chance.one_in(3),
            end: ttl * chance.between(3, 6),
            wires,
            faults: chance.below(6),
            drift: chance.one_of(&[0, 1_000, 4_500]),
            offset: chance.one_of(&[0, 20_000_000, 100_000_000]),
        }
    }

    /// What a restart costs. A server that was told of another generation of the members must not forget that and remember
    /// the one before.
    pub(super) fn loses(&self, chance: &mut Chance) -> Loses {
        match chance.below(3) {
            0 => Loses::Nothing,
            1 if !self.is_replacing => Loses::Newest,
            _ => Loses::Everything,
        }
    }

    /// The clocks of a client.
    pub(super) fn clocks(&self, chance: &mut Chance) -> HostClocks {
        let drift = chance.signed(-self.drift, self.drift);
        HostClocks::new(chance.below(SECOND), drift, chance.signed(-self.offset, self.offset))
    }

    /// The clock of a server.
    pub(super) fn server_clock(&self, chance: &mut Chance) -> LocalClock {
        let shows = (1_600_000_000 * SECOND).saturating_add_signed(chance.signed(-self.offset, self.offset));
        LocalClock::new(shows, chance.signed(-self.drift, self.drift))
    }
}

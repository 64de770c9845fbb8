//! What kind of schedule it is.

use crate::{
    Chance, LocalClock, MS, SECOND, Time,
    redis::Loses,
    world::{HostClocks, Wires},
};

/// The kind of faults that a schedule has, by which it is known what may be excused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything that the algorithm has to bear.
    Usual,
    /// The wall clock of servers jumps, which may let two hold.
    Jumps,
    /// Somebody deletes the lock on servers, which may let two hold, too.
    Deletions,
}

/// The rare situation that a schedule aims at, beside its random faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// Nothing in particular.
    Nothing,
    /// One client holds for long, and requests come late. Somebody deletes the lock behind the holder's back, so that others
    /// are granted it before the holder asks the servers again.
    Behind,
    /// A holder stands still until its lease has ended and others hold, while its requests are on their way.
    Lapse,
    /// A member is replaced that nobody tells of it, while somebody holds with it and one other, and does not reach the rest.
    Replaced,
    /// A server is told of a change of the members and loses its data before a majority was told.
    Forgetful,
    /// Requests come late, some of them down connections that their clients have given up, and leases are long: what comes
    /// when its attempt or its lease is over must not take the lock for nobody.
    Strays,
}

/// The settings of one schedule, drawn from its seed: servers, clients, ttls, clocks, network and faults.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    pub(super) kind: Kind,
    pub(super) aim: Aim,
    pub(super) servers: usize,
    pub(super) clients: usize,
    pub(super) ttl: Time,
    pub(super) max_ttl: Time,
    pub(super) ttls_differ: bool,
    pub(super) shares: bool,
    pub(super) is_crowded: bool,
    /// How often all connections of a server are reset.
    pub(super) resets: u64,
    pub(super) is_replacing: bool,
    pub(super) is_rolling: bool,
    pub(super) end: Time,
    pub(super) wires: Wires,
    pub(super) faults: u64,
    /// Whether servers keep of which generation they are when they lose the newest of their data.
    pub(super) keeps_stamps: bool,
    drift: i64,
    offset: i64,
}

impl Weather {
    /// Three of sixteen schedules aim at a situation, which `aims` draws.
    pub(super) fn draw(seed: u64, chance: &mut Chance, aims: &mut Chance) -> Self {
        let weather = Self::draw_any(chance);
        if !matches!(seed % 16, 6 | 13 | 14) {
            return weather;
        }
        if seed % 16 == 13 {
            return weather.aiming(Aim::Strays, aims);
        }
        match aims.below(8) {
            0..4 => weather.aiming(Aim::Behind, aims),
            4 => weather.aiming(Aim::Lapse, aims),
            5..7 => weather.aiming(Aim::Replaced, aims),
            _ => weather.aiming(Aim::Forgetful, aims),
        }
    }

    fn aiming(self, aim: Aim, chance: &mut Chance) -> Self {
        let (ttl, end, late, late_per_mille) = match aim {
            Aim::Nothing => return self,
            Aim::Behind | Aim::Lapse => {
                let ttl = chance.one_of(&[300, 600]) * MS;
                (ttl, 8 * ttl, ttl * chance.one_of(&[1, 2, 4]), chance.one_of(&[30, 100]))
            }
            Aim::Forgetful => (300 * MS, 4_500 * MS, 2 * MS, 0),
            Aim::Replaced => (1_000 * MS, 3_000 * MS, 2 * MS, 0),
            Aim::Strays => (4_000 * MS, 6_000 * MS, 3_000 * MS, 100),
        };
        let wires = Wires {
            most: 2 * MS,
            late,
            late_per_mille,
            broken_per_mille: chance.one_of(&[0, 300, 800]),
            lost_per_mille: 0,
            ..self.wires
        };
        Self {
            kind: if aim == Aim::Behind { Kind::Deletions } else { Kind::Usual },
            aim,
            servers: 3,
            clients: 3,
            ttl,
            max_ttl: ttl.max(1_000 * MS),
            ttls_differ: false,
            shares: chance.one_in(2),
            is_crowded: false,
            resets: 0,
            is_replacing: matches!(aim, Aim::Forgetful | Aim::Replaced),
            is_rolling: false,
            end,
            wires,
            faults: 0,
            ..self
        }
    }

    fn draw_any(chance: &mut Chance) -> Self {
        let kind = match chance.below(100) {
            0..80 => Kind::Usual,
            80..88 => Kind::Jumps,
            _ => Kind::Deletions,
        };
        // Requests come late, down connections that were given up long ago.
        let is_straggling = chance.one_in(5);
        let ttl = if is_straggling { 4_000 * MS } else { chance.one_of(&[300, 500, 1_000]) * MS };
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
        let servers = if chance.one_in(3) { 5 } else { 3 };
        let clients = if is_crowded { 4 } else { 2 + chance.place(3) };
        let max_ttl = if is_straggling { ttl } else { chance.one_of(&[1_000, 1_000, 1_500]) * MS };
        let ttls_differ = !is_straggling && chance.one_in(4);
        let shares = is_crowded || chance.one_in(2);
        let resets = if is_straggling { chance.between(3, 12) } else { 0 };
        let is_replacing = kind == Kind::Usual && chance.one_in(3);
        let is_rolling = kind == Kind::Usual && chance.one_in(3);
        let end = if is_straggling {
            SECOND + chance.mostly_short(6 * SECOND)
        } else if is_replacing && is_rolling {
            // So long that servers still restart while the members change: a new member votes only when `max_ttl` has passed.
            ttl * chance.between(3, 6)
        } else {
            ttl + chance.mostly_short(3 * ttl)
        };
        Self {
            kind,
            aim: Aim::Nothing,
            servers,
            clients,
            ttl,
            max_ttl,
            ttls_differ,
            shares,
            is_crowded,
            resets,
            is_replacing,
            is_rolling,
            end,
            wires,
            faults: chance.below(6),
            keeps_stamps: true,
            drift: chance.one_of(&[0, 1_000, 4_500]),
            offset: chance.one_of(&[0, 20_000_000, 100_000_000]),
        }
    }

    /// What a restart costs. A server that was told of another generation of the members must not forget that and remember
    /// the one before.
    pub(super) fn loses(&self, chance: &mut Chance) -> Loses {
        match chance.below(3) {
            0 => Loses::Nothing,
            1 if self.is_replacing && self.keeps_stamps => Loses::NewestBut("redlock:"),
            1 => Loses::Newest,
            _ => Loses::Everything,
        }
    }

    /// The clocks of a client.
    pub(super) fn clocks(&self, chance: &mut Chance) -> HostClocks {
        let drift = chance.signed(-self.drift, self.drift);
        // One that is far behind must not make numbers fall; one that is far ahead would make them rise for good.
        let behind = if chance.one_in(4) { -chance.signed(0, 3_000_000_000) } else { 0 };
        HostClocks::new(chance.below(SECOND), drift, chance.signed(-self.offset, self.offset) + behind)
    }

    /// The clock of a server.
    pub(super) fn server_clock(&self, chance: &mut Chance) -> LocalClock {
        let shows = (1_600_000_000 * SECOND).saturating_add_signed(chance.signed(-self.offset, self.offset));
        LocalClock::new(shows, chance.signed(-self.drift, self.drift))
    }
}

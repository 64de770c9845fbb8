//! Situations that chance alone brings about too seldom.

use super::{
    FORGETFUL, KEPT_OUT, OVERTAKEN,
    kept::Records,
    operator::Orders,
    weather::{Aim, Weather},
};
use crate::{
    Chance, MS, Time,
    contest::{
        Stage,
        faults::{Fault, Own},
    },
    redis::{Loses, Requests},
    world::{HostId, ServerId, Stop, Way},
};

/// Steers a schedule into the situation that it aims at, by faults at the moments that take it there.
#[derive(Debug)]
pub(super) struct Director {
    chance: Chance,
    /// How many grants there were when the director looked last.
    grants: u64,
    /// Whether the change of the members has been disturbed.
    is_done: bool,
    phase: Phase,
}

/// How far a vote of a holder has come that arrives when another holder has come and gone behind its back.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No vote is held up in this schedule.
    Never,
    /// The next vote is to be held up.
    Free,
    /// The vote is held up, or will be.
    Armed { server: ServerId, breaks: bool },
    /// The lock is deleted at this moment; so many grants there were before.
    Deleted { at: Time, grants: u64 },
}

/// Whether something asks for a vote.
fn is_vote(bytes: &[u8]) -> bool {
    any_lock_call(bytes, is_vote_call)
}

/// Whether something is about a lease: a renewal, a request to join, an undo. It begins with the value of an attempt and
/// nothing else.
fn is_about_a_lease(bytes: &[u8]) -> bool {
    any_lock_call(bytes, |arguments| {
        !is_vote_call(arguments) && arguments.first().is_some_and(|value| value.len() == 32)
    })
}

/// Whether these are the arguments of a vote: the third begins with four packed numbers.
fn is_vote_call(arguments: &[&[u8]]) -> bool {
    matches!(arguments, [_, _, packed, _] if packed.len() >= 32)
}

/// Whether among these requests there is a call of a script on the keys of a lock, whose arguments are meant.
fn any_lock_call(bytes: &[u8], is_meant: impl Fn(&[&[u8]]) -> bool) -> bool {
    let mut requests = Requests::default();
    requests.feed(bytes);
    while let Some(words) = requests.next_request() {
        if let [b"EVAL" | b"EVALSHA", _, b"1", _, arguments @ ..] = &*words
            && is_meant(arguments)
        {
            return true;
        }
    }
    false
}

/// The holder hears of the change from a server that stays and has nothing of the lease, and never comes to have it there:
/// what it asks to join goes down connections that it gives up.
fn keep_from_joining(stage: &mut Stage, orders: &Orders) {
    let holder = stage.clients[0];
    let (holds, _) = stage.oracle.who_holds(holder);
    if !holds || stage.is_calm {
        return stage.world.let_go(10 * MS);
    }
    let Some(server) = orders.borrow().without_lease else { return };
    if !stage.world.is_waiting_to_detain() {
        if stage.world.is_detaining() {
            stage.oracle.count(KEPT_OUT);
        }
        stage.world.detain(holder, server, is_about_a_lease, true);
    }
}

impl Director {
    pub(super) fn new(mut chance: Chance) -> Self {
        let phase = if chance.one_in(2) { Phase::Free } else { Phase::Never };
        Self { chance, grants: 0, is_done: false, phase }
    }

    /// Looks at what has happened, and lets something go wrong.
    pub(super) fn look(&mut self, stage: &mut Stage, weather: &Weather, orders: &Orders) {
        match weather.aim {
            Aim::Nothing | Aim::Strays => {}
            Aim::Behind if !matches!(self.phase, Phase::Never) => self.overtake(stage, weather),
            Aim::Behind | Aim::Lapse => {
                let grants = stage.oracle.grants();
                if grants > std::mem::replace(&mut self.grants, grants)
                    && let Some(host) = stage.oracle.latest()
                {
                    self.upset(stage, weather, host);
                }
            }
            Aim::Forgetful if !self.is_done => self.forget(stage, weather, orders),
            Aim::Replaced if !self.is_done => self.leave_untold(stage, weather, orders),
            Aim::Replaced => keep_from_joining(stage, orders),
            Aim::Forgetful => {}
        }
    }

    /// Something goes wrong with a lease that has just been granted to this host.
    fn upset(&mut self, stage: &mut Stage, weather: &Weather, host: HostId) {
        let chance = &mut self.chance;
        if stage.world.now() > weather.end || (host.place() > 0 && !chance.one_in(3)) {
            return;
        }
        let ttl = weather.ttl;
        let (at, members) = (chance.below(ttl * 3 / 2), &stage.servers[..weather.servers]);
        let faults = |stage: &mut Stage, at: Time, fault| stage.world.after(at, Own::Fault(fault));
        if weather.aim == Aim::Lapse {
            faults(stage, at, Fault::Pause(host, chance.between(ttl, 3 * ttl)));
            let cut_off = chance.one_of(&stage.clients);
            let (server, length) = (chance.one_of(&stage.servers[..weather.servers]), chance.below(4 * ttl));
            return faults(stage, at, Fault::Block(cut_off, server, [true; 2], length));
        }
        let servers = u64::try_from(members.len()).unwrap_or(0);
        let (first, second) = (chance.below(servers), chance.below(servers));
        let number = u32::try_from(1_u64 << first | 1 << second).unwrap_or(0);
        let silent = members[usize::try_from(first).unwrap_or(0)];
        stage.world.after(at, Own::Scene(number));
        let (before, length) = (at.saturating_sub(chance.below(ttl / 6)), chance.below(ttl * 2 / 3));
        if chance.one_in(2) {
            faults(stage, before, Fault::Pause(host, length));
        }
        if chance.one_in(2) {
            let ways = chance.one_of(&[[true, false], [false, true], [true, true]]);
            faults(stage, before, Fault::Block(host, silent, ways, chance.below(ttl)));
        }
    }

    /// A vote of the first client is held up. When the client has been granted the lock by the other servers, the lock is
    /// deleted, and when another client has had it, the vote arrives.
    fn overtake(&mut self, stage: &mut Stage, weather: &Weather) {
        let (host, now, ttl) = (stage.clients[0], stage.world.now(), weather.ttl);
        let members = &stage.servers[..weather.servers];
        let grants = stage.oracle.grants();
        let (holds, others_hold) = stage.oracle.who_holds(host);
        let chance = &mut self.chance;
        match self.phase {
            Phase::Free if !holds && now < weather.end => {
                let (server, breaks) = (chance.one_of(members), chance.one_in(2));
                stage.world.detain(host, server, is_vote, breaks);
                self.phase = Phase::Armed { server, breaks };
            }
            Phase::Armed { server, breaks } if holds && stage.world.is_detaining() => {
                let others: Vec<ServerId> = members.iter().copied().filter(|other| *other != server).collect();
                let mut mask = 1_u32 << chance.one_of(&others).place();
                // A node whose vote is given up joins the lease, and counts, before it is lost.
                let at = if breaks { chance.between(ttl * 2 / 3, ttl * 3 / 2) } else { chance.below(ttl / 4) };
                mask |= u32::from(breaks) << server.place();
                stage.world.after(at, Own::Scene(mask));
                // What the client would have asked meanwhile it asks when the vote has arrived.
                if breaks && chance.one_in(2) {
                    let pause = Fault::Pause(host, chance.between(ttl / 6, ttl / 2));
                    stage.world.after(at.saturating_sub(chance.below(20 * MS)), Own::Fault(pause));
                }
                self.phase = Phase::Deleted { at: now + at, grants };
            }
            Phase::Deleted { at, grants: before } => {
                let is_overtaken = holds && now >= at && grants > before && !others_hold;
                if holds && !is_overtaken && now <= at + ttl {
                    return;
                }
                if is_overtaken {
                    stage.oracle.count(OVERTAKEN);
                }
                stage.world.let_go(10 * MS);
                self.phase = Phase::Free;
            }
            _ => {}
        }
    }

    /// The operator does not reach the member that is replaced.
    fn leave_untold(&mut self, stage: &mut Stage, weather: &Weather, orders: &Orders) {
        if orders.borrow().generations.len() < 2 {
            return;
        }
        let generations = orders.borrow().generations.clone();
        let [first, second, ..] = generations.as_slice() else { return };
        self.is_done = true;
        let (operator, holder) = (stage.operator, stage.clients[0]);
        for server in first.iter().copied() {
            if second.contains(&server) {
                for way in [Way::Up, Way::Down] {
                    stage.world.block(holder, server, way, false);
                }
            } else {
                stage.strike(Fault::Block(operator, server, [true; 2], 6 * weather.max_ttl));
            }
        }
    }

    /// The first server that was told loses its data, and the second is told only when clients have made the first one a
    /// member of the generation before again. Whoever connects later reaches the servers of the one generation only.
    fn forget(&mut self, stage: &mut Stage, weather: &Weather, orders: &Orders) {
        if orders.borrow().generations.len() < 2 {
            return;
        }
        let generations = orders.borrow().generations.clone();
        let [first, second, ..] = generations.as_slice() else { return };
        let now = stage.world.now();
        let is_told = |stage: &mut Stage, server: ServerId| {
            Records::default().known(stage.fleet.store(server, now), &generations).is_some_and(|its| its > 0)
        };
        let staying = || first.iter().copied().filter(|server| second.contains(server));
        let told: Vec<ServerId> = staying().filter(|server| is_told(stage, *server)).collect();
        let [forgets] = told.as_slice() else { return };
        self.is_done = true;
        stage.oracle.count(FORGETFUL);
        let chance = &mut self.chance;
        let (later, operator) = (chance.between(150 * MS, 900 * MS), stage.operator);
        for server in staying().filter(|server| server != forgets) {
            stage.strike(Fault::Block(operator, server, [true, false], later));
        }
        let down = chance.below(50 * MS);
        stage.strike(Fault::Restart(*forgets, Stop::Process, Loses::Everything, down));
        let length = 6 * weather.max_ttl;
        let latecomer = stage.clients[stage.clients.len() - 1];
        for server in first.iter().copied().filter(|server| server == forgets || !second.contains(server)) {
            if !second.contains(&server) {
                stage.strike(Fault::Block(operator, server, [true; 2], length));
            }
            stage.strike(Fault::Block(latecomer, server, [true; 2], length));
        }
    }
}

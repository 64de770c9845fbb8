//! What goes wrong with hosts, servers, and what is between them.

use super::Stage;
use crate::{
    Chance, MS, SECOND, Time,
    redis::Loses,
    world::{HostId, ServerId, Stop, Way},
};

/// What is on the agenda of a contest.
#[derive(Debug, Clone, Copy)]
pub enum Own {
    /// Something goes wrong.
    Fault(Fault),
    /// Something goes wrong that the machine knows of.
    Scene(u32),
    /// It is over.
    Heal(Fault),
    /// Nothing goes wrong any more.
    Calm,
    /// It is time to look.
    Look,
}

/// Something that goes wrong, and for how long.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// A program stands still.
    Pause(HostId, Time),
    /// A program or its machine ends.
    Kill(HostId, Stop),
    /// One way or both between a host and a server are blocked.
    Block(HostId, ServerId, [bool; 2], Time),
    /// All connections of a server are reset.
    Reset(ServerId),
    /// A server stands still.
    PauseServer(ServerId, Time),
    /// A server stops and starts again.
    Restart(ServerId, Stop, Loses, Time),
    /// A server writes its data to its disk.
    Save(ServerId),
    /// A clock on the wall of a client jumps.
    Jump(HostId, i64),
    /// The kernel of a client goes on sending what it has for longer, and much is lost.
    Storm(Time),
}

/// What is counted of all these, by its place in the list of facts of each machine.
pub mod fact {
    use crate::{Fact, Sort};

    /// How many facts there are in [`FACTS`]; those of a machine follow.
    pub const COUNT: usize = FACTS.len();
    pub(crate) const PAUSED: usize = 0;
    pub(crate) const KILLED: usize = 1;
    pub(crate) const BLOCKED: usize = 2;
    pub(crate) const RESET: usize = 3;
    pub(crate) const SERVER_PAUSED: usize = 4;
    pub(crate) const RESTARTED: usize = 5;
    pub(crate) const LOST_DATA: usize = 6;
    pub(crate) const JUMPED: usize = 7;
    pub(crate) const STORM: usize = 8;
    pub(crate) const WRITER: usize = 9;
    pub(crate) const READER: usize = 10;
    pub(crate) const LOST_LEASE: usize = 11;
    pub(crate) const DOWNGRADED: usize = 12;

    /// Those of every contest.
    pub const FACTS: [Fact; 13] = [
        Fact { name: "a program stood still", sort: Sort::Fault },
        Fact { name: "a program or its machine ended", sort: Sort::Fault },
        Fact { name: "a way between a client and a server blocked", sort: Sort::Fault },
        Fact { name: "connections reset", sort: Sort::Fault },
        Fact { name: "a server stood still", sort: Sort::Fault },
        Fact { name: "a server restarted", sort: Sort::Fault },
        Fact { name: "a server without its newest data", sort: Sort::Fault },
        Fact { name: "a client's wall clock jumped", sort: Sort::Fault },
        Fact { name: "many packets lost", sort: Sort::Fault },
        Fact { name: "a writer granted", sort: Sort::Coverage },
        Fact { name: "a reader granted", sort: Sort::Coverage },
        Fact { name: "a lease lost while it was held", sort: Sort::Coverage },
        Fact { name: "a writer became a reader", sort: Sort::Coverage },
    ];

    /// Where a program counts what it comes to.
    pub const HABITS: [usize; 4] = [WRITER, READER, LOST_LEASE, DOWNGRADED];
}

impl Fault {
    /// Draws one that every backend has to bear.
    #[must_use]
    pub fn draw(chance: &mut Chance, clients: &[HostId], servers: &[ServerId], ttl: Time) -> Self {
        let (host, server) = (chance.one_of(clients), chance.one_of(servers));
        let length = match chance.below(3) {
            0 => chance.below(ttl / 3),
            1 => chance.below(2 * ttl),
            _ => chance.below(12 * SECOND),
        };
        let stop = if chance.one_in(2) { Stop::Process } else { Stop::Machine };
        match chance.below(16) {
            0..4 => Self::Pause(host, length),
            4 => Self::Kill(host, stop),
            5..8 => {
                let ways = chance.one_of(&[[true, false], [false, true], [true, true], [true, true]]);
                Self::Block(host, server, ways, length)
            }
            8..10 => Self::Reset(server),
            10..12 => Self::PauseServer(server, length),
            12 => Self::Jump(host, chance.signed(-5_000_000_000, 5_000_000_000)),
            13 => Self::Storm(length),
            _ => Self::Restart(server, stop, Loses::Nothing, length),
        }
    }
}

impl Stage {
    /// Has a fault happen, and be over when its time has passed.
    pub fn strike(&mut self, fault: Fault) {
        self.oracle.note("world", format_args!("{fault:?}"));
        let heals = |length| Some(length);
        let (kind, length) = match fault {
            Fault::Pause(host, length) => {
                self.world.pause_host(host);
                (fact::PAUSED, heals(length))
            }
            Fault::Kill(host, stop) => {
                self.world.kill_host(host, stop);
                self.oracle.died(host);
                (fact::KILLED, None)
            }
            Fault::Block(host, server, ways, length) => {
                self.block(host, server, ways, true);
                (fact::BLOCKED, heals(length))
            }
            Fault::Reset(server) => {
                for connection in self.world.connections() {
                    if self.world.ends_of(connection).1 == server && !self.world.chance().one_in(4) {
                        self.world.reset(connection);
                    }
                }
                (fact::RESET, None)
            }
            Fault::PauseServer(server, length) => {
                self.world.pause_server(server);
                (fact::SERVER_PAUSED, heals(length))
            }
            Fault::Restart(server, stop, loses, length) => {
                self.fleet.stop(&mut self.world, server, stop);
                if loses != Loses::Nothing {
                    self.oracle.count(fact::LOST_DATA);
                }
                (fact::RESTARTED, heals(length))
            }
            Fault::Save(server) => return self.fleet.save(server),
            Fault::Jump(host, by) => {
                self.world.jump(host, by);
                (fact::JUMPED, None)
            }
            Fault::Storm(length) => {
                self.world.set_wires(|wires| {
                    wires.lost_per_mille = 300;
                    wires.late_per_mille = 200;
                });
                (fact::STORM, heals(length))
            }
        };
        self.oracle.count(kind);
        if let Some(length) = length {
            self.world.after(length, Own::Heal(fault));
        }
    }

    pub(super) fn heal(&mut self, fault: Fault) {
        match fault {
            Fault::Pause(host, _) => self.world.resume_host(host),
            Fault::Block(host, server, ways, _) => self.block(host, server, ways, false),
            Fault::PauseServer(server, _) => self.world.resume_server(server),
            Fault::Restart(server, _, loses, _) => self.fleet.start(&mut self.world, server, loses),
            Fault::Storm(_) => {
                let usual = self.wires;
                self.world.set_wires(|wires| *wires = usual);
            }
            Fault::Kill(..) | Fault::Reset(_) | Fault::Save(_) | Fault::Jump(..) => return,
        }
        self.oracle.note("world", format_args!("is over: {fault:?}"));
    }

    fn block(&mut self, host: HostId, server: ServerId, ways: [bool; 2], is_blocked: bool) {
        for (way, _) in [Way::Up, Way::Down].into_iter().zip(ways).filter(|(_, is_meant)| *is_meant) {
            self.world.block(host, server, way, is_blocked);
        }
    }

    /// Everything goes well from now on. What was begun heals at its time, but soon.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        self.oracle.note("world", format_args!("is calm"));
        for host in self.clients.clone() {
            self.world.resume_host(host);
            for server in self.servers.clone() {
                self.block(host, server, [true; 2], false);
            }
        }
        for server in self.servers.clone() {
            self.world.resume_server(server);
        }
        self.wires.lost_per_mille = 0;
        self.wires.late_per_mille = 0;
        self.wires.most = self.wires.most.min(MS);
        let calm = self.wires;
        self.world.set_wires(|wires| *wires = calm);
    }
}

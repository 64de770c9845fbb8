//! What goes wrong with hosts, servers, and what is between them.

use crate::{
    Chance, SECOND, Time,
    redis::Loses,
    world::{HostId, ServerId, Stop},
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
    /// The clients of a server hear that their connections to it are over, and the server does not.
    BreakOff(ServerId),
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

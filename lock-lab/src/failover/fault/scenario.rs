//! What a fault is: a sequence of steps, each with the place where it is done, and what the fault shows and promises.

use std::time::Duration;

use super::promise::{Promise, promised_everywhere};
use crate::deployment::Deployment;

/// The description of one fault: its row in the table of faults, its steps, and what is expected of a run with it.
///
/// A new fault is one of these, and one line in the list of [`Fault`](super::Fault)s.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// Its short name on the command line.
    pub(crate) key: &'static str,
    /// Its name in reports.
    pub(crate) title: &'static str,
    /// What is done, in a sentence or two.
    pub(crate) what: &'static str,
    /// Why it makes no sense on an arrangement; `None` where it does.
    pub(crate) why_not: fn(Deployment) -> Option<&'static str>,
    /// What is done before the victim is granted the lock.
    pub(crate) prepare: &'static [Step],
    /// What is done then, one step after the other. What is still struck after the last one is healed.
    pub(crate) steps: fn(Deployment) -> Vec<Step>,
    /// Whether it is over by itself as soon as it has struck, so that there is nothing to wait for before it is healed.
    pub(crate) is_momentary: bool,
    /// What is promised of an arrangement under it.
    pub(crate) promise: fn(Deployment) -> Promise,
    /// Whether at most a minority of the servers whose votes count fails at a time.
    pub(crate) within_a_minority: fn(Deployment) -> bool,
    /// Whether the service as a whole stands still until its servers have chosen another leader, or the one is back:
    /// before the fault is healed, that is.
    pub(crate) stops_service: fn(Deployment) -> bool,
    /// What must show for a run to count, and what a run is promised beyond M and T.
    pub(crate) shows: fn(Deployment) -> ExpectedEffects,
    /// The ttl, or session time-out; `None` for that of the run.
    pub(crate) lease: fn(Deployment) -> Option<Duration>,
    /// What the clients do meanwhile.
    pub(crate) load: ClientLoad,
    /// What is between the victim's process and the servers.
    pub(crate) network: ClientNetwork,
    /// By how much the wall clock of the victim's process is ahead.
    pub(crate) clock_ahead: Duration,
    /// Whether the wall clocks of the servers can be moved.
    pub(crate) own_clocks: bool,
    /// For how long the load goes on after the fault.
    pub(crate) afterwards: Duration,
    /// In what the processes disagree with the servers that come by [`Step::Strangers`]: one for each of these.
    pub(crate) strangers: &'static [Disagreement],
}

impl Scenario {
    /// What most faults have in common: they apply everywhere, fail no server, and show nothing by themselves.
    pub(super) const USUAL: Self = Self {
        key: "",
        title: "",
        what: "",
        why_not: |_| None,
        prepare: &[],
        steps: |_| Vec::new(),
        is_momentary: false,
        promise: promised_everywhere,
        within_a_minority: |_| true,
        stops_service: |_| false,
        shows: |_| ExpectedEffects::NOTHING,
        lease: |_| None,
        load: ClientLoad::USUAL,
        network: ClientNetwork::Loopback,
        clock_ahead: Duration::ZERO,
        own_clocks: false,
        afterwards: Duration::from_millis(1_500),
        strangers: &[],
    };
}

/// One step of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something is done to a process of the load.
    Process(Who, ProcessAction),
    /// Something is done to servers.
    Server(Act, Place),
    /// Something is done to the connections.
    Network(Disturbance),
    /// Processes come whose settings disagree with those of the servers.
    Strangers,
    /// Nothing is done until this is so.
    Until(Awaited),
    /// Nothing is done for so long.
    Rest(Duration),
}

/// A process of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The one that holds the kept lock when the fault strikes.
    Victim,
    /// The one that holds the busy lock at that moment.
    BusyHolder,
    /// The one that was stopped last.
    Stopped,
    /// One that has not waited for the kept lock.
    Late,
    /// Every one.
    All,
}

/// What is done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessAction {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// All threads of its runtime are blocked until the fault has lasted.
    Starve,
    /// Nothing bad: it is told to ask for the kept lock.
    Ask,
    /// Nothing bad: its clients rest after each hold of the busy lock, which is free for most of the time from then on.
    Rest,
}

/// In what the settings of a process disagree with those of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disagreement {
    /// A running server that is no member is in its list, in the place of the last one that is.
    Servers,
    /// It has another limit of leases.
    MaxTtl,
}

/// What is done to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGKILL; started again when the fault is healed, unless a step does so before.
    Kill,
    /// Started again, with what is on its disk.
    Start,
    /// SIGKILL, and at once started again with what is on its disk.
    Restart,
    /// SIGKILL, and at once started again with nothing.
    RestartEmpty,
    /// A new, empty server is made a member in its place, and has its number from then on. It goes on as it is, dead or
    /// alive, and is none of the servers any more.
    Replace,
    /// SIGSTOP; SIGCONT when the fault is healed, unless a step does so before.
    Freeze,
    /// SIGCONT.
    Continue,
    /// Its wall clock jumps ahead by more than a lease.
    JumpAhead,
    /// It becomes a replica of nobody, or another one is made the primary in order.
    RefuseWrites,
    /// It breaks the connections of its replicas.
    CutReplicas,
    /// What says that the victim holds its lock is deleted.
    DeleteLock,
    /// `SCRIPT FLUSH`.
    FlushScripts,
    /// The session of the victim is taken over and closed.
    EndSession,
}

/// Which servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The leader, the primary that has the victim's lock, or the first of equals.
    Leading,
    /// Number `n` of those that keep locks, from 0.
    Number(usize),
    /// The next but `n` after the leading one, from 0.
    Following(usize),
    /// As many as may fail where a majority decides, the leading one not among them.
    Minority,
    /// So many that the others are no majority, the leading one among them.
    Majority,
    /// Those that replicate the leading one.
    Replicas,
    /// Those that were frozen by a step before.
    Frozen,
    /// All that keep locks.
    All,
}

/// What is done to connections, until the fault is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// Each request and each reply takes longer, for everybody.
    Delay,
    /// Nothing passes between the victim and all servers.
    HoldAll,
    /// What the victim sends does not arrive.
    HoldRequests,
    /// What the servers send does not arrive at the victim.
    HoldReplies,
    /// On each path one reply is swallowed and its connection broken.
    CutReplies,
    /// The victim is cut off from as many servers as may fail.
    CutOffMinority,
    /// The network drops each packet from and to the victim, until the next step of the kind or the end.
    DropPackets,
}

/// What a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// Somebody else than the victim holds the kept lock.
    Overtaken,
    /// The servers take writes of their own clients, where the fault stops the service.
    Served,
    /// Server number `n` of those that keep locks takes part in decisions like all others.
    TakesPart(usize),
    /// The fault has lasted for longer than a lease.
    Lasted,
}

/// The effects that a fault must show for a run to count, and those that are promised beside mutual exclusion and
/// validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectedEffects {
    /// Two holders.
    pub(crate) two_holders: bool,
    /// A late write at the store without a fence.
    pub(crate) stale_write: bool,
    /// A holder that lost the lock.
    pub(crate) loss: bool,
    /// An update that was lost at the store without a fence.
    pub(crate) lost_update: bool,
    /// Promised: the busy lock is never without a grant for longer than after a holder's death.
    pub(crate) goes_on: bool,
    /// A time of about a lease in which nobody is granted the busy lock: the servers keep it closed.
    pub(crate) closed: bool,
    /// Packets that a kernel sent again.
    pub(crate) retransmission: bool,
    /// Promised: the kept lock is not lost, except by who is struck itself.
    pub(crate) lock_survives: bool,
    /// Promised: after a holder's death the next one follows within the bound of the backend.
    pub(crate) crash_bound: bool,
}

impl ExpectedEffects {
    pub(super) const NOTHING: Self = Self {
        two_holders: false,
        stale_write: false,
        loss: false,
        lost_update: false,
        goes_on: false,
        closed: false,
        retransmission: false,
        lock_survives: false,
        crash_bound: false,
    };
}

/// How the clients of the busy lock load the servers during a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClientLoad {
    /// The time between the read and the write of an update.
    pub(crate) update: Duration,
    /// For how long one holds the lock.
    pub(crate) hold: Duration,
    /// How many of them the victim's process has.
    pub(crate) victims: usize,
    /// Whether none of them looks before its write whether it still holds the lock.
    pub(crate) is_careless: bool,
    /// What counts as traffic, in operations a second.
    pub(crate) traffic: f64,
}

impl ClientLoad {
    pub(super) const USUAL: Self = Self {
        update: Duration::from_millis(2),
        hold: Duration::from_millis(2),
        victims: 2,
        is_careless: false,
        traffic: 50.0,
    };
}

/// The network between the victim's process and the servers: the loopback interface, or namespaces of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientNetwork {
    /// The loopback interface, and a proxy in front of each server.
    Loopback,
    /// Two network namespaces, without proxies: two stacks of the kernel, which send again what is dropped between them.
    Namespaces,
}

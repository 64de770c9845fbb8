//! What is counted in a schedule.

use crate::{Fact, Sort};

/// A kind of event that a schedule counts, such as an election or a hand-off, by its place in [`FACTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FactKind {
    ServerCrash,
    ServerPause,
    ServerCut,
    Election,
    HostCut,
    ConnectionReset,
    HostPause,
    HostKill,
    ForeignDelete,
    ForeignWrite,
    TakeOver,
    OtherLimit,
    LostAnswer,
    Reaped,
    Waited,
    HandedOn,
    GrantedByLook,
    PermitTold,
    Downgraded,
    SessionExpired,
    SessionClosed,
    SlowAnswer,
    NodeMade,
    NodeNotMade,
    Lapsed,
    Revoked,
    OutOfNumbers,
    GaveUp,
    Disagreed,
    SleptInPeace,
    Herd,
    SessionOutlives,
}

const fn fault(name: &'static str) -> Fact {
    Fact { name, sort: Sort::Fault }
}

const fn coverage(name: &'static str) -> Fact {
    Fact { name, sort: Sort::Coverage }
}

/// All of them, in the order of [`FactKind`].
pub(super) const FACTS: [Fact; 32] = [
    fault("a server crashed"),
    fault("a server stopped and went on"),
    fault("a server was cut off, one way or both"),
    coverage("an election"),
    fault("a client was cut off, one way or both"),
    fault("a connection was reset"),
    fault("a client stopped and went on"),
    fault("a client was killed"),
    fault("somebody else deleted a node"),
    fault("somebody else wrote to a node"),
    fault("a session was taken over"),
    fault("a server came back with another limit"),
    fault("an answer was lost"),
    coverage("an empty directory was removed"),
    coverage("a contender waited for another"),
    coverage("a release handed the lock on"),
    coverage("a grant by a look after a wait"),
    coverage("a holder of a permit told the next one"),
    coverage("a writer went on as a reader"),
    coverage("a session expired on the servers"),
    coverage("a session was closed"),
    coverage("an answer took longer than a tick"),
    coverage("a create lost its answer and was done"),
    coverage("a create lost its answer and was not done"),
    coverage("a grant ran out while its session lived"),
    coverage("a holder heard that its node was deleted"),
    coverage("a sequence number was near the end of the counter"),
    coverage("a contender gave up"),
    coverage("a contender named another number of permits"),
    coverage("contenders waited when all was quiet"),
    coverage("all wanted one node"),
    coverage("a client took a session for ended that lived on"),
];

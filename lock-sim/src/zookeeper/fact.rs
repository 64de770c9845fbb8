//! What is counted in a schedule.

use crate::{Fact, Sort};

/// Something that happened, as its place in [`FACTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    ServerCrash,
    ServerPause,
    ServerCut,
    Election,
    ClientCut,
    ConnectionReset,
    ClientPause,
    ForeignDelete,
    ForeignWrite,
    TakeOver,
    LostAnswer,
    Reaped,
    Waited,
    HandedOn,
    GrantedByLook,
    GateTold,
    Downgraded,
    SessionExpired,
    SlowAnswer,
    NodeFound,
    NodeNotFound,
    Lapsed,
    Revoked,
    NotAdmitted,
    OutOfNumbers,
    GaveUp,
    Disagreed,
    SleptInPeace,
}

const fn fault(name: &'static str) -> Fact {
    Fact { name, sort: Sort::Fault }
}

const fn coverage(name: &'static str) -> Fact {
    Fact { name, sort: Sort::Coverage }
}

/// All of them, in the order of [`Seen`].
pub(super) const FACTS: [Fact; 28] = [
    fault("a server crashed"),
    fault("a server stopped and went on"),
    fault("a server was cut off, one way or both"),
    coverage("an election"),
    fault("a client was cut off, one way or both"),
    fault("a connection was reset"),
    fault("a client stopped and went on"),
    fault("somebody else deleted a node"),
    fault("somebody else wrote to a node"),
    fault("a session was taken over"),
    fault("an answer was lost"),
    coverage("an empty directory was removed"),
    coverage("a contender waited for another"),
    coverage("a release handed the lock on"),
    coverage("a grant by a look after a wait"),
    coverage("a holder of a permit told the next one"),
    coverage("a writer went on as a reader"),
    coverage("a session expired on the servers"),
    coverage("an answer took longer than a tick"),
    coverage("a node was found after a lost answer"),
    coverage("no node was found after a lost answer"),
    coverage("a grant ran out while its session lived"),
    coverage("a holder heard that its node was deleted"),
    coverage("a grant waited for its session"),
    coverage("a sequence number was near the end of the counter"),
    coverage("a contender gave up"),
    coverage("a contender named another number of permits"),
    coverage("contenders waited when all was quiet"),
];

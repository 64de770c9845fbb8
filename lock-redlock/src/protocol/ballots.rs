//! What follows from the nodes' answers to a vote: what a lost vote means, where something may be left, and how that is
//! undone.

use std::{collections::BTreeMap, time::Duration};

use crate::protocol::{
    kind::LockKind,
    votes::{majority, smallest},
};

/// A node that is reserved for waiters that were woken counts as taken for this long at least. A contender tries again after this time,
/// too, when too few nodes have said when they may be free.
const TURN: Duration = Duration::from_millis(100);

/// A node's answer to a vote, or to a request to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// The lock is this attempt's on the node, with this number.
    Granted(u64),
    /// A writer has the lock, for this long unless renewed; `None` where it has no expiry.
    Held { remaining: Option<Duration>, holder: Vec<u8> },
    /// Readers have the lock, the last of them for this long unless renewed.
    Read(Duration),
    /// A waiting writer came before this reader. Unless the writer looks again, it counts for this long.
    Behind(Duration),
    /// The lock is kept for the waiters that were woken.
    Reserved(Duration),
    /// The attempt was undone before its vote arrived.
    Undone,
    /// The node gives no vote, for this long.
    Quarantined(Duration),
    /// The server is not the member that it was asked as; it has this stamp.
    Stranger(String),
}

/// What is known of a node's answer to a vote.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VoteState<'a> {
    /// The answer may still come.
    Open,
    /// The answer may still come, but the vote was decided without it.
    GivenUp,
    /// The node has answered.
    Answered(&'a Ballot),
    /// Nothing was sent to the node.
    NotSent,
    /// There will be no answer: the node may have granted.
    Unknown,
}

/// What is sent to a node to take back what a vote has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndoKind {
    /// Nothing: the node has nothing.
    Nothing,
    /// An undo: the node has answered the vote.
    Plain,
    /// An undo that leaves a tombstone: the vote may arrive after it.
    WithTombstone,
}

/// The reason why the nodes' votes did not make a grant, which decides what the client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteLost {
    /// Other holders have the lock, or are about to. A waiter tries again after this time at the latest.
    Behind(Duration),
    /// The vote was split, and perhaps nobody has won it. Another round at once may win.
    Contested,
    /// So few nodes vote at all that nobody can have a majority.
    Outage,
    /// The vote was won, but the answers took so long that too little of the ttl is left.
    Late,
}

impl VoteState<'_> {
    /// Whether the node votes neither way.
    #[must_use]
    pub(crate) const fn is_silent(self) -> bool {
        match self {
            Self::GivenUp
            | Self::NotSent
            | Self::Unknown
            | Self::Answered(Ballot::Quarantined(_) | Ballot::Stranger(_)) => true,
            Self::Open | Self::Answered(_) => false,
        }
    }

    /// Whether the node may have granted, or may yet.
    #[must_use]
    pub(crate) const fn may_be_on(self) -> bool {
        match self {
            Self::Answered(Ballot::Granted(_)) | Self::Open | Self::GivenUp | Self::Unknown => true,
            Self::Answered(_) | Self::NotSent => false,
        }
    }

    /// How to take back all that the attempt has or may yet get there, its entry in the queue included.
    #[must_use]
    pub(crate) const fn undoing(self, is_enrolled: bool) -> UndoKind {
        match self {
            Self::Answered(Ballot::Granted(_)) => UndoKind::Plain,
            // The waiter may have been enrolled, in this round or in an earlier one.
            Self::Answered(_) | Self::NotSent if is_enrolled => UndoKind::Plain,
            Self::Answered(_) | Self::NotSent => UndoKind::Nothing,
            Self::Open | Self::GivenUp | Self::Unknown => UndoKind::WithTombstone,
        }
    }

    /// How to take back at once what the attempt has there, while its waiter stays in the queue. A node that has not answered
    /// yet is waited for: most often there is nothing to undo.
    #[must_use]
    pub(crate) const fn undoing_to_yield(self) -> UndoKind {
        match self {
            Self::Answered(Ballot::Granted(_)) => UndoKind::Plain,
            Self::Unknown => UndoKind::WithTombstone,
            Self::Answered(_) | Self::NotSent | Self::Open | Self::GivenUp => UndoKind::Nothing,
        }
    }
}

/// What a lost vote means, by what is known of each node.
#[must_use]
pub(crate) fn vote_lost(kind: LockKind, nodes: &[VoteState<'_>]) -> VoteLost {
    let majority = majority(nodes.len());
    if nodes.iter().filter(|node| !node.is_silent()).count() < majority {
        return VoteLost::Outage;
    }
    match kind {
        LockKind::Writer => vote_lost_by_a_writer(answered(nodes), majority),
        LockKind::Reader => vote_lost_by_a_reader(answered(nodes), majority),
    }
}

fn answered<'a>(nodes: &'a [VoteState<'a>]) -> impl Iterator<Item = &'a Ballot> + Clone {
    nodes.iter().filter_map(|node| if let VoteState::Answered(ballot) = node { Some(*ballot) } else { None })
}

fn vote_lost_by_a_writer<'a>(ballots: impl Iterator<Item = &'a Ballot>, majority: usize) -> VoteLost {
    let mut holders: BTreeMap<&[u8], usize> = BTreeMap::new();
    let (mut readers, mut granted) = (0, 0);
    let mut free_in = Vec::new();
    for ballot in ballots {
        match ballot {
            Ballot::Granted(_) => {
                granted += 1;
                free_in.push(Duration::ZERO);
            }
            Ballot::Held { remaining, holder } => {
                *holders.entry(holder).or_default() += 1;
                free_in.push(remaining.unwrap_or(Duration::MAX));
            }
            // Readers do not exclude each other, so a reader on the node has most likely won; and a reader that has not wakes
            // the writer when it gives its vote back.
            Ballot::Read(remaining) => {
                readers += 1;
                free_in.push(*remaining);
            }
            Ballot::Reserved(remaining) => free_in.push((*remaining).max(TURN)),
            Ballot::Behind(_) | Ballot::Undone | Ballot::Quarantined(_) | Ballot::Stranger(_) => {}
        }
    }
    let taken = readers >= majority || holders.values().any(|count| *count >= majority);
    // Contenders that have some of the nodes settle the vote among themselves. One that has none would only stand in their way, and is in
    // the queue.
    // Safeguard: who won no node waits for its turn (Redlock)
    if taken || granted == 0 {
        VoteLost::Behind(smallest(free_in, majority).unwrap_or(TURN))
    } else {
        VoteLost::Contested
    }
}

/// Readers do not contest each other: a reader loses to writers, which settle the vote among themselves.
fn vote_lost_by_a_reader<'a>(ballots: impl Iterator<Item = &'a Ballot>, majority: usize) -> VoteLost {
    let mut free_in = Vec::new();
    let mut refused = 0;
    for ballot in ballots {
        let (after, refuses) = match ballot {
            Ballot::Held { remaining, .. } => (remaining.unwrap_or(Duration::MAX), true),
            Ballot::Behind(remaining) => (*remaining, true),
            Ballot::Reserved(remaining) => ((*remaining).max(TURN), true),
            Ballot::Granted(_) => (Duration::ZERO, false),
            Ballot::Read(_) | Ballot::Undone | Ballot::Quarantined(_) | Ballot::Stranger(_) => continue,
        };
        free_in.push(after);
        refused += usize::from(refuses);
    }
    match smallest(free_in, majority) {
        Some(free_in) if refused >= majority => VoteLost::Behind(free_in),
        _ => VoteLost::Contested,
    }
}

/// How much of the ttl must be left for a won vote to be reported as a grant: the time between two renewals.
#[must_use]
pub(crate) fn minimum_remainder(ttl: Duration) -> Duration {
    ttl / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn held(holder: &[u8]) -> Ballot {
        Ballot::Held { remaining: Some(SECOND), holder: holder.to_vec() }
    }

    #[test]
    fn one_that_lost_to_a_majority_or_won_no_node_waits_and_one_that_split_the_vote_tries_again() {
        let (x, y, granted) = (held(b"x"), held(b"y"), Ballot::Granted(7));
        let reserved = Ballot::Reserved(Duration::from_millis(10));
        let known = |ballots: [&'static str; 3]| {
            ballots.map(|ballot| match ballot {
                "x" => x.clone(),
                "y" => y.clone(),
                "reserved" => reserved.clone(),
                _ => granted.clone(),
            })
        };
        let verdict = |ballots| vote_lost(LockKind::Writer, &known(ballots).each_ref().map(VoteState::Answered));
        assert_eq!(verdict(["x", "x", "granted"]), VoteLost::Behind(SECOND));
        assert_eq!(verdict(["x", "y", "granted"]), VoteLost::Contested);
        assert_eq!(verdict(["x", "y", "y"]), VoteLost::Behind(SECOND));
        assert_eq!(verdict(["x", "reserved", "granted"]), VoteLost::Contested);
        // They settle it without the one that has none.
        assert_eq!(verdict(["x", "y", "reserved"]), VoteLost::Behind(SECOND));
        assert_eq!(verdict(["x", "reserved", "reserved"]), VoteLost::Behind(TURN));
    }

    #[test]
    fn without_a_majority_that_votes_it_is_an_outage() {
        let quarantined = Ballot::Quarantined(SECOND);
        for kind in [LockKind::Writer, LockKind::Reader] {
            let nodes = [VoteState::Answered(&quarantined), VoteState::Unknown, VoteState::Open];
            assert_eq!(vote_lost(kind, &nodes), VoteLost::Outage);
        }
    }

    #[test]
    fn whatever_may_have_granted_is_undone_with_a_tombstone_unless_it_answered() {
        let (granted, refused) = (Ballot::Granted(7), held(b"x"));
        assert_eq!(VoteState::Answered(&granted).undoing(false), UndoKind::Plain);
        assert_eq!(VoteState::Answered(&refused).undoing(false), UndoKind::Nothing);
        assert_eq!(VoteState::NotSent.undoing(false), UndoKind::Nothing);
        assert_eq!(
            [VoteState::NotSent, VoteState::Answered(&refused)].map(|node| node.undoing(true)),
            [UndoKind::Plain; 2]
        );
        for node in [VoteState::Open, VoteState::GivenUp, VoteState::Unknown] {
            assert!(node.may_be_on());
            assert_eq!(node.undoing(false), UndoKind::WithTombstone);
        }
    }
}

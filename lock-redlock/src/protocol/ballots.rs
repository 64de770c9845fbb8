//! What follows from the nodes' answers to an acquisition, without any of the sending: what a lost vote means, where
//! something may be left, and how it is undone.

use std::{collections::BTreeMap, time::Duration};

use crate::protocol::{
    kind::LockKind,
    votes::{majority, smallest},
};

/// For how long one that won no node waits for the others to come to an end among themselves.
const TURN: Duration = Duration::from_millis(100);

/// A node's answer to an acquisition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ballot {
    /// It is this attempt's, with this number.
    Granted(u64),
    /// A writer has it, for this long unless it is renewed; `None` where it has no expiry.
    Held { remaining: Option<Duration>, holder: Vec<u8> },
    /// Readers have it, the last of them for this long unless it is renewed.
    Read(Duration),
    /// A writer that waits came before this reader. Unless it looks again, it counts for this long.
    Behind(Duration),
    /// It is kept for those who were woken.
    Reserved(Duration),
    /// This attempt was undone before.
    Undone,
    /// The node gives no vote, for this long.
    Quarantined(Duration),
    /// The server is not the member that it was asked as: its stamp is this one.
    Stranger(String),
}

/// What is known of a node's answer to an acquisition.
#[derive(Debug, Clone, Copy)]
pub enum VoteState<'a> {
    /// It may come yet.
    Open,
    /// It may come yet, and nobody waits for it.
    GivenUp,
    /// This.
    Answered(&'a Ballot),
    /// Nothing was sent to it.
    NotSent,
    /// It was asked, and there will be no answer: it may have granted.
    Unknown,
}

/// What is to be sent to a node to take back what a vote has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoKind {
    /// Nothing.
    Nothing,
    /// An undo: the node has worked on the acquisition.
    Plain,
    /// An undo that leaves a tombstone: the acquisition may come after it.
    WithTombstone,
}

/// What a lost vote means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoteLost {
    /// Others have it or are about to. For one that waits, another round is worth it after this time at the latest.
    Behind(Duration),
    /// The vote was split, and nobody may have won it: another round at once may.
    Contested,
    /// So few nodes vote at all that nobody can have a majority.
    Outage,
    /// The vote was won, but the answers took so long that too little of the ttl is left.
    Late,
}

impl VoteState<'_> {
    /// Whether the node votes neither way.
    #[must_use]
    pub const fn is_silent(self) -> bool {
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
    pub const fn may_be_on(self) -> bool {
        match self {
            Self::Answered(Ballot::Granted(_)) | Self::Open | Self::GivenUp | Self::Unknown => true,
            Self::Answered(_) | Self::NotSent => false,
        }
    }

    /// How all that the attempt has or may yet get there is taken back, its place in line included if it has one.
    #[must_use]
    pub const fn undoing(self, is_in_line: bool) -> UndoKind {
        match self {
            Self::Answered(Ballot::Granted(_)) => UndoKind::Plain,
            // It may have lined up there, in this round or in an earlier one.
            Self::Answered(_) | Self::NotSent if is_in_line => UndoKind::Plain,
            Self::Answered(_) | Self::NotSent => UndoKind::Nothing,
            Self::Open | Self::GivenUp | Self::Unknown => UndoKind::WithTombstone,
        }
    }

    /// How what the attempt has there is taken back at once while it stays in line. A node that has not answered yet is
    /// waited for: most often there will be nothing to undo.
    #[must_use]
    pub const fn undoing_to_yield(self) -> UndoKind {
        match self {
            Self::Answered(Ballot::Granted(_)) => UndoKind::Plain,
            Self::Unknown => UndoKind::WithTombstone,
            Self::Answered(_) | Self::NotSent | Self::Open | Self::GivenUp => UndoKind::Nothing,
        }
    }
}

/// What a lost vote of `kind` means, by what is known of each node.
#[must_use]
pub fn vote_lost(kind: LockKind, nodes: &[VoteState<'_>]) -> VoteLost {
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
            // Readers do not exclude each other, so whoever reads there has most likely won; and one that has not
            // wakes the writer when it gives back what it has.
            Ballot::Read(remaining) => {
                readers += 1;
                free_in.push(*remaining);
            }
            Ballot::Behind(_) | Ballot::Reserved(_) | Ballot::Undone | Ballot::Quarantined(_) | Ballot::Stranger(_) => {
            }
        }
    }
    let taken = readers >= majority || holders.values().any(|count| *count >= majority);
    match smallest(free_in, majority) {
        Some(free_in) if taken => VoteLost::Behind(free_in),
        // Whoever has some of the nodes tries again at once; one that has none only stands in the way. It is in line.
        _ if granted == 0 => VoteLost::Behind(TURN),
        _ => VoteLost::Contested,
    }
}

/// Readers do not contest each other: one that lost did so to writers, who settle it among themselves.
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

/// The least of a ttl that must be left of a lease to be reported as a grant: the time between two renewals.
#[must_use]
pub fn minimum_remainder(ttl: Duration) -> Duration {
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
    fn one_that_lost_to_a_majority_waits_for_it_and_one_that_split_the_vote_tries_again() {
        let (x, y, granted) = (held(b"x"), held(b"y"), Ballot::Granted(7));
        let known = |ballots: [&'static str; 3]| {
            ballots.map(|ballot| match ballot {
                "x" => x.clone(),
                "y" => y.clone(),
                _ => granted.clone(),
            })
        };
        let verdict = |ballots| vote_lost(LockKind::Writer, &known(ballots).each_ref().map(VoteState::Answered));
        assert_eq!(verdict(["x", "x", "granted"]), VoteLost::Behind(SECOND));
        assert_eq!(verdict(["x", "y", "granted"]), VoteLost::Contested);
        assert_eq!(verdict(["x", "y", "y"]), VoteLost::Behind(SECOND));
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

//! What the outcome of a vote means, with the reasons of the nodes that did not vote.

use std::time::Duration;

use lock_core::Error;

use super::Round;
use crate::{
    members::identify::stranger,
    nodes::quorum::unavailable,
    protocol::ballots::Ballot,
    protocol::ballots::{VoteLost, VoteState, vote_lost},
};

/// What a lost vote means.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Others have it or are about to. For one that waits, another round is worth it after this time at the latest.
    Behind(Duration),
    /// The vote was split, and nobody may have won it: another round at once may.
    Contested,
    /// So few nodes vote at all that nobody can have a majority.
    Outage(Error),
    /// The vote was won, and the answers took so long that too little of the ttl was left.
    Late(Error),
}

impl Round {
    /// What a lost vote means.
    pub(crate) fn lost(&self) -> Lost {
        let nodes: Vec<VoteState<'_>> = (0..self.quorum.len()).map(|node| self.known(node)).collect();
        match vote_lost(self.attempt.kind, &nodes) {
            VoteLost::Behind(limit) => Lost::Behind(limit),
            VoteLost::Contested => Lost::Contested,
            VoteLost::Outage => {
                let silent = nodes.iter().enumerate().filter(|(_, known)| known.is_silent());
                Lost::Outage(unavailable(&self.quorum, "votes", silent.map(|(node, _)| (node, self.reason(node)))))
            }
        }
    }

    /// Why `node` votes neither way.
    fn reason(&self, node: usize) -> String {
        match &self.ballots[node] {
            Some(Err(no_reply)) => no_reply.reason(),
            Some(Ok(Ballot::Quarantined(left))) => {
                format!(
                    "in quarantine for {left:?}: it was restarted or marked in that time and may have forgotten votes"
                )
            }
            Some(Ok(Ballot::Stranger(stamp))) => stranger(stamp),
            Some(Ok(_)) | None => "it has not answered of late".to_owned(),
        }
    }
}

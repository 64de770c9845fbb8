//! What the outcome of a vote means, with the reasons of the nodes that did not vote.

use std::time::Duration;

use lock_core::Error;

use super::Round;
use crate::{
    ballots::{Defeat, Known, defeat},
    member::stranger,
    panel::unavailable,
    scripts::Ballot,
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
        let nodes: Vec<Known<'_>> = (0..self.panel.len()).map(|node| self.known(node)).collect();
        match defeat(self.attempt.kind, &nodes) {
            Defeat::Behind(limit) => Lost::Behind(limit),
            Defeat::Contested => Lost::Contested,
            Defeat::Outage => {
                let silent = nodes.iter().enumerate().filter(|(_, known)| known.is_silent());
                Lost::Outage(unavailable(&self.panel, "votes", silent.map(|(node, _)| (node, self.reason(node)))))
            }
        }
    }

    /// Why `node` votes neither way.
    fn reason(&self, node: usize) -> String {
        match &self.ballots[node] {
            Some(Err(silence)) => silence.reason(),
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

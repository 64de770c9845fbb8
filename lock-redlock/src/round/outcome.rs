//! What the outcome of a vote means.

use std::{collections::HashMap, time::Duration};

use lock_core::Error;

use super::Round;
use crate::{
    kind::Kind,
    panel::unavailable,
    quorum::{Vote, smallest},
    scripts::Ballot,
};

/// For how long one that won no node waits for the others to come to an end among themselves.
const TURN: Duration = Duration::from_millis(100);

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
        let silent: Vec<(usize, String)> =
            (0..self.panel.len()).filter_map(|node| Some((node, self.silent(node)?))).collect();
        if self.panel.len() - silent.len() < self.panel.majority() {
            return Lost::Outage(unavailable(&self.panel, "votes", silent));
        }
        match self.attempt.kind {
            Kind::Writer => self.lost_by_a_writer(),
            Kind::Reader => self.lost_by_a_reader(),
        }
    }

    fn lost_by_a_writer(&self) -> Lost {
        let mut holders: HashMap<&[u8], usize> = HashMap::new();
        let mut readers = 0;
        let mut free_in = Vec::new();
        for ballot in self.ballots.iter().flatten().flatten() {
            match ballot {
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
                _ => {}
            }
        }
        let granted = self.granted().count();
        free_in.extend((0..granted).map(|_| Duration::ZERO));
        let majority = self.panel.majority();
        let taken = readers >= majority || holders.values().any(|count| *count >= majority);
        match smallest(free_in, majority) {
            Some(free_in) if taken => Lost::Behind(free_in),
            // Whoever has some of the nodes tries again at once; one that has none only stands in the way. It is in line.
            _ if granted == 0 => Lost::Behind(TURN),
            _ => Lost::Contested,
        }
    }

    /// Readers do not contest each other: one that lost did so to writers, who settle it among themselves.
    fn lost_by_a_reader(&self) -> Lost {
        let mut free_in = Vec::new();
        for ballot in self.ballots.iter().flatten().flatten() {
            match ballot {
                Ballot::Held { remaining, .. } => free_in.push(remaining.unwrap_or(Duration::MAX)),
                Ballot::Behind(remaining) => free_in.push(*remaining),
                Ballot::Reserved(remaining) => free_in.push((*remaining).max(TURN)),
                Ballot::Granted(_) => free_in.push(Duration::ZERO),
                Ballot::Read(_) | Ballot::Undone | Ballot::Quarantined(_) => {}
            }
        }
        let is_refused =
            |ballot: &&Ballot| matches!(ballot, Ballot::Held { .. } | Ballot::Behind(_) | Ballot::Reserved(_));
        let refused = self.ballots.iter().flatten().flatten().filter(is_refused).count();
        match smallest(free_in, self.panel.majority()) {
            Some(free_in) if refused >= self.panel.majority() => Lost::Behind(free_in),
            _ => Lost::Contested,
        }
    }

    /// Why `node` votes neither way.
    fn silent(&self, node: usize) -> Option<String> {
        match &self.ballots[node] {
            Some(Err(silence)) => Some(silence.reason()),
            Some(Ok(Ballot::Quarantined(left))) => Some(format!(
                "in quarantine for {left:?}, after a restart or because it was never marked as a member (init)"
            )),
            None if self.votes.as_slice()[node] == Vote::Unknown => Some("it has not answered of late".to_owned()),
            Some(Ok(_)) | None => None,
        }
    }
}

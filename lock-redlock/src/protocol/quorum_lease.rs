//! A lease by majority: until when it is valid, and when it is lost.

use lock_core::{BootInstant, safeguard};

use crate::protocol::votes::{largest, majority};

/// What a holder knows of its lease on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeLease {
    /// The node has certainly never had anything of this lease.
    Never,
    /// The node does not have the lease, or its answer is unknown.
    Absent,
    /// The node has joined the lease since the last renewal began. It does not count.
    Joined(Promise),
    /// The node has joined the lease before the last renewal began. It does not count yet.
    Proposed(Promise),
    /// The node counts: it has kept the lease without a gap, or a majority has since the node joined.
    Held(Promise),
}

/// The promise of a node to keep what it has granted: by which number, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Promise {
    /// The number that the node gave to its holding.
    number: u64,
    /// Until when the node certainly keeps the holding, by the request that it acknowledged.
    until: BootInstant,
}

/// What is sent to a node to renew a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewRequest {
    /// Extend the holding of this number.
    Extend(u64),
    /// Join the lease, if the lock is free there.
    Rejoin,
}

/// A node's answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewAnswer {
    /// The node has extended its holding.
    Extended,
    /// The node does not have that holding.
    Denied,
    /// The node has joined the lease, by this number.
    Joined(u64),
    /// The answer says nothing about the lease.
    Nothing,
}

/// What the answers to a renewal amount to so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// A majority keeps the lease, until then at least.
    Kept(BootInstant),
    /// No majority has the lease any more.
    Lost,
}

/// A node's confirmation of a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DowngradeConfirmed {
    pub(crate) node: usize,
    /// Whether the node counted for the writer.
    pub(crate) counts: bool,
    /// Until when the node certainly keeps the reader.
    pub(crate) until: BootInstant,
}

/// The requests that may still arrive at a node, and would have it grant this lease when they do.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    /// The vote has not been answered.
    vote: bool,
    /// The node was asked to join. Unanswered requests are repeated, so a single answer does not settle them.
    join: bool,
}

/// A lease on a majority of nodes, with what its holder knows of it on each of them.
#[derive(Debug, Clone)]
pub(crate) struct QuorumLease {
    nodes: Vec<NodeLease>,
    /// Which member each node is, 0 where it is not known. The answer of another member does not count.
    members: Vec<u32>,
    /// The deadlines of members that counted and were replaced since. Empty once the nodes that count are a majority.
    replaced: Vec<BootInstant>,
    in_flight: Vec<InFlight>,
    /// Which nodes that count have extended their holdings in the last renewal.
    extended: Vec<bool>,
    /// The deadline that an answer to the last renewal proves at least.
    expected: BootInstant,
    /// Whether a renewal has begun: from then on each node may have been asked to join.
    renewed: bool,
    /// True after a downgrade: the nodes now belong to the reader's lease, and answers about this one do not count.
    handed_over: bool,
}

impl QuorumLease {
    /// A lease on nodes that are these members, before any answer.
    #[must_use]
    pub(crate) fn new(members: impl IntoIterator<Item = u32>) -> Self {
        let members: Vec<u32> = members.into_iter().collect();
        let nodes = members.len();
        Self {
            nodes: vec![NodeLease::Absent; nodes],
            members,
            replaced: Vec::new(),
            in_flight: vec![InFlight { vote: true, join: false }; nodes],
            extended: vec![false; nodes],
            expected: BootInstant::from_nanos(0),
            renewed: false,
            handed_over: false,
        }
    }

    /// Takes over which member each node is now; 0 where it is not known.
    ///
    /// A replaced member counts for no longer than the lease was valid by then, whatever it has promised since. Until that
    /// moment a grant takes a majority of the members that stayed, because a new server gives no vote yet; and this lease has
    /// such a majority but for the replaced members.
    pub(crate) fn move_to(&mut self, members: impl IntoIterator<Item = u32>) {
        let valid_until = self.valid_until();
        for (node, member) in members.into_iter().enumerate() {
            let before = self.members[node];
            if member == 0 || member == before {
                continue;
            }
            self.members[node] = member;
            if before == 0 {
                continue;
            }
            if let (NodeLease::Held(promise), Some(valid_until)) = (self.nodes[node], valid_until) {
                // Safeguard: what a replaced member kept counts no longer than was promised (Redlock)
                let until = if safeguard("replaced-frozen") { promise.until.min(valid_until) } else { promise.until };
                self.replaced.push(until);
            }
            self.nodes[node] = NodeLease::Absent;
            self.in_flight[node] = InFlight { vote: false, join: false };
            self.extended[node] = false;
        }
    }

    /// Which member each node is for this lease; 0 where it is not known.
    #[must_use]
    pub(crate) fn members(&self) -> &[u32] {
        &self.members
    }

    /// Whether `node` is this member for this lease.
    #[must_use]
    pub(crate) fn is(&self, node: usize, member: u32) -> bool {
        self.members[node] == member
    }

    /// How many members that were replaced since still count.
    #[must_use]
    pub(crate) const fn replaced(&self) -> usize {
        self.replaced.len()
    }

    /// `node` granted, and counts for the grant.
    pub(crate) fn grant(&mut self, node: usize, number: u64, until: BootInstant) {
        self.nodes[node] = NodeLease::Held(Promise { number, until });
        self.in_flight[node].vote = false;
    }

    /// `node` granted after the vote was won, by a number that does not pass the token. It counts at once: no other attempt can
    /// have had a majority since the grant.
    ///
    /// A node that was asked to join since counts only as one that has joined. Its vote's holding may have been deleted, another
    /// holder may have had the node, and the request to join may have made a new holding with the same number.
    pub(crate) fn grant_late(&mut self, node: usize, number: u64, until: BootInstant) {
        self.in_flight[node].vote = false;
        // Safeguard: a vote that is answered after the node was asked to join counts as a join (Redlock)
        if self.in_flight[node].join && safeguard("vote-or-join") {
            self.join(node, number, until);
        } else if !self.has_holding(node) {
            self.nodes[node] = NodeLease::Held(Promise { number, until });
        }
    }

    /// `node` granted after the vote was won, by a number that passes the token, and does not join the lease as that. Its
    /// holding keeps other contenders out until the next renewal asks the node to join, or a release removes the holding.
    pub(crate) fn skip(&mut self, node: usize) {
        self.in_flight[node].vote = false;
    }

    /// `node` refused its vote, so it has nothing of this lease, unless it was asked to join since.
    pub(crate) fn refuse(&mut self, node: usize) {
        self.in_flight[node].vote = false;
        if self.nodes[node] == NodeLease::Absent && !self.renewed {
            self.nodes[node] = NodeLease::Never;
        }
    }

    /// `node` was free and has joined the lease. Another holder may have had the node and nodes that count before, so it does
    /// not count until a majority, of the nodes that count, has been heard to keep the lease in a renewal that begins later.
    pub(crate) fn join(&mut self, node: usize, number: u64, until: BootInstant) {
        if !self.has_holding(node) {
            let joined = Promise { number, until };
            let counts = !safeguard("joined-later");
            self.nodes[node] = if counts { NodeLease::Held(joined) } else { NodeLease::Joined(joined) };
        }
    }

    /// What to send to each node for a renewal that begins now. `expected` is the deadline that an acknowledgement of a request
    /// sent now proves.
    pub(crate) fn renew(&mut self, expected: BootInstant) -> Vec<RenewRequest> {
        self.renewed = true;
        self.expected = expected;
        self.extended.fill(false);
        self.forget_replaced();
        let request = |(lease, in_flight): (&mut NodeLease, &mut InFlight)| match *lease {
            NodeLease::Held(promise) => RenewRequest::Extend(promise.number),
            NodeLease::Joined(promise) | NodeLease::Proposed(promise) => {
                let counts = !safeguard("joined-proven");
                *lease = if counts { NodeLease::Held(promise) } else { NodeLease::Proposed(promise) };
                RenewRequest::Extend(promise.number)
            }
            NodeLease::Never | NodeLease::Absent => {
                *lease = NodeLease::Absent;
                in_flight.join = true;
                RenewRequest::Rejoin
            }
        };
        self.nodes.iter_mut().zip(&mut self.in_flight).map(request).collect()
    }

    /// `node` has extended the holding of this number.
    pub(crate) fn extended(&mut self, node: usize, number: u64, until: BootInstant) {
        if let NodeLease::Held(promise) | NodeLease::Joined(promise) | NodeLease::Proposed(promise) =
            &mut self.nodes[node]
            && promise.number == number
        {
            promise.until = promise.until.max(until);
        }
        self.note_extended(node, number, until);
    }

    /// Nodes that joined before the renewal began count once a majority that counted has extended its holdings since: what
    /// such a majority has kept without a gap, from before the nodes joined until after, no other holder can have had before.
    fn note_extended(&mut self, node: usize, number: u64, until: BootInstant) {
        // A late answer to an earlier renewal says nothing of the time since.
        // Safeguard: an answer to an earlier renewal lets no node count (Redlock)
        let is_of_this_renewal = until >= self.expected;
        self.extended[node] |=
            is_of_this_renewal && matches!(self.nodes[node], NodeLease::Held(promise) if promise.number == number);
        // The promises of replaced members count here while the lease depends on them. They have not ended: the lease would
        // have ended with them.
        let extended = self.extended.iter().filter(|extended| **extended).count();
        // Safeguard: a node that joined counts only when those that count were heard since (Redlock)
        if extended + self.replaced.len() < majority(self.nodes.len()) {
            return;
        }
        for lease in &mut self.nodes {
            if let NodeLease::Proposed(promise) = *lease {
                *lease = NodeLease::Held(promise);
            }
        }
        self.forget_replaced();
    }

    /// Forgets the replaced members once the nodes that count are a majority.
    fn forget_replaced(&mut self) {
        if self.counting() >= majority(self.nodes.len()) {
            self.replaced.clear();
        }
    }

    fn counting(&self) -> usize {
        (0..self.nodes.len()).filter(|node| self.counts(*node)).count()
    }

    fn has_holding(&self, node: usize) -> bool {
        !matches!(self.nodes[node], NodeLease::Never | NodeLease::Absent)
    }

    /// `node` does not have the holding of this number, or not any more.
    pub(crate) fn denied(&mut self, node: usize, denied: u64) {
        if let NodeLease::Held(promise) | NodeLease::Joined(promise) | NodeLease::Proposed(promise) = self.nodes[node]
            && promise.number == denied
        {
            self.nodes[node] = NodeLease::Absent;
            self.extended[node] = false;
        }
    }

    /// Takes the answer of `node` to a renewal into account, in which `node` was sent `request`. `until` is the deadline that an
    /// acknowledgement proves. `None` after a downgrade: the nodes do not know the writer any more.
    pub(crate) fn renewed(
        &mut self,
        node: usize,
        request: RenewRequest,
        answer: RenewAnswer,
        until: BootInstant,
    ) -> Option<LeaseState> {
        if self.handed_over {
            return None;
        }
        match (request, answer) {
            (RenewRequest::Extend(number), RenewAnswer::Extended) => self.extended(node, number, until),
            (RenewRequest::Extend(number), RenewAnswer::Denied) => self.denied(node, number),
            (RenewRequest::Rejoin, RenewAnswer::Joined(number)) => self.join(node, number, until),
            _ => {}
        }
        let kept = self.valid_until().filter(|_| self.is_kept()).map(LeaseState::Kept);
        Some(kept.unwrap_or(LeaseState::Lost))
    }

    /// Whether a majority has kept the lease without a gap, as far as is known.
    #[must_use]
    pub(crate) fn is_kept(&self) -> bool {
        // Safeguard: what a replaced member kept counts (Redlock)
        self.counting() + self.replaced.len() >= majority(self.nodes.len())
    }

    /// Whether `node` counts for the lease.
    #[must_use]
    pub(crate) fn counts(&self, node: usize) -> bool {
        matches!(self.nodes[node], NodeLease::Held(_))
    }

    /// Ends this lease for a downgrade. Returns what each node is to be sent, as for a renewal. Answers to earlier requests do
    /// not count any more: a node that the writer does not hold by then is the reader's.
    pub(crate) fn hand_over(&mut self) -> Vec<RenewRequest> {
        self.handed_over = true;
        // No answer counts as one to a renewal.
        self.renew(BootInstant::from_nanos(u64::MAX))
    }

    /// Whether this lease has ended in a downgrade.
    #[must_use]
    pub(crate) const fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// The lease of a reader that was a writer, by the number `token` on the nodes that confirmed. Of these, the nodes that
    /// counted for the writer count for the reader. The other nodes are unknown, and are asked to join again.
    #[must_use]
    pub(crate) fn of_a_downgrade(writer: &Self, confirmed: &[DowngradeConfirmed], token: u64) -> Self {
        let mut reader = Self { renewed: true, ..Self::new(writer.members.iter().copied()) };
        for confirmed in confirmed {
            reader.downgraded(*confirmed, token);
        }
        // A request of the writer may still arrive.
        reader.in_flight.clone_from(&writer.in_flight);
        reader
    }

    /// A node has confirmed the downgrade, by the number `token`.
    pub(crate) fn downgraded(&mut self, confirmed: DowngradeConfirmed, token: u64) {
        let DowngradeConfirmed { node, counts, until } = confirmed;
        if counts && !self.has_holding(node) {
            self.nodes[node] = NodeLease::Held(Promise { number: token, until });
        } else {
            self.join(node, token, until);
        }
    }

    /// Until when a majority certainly keeps the lease: the majority-th largest deadline of the nodes that count.
    #[must_use]
    pub(crate) fn valid_until(&self) -> Option<BootInstant> {
        let deadlines = self.nodes.iter().filter_map(|lease| match lease {
            // Safeguard: a node that does not count gives no deadline (Redlock)
            NodeLease::Held(promise) => Some(promise.until),
            NodeLease::Never | NodeLease::Absent | NodeLease::Joined(_) | NodeLease::Proposed(_) => None,
        });
        let needed = if safeguard("majority-deadline") { majority(self.nodes.len()) } else { 1 };
        largest(deadlines.chain(self.replaced.iter().copied()), needed)
    }

    /// Whether a request may still arrive at `node` and take it for this lease, also after the release.
    #[must_use]
    pub(crate) fn may_arrive_at(&self, node: usize) -> bool {
        self.in_flight[node].vote || self.in_flight[node].join
    }

    /// Whether `node` may have something of this lease.
    #[must_use]
    pub(crate) fn may_be_on(&self, node: usize) -> bool {
        self.nodes[node] != NodeLease::Never
    }
}

#[cfg(test)]
mod tests;

//! What a lease has on each node, without any of the sending: when it is kept by a majority, until when, and when it is
//! not any more.

use lock_core::{BootInstant, safeguard};

use crate::quorum::{largest, majority};

/// What is known of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// It has certainly never had anything of this lease.
    Never,
    /// It does not have the lease, or nobody knows.
    Absent,
    /// It was joined to the lease since the last renewal began.
    Joined(Kept),
    /// It was joined to the lease before the last renewal began, and does not count yet.
    Proposed(Kept),
    /// It has kept the lease without a gap, or others have since it was joined.
    Held(Kept),
}

/// A node's promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// The number that the node gave to its holding.
    number: u64,
    /// Until when it certainly keeps it, by the request that it acknowledged.
    until: BootInstant,
}

/// What is to be sent to a node to renew a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It keeps the lease, as the holding of this number: extend it.
    Extend(u64),
    /// It does not: take it there, if it is free.
    Rejoin,
}

/// What a lease has on all nodes.
#[derive(Debug, Clone)]
pub struct Holdings {
    nodes: Vec<Holding>,
    /// Which member each node is, as far as is known: what another one answers does not count.
    members: Vec<u32>,
    /// For each member that counted and was replaced since, until when its promise counts; empty once the other nodes that
    /// count are a majority.
    replaced: Vec<BootInstant>,
    /// What each node was asked for and has not answered, as far as is known.
    open: Vec<Open>,
    /// Which nodes that count have extended it at the last renewal, and what an answer to that is worth at least.
    extended: Vec<bool>,
    worth: BootInstant,
    /// Whether a renewal has begun: from then on each node may have been asked to join.
    renewed: bool,
    /// Whether they are another lease's by now: what is still answered about this one does not count.
    handed_over: bool,
}

/// What a node answered to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It has extended the holding that it was asked to extend.
    Extended,
    /// It does not have that holding.
    Denied,
    /// It has joined the lease, by this number.
    Joined(u64),
    /// Nothing that is of use.
    Nothing,
}

/// What the nodes' answers to a renewal come to so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A majority has kept it, until then at least.
    Kept(BootInstant),
    /// No majority has it any more.
    Lost,
}

/// Requests that may reach a node yet, and take it for this lease.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// The acquisition has not been answered.
    vote: bool,
    /// It was asked to join; one that is not answered is asked again, so it is not known of each whether it has come.
    join: bool,
}

/// How a node went on with a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downgraded {
    pub node: usize,
    /// Whether it counted for the writer.
    pub counts: bool,
    /// Until when it certainly keeps the reader.
    pub until: BootInstant,
}

impl Holdings {
    /// On nodes that are these members, of none of which anything is known.
    #[must_use]
    pub fn new(members: impl IntoIterator<Item = u32>) -> Self {
        let members: Vec<u32> = members.into_iter().collect();
        let nodes = members.len();
        Self {
            nodes: vec![Holding::Absent; nodes],
            members,
            replaced: Vec::new(),
            open: vec![Open { vote: true, join: false }; nodes],
            extended: vec![false; nodes],
            worth: BootInstant::from_nanos(0),
            renewed: false,
            handed_over: false,
        }
    }

    /// The nodes are these members now; 0 where it is not known. One that was replaced counts for no longer than the lease
    /// was valid by then, whatever it may have promised by itself since: until that moment it takes a majority of those
    /// that stayed to be granted the lock, because a server that is new gives no vote yet, and this lease has all but the
    /// replaced ones of such a majority.
    pub fn move_to(&mut self, members: impl IntoIterator<Item = u32>) {
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
            if let (Holding::Held(kept), Some(valid_until)) = (self.nodes[node], valid_until) {
                let until = if safeguard("replaced-frozen") { kept.until.min(valid_until) } else { kept.until };
                self.replaced.push(until);
            }
            self.nodes[node] = Holding::Absent;
            self.open[node] = Open { vote: false, join: false };
            self.extended[node] = false;
        }
    }

    /// Which member each node is, as far as this lease is concerned; 0 where it is not known.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Whether `node` is this member as far as this lease is concerned.
    #[must_use]
    pub fn is(&self, node: usize, member: u32) -> bool {
        self.members[node] == member
    }

    /// How many members kept it that were replaced since.
    #[must_use]
    pub const fn replaced(&self) -> usize {
        self.replaced.len()
    }

    /// `node` granted, and counts for the grant.
    pub fn grant(&mut self, node: usize, number: u64, until: BootInstant) {
        self.nodes[node] = Holding::Held(Kept { number, until });
        self.open[node].vote = false;
    }

    /// `node` granted when the vote had been won already, by a number that does not pass the token, and counts at once:
    /// nobody else's majority can have had it since the grant.
    pub fn grant_late(&mut self, node: usize, number: u64, until: BootInstant) {
        self.open[node].vote = false;
        if matches!(self.nodes[node], Holding::Never | Holding::Absent) {
            self.nodes[node] = Holding::Held(Kept { number, until });
        }
    }

    /// `node` granted when the vote had been won already, by a number that passes the token, and does not join the lease as
    /// that. What it has stays, and keeps others out, until the next renewal asks the node to join; a release takes it back.
    pub fn pass_by(&mut self, node: usize) {
        self.open[node].vote = false;
    }

    /// `node` refused the acquisition, so there is nothing on it to be given back, unless it was asked to join since.
    pub fn refuse(&mut self, node: usize) {
        self.open[node].vote = false;
        if self.nodes[node] == Holding::Absent && !self.renewed {
            self.nodes[node] = Holding::Never;
        }
    }

    /// `node` has joined the lease: it was free and was taken again. It may have been another's before, while nodes that count
    /// were, too, so it does not count until a majority of all nodes, of those that do, has been heard to keep the lease in a
    /// renewal that begins later.
    pub fn join(&mut self, node: usize, number: u64, until: BootInstant) {
        if matches!(self.nodes[node], Holding::Never | Holding::Absent) {
            let joined = Kept { number, until };
            let counts = !safeguard("joined-later");
            self.nodes[node] = if counts { Holding::Held(joined) } else { Holding::Joined(joined) };
        }
    }

    /// What to send to each node for a renewal that begins now. `worth` is what an acknowledgement of a request that is sent now
    /// is worth.
    pub fn renew(&mut self, worth: BootInstant) -> Vec<Renewal> {
        self.renewed = true;
        self.worth = worth;
        self.extended.fill(false);
        if self.counting() >= majority(self.nodes.len()) {
            self.replaced.clear();
        }
        let renewal = |(holding, open): (&mut Holding, &mut Open)| match *holding {
            Holding::Held(kept) => Renewal::Extend(kept.number),
            Holding::Joined(kept) | Holding::Proposed(kept) => {
                let counts = !safeguard("joined-proven");
                *holding = if counts { Holding::Held(kept) } else { Holding::Proposed(kept) };
                Renewal::Extend(kept.number)
            }
            Holding::Never | Holding::Absent => {
                *holding = Holding::Absent;
                open.join = true;
                Renewal::Rejoin
            }
        };
        self.nodes.iter_mut().zip(&mut self.open).map(renewal).collect()
    }

    /// `node` has extended the holding of this number.
    pub fn extended(&mut self, node: usize, number: u64, until: BootInstant) {
        if let Holding::Held(kept) | Holding::Joined(kept) | Holding::Proposed(kept) = &mut self.nodes[node]
            && kept.number == number
        {
            kept.until = kept.until.max(until);
        }
        self.note_extended(node, number, until);
    }

    /// Those that joined before the renewal began count when a majority that counted has extended its holdings since: what such a
    /// majority has kept without a gap beyond the moment in which they joined, nobody else can have held before it.
    fn note_extended(&mut self, node: usize, number: u64, until: BootInstant) {
        // A late answer to an earlier renewal says nothing of the time since.
        let is_of_this_renewal = until >= self.worth;
        self.extended[node] |=
            is_of_this_renewal && matches!(self.nodes[node], Holding::Held(kept) if kept.number == number);
        // The promises of replaced members count here while the lease depends on them. They have not ended: the lease would
        // have ended with them, and then nobody looks at it any more.
        let extended = self.extended.iter().filter(|extended| **extended).count();
        if extended + self.replaced.len() < majority(self.nodes.len()) {
            return;
        }
        for holding in &mut self.nodes {
            if let Holding::Proposed(kept) = *holding {
                *holding = Holding::Held(kept);
            }
        }
        if self.counting() >= majority(self.nodes.len()) {
            self.replaced.clear();
        }
    }

    fn counting(&self) -> usize {
        (0..self.nodes.len()).filter(|node| self.counts(*node)).count()
    }

    /// `node` does not have the holding of this number (any more).
    pub fn denied(&mut self, node: usize, denied: u64) {
        if let Holding::Held(kept) | Holding::Joined(kept) | Holding::Proposed(kept) = self.nodes[node]
            && kept.number == denied
        {
            self.nodes[node] = Holding::Absent;
            self.extended[node] = false;
        }
    }

    /// Takes the answer of `node` to a renewal into account, in which it was sent `plan`. `until` is what an acknowledgement
    /// of it is worth. `None` once they are another lease's: it is a reader by now, and the nodes do not know the writer any
    /// more.
    pub fn renewed(&mut self, node: usize, plan: Renewal, answer: Renewed, until: BootInstant) -> Option<Standing> {
        if self.handed_over {
            return None;
        }
        match (plan, answer) {
            (Renewal::Extend(number), Renewed::Extended) => self.extended(node, number, until),
            (Renewal::Extend(number), Renewed::Denied) => self.denied(node, number),
            (Renewal::Rejoin, Renewed::Joined(number)) => self.join(node, number, until),
            _ => {}
        }
        let standing = self.valid_until().filter(|_| self.is_kept()).map(Standing::Kept);
        Some(standing.unwrap_or(Standing::Lost))
    }

    /// Whether a majority has kept the lease without a gap, as far as is known.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.counting() + self.replaced.len() >= majority(self.nodes.len())
    }

    /// Whether `node` counts for the lease.
    #[must_use]
    pub fn counts(&self, node: usize) -> bool {
        matches!(self.nodes[node], Holding::Held(_))
    }

    /// Ends what is kept here, for a downgrade: gives what each node is to be sent, as for a renewal. Nothing that is
    /// answered to an earlier request counts any more: a node that the writer does not hold by then is the reader's.
    pub fn hand_over(&mut self) -> Vec<Renewal> {
        self.handed_over = true;
        // Nothing is answered to it as to a renewal.
        self.renew(BootInstant::from_nanos(u64::MAX))
    }

    /// Whether they were handed over to another lease.
    #[must_use]
    pub const fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// What a reader has that was a writer: the nodes that confirmed the downgrade, all by the number `token`. Those that
    /// counted for the writer count for the reader. Of the others nobody knows; they are asked to join again.
    #[must_use]
    pub fn of_a_downgrade(writer: &Self, confirmed: &[Downgraded], token: u64) -> Self {
        let mut holdings = Self { renewed: true, ..Self::new(writer.members.iter().copied()) };
        for one in confirmed {
            holdings.downgraded(*one, token);
        }
        // What was on its way for the writer is on its way yet.
        holdings.open.clone_from(&writer.open);
        holdings
    }

    /// A node has confirmed the downgrade, by the number `token`.
    pub fn downgraded(&mut self, Downgraded { node, counts, until }: Downgraded, token: u64) {
        match self.nodes[node] {
            Holding::Never | Holding::Absent if counts => {
                self.nodes[node] = Holding::Held(Kept { number: token, until });
            }
            _ => self.join(node, token, until),
        }
    }

    /// Until when a majority certainly keeps the lease: the majority-th largest of the deadlines of the nodes that count.
    #[must_use]
    pub fn valid_until(&self) -> Option<BootInstant> {
        let deadlines = self.nodes.iter().filter_map(|holding| match holding {
            Holding::Held(kept) => Some(kept.until),
            Holding::Never | Holding::Absent | Holding::Joined(_) | Holding::Proposed(_) => None,
        });
        let needed = if safeguard("majority-deadline") { majority(self.nodes.len()) } else { 1 };
        largest(deadlines.chain(self.replaced.iter().copied()), needed)
    }

    /// Whether a request may be on its way that takes `node` for this lease, also after it was given back.
    #[must_use]
    pub fn may_come_to(&self, node: usize) -> bool {
        self.open[node].vote || self.open[node].join
    }

    /// Whether something of this lease may be on `node`.
    #[must_use]
    pub fn may_be_on(&self, node: usize) -> bool {
        self.nodes[node] != Holding::Never
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    fn of(nodes: u32) -> Holdings {
        Holdings::new(1..=nodes)
    }

    fn granted(nodes: u32) -> Holdings {
        let mut holdings = of(nodes);
        for node in 0..majority(nodes as usize) {
            holdings.grant(node, 1, at(100));
        }
        holdings
    }

    #[test]
    fn it_is_valid_for_as_long_as_a_majority_promised() {
        let mut holdings = of(5);
        for (node, until) in [(0, 50), (2, 10), (3, 30)] {
            holdings.grant(node, 1, at(until));
        }
        assert_eq!(holdings.valid_until(), Some(at(10)));
        holdings.join(4, 2, at(40));
        assert_eq!(holdings.valid_until(), Some(at(10)));
        holdings.grant_late(1, 1, at(40));
        assert_eq!(holdings.valid_until(), Some(at(30)));
    }

    /// Renews it at `worth`; these nodes answer, by their number 1.
    fn renew(holdings: &mut Holdings, worth: u64, extended: &[usize]) {
        holdings.renew(at(worth));
        for node in extended {
            holdings.extended(*node, 1, at(worth));
        }
    }

    #[test]
    fn a_node_that_restarted_is_taken_again_and_counts_when_the_others_were_heard_to_keep_the_lease_since() {
        let mut holdings = granted(3);
        holdings.join(2, 1, at(200));
        // One of two that count, and the one that is to count.
        renew(&mut holdings, 200, &[0, 2]);
        assert!(!holdings.counts(2));
        assert_eq!(holdings.valid_until(), Some(at(100)), "as long as the silent one promised");
        renew(&mut holdings, 300, &[0, 1]);
        assert!(holdings.counts(2));
        assert_eq!(holdings.renew(at(400)), [Renewal::Extend(1); 3]);
        holdings.denied(1, 1);
        assert!(holdings.is_kept());
    }

    #[test]
    fn an_answer_to_an_earlier_renewal_does_not_let_a_node_count() {
        let mut holdings = granted(3);
        holdings.renew(at(200));
        holdings.join(2, 1, at(200));
        renew(&mut holdings, 300, &[0]);
        holdings.extended(1, 1, at(200));
        assert!(!holdings.counts(2));
        holdings.extended(1, 1, at(300));
        assert!(holdings.counts(2));
    }

    #[test]
    fn a_node_that_extended_and_then_denied_speaks_for_nobody() {
        let mut holdings = granted(3);
        holdings.join(2, 1, at(200));
        renew(&mut holdings, 300, &[0]);
        holdings.denied(0, 1);
        holdings.extended(1, 1, at(300));
        assert!(!holdings.counts(2) && !holdings.is_kept());
    }

    #[test]
    fn nodes_that_join_do_not_stand_in_for_those_that_are_gone_in_the_same_renewal() {
        let mut holdings = granted(5);
        holdings.renew(at(200));
        holdings.join(3, 2, at(200));
        holdings.join(4, 2, at(200));
        holdings.denied(0, 1);
        assert!(!holdings.is_kept());
    }

    #[test]
    fn a_late_denial_of_another_holding_changes_nothing() {
        let mut holdings = granted(3);
        holdings.denied(0, 7);
        assert!(holdings.is_kept());
    }

    #[test]
    fn a_node_that_certainly_refused_is_left_alone_until_it_was_asked_to_join() {
        let mut holdings = granted(3);
        holdings.refuse(2);
        assert!(!holdings.may_be_on(2) && holdings.may_be_on(1));
        holdings.renew(at(200));
        assert!(holdings.may_be_on(2));
    }

    #[test]
    fn a_downgrade_goes_to_every_node_that_keeps_the_lease_and_only_those_that_confirm_it_count() {
        let mut holdings = granted(5);
        holdings.join(3, 4, at(100));
        let plan = holdings.hand_over();
        assert_eq!(plan[3..], [Renewal::Extend(4), Renewal::Rejoin]);
        assert!(holdings.is_handed_over());
        let confirmed = |nodes: &[usize]| -> Vec<Downgraded> {
            let confirmed = |node: &usize| Downgraded { node: *node, counts: holdings.counts(*node), until: at(200) };
            nodes.iter().map(confirmed).collect()
        };
        assert!(!Holdings::of_a_downgrade(&holdings, &confirmed(&[0, 1]), 7).is_kept());
        assert!(!Holdings::of_a_downgrade(&holdings, &confirmed(&[0, 1, 3]), 7).is_kept());
        let mut reader = Holdings::of_a_downgrade(&holdings, &confirmed(&[0, 1, 2]), 7);
        reader.downgraded(confirmed(&[3])[0], 7);
        assert!(reader.is_kept() && !reader.counts(3) && reader.may_be_on(4));
        assert_eq!(reader.renew(at(300))[2..], [Renewal::Extend(7), Renewal::Extend(7), Renewal::Rejoin]);
    }

    #[test]
    fn nothing_is_on_its_way_to_a_node_that_answered_its_vote_and_was_not_asked_to_join() {
        let mut holdings = granted(5);
        holdings.grant_late(3, 1, at(100));
        assert_eq!([0, 3, 4].map(|node| holdings.may_come_to(node)), [false, false, true]);
        holdings.denied(0, 1);
        holdings.renew(at(200));
        holdings.join(0, 1, at(200));
        let confirmed = Downgraded { node: 0, counts: false, until: at(200) };
        let reader = Holdings::of_a_downgrade(&holdings, &[confirmed], 1);
        assert_eq!([0, 3, 4].map(|node| reader.may_come_to(node)), [true, false, true]);
    }

    #[test]
    fn a_node_that_is_passed_by_does_not_count_is_asked_to_join_and_is_given_back() {
        let mut holdings = granted(3);
        holdings.pass_by(2);
        assert!(holdings.may_be_on(2) && !holdings.may_come_to(2));
        assert_eq!(holdings.renew(at(200))[2], Renewal::Rejoin);
        holdings.denied(1, 1);
        holdings.join(2, 1, at(200));
        assert!(!holdings.is_kept());
    }

    #[test]
    fn a_member_that_was_replaced_counts_for_as_long_as_was_promised_before_and_no_longer() {
        let mut holdings = of(3);
        for (node, until) in [(1, 100), (2, 150)] {
            holdings.grant(node, 1, at(until));
        }
        holdings.refuse(0);
        holdings.move_to([1, 2, 4]);
        assert!(holdings.is(2, 4) && holdings.is_kept());
        // The one that stayed alone keeps nothing for longer.
        assert_eq!(holdings.renew(at(200)), [Renewal::Rejoin, Renewal::Extend(1), Renewal::Rejoin]);
        holdings.extended(1, 1, at(200));
        assert_eq!(holdings.valid_until(), Some(at(100)));
        for node in [0, 2] {
            holdings.join(node, 1, at(200));
        }
        assert_eq!(holdings.valid_until(), Some(at(100)), "they joined in this very renewal");
        renew(&mut holdings, 300, &[0, 1, 2]);
        assert_eq!((holdings.valid_until(), holdings.replaced()), (Some(at(300)), 0));
    }

    #[test]
    fn a_lease_is_lost_that_only_replaced_members_kept() {
        let mut holdings = granted(3);
        holdings.move_to([4, 2, 3]);
        holdings.denied(1, 1);
        assert!(!holdings.is_kept());
        let mut holdings = granted(5);
        holdings.grant_late(3, 1, at(80));
        holdings.move_to([6, 2, 3, 4, 5]);
        assert_eq!(holdings.replaced(), 1);
        holdings.renew(at(200));
        assert_eq!(holdings.replaced(), 0, "the others are a majority");
    }

    proptest! {
        #[test]
        fn it_is_lost_as_soon_as_a_majority_has_denied_it(denied in proptest::collection::btree_set(0_usize..5, 0..=5)) {
            let mut holdings = of(5);
            for node in 0..5 {
                holdings.grant(node, 1, at(100));
            }
            for node in &denied {
                holdings.denied(*node, 1);
            }
            prop_assert_eq!(holdings.is_kept(), denied.len() < 3);
            prop_assert_eq!(holdings.valid_until().is_some(), denied.len() < 3);
        }
    }
}

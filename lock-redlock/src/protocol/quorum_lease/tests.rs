//! The count of a lease, step by step and by schedules.

use proptest::prelude::*;

use super::*;

fn at(nanos: u64) -> BootInstant {
    BootInstant::from_nanos(nanos)
}

fn of(nodes: u32) -> QuorumLease {
    QuorumLease::new(1..=nodes)
}

fn granted(nodes: u32) -> QuorumLease {
    let mut lease = of(nodes);
    for node in 0..majority(nodes as usize) {
        lease.grant(node, 1, at(100));
    }
    lease
}

#[test]
fn it_is_valid_for_as_long_as_a_majority_promised() {
    let mut lease = of(5);
    for (node, until) in [(0, 50), (2, 10), (3, 30)] {
        lease.grant(node, 1, at(until));
    }
    assert_eq!(lease.valid_until(), Some(at(10)));
    lease.join(4, 2, at(40));
    assert_eq!(lease.valid_until(), Some(at(10)));
    lease.grant_late(1, 1, at(40));
    assert_eq!(lease.valid_until(), Some(at(30)));
}

/// Renews the lease with this expected deadline; these nodes answer, by their number 1.
fn renew(lease: &mut QuorumLease, expected: u64, extended: &[usize]) {
    lease.renew(at(expected));
    for node in extended {
        lease.extended(*node, 1, at(expected));
    }
}

#[test]
fn a_vote_that_is_answered_after_the_node_was_asked_to_join_counts_as_a_join() {
    let mut lease = granted(3);
    renew(&mut lease, 200, &[1]);
    // The node has voted for the grant, its holding was deleted, and it has joined the lease by the same number.
    lease.grant_late(2, 1, at(100));
    lease.join(2, 1, at(200));
    assert!(!lease.counts(2));
    lease.denied(0, 1);
    assert!(!lease.is_kept(), "the other node that counted was lost");
}

#[test]
fn a_node_that_restarted_is_taken_again_and_counts_when_the_others_were_heard_to_keep_the_lease_since() {
    let mut lease = granted(3);
    lease.join(2, 1, at(200));
    // One of two that count, and the one that is to count.
    renew(&mut lease, 200, &[0, 2]);
    assert!(!lease.counts(2));
    assert_eq!(lease.valid_until(), Some(at(100)), "as long as the silent one promised");
    renew(&mut lease, 300, &[0, 1]);
    assert!(lease.counts(2));
    assert_eq!(lease.renew(at(400)), [RenewRequest::Extend(1); 3]);
    lease.denied(1, 1);
    assert!(lease.is_kept());
}

#[test]
fn an_answer_to_an_earlier_renewal_does_not_let_a_node_count() {
    let mut lease = granted(3);
    lease.renew(at(200));
    lease.join(2, 1, at(200));
    renew(&mut lease, 300, &[0]);
    lease.extended(1, 1, at(200));
    assert!(!lease.counts(2));
    lease.extended(1, 1, at(300));
    assert!(lease.counts(2));
}

#[test]
fn a_node_that_extended_and_then_denied_speaks_for_nobody() {
    let mut lease = granted(3);
    lease.join(2, 1, at(200));
    renew(&mut lease, 300, &[0]);
    lease.denied(0, 1);
    lease.extended(1, 1, at(300));
    assert!(!lease.counts(2) && !lease.is_kept());
}

#[test]
fn nodes_that_join_do_not_stand_in_for_those_that_are_gone_in_the_same_renewal() {
    let mut lease = granted(5);
    lease.renew(at(200));
    lease.join(3, 2, at(200));
    lease.join(4, 2, at(200));
    lease.denied(0, 1);
    assert!(!lease.is_kept());
}

#[test]
fn a_late_denial_of_another_holding_changes_nothing() {
    let mut lease = granted(3);
    lease.denied(0, 7);
    assert!(lease.is_kept());
}

#[test]
fn a_node_that_certainly_refused_is_left_alone_until_it_was_asked_to_join() {
    let mut lease = granted(3);
    lease.refuse(2);
    assert!(!lease.may_be_on(2) && lease.may_be_on(1));
    lease.renew(at(200));
    assert!(lease.may_be_on(2));
}

#[test]
fn a_downgrade_goes_to_every_node_that_keeps_the_lease_and_only_those_that_confirm_it_count() {
    let mut lease = granted(5);
    lease.join(3, 4, at(100));
    let plan = lease.hand_over();
    assert_eq!(plan[3..], [RenewRequest::Extend(4), RenewRequest::Rejoin]);
    assert!(lease.is_handed_over());
    let confirmed = |nodes: &[usize]| -> Vec<DowngradeConfirmed> {
        let confirmed = |node: &usize| DowngradeConfirmed { node: *node, counts: lease.counts(*node), until: at(200) };
        nodes.iter().map(confirmed).collect()
    };
    assert!(!QuorumLease::of_a_downgrade(&lease, &confirmed(&[0, 1]), 7).is_kept());
    assert!(!QuorumLease::of_a_downgrade(&lease, &confirmed(&[0, 1, 3]), 7).is_kept());
    let mut reader = QuorumLease::of_a_downgrade(&lease, &confirmed(&[0, 1, 2]), 7);
    reader.downgraded(confirmed(&[3])[0], 7);
    assert!(reader.is_kept() && !reader.counts(3) && reader.may_be_on(4));
    assert_eq!(reader.renew(at(300))[2..], [RenewRequest::Extend(7), RenewRequest::Extend(7), RenewRequest::Rejoin]);
}

#[test]
fn nothing_is_on_its_way_to_a_node_that_answered_its_vote_and_was_not_asked_to_join() {
    let mut lease = granted(5);
    lease.grant_late(3, 1, at(100));
    assert_eq!([0, 3, 4].map(|node| lease.may_arrive_at(node)), [false, false, true]);
    lease.denied(0, 1);
    lease.renew(at(200));
    lease.join(0, 1, at(200));
    let confirmed = DowngradeConfirmed { node: 0, counts: false, until: at(200) };
    let reader = QuorumLease::of_a_downgrade(&lease, &[confirmed], 1);
    assert_eq!([0, 3, 4].map(|node| reader.may_arrive_at(node)), [true, false, true]);
}

#[test]
fn a_node_that_is_passed_by_does_not_count_is_asked_to_join_and_is_given_back() {
    let mut lease = granted(3);
    lease.skip(2);
    assert!(lease.may_be_on(2) && !lease.may_arrive_at(2));
    assert_eq!(lease.renew(at(200))[2], RenewRequest::Rejoin);
    lease.denied(1, 1);
    lease.join(2, 1, at(200));
    assert!(!lease.is_kept());
}

#[test]
fn a_member_that_was_replaced_counts_for_as_long_as_was_promised_before_and_no_longer() {
    let mut lease = of(3);
    for (node, until) in [(1, 100), (2, 150)] {
        lease.grant(node, 1, at(until));
    }
    lease.refuse(0);
    lease.move_to([1, 2, 4]);
    assert!(lease.is(2, 4) && lease.is_kept());
    // The one that stayed alone keeps nothing for longer.
    assert_eq!(lease.renew(at(200)), [RenewRequest::Rejoin, RenewRequest::Extend(1), RenewRequest::Rejoin]);
    lease.extended(1, 1, at(200));
    assert_eq!(lease.valid_until(), Some(at(100)));
    for node in [0, 2] {
        lease.join(node, 1, at(200));
    }
    assert_eq!(lease.valid_until(), Some(at(100)), "they joined in this very renewal");
    renew(&mut lease, 300, &[0, 1, 2]);
    assert_eq!((lease.valid_until(), lease.replaced()), (Some(at(300)), 0));
}

#[test]
fn a_lease_is_lost_that_only_replaced_members_kept() {
    let mut lease = granted(3);
    lease.move_to([4, 2, 3]);
    lease.denied(1, 1);
    assert!(!lease.is_kept());
    let mut lease = granted(5);
    lease.grant_late(3, 1, at(80));
    lease.move_to([6, 2, 3, 4, 5]);
    assert_eq!(lease.replaced(), 1);
    lease.renew(at(200));
    assert_eq!(lease.replaced(), 0, "the others are a majority");
}

proptest! {
    #[test]
    fn it_is_lost_as_soon_as_a_majority_has_denied_it(denied in proptest::collection::btree_set(0_usize..5, 0..=5)) {
        let mut lease = of(5);
        for node in 0..5 {
            lease.grant(node, 1, at(100));
        }
        for node in &denied {
            lease.denied(*node, 1);
        }
        prop_assert_eq!(lease.is_kept(), denied.len() < 3);
        prop_assert_eq!(lease.valid_until().is_some(), denied.len() < 3);
    }
}

//! The table, one promise at a time.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    contender::{Attempt, Grant, ServerTime, WaiterState},
    queue::EnterOutcome,
    table::LockTable,
};
use crate::{BootInstant, LockName, Mode};

const TTL: Duration = Duration::from_secs(10);
const READ: Mode = Mode::Read;
const WRITE: Mode = Mode::Exclusive;

fn at(seconds: u64) -> ServerTime {
    ServerTime { at: BootInstant::from_nanos(seconds * 1_000_000_000), wall_micros: seconds * 1_000_000 }
}

fn permit(of: u32) -> Mode {
    Mode::Permit { of: NonZeroU32::new(of).unwrap() }
}

fn attempt(id: u64, mode: Mode) -> Attempt {
    Attempt { id, mode, ttl: TTL, delay: Duration::ZERO, payload: Arc::new([]) }
}

fn delayed(id: u64, mode: Mode, seconds: u64) -> Attempt {
    Attempt { delay: Duration::from_secs(seconds), ..attempt(id, mode) }
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

/// A [`LockTable`] in which tests use a single name.
#[derive(Default)]
struct SingleNameTable(LockTable);

impl SingleNameTable {
    fn enters(&mut self, seconds: u64, attempt: Attempt) -> EnterOutcome {
        self.0.enter(at(seconds), &name(), attempt, false)
    }

    fn granted(&mut self, seconds: u64, attempt: Attempt) -> Grant {
        match self.enters(seconds, attempt) {
            EnterOutcome::Granted(grant) => grant,
            other => panic!("granted, not {other:?}"),
        }
    }

    fn queued(&mut self, seconds: u64, attempt: Attempt) -> watch::Receiver<WaiterState> {
        match self.0.enter(at(seconds), &name(), attempt, true) {
            EnterOutcome::Queued(place) => place,
            other => panic!("queued, not {other:?}"),
        }
    }

    fn is_refused(&mut self, seconds: u64, attempt: Attempt) -> bool {
        matches!(self.enters(seconds, attempt), EnterOutcome::Refused)
    }

    fn leaves(&mut self, seconds: u64, id: u64) -> bool {
        self.0.leave(at(seconds), &name(), id)
    }

    fn renews(&mut self, seconds: u64, id: u64) -> bool {
        self.0.renew(at(seconds), &name(), id)
    }

    fn settle(&mut self, seconds: u64) {
        self.0.settle(at(seconds), &name());
    }
}

fn grant(place: &watch::Receiver<WaiterState>) -> Option<Grant> {
    match *place.borrow() {
        WaiterState::Granted(grant) => Some(grant),
        WaiterState::InLine { .. } => None,
    }
}

fn looks_again(place: &watch::Receiver<WaiterState>) -> BootInstant {
    match *place.borrow() {
        WaiterState::InLine { look_again } => look_again,
        WaiterState::Granted(grant) => panic!("in line, not {grant:?}"),
    }
}

#[test]
fn the_longest_waiter_that_is_still_there_is_next() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, WRITE));
    let gone = table.queued(1, attempt(2, WRITE));
    let next = table.queued(2, attempt(3, WRITE));
    let last = table.queued(3, attempt(4, WRITE));
    drop(gone);
    assert!(table.leaves(4, 1));
    assert_eq!(grant(&next).unwrap().at, at(4).at);
    assert!(grant(&last).is_none());
}

#[test]
fn a_lease_that_ran_out_is_not_renewed_and_its_successor_stays() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, WRITE));
    table.granted(10, attempt(2, WRITE));
    assert!(!table.renews(10, 1));
    assert!(!table.leaves(10, 1));
    assert!(table.leaves(11, 2));
}

#[test]
fn nothing_is_left_of_a_free_lock_and_tokens_still_rise() {
    let mut table = SingleNameTable::default();
    let mut last = 0;
    for id in 0..10 {
        let grant = table.granted(0, attempt(id, WRITE));
        assert!(grant.token > last);
        last = grant.token;
        table.leaves(0, id);
        assert!(table.0.is_empty());
    }
}

#[test]
fn names_whose_holders_died_go_while_the_server_works_on_others() {
    let mut table = LockTable::default();
    for id in 0..100 {
        let name = LockName::new(format!("dead {id}")).unwrap();
        table.enter(at(0), &name, attempt(id, WRITE), false);
    }
    for id in 100..150 {
        table.enter(at(20), &name(), attempt(id, WRITE), false);
        table.leave(at(20), &name(), id);
    }
    assert!(table.is_empty());
}

#[test]
fn a_waiter_knows_when_to_look_again_however_the_holders_change() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, WRITE));
    let hasty = table.queued(0, Attempt { ttl: Duration::from_secs(2), ..attempt(2, WRITE) });
    let mut last = table.queued(0, attempt(3, WRITE));
    assert_eq!(looks_again(&last), at(10).at);
    last.mark_unchanged();
    assert!(table.renews(5, 1));
    assert!(!last.has_changed().unwrap(), "a renewal wakes nobody");
    // The next holder's lease may end before the one that the waiter had in mind.
    assert!(table.leaves(5, 1));
    assert!(grant(&hasty).is_some());
    assert_eq!(looks_again(&last), at(7).at);
    table.settle(7);
    assert!(grant(&last).is_some());
}

#[test]
fn readers_hold_beside_each_other_each_with_its_own_lease() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, READ));
    table.granted(4, attempt(2, READ));
    assert!(table.is_refused(4, attempt(3, WRITE)));
    assert!(table.renews(9, 2));
    // One that is not renewed does not live on the renewals of the other.
    assert!(!table.renews(10, 1));
    assert!(table.is_refused(10, attempt(4, WRITE)));
    assert!(table.leaves(11, 2));
    table.granted(11, attempt(5, WRITE));
}

#[test]
fn a_reader_does_not_overtake_a_writer_that_waits() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, READ));
    let writer = table.queued(0, attempt(2, WRITE));
    assert!(table.is_refused(0, attempt(3, READ)));
    let [first, second] = [4, 5].map(|id| table.queued(0, attempt(id, READ)));
    assert!(table.leaves(1, 1));
    let written = grant(&writer).unwrap();
    assert!(grant(&first).is_none() && grant(&second).is_none());
    // Readers at the head of the queue go in together.
    assert!(table.leaves(2, 2));
    assert!([first, second].iter().all(|reader| grant(reader).unwrap().token > written.token));
}

#[test]
fn readers_go_in_when_the_writer_ahead_of_them_gives_up() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, READ));
    let _writer = table.queued(0, attempt(2, WRITE));
    let reader = table.queued(0, attempt(3, READ));
    assert!(!table.leaves(1, 2), "it held nothing");
    assert!(grant(&reader).is_some());
}

#[test]
fn a_downgraded_writer_reads_on_and_lets_in_the_readers_at_the_head_alone() {
    let mut table = SingleNameTable::default();
    let written = table.granted(0, attempt(1, WRITE));
    let first = table.queued(0, attempt(2, READ));
    let writer = table.queued(0, attempt(3, WRITE));
    let last = table.queued(0, attempt(4, READ));
    assert!(table.0.downgrade(at(1), &name(), 1));
    assert!(grant(&first).is_some() && grant(&writer).is_none() && grant(&last).is_none());
    let snapshot = table.0.snapshot(at(1), &name());
    assert_eq!(snapshot.holders[0].token, Some(written.token));
    assert_eq!(snapshot.holders[0].mode, Some(READ));
    assert!(table.renews(9, 1) && table.leaves(9, 2));
    assert!(grant(&writer).is_none(), "it still reads");
    assert!(table.leaves(9, 1));
    assert!(grant(&writer).is_some());
}

#[test]
fn a_lease_that_ran_out_is_not_downgraded() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, WRITE));
    assert!(!table.0.downgrade(at(10), &name(), 1));
    table.granted(10, attempt(2, WRITE));
}

#[test]
fn permits_have_nothing_to_do_with_the_lock_of_their_name() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, WRITE));
    table.granted(0, attempt(2, permit(2)));
    table.granted(0, attempt(3, permit(2)));
    assert!(table.is_refused(0, attempt(4, permit(2))));
    assert!(table.is_refused(0, attempt(5, READ)));
    let snapshot = table.0.snapshot(at(1), &name());
    let modes: Vec<_> = snapshot.holders.iter().filter_map(|holder| holder.mode).collect();
    assert_eq!(modes, [WRITE, permit(2), permit(2)]);
}

#[test]
fn the_number_of_permits_is_that_of_the_oldest_contender_that_is_there() {
    let mut table = SingleNameTable::default();
    table.granted(0, attempt(1, permit(1)));
    let waiter = table.queued(0, attempt(2, permit(1)));
    let disagrees =
        |entered| matches!(entered, EnterOutcome::Disagrees { asked, there } if asked.get() == 3 && there.get() == 1);
    assert!(disagrees(table.enters(0, attempt(3, permit(3)))));
    assert!(disagrees(table.0.enter(at(0), &name(), attempt(3, permit(3)), true)));
    assert!(table.leaves(0, 1));
    assert!(disagrees(table.enters(0, attempt(3, permit(3)))));
    assert!(grant(&waiter).is_some());
    assert!(table.leaves(0, 2));
    table.granted(0, attempt(3, permit(3)));
}

#[test]
fn a_lock_delay_keeps_a_lock_closed_from_the_end_of_its_lease() {
    let mut table = SingleNameTable::default();
    table.granted(0, delayed(1, WRITE, 5));
    let waiter = table.queued(1, attempt(2, WRITE));
    // Noticed late, and counted from the end all the same.
    table.settle(12);
    assert!(grant(&waiter).is_none());
    assert!(table.0.snapshot(at(12), &name()).holders.is_empty());
    assert!(table.is_refused(14, attempt(3, READ)));
    assert_eq!(looks_again(&waiter), at(15).at);
    table.settle(15);
    assert_eq!(grant(&waiter).unwrap().at, at(15).at);
    assert!(table.leaves(16, 2));
    assert!(table.0.is_empty());
}

#[test]
fn a_lock_delay_begins_when_an_operator_deletes_the_lock() {
    let mut table = SingleNameTable::default();
    table.granted(0, delayed(1, WRITE, 5));
    table.0.delete(at(2), &name());
    assert!(!table.renews(2, 1));
    assert!(table.is_refused(6, attempt(2, WRITE)));
    table.granted(7, attempt(3, WRITE));
}

#[test]
fn a_lock_that_is_given_back_in_order_has_no_delay() {
    let mut table = SingleNameTable::default();
    table.granted(0, delayed(1, WRITE, 5));
    assert!(table.leaves(1, 1));
    table.granted(1, attempt(2, WRITE));
}

#[test]
fn a_lock_delay_keeps_out_those_alone_whom_the_lease_kept_out() {
    let mut table = SingleNameTable::default();
    table.granted(0, delayed(1, READ, 5));
    table.granted(0, delayed(2, permit(2), 5));
    table.settle(10);
    table.granted(11, attempt(3, READ));
    assert!(table.leaves(11, 3));
    assert!(table.is_refused(11, attempt(4, WRITE)));
    table.granted(11, attempt(5, permit(2)));
    assert!(table.is_refused(11, attempt(6, permit(2))));
    table.granted(15, attempt(7, WRITE));
    table.granted(15, attempt(8, permit(2)));
}

#[test]
fn a_follower_hears_of_contenders_and_not_of_renewals() {
    let mut table = SingleNameTable::default();
    let mut heard = table.0.follow(&name());
    let mut hears = |about: &str, expected: bool| {
        assert_eq!(heard.has_changed().unwrap(), expected, "{about}");
        heard.mark_unchanged();
    };
    table.granted(0, attempt(1, WRITE));
    hears("a grant", true);
    assert!(table.renews(1, 1));
    hears("a renewal", false);
    let _waiter = table.queued(1, attempt(2, WRITE));
    hears("a waiter", true);
    assert!(table.is_refused(1, attempt(3, READ)));
    hears("a refusal", false);
    assert!(!table.leaves(1, 2));
    hears("a waiter that gave up", true);
    table.settle(20);
    hears("the end of a lease", true);
    table.0.unfollow(&name(), heard);
    assert!(table.0.is_empty());
}

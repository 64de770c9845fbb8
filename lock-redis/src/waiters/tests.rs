use lock_core::{Clock, LockName};
use proptest::prelude::*;

use super::*;
use crate::protocol::{attempt::Kind, keys::Keys, packed::pack};

const VALUE: &str = "0123456789abcdef0123456789abcdef";

fn table() -> (Arc<WaiterTable>, RegisteredWaiter) {
    let keys = Keys::new("lock", &LockName::new("a").unwrap());
    let (ttl, clock) = (Duration::from_secs(1), Clock::boot());
    let attempt = Arc::new(Attempt::new(keys, Kind::Writer, VALUE.to_owned(), ttl, Duration::ZERO));
    let beating = Validity::new(clock, clock.now().saturating_add(NO_END));
    let waiter = Arc::new(Waiter { attempt, beating, state: watch::Sender::default() });
    let table = Arc::new(WaiterTable::default());
    table.open(|waiters| waiters.insert(VALUE.to_owned(), Arc::clone(&waiter)));
    (Arc::clone(&table), RegisteredWaiter { table, waiter })
}

fn state(registered: &RegisteredWaiter) -> WaiterState {
    *registered.waiter.follow().borrow()
}

fn message(value: &str, number: u64) -> Vec<u8> {
    [value.as_bytes(), &pack(number), &pack(3), &[0]].concat()
}

fn grant(number: u64) -> WaitResult {
    WaitResult::HandedOver(HandedOver { number, stamp: 3, more: false })
}

fn in_line(newest: u64) -> Standing {
    Standing::InLine(InLine { ahead: 0, left: None, newest, stamp: newest + 1, more: false })
}

#[test]
fn a_message_finds_its_place_and_no_other() {
    let (table, registered) = table();
    table.granted(&message(&VALUE.replace('0', "1"), 7));
    assert_eq!(state(&registered).end, None);
    table.granted(&message(VALUE, 7));
    assert_eq!(state(&registered).end, Some(grant(7)));
    drop(registered);
    assert!(table.open(|waiters| waiters.is_empty()));
}

proptest! {
    #[test]
    fn whatever_else_is_published_is_no_grant(message: Vec<u8>) {
        let (table, registered) = table();
        table.granted(&message);
        prop_assert_eq!(state(&registered).end, None);
    }
}

#[test]
fn a_late_answer_of_an_earlier_beat_takes_no_grant_back() {
    let (table, registered) = table();
    let at = BootInstant::from_nanos;
    registered.waiter.answered(at(5), in_line(1));
    table.granted(&message(VALUE, 7));
    registered.waiter.answered(at(9), in_line(3));
    registered.waiter.answered(at(8), in_line(2));
    let WaiterState { in_line, end, .. } = state(&registered);
    assert_eq!((in_line, end), (Some(Seen { sent_at: at(9), newest: 3, stamp: 4 }), Some(grant(7))));
}

#[test]
fn what_a_beat_says_of_the_end_is_newer_than_a_message() {
    let (table, registered) = table();
    table.granted(&message(VALUE, 7));
    registered.waiter.answered(BootInstant::from_nanos(5), Standing::Gone);
    table.granted(&message(VALUE, 7));
    assert_eq!(state(&registered).end, Some(WaitResult::Gone));
}

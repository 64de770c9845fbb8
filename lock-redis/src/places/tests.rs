use lock_core::{Clock, LockName};
use proptest::prelude::*;

use super::*;
use crate::protocol::{attempt::Kind, keys::Keys, packed::pack};

const VALUE: &str = "0123456789abcdef0123456789abcdef";

fn board() -> (Arc<Board>, Registered) {
    let keys = Keys::new("lock", &LockName::new("a").unwrap());
    let (ttl, clock) = (Duration::from_secs(1), Clock::boot());
    let attempt = Arc::new(Attempt::new(keys, Kind::Writer, VALUE.to_owned(), ttl, Duration::ZERO));
    let beating = Validity::new(clock, clock.now().saturating_add(NO_END));
    let place = Arc::new(Place { attempt, beating, news: watch::Sender::default() });
    let board = Arc::new(Board::default());
    board.open(|places| places.insert(VALUE.to_owned(), Arc::clone(&place)));
    (Arc::clone(&board), Registered { board, place })
}

fn news(registered: &Registered) -> News {
    *registered.place.follow().borrow()
}

fn message(value: &str, number: u64) -> Vec<u8> {
    [value.as_bytes(), &pack(number), &pack(3), &[0]].concat()
}

fn grant(number: u64) -> End {
    End::HandedOver(HandedOver { number, stamp: 3, more: false })
}

fn in_line(newest: u64) -> Standing {
    Standing::InLine(InLine { ahead: 0, left: None, newest, stamp: newest + 1, more: false })
}

#[test]
fn a_message_finds_its_place_and_no_other() {
    let (board, registered) = board();
    board.granted(&message(&VALUE.replace('0', "1"), 7));
    assert_eq!(news(&registered).end, None);
    board.granted(&message(VALUE, 7));
    assert_eq!(news(&registered).end, Some(grant(7)));
    drop(registered);
    assert!(board.open(|places| places.is_empty()));
}

proptest! {
    #[test]
    fn whatever_else_is_published_is_no_grant(message: Vec<u8>) {
        let (board, registered) = board();
        board.granted(&message);
        prop_assert_eq!(news(&registered).end, None);
    }
}

#[test]
fn a_late_answer_of_an_earlier_beat_takes_no_grant_back() {
    let (board, registered) = board();
    let at = BootInstant::from_nanos;
    registered.place.answered(at(5), in_line(1));
    board.granted(&message(VALUE, 7));
    registered.place.answered(at(9), in_line(3));
    registered.place.answered(at(8), in_line(2));
    let News { in_line, end, .. } = news(&registered);
    assert_eq!((in_line, end), (Some(Seen { sent_at: at(9), newest: 3, stamp: 4 }), Some(grant(7))));
}

#[test]
fn what_a_beat_says_of_the_end_is_newer_than_a_message() {
    let (board, registered) = board();
    board.granted(&message(VALUE, 7));
    registered.place.answered(BootInstant::from_nanos(5), Standing::Gone);
    board.granted(&message(VALUE, 7));
    assert_eq!(news(&registered).end, Some(End::Gone));
}

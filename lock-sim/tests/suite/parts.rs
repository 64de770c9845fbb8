//! The small parts that machines are made of: the agenda, chance, clocks, connections and traces.

use lock_sim::{Agenda, Chance, LocalClock, Pipe, Trace};

#[test]
fn events_come_in_the_order_of_time_and_at_one_moment_in_that_of_their_scheduling() {
    let mut agenda = Agenda::default();
    for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
        agenda.at(at, event);
    }
    let mut seen = String::new();
    while let Some(event) = agenda.next_event() {
        seen.push(event);
    }
    assert_eq!((seen.as_str(), agenda.now()), ("abcd", 5));
}

#[test]
fn what_is_scheduled_for_the_past_happens_now() {
    let mut agenda = Agenda::default();
    agenda.at(10, ());
    agenda.next_event();
    agenda.at(3, ());
    agenda.next_event();
    assert_eq!(agenda.now(), 10);
}

#[test]
fn a_seed_gives_the_same_numbers_on_every_platform() {
    let mut chance = Chance::new(1);
    let drawn: Vec<u64> = (0..4).map(|_| chance.below(1000)).collect();
    assert_eq!(drawn, [628, 547, 996, 115]);
}

#[test]
fn what_is_drawn_is_within_its_bounds() {
    let mut chance = Chance::new(2);
    for _ in 0..1000 {
        assert!((3..=5).contains(&chance.between(3, 5)));
        assert!((-5..=5).contains(&chance.signed(-5, 5)));
        assert!(chance.mostly_short(8) < 8);
    }
    assert_eq!((chance.below(0), chance.between(7, 7), chance.place(0)), (0, 7, 0));
}

#[test]
fn a_clock_that_is_fast_shows_a_moment_earlier() {
    let fast = LocalClock::new(500, 10_000);
    assert_eq!(fast.at(1_000_000), 1_010_500);
    assert_eq!(fast.when(1_010_500), 1_000_000);
}

#[test]
fn when_is_the_first_moment_at_which_it_shows_that_much() {
    for drift in [-4_321, -1, 0, 1, 3_333] {
        let clock = LocalClock::new(17, drift);
        for shows in [18, 1_000, 999_999, 123_456_789] {
            let when = clock.when(shows);
            assert!(clock.at(when) >= shows && clock.at(when - 1) < shows, "{drift} {shows}");
        }
    }
}

#[test]
fn a_jump_changes_what_it_shows_and_not_how_fast_it_runs() {
    let mut clock = LocalClock::new(0, 0);
    clock.jump(100, 30);
    assert_eq!((clock.at(100), clock.at(150)), (130, 180));
    clock.jump(150, -100);
    assert_eq!((clock.at(160), clock.when(100)), (90, 170));
}

#[test]
fn a_connection_keeps_its_order_and_two_of_them_do_not() {
    let (mut one, mut other) = (Pipe::default(), Pipe::default());
    assert_eq!((one.arrival(10, 50), one.arrival(11, 3), other.arrival(11, 3)), (60, 60, 14));
}

#[test]
fn a_kept_trace_has_a_line_for_each_thing_and_a_silent_one_has_nothing() {
    let (mut kept, mut silent) = (Trace::kept(), Trace::silent());
    for trace in [&mut kept, &mut silent] {
        trace.note(1_500_000, "client 1", format_args!("acquires"));
    }
    assert_eq!(kept.text(), "       1.500 ms  client 1    acquires\n");
    assert_eq!(silent.text(), "");
}

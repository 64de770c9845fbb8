//! The shipped Redis backend on a simulated server.

use std::{
    cell::{Cell, RefCell},
    future,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use lock_core::{Error, Locks, LocksOptions};
use lock_redis::{Config, Redis, Strategy};
use lock_sim::{
    Chance, LocalClock, MS, SECOND,
    redis::{Fleet, HostNetwork, address},
    world::{HostClocks, Way, Wires, World},
};
use tokio::sync::Notify;

type Log = Rc<RefCell<Vec<String>>>;

/// Three clients that take a lock in turn.
fn play(seed: u64) -> (Vec<String>, u64) {
    let wires = Wires { late_per_mille: 20, late: 50 * MS, ..Wires::default() };
    let mut world = World::<()>::new(Chance::new(seed), wires);
    let hosts = [-4_000, 0, 4_000].map(|drift| world.add_host(HostClocks::new(0, drift, drift * 1_000)));
    let mut fleet = Fleet::default();
    let server = fleet.add(&mut world, LocalClock::new(1_600_000_000 * SECOND, 1_000), None);
    let log = Log::default();
    for host in hosts {
        let (context, log, at) = (world.context(host), Rc::clone(&log), address(server));
        let config =
            Config::new(at.host, at.port).with_ttl(Duration::from_secs(1)).with_network(Arc::new(HostNetwork(host)));
        world.spawn(host, async move {
            let clock = context.clock();
            let locks = Locks::new(Redis::connect_in(config, context).await.unwrap());
            for _ in 0..4 {
                let guard = locks.mutex("orders").lock().await.unwrap();
                log.borrow_mut().push(format!("{} granted {}", host.place(), guard.token()));
                clock.sleep(Duration::from_millis(fastrand::u64(1..2_500))).await;
                assert!(guard.is_valid());
                log.borrow_mut().push(format!("{} released", host.place()));
                guard.release().await.unwrap();
            }
            locks.close(Duration::from_secs(1)).await.unwrap();
        });
    }
    while let Some(happening) = world.next() {
        fleet.see_to(&mut world, happening);
        assert!(world.now() < 100 * SECOND, "it does not come to an end");
    }
    let now = world.now();
    let left: Vec<_> =
        fleet.store(server, now).keys().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
    assert_eq!(left, ["{lock:orders}:token"]);
    let log = log.borrow().clone();
    (log, world.fingerprint())
}

#[test]
fn the_lock_goes_from_one_client_to_the_next_and_nothing_is_left() {
    for seed in 0..20 {
        let (log, _) = play(seed);
        assert_eq!(log.len(), 24, "{seed}: {log:?}");
        for pair in log.chunks(2) {
            assert_eq!(pair[0].as_bytes()[0], pair[1].as_bytes()[0], "{seed}: {log:?}");
        }
        let tokens: Vec<_> = log.iter().filter_map(|line| line.split_once(" granted ")).collect();
        assert!(tokens.windows(2).all(|pair| pair[0].1 < pair[1].1), "{seed}: {log:?}");
    }
}

#[test]
fn the_shipped_backend_replays_exactly() {
    for seed in 0..10 {
        let there = std::thread::spawn(move || play(seed)).join().unwrap();
        assert_eq!(play(seed), there, "{seed}");
    }
}

/// What happens to an acquisition that arrives late.
#[derive(Debug)]
enum Step {
    /// Nothing comes through any more. What is sent is under way, and its client hears that the connection is over.
    Lost,
    /// It arrives, and others come through again.
    Arrives,
    /// It was undone.
    Undone,
}

/// One acquisition of `strategy` that arrives 4.9 s after it was sent. The pauses between two tries to undo it are of up to 2 s.
fn arrive_late(seed: u64, strategy: Strategy, lock: &str) {
    let ms = |ms: u64| Duration::from_millis(ms);
    let mut world = World::new(Chance::new(seed), Wires::default());
    let host = world.add_host(HostClocks::true_time());
    let context = world.context(host);
    let mut fleet = Fleet::default();
    let server = fleet.add(&mut world, LocalClock::new(1_600_000_000 * SECOND, 0), None);
    let at = address(server);
    let config = Config::new(at.host, at.port).with_strategy(strategy).with_network(Arc::new(HostNetwork(host)));
    let config = config.with_ttl(ms(3_000)).with_connect_timeout(ms(200)).with_response_timeout(ms(200));
    world.spawn(host, async move {
        let clock = context.clock();
        let begun = clock.now();
        let locks = Locks::new(Redis::connect_in(config, context).await.unwrap());
        // The server knows the scripts by then.
        locks.mutex("early").lock().await.unwrap().release().await.unwrap();
        clock.sleep_until(begun.saturating_add(ms(1_000))).await;
        let refused = locks.mutex("late").try_lock().await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        // The program goes on, or it would close and give everything back.
        future::pending::<()>().await;
    });
    for (at, step) in [(900, Step::Lost), (5_900, Step::Arrives), (8_400, Step::Undone)] {
        world.at(at * MS, step);
    }
    let mut has_arrived = false;
    while let Some(happening) = world.next() {
        let step = fleet.see_to(&mut world, happening);
        let now = world.now();
        let is_held = fleet.store(server, now).get(lock.as_bytes()).is_some();
        has_arrived |= is_held;
        match step {
            Some(Step::Lost) => {
                world.detain(host, server, |request| String::from_utf8_lossy(request).contains("lock:late"), true);
                world.block(host, server, Way::Up, true);
            }
            Some(Step::Arrives) => {
                assert!(world.is_detaining(), "{seed}: it was not sent");
                world.block(host, server, Way::Up, false);
                world.let_go(1);
            }
            Some(Step::Undone) => {
                assert!(has_arrived, "{seed}: it does not arrive");
                return assert!(!is_held, "{seed}: it is left to its ttl");
            }
            None => {}
        }
    }
    panic!("{seed}: the schedule ended before its last step");
}

#[test]
fn an_undo_goes_on_for_as_long_as_what_it_undoes_may_arrive() {
    for seed in 0..20 {
        arrive_late(seed, Strategy::Queue, "{lock:late}");
        arrive_late(seed, Strategy::Plain { look_again: Duration::from_millis(500) }, "lock:late");
    }
}

/// What happens to a waiter's way to the server.
#[derive(Debug)]
enum Cut {
    Begins,
    Ends,
}

/// A waiter whose subscription connection breaks and cannot be made anew for a moment, and who waits for many times its
/// `outage_timeout` afterwards. Its other connection is used by its heartbeats alone, one of which may be answered before
/// there is another subscription connection.
fn cut_off_for_a_moment(seed: u64) {
    const OUTAGE_TIMEOUT: Duration = Duration::from_secs(5);
    let ms = |ms: u64| Duration::from_millis(ms);
    let mut world = World::new(Chance::new(seed), Wires::default());
    let [holder, waiter] = [(); 2].map(|()| world.add_host(HostClocks::true_time()));
    let mut fleet = Fleet::default();
    let server = fleet.add(&mut world, LocalClock::new(1_600_000_000 * SECOND, 0), None);
    let at = address(server);
    let (is_held, was_granted) = (Rc::new(Notify::new()), Rc::new(Cell::new(false)));
    for host in [holder, waiter] {
        let (context, is_held, was_granted) = (world.context(host), Rc::clone(&is_held), Rc::clone(&was_granted));
        let config = Config::new(at.host.clone(), at.port).with_network(Arc::new(HostNetwork(host)));
        let config = config.with_ttl(ms(3_000)).with_connect_timeout(ms(200)).with_response_timeout(ms(200));
        world.spawn(host, async move {
            let clock = context.clock();
            let options = LocksOptions::default().with_outage_timeout(OUTAGE_TIMEOUT);
            let locks = Locks::with_options(Redis::connect_in(config, context).await.unwrap(), options);
            if host == waiter {
                is_held.notified().await;
            }
            let guard = locks.mutex("orders").lock().await.unwrap_or_else(|error| panic!("{seed}: {error}"));
            if host == holder {
                is_held.notify_one();
                clock.sleep(12 * OUTAGE_TIMEOUT).await;
            } else {
                was_granted.set(true);
            }
            guard.release().await.unwrap();
            locks.close(Duration::from_secs(1)).await.unwrap();
        });
    }
    let begin = 4 * SECOND + seed * 20 * MS;
    world.at(begin, Cut::Begins);
    world.at(begin + 300 * MS, Cut::Ends);
    while let Some(happening) = world.next() {
        if let Some(cut) = fleet.see_to(&mut world, happening) {
            if let Cut::Begins = cut {
                // It is the second one of its host.
                let subscription = world.connections().into_iter().filter(|of| world.ends_of(*of).0 == waiter).max();
                world.break_off(subscription.unwrap());
            }
            for way in [Way::Up, Way::Down] {
                world.block(waiter, server, way, matches!(cut, Cut::Begins));
            }
        }
        assert!(world.now() < 100 * SECOND, "{seed}: it does not come to an end");
    }
    assert!(was_granted.get(), "{seed}: the waiter was not granted");
}

#[test]
fn an_outage_of_a_moment_does_not_end_a_wait_for_longer_than_outages_are_bridged() {
    for seed in 0..50 {
        cut_off_for_a_moment(seed);
    }
}

//! The shipped Redis backend on a simulated server.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use lock_core::Locks;
use lock_redis::{Config, Redis};
use lock_sim::{
    Chance, LocalClock, MS, SECOND,
    redis::{Fleet, HostNetwork, address},
    world::{HostClocks, Wires, World},
};

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

//! The world by itself: what a host, a server and the network between them do, and that a seed replays exactly.

use std::{
    cell::{Cell, RefCell},
    io::ErrorKind,
    rc::Rc,
};

use lock_core::{BootInstant, Executor, TimeSource};
use lock_sim::{
    Chance, MS, SECOND, Time,
    world::{
        ConnectionId, Happening, HostClock, HostClocks, HostExecutor, HostId, ServerId, SimStream, Stop, Way, Wires,
        World,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

type Log = Rc<RefCell<Vec<String>>>;
/// What the program heard, what the server got and when, and the fingerprint.
type Played = (Vec<String>, Vec<(Time, Vec<u8>)>, u64);

/// What the machine of a test has on its agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    Pause,
    Resume,
    Kill,
    Block(Way),
    Open(Way),
    PauseServer,
    ResumeServer,
    StopServer(Stop),
    StartServer,
}

struct Stage {
    world: World<Own>,
    host: HostId,
    server: ServerId,
    served: Vec<(Time, Vec<u8>)>,
    ended: Vec<(Time, ConnectionId)>,
    log: Log,
}

impl Stage {
    fn new(wires: Wires) -> Self {
        let mut world = World::new(Chance::new(7), wires);
        let (host, server) = (world.add_host(HostClocks::true_time()), world.add_server());
        Self { world, host, server, served: Vec::new(), ended: Vec::new(), log: Log::default() }
    }

    /// A program that sends a byte every 100 ms and writes down what it hears.
    fn chatter(&mut self) {
        let (host, server, log) = (self.host, self.server, Rc::clone(&self.log));
        self.world.spawn(host, async move {
            let clock = HostClock::of(host);
            let mut stream = match SimStream::dial(host, server).await {
                Ok(stream) => stream,
                Err(error) => return log.borrow_mut().push(format!("{:?}", error.kind())),
            };
            for byte in 0.. {
                let sent = stream.write_all(&[byte]).await;
                let mut answer = [0];
                let heard = match sent {
                    Ok(()) => stream.read_exact(&mut answer).await,
                    Err(error) => Err(error),
                };
                match heard {
                    Ok(_) => log.borrow_mut().push(format!("{} at {}", answer[0], clock.now().as_nanos() / (100 * MS))),
                    Err(error) => return log.borrow_mut().push(format!("{:?}", error.kind())),
                }
                clock.sleep_until(clock.now().saturating_add(std::time::Duration::from_millis(100))).await;
            }
        });
    }

    fn play(mut self, until: Time) -> Played {
        while let Some(happening) = self.world.next() {
            if self.world.now() > until {
                break;
            }
            let (host, server) = (self.host, self.server);
            match happening {
                Happening::Arrived { connection, bytes, .. } => {
                    self.served.push((self.world.now(), bytes.clone()));
                    self.world.answer(connection, bytes);
                }
                Happening::Ended { connection, .. } => self.ended.push((self.world.now(), connection)),
                Happening::Connected { .. } | Happening::Called | Happening::Passed => {}
                Happening::Own(Own::Pause) => self.world.pause_host(host),
                Happening::Own(Own::Resume) => self.world.resume_host(host),
                Happening::Own(Own::Kill) => self.world.kill_host(host, Stop::Process),
                Happening::Own(Own::Block(way)) => self.world.block(host, server, way, true),
                Happening::Own(Own::Open(way)) => self.world.block(host, server, way, false),
                Happening::Own(Own::PauseServer) => self.world.pause_server(server),
                Happening::Own(Own::ResumeServer) => self.world.resume_server(server),
                Happening::Own(Own::StopServer(stop)) => self.world.stop_server(server, stop),
                Happening::Own(Own::StartServer) => self.world.start_server(server),
            }
        }
        let log = self.log.borrow().clone();
        (log, self.served, self.world.fingerprint())
    }
}

fn calm() -> Stage {
    let mut stage = Stage::new(Wires::default());
    stage.chatter();
    stage
}

#[test]
fn a_paused_host_goes_on_where_it_was_and_a_killed_one_never_does() {
    let mut stage = calm();
    stage.world.at(250 * MS, Own::Pause);
    stage.world.at(900 * MS, Own::Resume);
    stage.world.at(1_250 * MS, Own::Kill);
    let (log, served, _) = stage.play(5 * SECOND);
    let moments: Vec<_> = served.iter().map(|(at, _)| at / (100 * MS)).collect();
    assert_eq!(moments, [0, 1, 2, 9, 10, 11, 12], "{log:?}");
}

#[test]
fn what_is_sent_on_a_blocked_way_comes_when_it_is_open_again() {
    let mut stage = calm();
    stage.world.at(150 * MS, Own::Block(Way::Up));
    stage.world.at(2 * SECOND, Own::Open(Way::Up));
    let (log, served, _) = stage.play(6 * SECOND);
    assert!(served[2].0 > 2 * SECOND && served.len() > 5, "{served:?} {log:?}");
}

#[test]
fn the_kernel_gives_up_what_is_not_acknowledged_on_either_way() {
    for way in [Way::Up, Way::Down] {
        let mut stage = calm();
        stage.world.at(150 * MS, Own::Block(way));
        stage.world.at(30 * SECOND, Own::Open(way));
        let (log, served, _) = stage.play(60 * SECOND);
        assert_eq!(log.last().map(String::as_str), Some("TimedOut"), "{way:?}");
        assert_eq!(served.len(), if way == Way::Up { 2 } else { 3 }, "{way:?}: {served:?}");
    }
}

#[test]
fn a_server_that_stands_still_gets_everything_later_and_one_that_starts_anew_nothing() {
    let mut stage = calm();
    stage.world.at(150 * MS, Own::PauseServer);
    stage.world.at(10 * SECOND, Own::ResumeServer);
    let (_, served, _) = stage.play(11 * SECOND);
    assert!(served[2].0 == 10 * SECOND && served.len() > 5, "{served:?}");
    for (stop, end) in [(Stop::Process, "ConnectionReset"), (Stop::Machine, "ConnectionReset")] {
        let mut stage = calm();
        stage.world.at(150 * MS, Own::StopServer(stop));
        stage.world.at(500 * MS, Own::StartServer);
        let (log, served, _) = stage.play(60 * SECOND);
        assert_eq!((log.last().map(String::as_str), served.len()), (Some(end), 2), "{stop:?}");
    }
}

#[test]
fn nobody_is_there_is_said_by_a_machine_without_its_server() {
    let mut stage = Stage::new(Wires::default());
    stage.world.stop_server(stage.server, Stop::Process);
    stage.chatter();
    assert_eq!(stage.play(SECOND).0, ["ConnectionRefused"]);
}

/// Writes two bytes on a way that is blocked, and ends the connection; gives what arrives when the way is open again.
fn arrives_after_the_end(ends_at_once: bool) -> usize {
    let mut stage = Stage::new(Wires { ends_at_once, unacknowledged: None, ..Wires::default() });
    let (host, server) = (stage.host, stage.server);
    stage.world.spawn(host, async move {
        let clock = HostClock::of(host);
        let mut stream = SimStream::dial(host, server).await.unwrap();
        clock.sleep_until(BootInstant::from_nanos(2 * SECOND)).await;
        stream.write_all(b"late").await.unwrap();
        clock.sleep_until(BootInstant::from_nanos(3 * SECOND)).await;
        stream.ending().end();
        assert_eq!(stream.write_all(b"x").await.unwrap_err().kind(), ErrorKind::NotConnected);
    });
    stage.world.at(500 * MS, Own::Block(Way::Up));
    stage.world.at(60 * SECOND, Own::Open(Way::Up));
    stage.play(90 * SECOND).1.len()
}

#[test]
fn nothing_is_sent_of_a_connection_that_was_ended_unless_its_kernel_goes_on() {
    assert_eq!(arrives_after_the_end(true), 0);
    assert_eq!(arrives_after_the_end(false), 1);
}

#[test]
fn a_clock_that_is_fast_wakes_earlier_and_the_one_on_the_wall_may_jump() {
    let mut world = World::<()>::new(Chance::new(1), Wires::default());
    let fast = world.add_host(HostClocks::new(0, 9_000, 0));
    let done = Rc::new(Cell::new(false));
    let (clock, is_done) = (HostClock::of(fast), Rc::clone(&done));
    let before = clock.wall_micros();
    world.spawn(fast, async move {
        clock.sleep_until(clock.now().saturating_add(std::time::Duration::from_secs(1_009))).await;
        is_done.set(true);
    });
    assert!(world.next().is_none() && done.get());
    assert!((1_000 * SECOND..1_000 * SECOND + 2 * MS).contains(&world.now()), "{}", world.now());
    world.jump(fast, -5_000_000_000);
    assert_eq!((clock.wall_micros() - before) / 1_000_000, 1_004);
}

/// Many tasks that wait for one another through a library that wakes in an order of its own.
fn crowd(seed: u64) -> (u64, Vec<usize>) {
    let mut world = World::<()>::new(Chance::new(seed), Wires::default());
    let host = world.add_host(HostClocks::true_time());
    let order = Rc::new(RefCell::new(Vec::new()));
    let (sender, receiver) = watch::channel(0_u32);
    for number in 0..20 {
        let (order, mut receiver) = (Rc::clone(&order), receiver.clone());
        world.spawn(host, async move {
            while receiver.changed().await.is_ok() {
                order.borrow_mut().push(number);
            }
        });
    }
    HostExecutor::of(host).spawn(Box::pin(async move {
        let clock = HostClock::of(host);
        for round in 1..5 {
            let pause = std::time::Duration::from_micros(fastrand::u64(1..1_000));
            clock.sleep_until(clock.now().saturating_add(pause)).await;
            sender.send_replace(round);
        }
    }));
    assert!(world.next().is_none());
    let order = order.borrow().clone();
    (world.fingerprint(), order)
}

#[test]
fn a_seed_replays_exactly_on_every_thread() {
    for seed in 0..20 {
        let there = std::thread::spawn(move || crowd(seed)).join().unwrap();
        assert_eq!(crowd(seed), there, "seed {seed}");
        assert_ne!(crowd(seed).1, crowd(seed + 1_000).1, "seed {seed}");
    }
}

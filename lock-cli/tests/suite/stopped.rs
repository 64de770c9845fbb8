//! Programs that are stopped (SIGSTOP) for longer than their lock lives: `lock run`, alone or with its command, and
//! programs that hold a guard.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use lock::{Clock, Guard, Locks, fence::redis::FencedKey};
use lock_lab::servers::Redis;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use redis::AsyncCommands;

use crate::common::{
    Running, group_of, kill,
    services::{Service, on_each_service, on_local_files},
    within,
};

on_each_service! {
    a_command_whose_lock_run_is_stopped_is_ended_with_the_validity_however_long_kill_after_is,
    a_command_that_was_stopped_together_with_its_lock_run_is_refused_and_ended_when_they_go_on,
    a_command_that_does_not_end_when_told_is_killed_although_its_lock_run_is_stopped_meanwhile,
    a_stopped_program_finds_its_guard_lost_at_its_first_look_a_hundred_times_of_a_hundred,
}

on_local_files! {
    a_command_that_does_not_end_when_told_is_killed_although_its_lock_run_is_stopped_meanwhile,
}

/// How many programs are stopped together, and how often.
const PROGRAMS: usize = 25;
const STOPS: usize = 4;

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// An example of this package, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let target = test.parent().and_then(Path::parent).expect("cargo's directory of this profile");
    let example = target.join("examples").join(name);
    assert!(example.exists(), "the example is not built: cargo build -p lock-cli --example {name}");
    example
}

/// A store that checks fencing tokens, and a `lock run` whose command writes to it and does not follow SIGTERM.
struct Scene {
    service: Service,
    store: Redis,
    running: Running,
    writer: u32,
}

impl Scene {
    async fn new(service: Service, kill_after: &str) -> Self {
        let store = Redis::start().await.expect("a store");
        let writer = example("fenced_writer");
        let arguments = ["run", "a", "--kill-after", kill_after, "--", writer.to_str().expect("a path"), &store.url()];
        let mut running = Running::start(&service.url(), &arguments);
        let Some(line) = running.line().await else { panic!("the command has ended: {}", running.stderr().await) };
        let writer = line.strip_prefix("writing ").expect("it writes").parse().expect("its process");
        Self { service, store, running, writer }
    }

    /// Takes the lock, which takes until the stopped holder's lease has ended, and writes to the store.
    async fn succeed(&self) -> (Locks, Guard) {
        let locks = lock::connect(&self.service.patient_url()).await.expect("a connection");
        let next = within(locks.mutex("a").lock()).await.expect("the lease of the stopped one has ended");
        let mut store = self.store.connection().await.expect("a connection");
        FencedKey::new("value").set(&mut store, next.token(), "the next one's").await.expect("the token is higher");
        (locks, next)
    }

    /// Waits until the command has ended.
    async fn writer_ends(&self) {
        let writer = self.writer.to_string();
        within(async {
            while is_alive(&writer) {
                Clock::boot().sleep(LOOK).await;
            }
        })
        .await;
    }

    /// The command and its `lock run` end, the latter with the status of a lost lock, and the store has what the next holder
    /// wrote.
    async fn end(mut self, next: Guard) {
        self.running.all_end().await;
        assert_eq!(self.running.end().await.code(), Some(76), "{}", self.running.stderr().await);
        assert!(!Path::new(&format!("/proc/{}", self.writer)).exists(), "the command goes on");
        let value: String = self.store.connection().await.expect("a connection").get("value").await.expect("the value");
        assert_eq!(value, "the next one's");
        assert!(next.is_valid());
        next.release().await.expect("it was held all the time");
    }
}

async fn a_command_whose_lock_run_is_stopped_is_ended_with_the_validity_however_long_kill_after_is(service: Service) {
    let scene = Scene::new(service, "1h").await;
    scene.running.signal("STOP");
    // The guardian process sees to it, although the command does not do as it is told.
    scene.writer_ends().await;
    let (_locks, next) = scene.succeed().await;
    scene.running.signal("CONT");
    scene.end(next).await;
}

async fn a_command_that_was_stopped_together_with_its_lock_run_is_refused_and_ended_when_they_go_on(service: Service) {
    let mut scene = Scene::new(service, "5s").await;
    let group = Pid::from_raw(group_of(&scene.writer.to_string()).parse().expect("a number"));
    scene.running.signal("STOP");
    killpg(group, Signal::SIGSTOP).expect("the guardian and the command are stopped");
    let (_locks, next) = scene.succeed().await;
    // While nobody is there to end it, only the store stands between it and the next holder's value.
    kill("CONT", scene.writer);
    scene.running.expect("refused").await;
    killpg(group, Signal::SIGCONT).expect("the guardian goes on");
    scene.running.signal("CONT");
    scene.end(next).await;
}

async fn a_command_that_does_not_end_when_told_is_killed_although_its_lock_run_is_stopped_meanwhile(service: Service) {
    let mut scene = Scene::new(service, "5s").await;
    scene.service.delete("a").await;
    // Unless it was ended before it could say so, by the end of the validity: where that is short, the machine stands still.
    if scene.running.line().await.is_some() {
        scene.running.signal("STOP");
        scene.writer_ends().await;
        scene.running.signal("CONT");
    }
    scene.running.all_end().await;
    assert_eq!(scene.running.end().await.code(), Some(76), "{}", scene.running.stderr().await);
}

/// Whether that process runs. One that has ended stays listed until its parent asks for its status.
fn is_alive(pid: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    !fields.trim_start().starts_with('Z')
}

async fn a_stopped_program_finds_its_guard_lost_at_its_first_look_a_hundred_times_of_a_hundred(service: Service) {
    let url = service.url();
    let locks = lock::connect(&service.patient_url()).await.expect("a connection");
    let mut programs = Vec::new();
    for program in 0..PROGRAMS {
        let mut command = tokio::process::Command::new(example("first_look"));
        command.env_remove("LOCK_CONFIG").env("LOCK_URL", &url).arg(format!("p{program}")).kill_on_drop(true);
        programs.push(Running::spawn(&mut command));
    }
    let (mut stops, mut untold) = (0, 0);
    for _ in 0..STOPS {
        for program in &mut programs {
            program.held().await;
        }
        programs.iter().for_each(|program| program.signal("STOP"));
        for program in 0..PROGRAMS {
            // Granted when the lease of the stopped one has ended on the servers.
            let next = within(locks.mutex(format!("p{program}")).lock()).await.expect("the lock is free again");
            next.release().await.expect("it was held");
        }
        programs.iter().for_each(|program| program.signal("CONT"));
        for program in &mut programs {
            let found = program.line().await.expect("it goes on");
            assert!(found.starts_with("lost "), "a stopped program was wrong about its lock: {found}");
            stops += 1;
            untold += usize::from(found == "lost untold");
        }
    }
    assert_eq!(stops, 100);
    // The look could have failed: a guard that waits to be told of its loss would have been wrong here.
    assert!(untold > 0, "of {stops} programs each was told of its loss before it could look");
}

impl Running {
    /// Waits until it says that it holds its lock. One that a busy machine kept from renewing says that it was lost, and takes
    /// it again.
    async fn held(&mut self) {
        let mut line = self.line().await;
        while line.as_deref() == Some("lost without a stop") {
            line = self.line().await;
        }
        assert_eq!(line.as_deref(), Some("held"));
    }
}

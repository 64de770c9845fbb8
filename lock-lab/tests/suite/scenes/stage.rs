//! A scene with a holder on the victim's side.

use std::time::Duration;

use lock::Locks;
use lock_core::{Clock, Guard, LockName};
pub(crate) use lock_lab::wait::{LIMIT, eventually};
use lock_lab::{
    deployment::Held,
    failover::{
        events::{Lock, Truth},
        fault::Fault,
        scene::{Observer, Scene, Side},
    },
};

/// Long enough that it does not end while a test looks, on a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(20);
pub(crate) const PAYLOAD: &str = "0/0/1";

pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) observer: Observer,
    pub(crate) lease: Duration,
}

impl Stage {
    pub(crate) async fn of(deployment: &str, fault: Fault) -> Self {
        Self::for_leases(deployment, fault, LEASE).await
    }

    /// Of leases that are so long, in a deployment that allows no longer ones.
    pub(crate) async fn for_leases(deployment: &str, fault: Fault, lease: Duration) -> Self {
        let name = LockName::new(Lock::Kept.name()).unwrap();
        let scene = Scene::start(deployment.parse().unwrap(), fault, name, lease).await.unwrap();
        let observer = scene.observer();
        Self { scene, observer, lease }
    }

    pub(crate) fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    pub(crate) async fn connect(&self, side: Side) -> Locks {
        lock::connect(&self.scene.patient_url(side, self.lease)).await.unwrap()
    }

    pub(crate) async fn hold(&self, locks: &Locks) -> Guard {
        locks.mutex(Lock::Kept.name()).payload(PAYLOAD.as_bytes()).timeout(LIMIT).lock().await.unwrap()
    }

    /// Prepares the fault and has the victim take the lock.
    pub(crate) async fn hold_as_victim(&mut self) -> (Locks, Guard) {
        self.scene.prepare().await.unwrap();
        let locks = self.connect(Side::Victim).await;
        let guard = self.hold(&locks).await;
        assert!(guard.is_valid());
        (locks, guard)
    }

    pub(crate) async fn truth(&self) -> Vec<Truth> {
        self.observer.truth(Lock::Kept, 1).await
    }

    /// How many servers say that the victim holds.
    pub(crate) async fn held_by_victim(&self) -> usize {
        let held = |sample: &Truth| sample.held.as_ref().is_some_and(is_victims);
        self.truth().await.iter().filter(|sample| held(sample)).count()
    }

    /// Waits until so many servers say that the victim holds.
    pub(crate) async fn until_held_by_victim(&self, servers: usize) {
        eventually("so many servers hold for the victim", async || self.held_by_victim().await == servers).await;
    }

    /// What the one server says whose word counts.
    pub(crate) async fn the_sample(&self) -> Truth {
        self.samples_of(1).await.remove(0)
    }

    /// What so many servers say, as soon as they do: a busy machine lets one take its time.
    pub(crate) async fn samples_of(&self, servers: usize) -> Vec<Truth> {
        let look = async {
            loop {
                let samples = self.truth().await;
                if samples.len() == servers {
                    return samples;
                }
            }
        };
        Clock::boot().timeout(LIMIT, look).await.unwrap_or_else(|| panic!("the word of {servers} servers"))
    }

    /// Waits until so many servers say what they hold.
    pub(crate) async fn until_answered_by(&self, servers: usize) {
        self.samples_of(servers).await;
    }

    pub(crate) async fn heal(&mut self) {
        self.scene.heal().await.unwrap();
        self.scene.healthy().await.unwrap();
    }
}

fn is_victims(kept: &Held) -> bool {
    kept.payload.as_deref() == Some(PAYLOAD)
}

/// The port of the first server in a URL.
pub(crate) fn first_port(url: &str) -> u16 {
    url.split("127.0.0.1:").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The id that a server of Redis has for as long as its process lives.
pub(crate) async fn process_of(port: u16) -> String {
    let info: String = ask(port, &["INFO", "server"]).await.unwrap();
    info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned()
}

/// Sends one command to whatever listens there.
pub(crate) async fn ask<T: redis::FromRedisValue>(port: u16, command: &[&str]) -> redis::RedisResult<T> {
    ask_within(LIMIT, port, command).await
}

/// Whether whatever listens there leaves a command without an answer for a while.
pub(crate) async fn is_silent(port: u16) -> bool {
    ask_within::<redis::Value>(Duration::from_millis(200), port, &["PING"]).await.is_err()
}

async fn ask_within<T: redis::FromRedisValue>(limit: Duration, port: u16, command: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let limits =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(limit)).set_connection_timeout(Some(limit));
    let mut connection = client.get_multiplexed_async_connection_with_config(&limits).await?;
    let mut request = redis::Cmd::new();
    request.arg(command).query_async(&mut connection).await
}

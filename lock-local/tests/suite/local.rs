//! Files that are deleted, left behind and locked by others.

use std::{
    fs::{self, DirBuilder, File},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use lock_core::{Backend, Clock, Error, Locks, LocksOptions, Loss, Settings};
use lock_local::{Config, Local};
use tempfile::TempDir;

use crate::directory;

/// Far above what anything takes here.
const LIMIT: Duration = Duration::from_secs(60);

fn connect(directory: &TempDir) -> Locks {
    Locks::new(Local::connect(Config::new(directory.path()).unwrap()).unwrap())
}

/// The files of the lock `a`, but for its counter.
fn contenders(directory: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.path().join("a.lock")).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("door")).collect()
}

/// Says that it is over, also when a test fails.
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.expect("it happens within the limit")
}

#[tokio::test]
async fn what_a_dead_contender_left_counts_for_nothing_and_is_removed() {
    let directory = directory();
    let locks = connect(&directory);
    let first = locks.mutex("a").lock().await.unwrap();
    let left = contenders(&directory)[0].clone();
    // As a process that was killed leaves it: the same file, and nobody has it locked.
    let copy = left.with_extension("copy");
    fs::copy(&left, &copy).unwrap();
    first.release().await.unwrap();
    fs::rename(&copy, &left).unwrap();

    assert_eq!(locks.inspect("a").await.unwrap(), lock_core::Snapshot::default());
    assert!(left.exists(), "a look changes nothing");
    let next = locks.mutex("a").try_lock().await.unwrap().expect("it is free");
    assert_eq!(contenders(&directory).len(), 1);
    next.release().await.unwrap();
    assert!(contenders(&directory).is_empty());
}

#[tokio::test]
async fn the_token_rises_when_the_counter_or_everything_is_deleted() {
    let directory = directory();
    let locks = connect(&directory);
    let mut last = None;
    for delete in ["a.lock/door", "a.lock", ""] {
        for _ in 0..3 {
            let guard = locks.mutex("a").lock().await.unwrap();
            assert!(Some(guard.token()) > last, "{} after {last:?}", guard.token());
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        let path = directory.path().join(Path::new(delete));
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    assert!(Some(locks.mutex("a").lock().await.unwrap().token()) > last);
}

#[tokio::test]
async fn a_lock_whose_directory_is_deleted_is_lost() {
    let directory = directory();
    let locks = connect(&directory);
    let guard = locks.mutex("a").lock().await.unwrap();
    fs::remove_dir_all(directory.path()).unwrap();
    assert_eq!(within(guard.lost()).await, Loss::Revoked);
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiter_whose_file_is_deleted_enters_again() {
    let directory = directory();
    let locks = connect(&directory);
    let guard = locks.mutex("a").lock().await.unwrap();
    let held = contenders(&directory);
    let waiter = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    let waiting = async |not: Option<&PathBuf>| loop {
        // Not by the name that it has for a moment until it is complete.
        let mut here = contenders(&directory).into_iter().filter(|path| !path.ends_with("new"));
        if let Some(path) = here.find(|path| !held.contains(path) && Some(path) != not) {
            return path;
        }
        tokio::task::yield_now().await;
    };
    let first = within(waiting(None)).await;
    fs::remove_file(&first).unwrap();
    within(waiting(Some(&first))).await;
    guard.release().await.unwrap();
    assert!(within(waiter).await.unwrap().unwrap().is_valid());
}

/// Somebody deletes the door all the time: two may be at two doors at once, and still only one gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_door_that_is_deleted_all_the_time_lets_no_two_in() {
    let directory = directory();
    let door = directory.path().join("a.lock/door");
    let inside = Arc::new(AtomicU32::new(0));
    let done = Done(Arc::default());
    let ended = Arc::clone(&done.0);
    let deleting = tokio::task::spawn_blocking(move || {
        while !ended.load(Ordering::Relaxed) {
            let _ = fs::remove_file(&door);
            // Sometimes long enough for somebody to get in.
            for _ in 0..fastrand::u32(..50_000) {
                std::hint::spin_loop();
            }
        }
    });
    let contenders: Vec<_> = (0..6)
        .map(|_| {
            let (locks, inside) = (connect(&directory), Arc::clone(&inside));
            tokio::spawn(async move {
                let mut granted = 0;
                for _ in 0..4000 {
                    if let Ok(Some(guard)) = locks.mutex("a").try_lock().await {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are in");
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().await.unwrap();
                        granted += 1;
                    }
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for contender in contenders {
        granted += within(contender).await.unwrap();
    }
    drop(done);
    within(deleting).await.unwrap();
    assert!(granted > 0, "nobody was ever in, so nothing was tried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_is_in_nobodys_way() {
    let directory = directory();
    let [looking, locking] = [connect(&directory), connect(&directory)];
    let looker = tokio::spawn(async move {
        loop {
            looking.inspect("a").await.unwrap();
        }
    });
    for _ in 0..1000 {
        let guard = locking.mutex("a").try_lock().await.unwrap().expect("only looked at");
        guard.release().await.unwrap();
    }
    looker.abort();
}

#[tokio::test]
async fn somebody_who_is_stopped_at_the_door_makes_the_lock_unavailable() {
    let directory = directory();
    let local = Local::connect(Config::new(directory.path()).unwrap()).unwrap();
    let locks = Locks::with_options(local, LocksOptions::default().with_outage_timeout(Duration::ZERO));
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let door = File::open(directory.path().join("a.lock/door")).unwrap();
    door.lock().unwrap();
    let limited = within(locks.mutex("a").timeout(Duration::from_millis(20)).lock()).await;
    assert!(matches!(limited, Err(Error::NotAcquired { .. })), "{limited:?}");
    let stuck = within(locks.mutex("a").lock()).await;
    assert!(matches!(stuck, Err(Error::Unavailable { .. })), "{stuck:?}");
    door.unlock().unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_locked_file_that_is_no_contenders_is_not_taken_for_a_free_lock() {
    let directory = directory();
    let locks = connect(&directory);
    DirBuilder::new().mode(0o700).create(directory.path().join("a.lock")).unwrap();
    let foreign = File::create(directory.path().join("a.lock/00000000000000000017")).unwrap();
    foreign.lock().unwrap();
    assert!(matches!(locks.mutex("a").try_lock().await, Err(Error::Unavailable { .. })));
    drop(foreign);
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_connection_that_is_dropped_gives_its_locks_back() {
    let directory = directory();
    let [locks, other] = [connect(&directory), connect(&directory)];
    let guard = locks.mutex("a").lock().await.unwrap();
    drop((guard, locks));
    assert!(within(other.mutex("a").lock()).await.is_ok());
}

#[tokio::test]
async fn what_cannot_work_is_refused_by_key_and_value() {
    let refusal = |path: &str, hosts: &[&str], values: &[(&str, &str)]| {
        let mut settings = Settings::new("local");
        settings.path = path.to_owned();
        settings.hosts = hosts.iter().map(|host| ((*host).to_owned(), None)).collect();
        settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_settings(settings).unwrap_err().to_string()
    };
    assert!(refusal("/x", &["dir"], &[]).contains("local:///"));
    assert!(refusal("/x", &[], &[("ttl", "3s")]).contains("ttl"));
    assert!(Config::new("x/y").unwrap_err().to_string().contains("absolute"));
    assert_eq!(Config::new("/x/y").unwrap().url(), "local:///x/y");

    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Local::connect(Config::new(file.join("x")).unwrap()), Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn the_directory_of_this_user_is_its_own() {
    let config = Config::of_this_user().unwrap();
    assert_eq!(config, Config::from_settings(Settings::new("local")).unwrap());
    Local::connect(config).unwrap().close(LIMIT).await;
}

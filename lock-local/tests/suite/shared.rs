//! Directories that other users can write to, and what they may have put there.

use std::{
    fs::{self, File, FileTimes, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use lock_core::{Clock, Error, Locks};
use lock_local::{Config, Local};

use crate::directory;

/// Somebody who is neither root nor the user of any test.
const NOBODY: u32 = 65_534;

fn connect(directory: &Path) -> Result<Locks, Error> {
    Ok(Locks::new(Local::connect(Config::new(directory)?)?))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Only root can give something to another user.
fn give_away(path: &Path) {
    chown(path, Some(NOBODY), None).expect("only root can make another user's directory: run this test as root");
}

/// That the lock `a` is refused for its directory.
async fn refused(locks: &Locks) {
    let error = locks.mutex("a").try_lock().await.expect_err("it is another user's").to_string();
    assert!(
        error.contains("path = ") && error.contains("a.lock") && error.contains("allowed: a directory of"),
        "{error}"
    );
}

#[tokio::test]
async fn a_link_called_door_is_not_followed() {
    let [directory, elsewhere] = [(); 2].map(|()| directory());
    let target = elsewhere.path().join("precious");
    fs::write(&target, "precious").unwrap();
    let locks = connect(directory.path()).unwrap();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let door = directory.path().join("a.lock/door");
    fs::remove_file(&door).unwrap();
    symlink(&target, &door).unwrap();
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");

    // Nor one to a file that is yet to be made.
    fs::remove_file(&door).unwrap();
    symlink(elsewhere.path().join("made"), &door).unwrap();
    locks.mutex("a").try_lock().await.unwrap_err();
    assert!(!elsewhere.path().join("made").exists());
}

#[tokio::test]
async fn a_link_in_the_place_of_the_directory_of_a_lock_is_not_followed() {
    let [directory, elsewhere] = [(); 2].map(|()| directory());
    symlink(elsewhere.path(), directory.path().join("a.lock")).unwrap();
    refused(&connect(directory.path()).unwrap()).await;
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_directory_that_others_may_write_to_is_refused_unless_it_is_that_of_all_locks_and_sticky() {
    let directory = directory();
    for mode in [0o777, 0o770, 0o702] {
        set_mode(directory.path(), mode);
        let error = connect(directory.path()).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
        let named = format!("path = {:?}", directory.path().display().to_string());
        assert!(error.to_string().contains(&named) && error.to_string().contains("sticky"), "{error}");
    }
    set_mode(directory.path(), 0o1777);
    let locks = connect(directory.path()).unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    guard.release().await.unwrap();
    set_mode(&directory.path().join("a.lock"), 0o1777);
    refused(&locks).await;
}

#[tokio::test]
async fn a_directory_of_another_user_is_refused_also_in_one_that_all_may_write_to() {
    let [directory, elsewhere] = [(); 2].map(|()| directory());
    let target = elsewhere.path().join("precious");
    fs::write(&target, "precious").unwrap();
    set_mode(directory.path(), 0o1777);
    let locks = connect(directory.path()).unwrap();
    // As another user prepares it for root, before root uses that name.
    let prepared = directory.path().join("a.lock");
    fs::create_dir(&prepared).unwrap();
    symlink(&target, prepared.join("door")).unwrap();
    give_away(&prepared);
    refused(&locks).await;
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    // The other names are none of that user's business.
    locks.mutex("b").lock().await.unwrap().release().await.unwrap();

    give_away(directory.path());
    let error = connect(directory.path()).unwrap_err();
    assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("path = "), "{error}");
}

#[tokio::test]
async fn what_is_made_is_for_this_user_alone() {
    let directory = directory();
    let made = directory.path().join("made");
    let locks = connect(&made.join("locks")).unwrap();
    let _guard = locks.mutex("a").lock().await.unwrap();
    let lock = made.join("locks/a.lock");
    let files = fs::read_dir(&lock).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<_> = [made.clone(), made.join("locks"), lock.clone()].into_iter().chain(files).collect();
    assert_eq!(all.len(), 5, "the door and a contender: {all:?}");
    for path in all {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{}", path.display());
    }
}

#[tokio::test]
async fn a_file_that_is_held_or_waited_by_never_looks_forgotten() {
    let directory = directory();
    let locks = connect(directory.path()).unwrap();
    let _guard = locks.mutex("a").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    let clock = Clock::boot();
    let contenders = || {
        let entries = fs::read_dir(directory.path().join("a.lock")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| !path.ends_with("door") && !path.ends_with("new")).collect::<Vec<_>>()
    };
    let long = Duration::from_secs(60);
    let all_wait = async {
        while contenders().len() < 2 {
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    clock.timeout(long, all_wait).await.expect("it waits");
    for path in contenders() {
        let old = FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH);
        File::options().write(true).open(&path).unwrap().set_times(old).unwrap();
        let touched = async {
            while fs::metadata(&path).unwrap().atime() == 0 || fs::metadata(&path).unwrap().mtime() == 0 {
                clock.sleep(Duration::from_millis(5)).await;
            }
        };
        clock.timeout(long, touched).await.expect("it is touched");
    }
    waiter.abort();
}

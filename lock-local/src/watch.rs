//! News of the kernel about files: `inotify(7)`, read by one thread for the whole process.
//!
//! A convenience only: whoever is told looks again, and looks now and then without being told, for file systems and limits
//! that leave something untold.

use std::{
    collections::HashMap,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    thread,
};

use rustix::{
    fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch},
    io::retry_on_intr,
};
use tokio::sync::Notify;

/// All but looks, which change nothing. That a file was deleted shows in the number of its links, and that its process died
/// in its being closed after writing.
const NEWS: WatchFlags =
    WatchFlags::ALL_EVENTS.difference(WatchFlags::ACCESS.union(WatchFlags::OPEN).union(WatchFlags::CLOSE_NOWRITE));

/// `None` where the kernel gives none.
static OF_THIS_PROCESS: LazyLock<Option<InotifyWatcher>> = LazyLock::new(|| {
    let inotify = init(CreateFlags::CLOEXEC).ok()?;
    let reading = || OF_THIS_PROCESS.as_ref().map(InotifyWatcher::read);
    thread::Builder::new().name("lock-local".to_owned()).spawn(reading).ok()?;
    Some(InotifyWatcher { inotify, listeners: Mutex::default() })
});

/// The inotify instance of this process, which notifies tasks of changes to watched files.
struct InotifyWatcher {
    inotify: OwnedFd,
    /// Who is told, by what the kernel calls the file. Watches are added and removed under this lock.
    listeners: Mutex<HashMap<i32, Vec<Weak<Notify>>>>,
}

/// Has `news` told of the file or directory of that path, for as long as both are there. False when it is not there, or the
/// kernel has no room for a watch.
pub(crate) fn watch(path: &Path, news: &Arc<Notify>) -> bool {
    let Some(watcher) = OF_THIS_PROCESS.as_ref() else { return false };
    let mut listeners = watcher.listeners.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(descriptor) = add_watch(&watcher.inotify, path, NEWS) else { return false };
    let listeners = listeners.entry(descriptor).or_default();
    listeners.retain(|other| other.strong_count() > 0 && other.as_ptr() != Arc::as_ptr(news));
    listeners.push(Arc::downgrade(news));
    true
}

impl InotifyWatcher {
    fn read(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut next = || retry_on_intr(|| reader.next().map(|event| (event.wd(), event.events())));
        while let Ok((descriptor, events)) = next() {
            self.tell(descriptor, events);
        }
    }

    fn tell(&self, descriptor: i32, events: ReadFlags) {
        // Too much news at once: it may have concerned anybody.
        let everybody = events.contains(ReadFlags::QUEUE_OVERFLOW);
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).retain(|watched, listeners| {
            if *watched != descriptor && !everybody {
                return true;
            }
            listeners.retain(|news| news.upgrade().map(|news| news.notify_one()).is_some());
            // Who gives up waiting changes the directory itself, and a contender's file goes sooner or later: so no watch
            // stays for good that nobody listens to.
            let stays = !listeners.is_empty() && !events.contains(ReadFlags::IGNORED);
            if !stays {
                let _ = remove_watch(&self.inotify, *watched);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write as _,
        path::PathBuf,
        time::Duration,
    };

    use lock_core::Clock;

    use super::*;

    fn file_in(directory: &tempfile::TempDir) -> (PathBuf, File, Arc<Notify>) {
        let path = directory.path().join("file");
        (path.clone(), File::create(path).unwrap(), Arc::default())
    }

    async fn told(news: &Notify) {
        Clock::boot().timeout(Duration::from_secs(30), news.notified()).await.expect("it is told");
    }

    #[tokio::test]
    async fn it_is_told_that_a_file_was_written_deleted_or_closed_and_that_its_directory_changed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mut file, news) = file_in(&directory);
        assert!(watch(&path, &news));
        file.write_all(b"x").unwrap();
        told(&news).await;
        // Still open, as one that its owner gives back.
        fs::remove_file(&path).unwrap();
        told(&news).await;
        drop(file);
        told(&news).await;
        assert!(!watch(&path, &news), "it is gone");

        assert!(watch(directory.path(), &news));
        let (path, file, _) = file_in(&directory);
        told(&news).await;
        drop((fs::remove_file(path), file));
        told(&news).await;
    }

    #[tokio::test]
    async fn a_watch_goes_with_its_file_or_with_those_who_listen() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mut file, given_up) = file_in(&directory);
        assert!(watch(&path, &given_up) && watch(directory.path(), &given_up));
        drop(given_up);
        let news: Arc<Notify> = Arc::default();
        assert!(watch(&path, &news), "it takes the place of who gave up");
        file.write_all(b"x").unwrap();
        told(&news).await;
        drop((fs::remove_file(path), file));
        told(&news).await;
        let listed = || {
            let all = OF_THIS_PROCESS.as_ref().unwrap().listeners.lock().unwrap();
            all.values().flatten().any(|other| other.strong_count() == 0 || other.as_ptr() == Arc::as_ptr(&news))
        };
        let gone = async {
            while listed() {
                tokio::task::yield_now().await;
            }
        };
        Clock::boot().timeout(Duration::from_secs(30), gone).await.expect("nobody is listed who does not listen");
    }
}

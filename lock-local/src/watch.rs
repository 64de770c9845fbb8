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
static OF_THIS_PROCESS: LazyLock<Option<Watcher>> = LazyLock::new(|| {
    let inotify = init(CreateFlags::CLOEXEC).ok()?;
    let reading = || OF_THIS_PROCESS.as_ref().map(Watcher::read);
    thread::Builder::new().name("lock-local".to_owned()).spawn(reading).ok()?;
    Some(Watcher { inotify, listeners: Mutex::default() })
});

struct Watcher {
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

impl Watcher {
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

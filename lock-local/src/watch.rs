//! News of the kernel about files: `inotify(7)`, read by one thread for the whole process.
//!
//! A convenience only: whoever is told looks again, and looks now and then without being told, for file systems and limits
//! that leave something untold.

use std::{
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use rustix::{
    fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch},
    io::Errno,
};
use tokio::sync::Notify;

/// A file was deleted, changed, or closed by who had written it: also by the death of its process.
const NEWS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Somebody who is told of news, until it is dropped.
#[derive(Debug, Clone)]
struct Listener {
    descriptor: i32,
    name: Option<String>,
    news: Arc<Notify>,
}

/// A [`Listener`] that is listed.
#[derive(Debug)]
pub(crate) struct Watch(Listener);

struct Watcher {
    inotify: OwnedFd,
    listeners: Mutex<Vec<Listener>>,
}

impl Watch {
    /// Tells `news` of the file of that name in `directory`, or of any file in it; and of the directory itself. `None` when
    /// there is no such directory or the kernel has no room for a watch.
    pub(crate) fn new(directory: &Path, name: Option<String>, news: &Arc<Notify>) -> Option<Self> {
        let watcher = Watcher::of_this_process()?;
        // All listeners of a directory share one watch, which is added and removed under the lock.
        let mut listeners = watcher.listeners();
        let descriptor = add_watch(&watcher.inotify, directory, NEWS).ok()?;
        let listener = Listener { descriptor, name, news: Arc::clone(news) };
        listeners.push(listener.clone());
        Some(Self(listener))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(watcher) = Watcher::of_this_process() else { return };
        let Listener { descriptor, name, news } = &self.0;
        let mut listeners = watcher.listeners();
        let own =
            |other: &Listener| Arc::ptr_eq(&other.news, news) && (&other.descriptor, &other.name) == (descriptor, name);
        if let Some(place) = listeners.iter().position(own) {
            listeners.swap_remove(place);
        }
        if !listeners.iter().any(|other| other.descriptor == *descriptor) {
            let _ = remove_watch(&watcher.inotify, *descriptor);
        }
    }
}

impl Watcher {
    fn of_this_process() -> Option<&'static Arc<Self>> {
        static WATCHER: OnceLock<Option<Arc<Watcher>>> = OnceLock::new();
        let start = || {
            let watcher = Arc::new(Self { inotify: init(CreateFlags::CLOEXEC).ok()?, listeners: Mutex::default() });
            let reading = Arc::clone(&watcher);
            thread::Builder::new().name("lock-local".to_owned()).spawn(move || reading.read()).ok()?;
            Some(watcher)
        };
        WATCHER.get_or_init(start).as_ref()
    }

    fn read(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(news) => self.tell(news.wd(), news.events(), news.file_name().and_then(|name| name.to_str().ok())),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn tell(&self, descriptor: i32, events: ReadFlags, name: Option<&str>) {
        // Too much news at once: it may have concerned anybody.
        let everybody = events.contains(ReadFlags::QUEUE_OVERFLOW);
        for listener in self.listeners().iter().filter(|listener| everybody || listener.descriptor == descriptor) {
            if name.is_none() || listener.name.is_none() || listener.name.as_deref() == name {
                listener.news.notify_one();
            }
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

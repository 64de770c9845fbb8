//! The layouts of other libraries, beside programs that use these: Curator's `InterProcessMutex` and
//! `InterProcessReadWriteLock`, kazoo's `Lock`, `ReadLock` and `WriteLock`.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lock_core::{Clock, Error, Guard, Locks, WriteGuard};
use lock_lab::servers::ZooKeeper;
use tokio::task::JoinHandle;
use zookeeper_client::Client;

use crate::{
    common::{eventually, outsider, shared_server, within},
    peers::{Kind, Library, Peer},
};

/// How often each of two increments a counter.
const TIMES: u32 = 200;

/// A server, with connections of this library that share a lock with another one's programs.
struct World {
    library: Library,
    kind: Kind,
    /// The name of the lock, which no other world has; its path is the same with a slash in front.
    name: String,
    server: Arc<ZooKeeper>,
    client: Client,
    ours: Locks,
    files: tempfile::TempDir,
}

impl World {
    async fn new(library: Library, kind: Kind) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("app/orders-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let server = shared_server().await;
        let port = server.ports()[0];
        let (client, ours) = (outsider(port).await, library.locks(port).await);
        Self { library, kind, name, server, client, ours, files: tempfile::tempdir().unwrap() }
    }

    async fn peer(&self) -> Peer {
        self.peer_of(self.kind).await
    }

    async fn peer_of(&self, kind: Kind) -> Peer {
        Peer::start(self.library, self.server.ports()[0], &self.name, kind).await
    }

    /// A file with that text.
    fn file(&self, text: &str) -> String {
        let path = self.files.path().join("shared");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn children(&self) -> Vec<String> {
        match self.client.list_children(&format!("/{}", self.name)).await {
            Ok(children) => children,
            Err(zookeeper_client::Error::NoNode) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until that many hold the lock or wait for it.
    async fn standing(&self, count: usize) {
        eventually("so many stand in line", || async { self.children().await.len() == count }).await;
    }

    async fn lock(&self) -> Guard {
        self.lock_as(self.kind).await
    }

    async fn lock_as(&self, kind: Kind) -> Guard {
        lock(&self.ours, &self.name, kind).await
    }

    /// Waits for the lock, beside the test.
    fn locking(&self, kind: Kind) -> JoinHandle<Guard> {
        let (ours, name) = (self.ours.clone(), self.name.clone());
        tokio::spawn(async move { lock(&ours, &name, kind).await })
    }

    /// Holds the lock once, beside the test, and appends a word to a file meanwhile.
    fn appending(&self, file: &str, word: &'static str) -> JoinHandle<()> {
        let (waiting, file) = (self.locking(self.kind), file.to_owned());
        tokio::spawn(async move {
            let guard = waiting.await.unwrap();
            fs::write(&file, format!("{}{word}\n", fs::read_to_string(&file).unwrap())).unwrap();
            guard.release().await.unwrap();
        })
    }

    async fn try_lock(&self) -> Option<Guard> {
        match self.kind {
            Kind::Mutex => self.ours.mutex(&self.name).try_lock().await.unwrap(),
            Kind::Write => self.ours.rwlock(&self.name).try_write().await.unwrap().map(WriteGuard::into_guard),
            Kind::Read => self.ours.rwlock(&self.name).try_read().await.unwrap(),
        }
    }
}

async fn lock(ours: &Locks, name: &str, kind: Kind) -> Guard {
    let granted = async {
        match kind {
            Kind::Mutex => ours.mutex(name).lock().await,
            Kind::Write => ours.rwlock(name).write().await.map(WriteGuard::into_guard),
            Kind::Read => ours.rwlock(name).read().await,
        }
    };
    within("a grant", granted).await.unwrap()
}

/// What is done under the lock: a second holder would read the same count.
async fn increment(counter: &Path) {
    let count: u32 = fs::read_to_string(counter).unwrap().parse().unwrap();
    // The moment into which the next one would come; nothing waits for it.
    Clock::boot().sleep(Duration::from_millis(2)).await;
    fs::write(counter, (count + 1).to_string()).unwrap();
}

/// A counter that this library and another one increment in turns. Each comes while the other one has the lock and has read the
/// counter, or is about to.
async fn assert_none_is_lost(library: Library, kind: Kind) {
    let world = World::new(library, kind).await;
    let counter = world.file("0");
    let mut peer = world.peer().await;
    for time in 0..TIMES {
        let guard = world.lock().await;
        peer.tell(&format!("increment {counter}")).await;
        world.standing(2).await;
        increment(Path::new(&counter)).await;
        guard.release().await.unwrap();
        if time > 0 {
            peer.hear("done").await;
        }
        peer.hear("held").await;
    }
    peer.hear("done").await;
    assert_eq!(fs::read_to_string(&counter).unwrap(), (2 * TIMES).to_string());
    world.standing(0).await;
}

/// Who holds the lock keeps the other library's programs out, and is seen.
async fn assert_exclusion(library: Library, kind: Kind) {
    let world = World::new(library, kind).await;
    let mut peer = world.peer().await;
    assert_eq!(peer.ask("lock").await, "held");
    assert!(world.try_lock().await.is_none());
    let waiting = world.locking(kind);
    world.standing(2).await;
    let shown = world.ours.inspect(&world.name).await.unwrap();
    let [holder] = shown.holders.as_slice() else { panic!("{shown:?}") };
    assert!(world.children().await.contains(&holder.id), "{holder:?}");
    assert!(holder.mode == Some(kind.mode()) && !holder.payload.is_empty() && holder.token.is_some(), "{holder:?}");
    assert_eq!(shown.queue.len(), 1);
    assert_eq!(peer.ask("unlock").await, "released");
    let guard = waiting.await.unwrap();
    assert!(guard.token().number > holder.token.unwrap());
    assert_eq!(peer.ask("try").await, "refused");
    peer.tell("lock").await;
    world.standing(2).await;
    let shown = world.ours.inspect(&world.name).await.unwrap();
    assert_eq!((shown.holders[0].token, shown.queue.len()), (Some(guard.token().number), 1), "{shown:?}");
    guard.release().await.unwrap();
    peer.hear("held").await;
    assert_eq!(peer.ask("unlock").await, "released");
    world.standing(0).await;
}

/// One in the queue between two of the other library is granted between them, and the other way round.
async fn assert_order(library: Library, kind: Kind) {
    let world = World::new(library, kind).await;
    let (mut first, mut second) = (world.peer().await, world.peer().await);
    let file = world.file("");
    assert_eq!(first.ask("lock").await, "held");
    let ours = world.appending(&file, "ours");
    world.standing(2).await;
    second.tell(&format!("append {file} theirs")).await;
    world.standing(3).await;
    let late = world.appending(&file, "late");
    world.standing(4).await;
    assert_eq!(first.ask("unlock").await, "released");
    ours.await.unwrap();
    second.hear("done").await;
    late.await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "ours\ntheirs\nlate\n");

    let file = world.file("");
    let guard = world.lock().await;
    first.tell(&format!("append {file} theirs")).await;
    world.standing(2).await;
    let ours = world.appending(&file, "ours");
    world.standing(3).await;
    second.tell(&format!("append {file} late")).await;
    world.standing(4).await;
    guard.release().await.unwrap();
    first.hear("done").await;
    ours.await.unwrap();
    second.hear("done").await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "theirs\nours\nlate\n");
    world.standing(0).await;
}

/// Readers of both share the lock; a writer waits for those of the other library, and keeps those out that come later.
async fn assert_sharing(library: Library) {
    let world = World::new(library, Kind::Write).await;
    let (mut reader, mut late) = (world.peer_of(Kind::Read).await, world.peer_of(Kind::Read).await);
    let mut writer = world.peer().await;
    let file = world.file("");
    let ours = world.lock_as(Kind::Read).await;
    assert_eq!(reader.ask("lock").await, "held");
    // Theirs waits for ours, and ours behind it for theirs.
    writer.tell(&format!("append {file} theirs")).await;
    world.standing(3).await;
    assert!(
        world.ours.rwlock(&world.name).try_read().await.unwrap().is_none(),
        "a reader does not overtake their writer"
    );
    let second = world.appending(&file, "ours");
    world.standing(4).await;
    late.tell("lock").await;
    world.standing(5).await;
    let shown = world.ours.inspect(&world.name).await.unwrap();
    assert_eq!((shown.holders.len(), shown.queue.len()), (2, 3), "{shown:?}");
    assert_eq!(reader.ask("unlock").await, "released");
    ours.release().await.unwrap();
    writer.hear("done").await;
    second.await.unwrap();
    late.hear("held").await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "theirs\nours\n");
    // A reader that has come last reads beside theirs.
    let beside = world.lock_as(Kind::Read).await;
    assert!(world.ours.rwlock(&world.name).try_write().await.unwrap().is_none());
    beside.release().await.unwrap();
    assert_eq!(late.ask("unlock").await, "released");
    world.standing(0).await;
}

/// A writer of this library that goes on as a reader lets the other one's readers in, and none of its writers.
async fn assert_downgrade(library: Library) {
    let world = World::new(library, Kind::Write).await;
    let (mut reader, mut writer) = (world.peer_of(Kind::Read).await, world.peer().await);
    let guard = within("a grant", world.ours.rwlock(&world.name).write()).await.unwrap();
    let token = guard.token();
    reader.tell("lock").await;
    world.standing(2).await;
    // A waiting reader of kazoo 2.8 waits for writers behind it, too (its issue 649), and those wait for the reader.
    let is_early = library == Library::Curator;
    if is_early {
        writer.tell("lock").await;
        world.standing(3).await;
    }
    let guard = guard.downgrade().await.unwrap();
    reader.hear("held").await;
    if !is_early {
        writer.tell("lock").await;
        world.standing(3).await;
    }
    let shown = world.ours.inspect(&world.name).await.unwrap();
    assert_eq!((shown.holders.len(), shown.queue.len()), (2, 1), "{shown:?}");
    assert_eq!((guard.token(), shown.holders[0].token), (token, Some(token.number)));
    assert_eq!(reader.ask("unlock").await, "released");
    guard.release().await.unwrap();
    writer.hear("held").await;
    assert_eq!(writer.ask("unlock").await, "released");
    world.standing(0).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_curators_mutex_lose_none() {
    assert_none_is_lost(Library::Curator, Kind::Mutex).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_curators_read_write_lock_lose_none() {
    assert_none_is_lost(Library::Curator, Kind::Write).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_kazoos_lock_lose_none() {
    assert_none_is_lost(Library::Kazoo, Kind::Mutex).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_kazoos_write_lock_lose_none() {
    assert_none_is_lost(Library::Kazoo, Kind::Write).await;
}

#[tokio::test]
async fn curator_and_this_library_keep_each_other_out() {
    for kind in [Kind::Mutex, Kind::Write] {
        assert_exclusion(Library::Curator, kind).await;
    }
}

#[tokio::test]
async fn kazoo_and_this_library_keep_each_other_out() {
    for kind in [Kind::Mutex, Kind::Write] {
        assert_exclusion(Library::Kazoo, kind).await;
    }
}

#[tokio::test]
async fn curators_programs_and_ours_are_granted_in_the_order_of_their_arrival() {
    for kind in [Kind::Mutex, Kind::Write] {
        assert_order(Library::Curator, kind).await;
    }
}

#[tokio::test]
async fn kazoos_programs_and_ours_are_granted_in_the_order_of_their_arrival() {
    for kind in [Kind::Mutex, Kind::Write] {
        assert_order(Library::Kazoo, kind).await;
    }
}

#[tokio::test]
async fn readers_of_curator_and_ours_share_the_lock_and_no_writer_comes_in_beside_them() {
    assert_sharing(Library::Curator).await;
}

#[tokio::test]
async fn readers_of_kazoo_and_ours_share_the_lock_and_no_writer_comes_in_beside_them() {
    assert_sharing(Library::Kazoo).await;
}

#[tokio::test]
async fn a_downgraded_writer_stands_in_its_place_as_a_reader_of_curator_and_of_kazoo() {
    for library in [Library::Curator, Library::Kazoo] {
        assert_downgrade(library).await;
    }
}

#[tokio::test]
async fn a_writer_of_curators_that_goes_on_as_a_reader_by_the_same_number_lets_readers_in() {
    let world = World::new(Library::Curator, Kind::Write).await;
    let mut peer = world.peer().await;
    assert_eq!(peer.ask("lock").await, "held");
    let waiting = world.locking(Kind::Read);
    world.standing(2).await;
    assert_eq!(peer.ask("downgrade").await, "reads");
    let guard = waiting.await.unwrap();
    let shown = world.ours.inspect(&world.name).await.unwrap();
    assert_eq!((shown.holders.len(), shown.queue.len()), (2, 0), "{shown:?}");
    assert!(world.try_lock().await.is_none());
    assert_eq!(peer.ask("unlock").await, "released");
    guard.release().await.unwrap();
    world.standing(0).await;
}

#[tokio::test]
async fn curators_other_kind_of_lock_on_one_path_is_refused_where_it_shows() {
    let named = |kind| if kind == Kind::Mutex { "InterProcessMutex" } else { "InterProcessReadWriteLock" };
    for (theirs, ours) in [(Kind::Write, Kind::Mutex), (Kind::Read, Kind::Mutex), (Kind::Mutex, Kind::Read)] {
        let world = World::new(Library::Curator, ours).await;
        let mut peer = world.peer_of(theirs).await;
        assert_eq!(peer.ask("lock").await, "held");
        let refused = match ours {
            Kind::Read => within("an answer", world.ours.rwlock(&world.name).read()).await,
            _ => within("an answer", world.ours.mutex(&world.name).lock()).await,
        };
        let error = refused.unwrap_err();
        assert!(matches!(&error, Error::Config { key, .. } if key == "layout"), "{error}");
        assert!(error.to_string().contains(&format!("is in use as {}", named(theirs))), "{error}");
        world.standing(1).await;
    }
}

#[tokio::test]
async fn a_mutex_and_a_read_write_lock_of_ours_are_one_lock_in_every_layout() {
    for library in [Library::Curator, Library::Kazoo] {
        let world = World::new(library, Kind::Mutex).await;
        let reader = world.lock_as(Kind::Read).await;
        assert!(world.try_lock().await.is_none());
        let waiting = world.locking(Kind::Mutex);
        world.standing(2).await;
        assert!(world.ours.rwlock(&world.name).try_read().await.unwrap().is_none());
        reader.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert!(world.ours.rwlock(&world.name).try_write().await.unwrap().is_none());
        guard.release().await.unwrap();
        world.standing(0).await;
    }
}

#[tokio::test]
async fn kazoo_shows_our_payloads_among_its_contenders_and_no_payload_that_it_cannot_read() {
    let world = World::new(Library::Kazoo, Kind::Mutex).await;
    let mut peer = world.peer().await;
    let mutex = world.ours.mutex(&world.name);
    let guard = within("a grant", mutex.clone().payload("ours: ключ".as_bytes()).lock()).await.unwrap();
    assert_eq!(peer.ask("contenders").await, "ours: ключ");
    peer.tell("lock").await;
    world.standing(2).await;
    let shown = world.ours.inspect(&world.name).await.unwrap();
    assert_eq!(shown.queue[0].payload, b"kazoo");
    let refused = within("an answer", mutex.payload([0xff]).lock()).await.unwrap_err();
    assert!(matches!(&refused, Error::Config { key, .. } if key == "payload"), "{refused}");
    guard.release().await.unwrap();
    peer.hear("held").await;
}

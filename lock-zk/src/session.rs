//! A session: all locks of a connection share one, or a few, with its heartbeat and the guards that depend on it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock_core::{Backoff, BootInstant, Clock, Error, Loss, Validity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Client, SessionState, StateWatcher};

use crate::{
    Config,
    heartbeat::{Heartbeat, Request, counted_tick},
    renegotiation::{self, Renegotiated},
    room::Taken,
    sockets,
};

/// The directory of the sessions' own nodes. No lock's directory is called so: an escaped lock name has no dot.
const SESSIONS: &str = ".sessions";

/// For how many time-outs a session that is not the only one stays open without being of use.
const PATIENCE: u32 = 2;

/// Where the connection of a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Down,
    /// For good.
    Ended,
}

/// Why a session is of no use now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Not connected for longer than the connect limit.
    Outage,
    /// Ended for good.
    Ended,
}

/// One session.
pub(crate) struct Session {
    id: i64,
    timeout: Duration,
    clock: Clock,
    config: Arc<Config>,
    /// `None` once closed: the servers are told to end the session when the last user of the client is through.
    client: Mutex<Option<Arc<Client>>>,
    link: watch::Sender<Link>,
    /// Cancelled when the client has ended: closed or expired, and nothing more comes from it.
    terminated: CancellationToken,
    book: Mutex<Book>,
    /// How many contenders and holders need the session to be kept alive by writes.
    active: AtomicUsize,
    /// The room that is taken for watches.
    taken: Taken,
    /// Whether it was the connection's only one when it was opened, and stays.
    is_only: bool,
}

/// The guards of a session, and until when they are valid.
struct Book {
    heartbeat: Heartbeat,
    /// The deadline that the guards were last told.
    published: BootInstant,
    leases: HashMap<u64, Held>,
    next: u64,
    /// How often the session was connected again.
    reconnects: u64,
    /// Up to which of these connections it is known that the servers kept to the time-out.
    checked: u64,
    ended: bool,
}

impl Book {
    /// Tells the guards of a deadline that has moved by enough to be worth it.
    fn publish(&mut self, timeout: Duration) {
        let deadline = self.heartbeat.deadline();
        if self.checked < self.reconnects || deadline < self.published.saturating_add(timeout / 32) {
            return;
        }
        self.published = deadline;
        self.leases.retain(|_, held| {
            let renewed = held.validity.observe().is_some_and(|seen| held.validity.advance(seen, deadline));
            if !renewed {
                held.lapsed.cancel();
            }
            renewed
        });
    }
}

/// A grant, as its session sees it.
struct Held {
    validity: Validity,
    /// Cancelled when the grant was lost although the session lived on.
    lapsed: CancellationToken,
}

/// Room for watches in a session, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) session: Arc<Session>,
    bytes: usize,
}

impl Room {
    /// Has the session's heartbeat write for whoever has this room.
    pub(crate) fn activated(self) -> Active {
        self.session.active.fetch_add(1, Ordering::Relaxed);
        Active(self)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.session.taken.give_back(self.bytes);
    }
}

/// Keeps the session's heartbeat writing, and room for its owner's watches; one per contender or holder.
#[derive(Debug)]
pub(crate) struct Active(Room);

impl Active {
    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.0.session
    }

    /// Another one, with room for `bytes`.
    pub(crate) fn beside(&self, bytes: usize) -> Self {
        self.session().taken.add(bytes);
        Room { session: Arc::clone(self.session()), bytes }.activated()
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.session().active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why no session was opened.
#[derive(Debug, Clone)]
pub(crate) enum Unopened {
    /// No server did so within the limit.
    NoAnswer(Duration, Option<zookeeper_client::Error>),
    /// The time-out that the servers made of the one that was asked for is of no use.
    TimeOut(Duration),
}

impl Unopened {
    pub(crate) fn into_error(self, config: &Config) -> Error {
        match self {
            Self::NoAnswer(limit, last) => {
                let reason = format!("no session was opened within {limit:?}");
                match last {
                    Some(error) => Error::unavailable(config.url(), reason, error),
                    None => Error::no_answer(config.url(), reason),
                }
            }
            Self::TimeOut(negotiated) => config.unfit(negotiated),
        }
    }
}

impl Session {
    /// Opens a session, within the connect limit. Must run on the runtime that it is to live on. `is_only`: it stays open also
    /// when it is of no use to anybody.
    pub(crate) async fn open(config: Arc<Config>, clock: Clock, is_only: bool) -> Result<Arc<Self>, Unopened> {
        let limit = config.connect_timeout;
        let mut last = None;
        let opened = clock.timeout(limit, async {
            let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
            loop {
                let sent = clock.now();
                // One round over the servers, so that `sent` is fresh in each.
                let connector = Client::connector().with_session_timeout(config.session_timeout).with_fail_eagerly();
                match connector.connect(&config.connect_string()).await {
                    Ok(client) => return (client, sent),
                    Err(error) => last = Some(error),
                }
                clock.sleep(backoff.pause()).await;
            }
        });
        let Some((client, sent)) = opened.await else { return Err(Unopened::NoAnswer(limit, last)) };
        let negotiated = client.session_timeout();
        if config.fits(negotiated) {
            return Ok(Self::start(client, config, clock, sent, is_only));
        }
        Err(Unopened::TimeOut(negotiated))
    }

    fn start(client: Client, config: Arc<Config>, clock: Clock, sent: BootInstant, is_only: bool) -> Arc<Self> {
        let timeout = client.session_timeout();
        let heartbeat = Heartbeat::new(timeout, config.tick_time, sent);
        let states = client.state_watcher();
        let (published, leases) = (heartbeat.deadline(), HashMap::new());
        let book = Book { heartbeat, published, leases, next: 0, reconnects: 0, checked: 0, ended: false };
        let session = Arc::new(Self {
            id: client.session_id().0,
            timeout,
            clock,
            config,
            client: Mutex::new(Some(Arc::new(client))),
            link: watch::Sender::new(Link::Up),
            terminated: CancellationToken::new(),
            book: Mutex::new(book),
            active: AtomicUsize::new(0),
            taken: Taken::default(),
            is_only,
        });
        tracing::debug!(session = session.id, ?timeout, "session opened");
        let servers = session.config.servers.clone();
        tokio::spawn(async move { sockets::set_nodelay(&sockets::addresses(&servers).await) });
        tokio::spawn(Arc::clone(&session).follow(states));
        tokio::spawn(Arc::clone(&session).beat());
        session
    }

    pub(crate) const fn id(&self) -> i64 {
        self.id
    }

    /// The path of the session's own node, which its heartbeat makes and writes to.
    pub(crate) fn own_node(&self) -> String {
        format!("{}/{SESSIONS}/{:016x}", self.config.root, self.id)
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn client(&self) -> Result<Arc<Client>, zookeeper_client::Error> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.as_ref().map(Arc::clone).ok_or(zookeeper_client::Error::ClientClosed)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for watches of that many bytes, if there is any.
    pub(crate) fn room(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        self.taken.take(bytes).then(|| Room { session: Arc::clone(self), bytes })
    }

    /// Notes an answered request, and tells the guards when their deadline moved by enough to be worth it.
    pub(crate) fn answered(&self, request: Request, sent: BootInstant) {
        let received = self.clock.now();
        let mut book = self.book();
        if !book.heartbeat.answered(request, sent, received) {
            return;
        }
        book.publish(self.timeout);
    }

    /// Begins the validity of a grant. `None` when the session has ended, or is not certain to live right now.
    ///
    /// The token is cancelled should the grant be lost while the session lives on: its node is still there then, and
    /// nobody else would ever remove it.
    pub(crate) fn admit(&self) -> Option<(u64, Validity, CancellationToken)> {
        let mut book = self.book();
        let deadline = book.heartbeat.deadline();
        if book.ended || book.checked < book.reconnects || !book.heartbeat.admits(self.clock.now()) {
            return None;
        }
        let validity = Validity::new(self.clock, deadline);
        let number = book.next;
        book.next += 1;
        let lapsed = CancellationToken::new();
        book.leases.insert(number, Held { validity: validity.clone(), lapsed: lapsed.clone() });
        Some((number, validity, lapsed))
    }

    /// Forgets a grant.
    pub(crate) fn dismiss(&self, number: u64) {
        self.book().leases.remove(&number);
    }

    pub(crate) fn is_ended(&self) -> bool {
        *self.link.borrow() == Link::Ended
    }

    /// Resolves when requests have a chance: connected. Or none at all: ended.
    pub(crate) async fn connected(&self) {
        let mut link = self.link.subscribe();
        // The client knows first; what is sent while it is disconnected waits in it, and runs on the next connection.
        while self.client().is_ok_and(|client| client.state() != SessionState::SyncConnected) {
            // An end is told once, and is seen here also by whoever comes later.
            if *link.borrow_and_update() == Link::Ended || link.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves when the session has ended, or was disconnected for all of `limit`.
    pub(crate) async fn failed(&self, limit: Duration) -> Failure {
        let mut link = self.link.subscribe();
        loop {
            let now = *link.borrow_and_update();
            match now {
                Link::Ended => return Failure::Ended,
                Link::Up => {
                    let _ = link.changed().await;
                }
                Link::Down => {
                    if self.clock.timeout(limit, link.changed()).await.is_none() {
                        return Failure::Outage;
                    }
                }
            }
        }
    }

    /// Ends the validity of every guard for that reason; later grants are refused.
    pub(crate) fn end(&self, loss: Loss) {
        let mut book = self.book();
        book.ended = true;
        for held in book.leases.values() {
            held.validity.end(loss);
        }
        drop(book);
        self.link.send_replace(Link::Ended);
    }

    /// Asks the servers to end the session; its nodes go with it. See [`Session::terminated`].
    pub(crate) fn close(&self) {
        self.close_for(Loss::Closed);
    }

    fn close_for(&self, loss: Loss) {
        self.end(loss);
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Resolves when the client has ended.
    pub(crate) async fn terminated(&self) {
        self.terminated.cancelled().await;
    }

    /// Follows the client's state to its end.
    async fn follow(self: Arc<Self>, mut states: StateWatcher) {
        let mut state = states.state();
        loop {
            match state {
                // A connection that was lost and made again may show as one change.
                SessionState::SyncConnected => self.moved_to(Link::Up),
                SessionState::Disconnected | SessionState::ConnectedReadOnly => {
                    for held in self.book().leases.values() {
                        held.validity.set_expiry_cause(Loss::Unreachable);
                    }
                    self.moved_to(Link::Down);
                }
                SessionState::Expired | SessionState::AuthFailed | SessionState::Closed => break,
            }
            state = states.changed().await;
            if state == SessionState::SyncConnected {
                self.reconnected();
            }
        }
        tracing::debug!(session = self.id, ?state, "session ended");
        self.end(Loss::SessionEnded);
        self.terminated.cancel();
    }

    /// Lets no deadline move and nobody be granted the lock until it is known that the servers kept to the time-out. The
    /// guards that are there keep the deadline that they have: it is worth nothing if the time-out is a shorter one now, and
    /// they are lost as soon as that is known.
    fn reconnected(self: &Arc<Self>) {
        let mut book = self.book();
        book.reconnects += 1;
        let connection = book.reconnects;
        drop(book);
        let this = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = this.check_timeout(connection) => {}
                _ = this.failed(Duration::MAX) => {}
            }
        });
    }

    async fn check_timeout(&self, connection: u64) {
        let mut backoff = Backoff::new(Duration::from_millis(10), self.timeout / 8);
        while self.book().reconnects == connection {
            match renegotiation::ask(&self.config.servers, self.timeout, self.timeout / 3, self.clock).await {
                Renegotiated::Same => {
                    let mut book = self.book();
                    book.checked = book.checked.max(connection);
                    return book.publish(self.timeout);
                }
                Renegotiated::Changed(timeout) => {
                    tracing::warn!(session = self.id, was = ?self.timeout, now = ?timeout, "the servers changed the time-out");
                    return self.close_for(Loss::SessionEnded);
                }
                Renegotiated::Unknown => self.clock.sleep(backoff.pause()).await,
            }
        }
    }

    fn moved_to(&self, link: Link) {
        self.link.send_modify(|current| {
            if *current != Link::Ended {
                *current = link;
            }
        });
    }

    /// The heartbeat: writes to the session's own node while somebody holds or waits, cheap requests otherwise, so that
    /// a fresh grant finds a record to count from. One for all locks, and never two at a time.
    async fn beat(self: Arc<Self>) {
        let path = self.own_node();
        let idle = self.timeout / 6;
        let period = idle.min(counted_tick(self.timeout, self.config.tick_time) / 2);
        let mut last = self.clock.now();
        let mut used = last;
        let beating = async {
            loop {
                self.clock.sleep(period).await;
                self.connected().await;
                let active = self.active.load(Ordering::Relaxed) > 0;
                let now = self.clock.now();
                if self.is_only || !self.taken.is_nothing() {
                    used = now;
                } else if now.saturating_since(used) > self.timeout * PATIENCE && self.taken.retire() {
                    return self.close();
                }
                if !active && now.saturating_since(last) < idle {
                    continue;
                }
                last = now;
                let beat = if active { self.write_beat(&path).await } else { self.touch().await };
                if let Err(error) = beat {
                    tracing::debug!(session = self.id, %error, "heartbeat not answered");
                }
            }
        };
        tokio::select! {
            () = beating => {}
            _ = self.failed(Duration::MAX) => {}
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (deadline, held) = {
            let book = self.book();
            (book.heartbeat.deadline(), book.leases.len())
        };
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id))
            .field("link", &*self.link.borrow())
            .field("deadline", &deadline)
            .field("held", &held)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn whoever_waits_for_a_connection_is_not_left_waiting_when_the_session_ends() {
        let server = lock_lab::servers::ZooKeeper::start(1).await.unwrap();
        let config = Config::new([("127.0.0.1", server.ports()[0])]).with_tick_time(Duration::from_millis(100));
        let clock = Clock::boot();
        let session = Session::open(Arc::new(config), clock, true).await.unwrap();
        server.end_session(session.id()).await.unwrap();
        clock.timeout(LIMIT, session.terminated()).await.expect("the news of its end");
        // The client's handle is still there: only the end of the session says that there is no hope.
        assert!(session.client().is_ok_and(|client| client.state() == SessionState::Expired));
        clock.timeout(LIMIT, session.connected()).await.expect("it is over");
    }
}

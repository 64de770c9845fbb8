//! The session: one for all locks of a connection, with its heartbeat and the guards that depend on it.

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
    sockets,
};

/// The directory of the sessions' own nodes. No lock's directory is called so: an escaped lock name has no dot.
const SESSIONS: &str = ".sessions";

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

/// Keeps the session's heartbeat writing; one per contender or holder.
#[derive(Debug)]
pub(crate) struct Active(Arc<Session>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    /// Opens a session, within the connect limit. Must run on the runtime that it is to live on. [`Error::Config`] when the
    /// servers make another time-out of the one that is asked for, by which validity could not be told.
    pub(crate) async fn open(config: Arc<Config>, clock: Clock) -> Result<Arc<Self>, Error> {
        let limit = config.connect_timeout;
        let mut last = None;
        let opened = clock.timeout(limit, async {
            let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
            loop {
                let sent = clock.now();
                // One round over the servers, so that `sent` is fresh in each.
                let connector = Client::connector().with_session_timeout(config.session_timeout).with_fail_eagerly();
                match connector.connect(&config.connect_string()).await {
                    Ok(client) => return Self::start(client, Arc::clone(&config), clock, sent),
                    Err(error) => last = Some(error),
                }
                clock.sleep(backoff.pause()).await;
            }
        });
        if let Some(session) = opened.await {
            return session;
        }
        let reason = format!("no session was opened within {limit:?}");
        Err(match last {
            Some(error) => Error::unavailable(config.url(), reason, error),
            None => Error::no_answer(config.url(), reason),
        })
    }

    fn start(client: Client, config: Arc<Config>, clock: Clock, sent: BootInstant) -> Result<Arc<Self>, Error> {
        let timeout = client.session_timeout();
        config.check_negotiated(timeout)?;
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
        });
        tracing::debug!(session = session.id, ?timeout, "session opened");
        tokio::spawn(Arc::clone(&session).follow(states));
        tokio::spawn(Arc::clone(&session).beat());
        Ok(session)
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

    /// Counts somebody who needs the heartbeat.
    pub(crate) fn activate(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
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

    /// Whether guards depend on it.
    pub(crate) fn holds_anything(&self) -> bool {
        !self.book().leases.is_empty()
    }

    pub(crate) fn is_ended(&self) -> bool {
        *self.link.borrow() == Link::Ended
    }

    /// Resolves when requests have a chance: connected.
    pub(crate) async fn connected(&self) {
        let mut link = self.link.subscribe();
        // The client knows first; what is sent while it is disconnected waits in it, and runs on the next connection.
        while self.client().is_ok_and(|client| client.state() != SessionState::SyncConnected) {
            if link.changed().await.is_err() {
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
        sockets::set_nodelay(&sockets::addresses(&self.config.servers).await);
        loop {
            match state {
                // A connection that was lost and made again may show as one change.
                SessionState::SyncConnected => self.moved_to(Link::Up),
                SessionState::Disconnected | SessionState::ConnectedReadOnly => {
                    for held in self.book().leases.values() {
                        held.validity.suspect(Loss::Unreachable);
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
            match renegotiation::ask(&self.config.servers, self.timeout, self.timeout / 8, self.clock).await {
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
        let beating = async {
            loop {
                self.clock.sleep(period).await;
                self.connected().await;
                let active = self.active.load(Ordering::Relaxed) > 0;
                let now = self.clock.now();
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

//! A session: all locks of a connection share one, or a few, with its heartbeat and the guards that depend on it.

mod deadline;
mod renegotiation;
mod requests;
mod upkeep;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock_core::{Backoff, BootInstant, Clock, Context, Error, Loss, Outage};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::deadline::GuardDeadlines;
pub(crate) use self::{deadline::Admission, requests::ContenderNode};
use crate::{
    Config, node_path,
    protocol::{
        heartbeat::{Heartbeat, RequestProof},
        watch_budget::WatchBudget,
    },
    wire::{Client, RequestError, SessionState},
};

/// The state of a session's connection to the ensemble: up, down, or ended for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Up,
    Down,
    /// For good.
    Ended,
}

/// Why a session cannot be used now: an outage of its connection, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionFailure {
    /// Not connected for longer than the limit.
    Outage,
    /// Ended for good.
    Ended,
}

/// One ZooKeeper session: its client, the state of its connection, and the deadlines of the guards that live in it.
pub(crate) struct Session {
    id: i64,
    timeout: Duration,
    context: Context,
    config: Arc<Config>,
    /// `None` once closed: the servers are told to end the session when the last user of the client is through.
    client: Mutex<Option<Arc<dyn Client>>>,
    link: watch::Sender<LinkState>,
    /// Cancelled when the client has ended: closed or expired, and nothing more comes from it.
    terminated: CancellationToken,
    deadlines: Mutex<GuardDeadlines>,
    /// How many contenders and holders need the session to be kept alive by writes.
    active: AtomicUsize,
    /// What is taken of the session's watches.
    watches: WatchBudget,
    /// Whether it was the connection's only one when it was opened, and stays.
    is_only: bool,
}

/// Room for a number of watches in a session, given back when this value is dropped.
#[derive(Debug)]
pub(crate) struct WatchReservation {
    pub(crate) session: Arc<Session>,
    bytes: usize,
}

impl WatchReservation {
    /// Has the session's heartbeat write for whoever has this reservation.
    pub(crate) fn activated(self) -> ActiveSession {
        self.session.active.fetch_add(1, Ordering::Relaxed);
        ActiveSession(self)
    }
}

impl Drop for WatchReservation {
    fn drop(&mut self) {
        self.session.watches.give_back(self.bytes);
    }
}

/// A session that is kept alive by writes while one contender or holder needs it.
#[derive(Debug)]
pub(crate) struct ActiveSession(WatchReservation);

impl ActiveSession {
    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.0.session
    }

    /// The same session for another user, with watches of `bytes`.
    pub(crate) fn beside(&self, bytes: usize) -> Self {
        self.session().watches.add(bytes);
        WatchReservation { session: Arc::clone(self.session()), bytes }.activated()
    }
}

impl Drop for ActiveSession {
    fn drop(&mut self) {
        self.session().active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The pauses between requests that may be answered later.
pub(crate) const fn retry_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(2), Duration::from_millis(200))
}

/// Why no ZooKeeper session was opened: no server answered, or the granted time-out cannot be used.
#[derive(Debug, Clone)]
pub(crate) enum OpenError {
    /// No server opened one within the limit.
    NoAnswer(Duration, Option<RequestError>),
    /// Asking again would be of no use: one side does not accept the certificate of the other, the servers do not take the user, or
    /// a file cannot be read.
    Refused(RequestError),
    /// The time-out that the servers made of the one that was asked for is of no use.
    Timeout(Duration),
}

impl OpenError {
    pub(crate) fn into_error(self, config: &Config) -> Error {
        match self {
            Self::NoAnswer(limit, last) => {
                let reason = format!("no session was opened within {limit:?}");
                match last {
                    Some(error) => Error::unavailable(config.url(), reason, error),
                    None => Error::no_answer(config.url(), reason),
                }
            }
            Self::Refused(error) => Error::refused(config.url(), "no session was opened", Some(error.into())),
            Self::Timeout(negotiated) => config.unfit(negotiated),
        }
    }
}

impl Session {
    /// Opens a session, within the connect limit. Its tasks run in `context`. `is_only`: it stays open also when it is of no
    /// use to anybody.
    pub(crate) async fn open(config: Arc<Config>, context: Context, is_only: bool) -> Result<Arc<Self>, OpenError> {
        let (limit, clock) = (config.connect_timeout, context.clock());
        let ensemble = config.ensemble();
        let mut last = None;
        let opened = clock.answer_timeout(limit, async {
            let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
            loop {
                let sent = clock.now();
                match ensemble.connect(&config.servers, config.session_timeout).await {
                    Ok(client) => return Ok((client, sent)),
                    Err(refused @ (RequestError::Refused(_) | RequestError::SessionEnded(_))) => return Err(refused),
                    Err(error) => last = Some(error),
                }
                clock.sleep(backoff.pause()).await;
            }
        });
        let Some(opened) = opened.await else { return Err(OpenError::NoAnswer(limit, last)) };
        let (client, sent) = opened.map_err(OpenError::Refused)?;
        let negotiated = client.session_timeout();
        if config.fits(negotiated) {
            return Ok(Self::start(client, config, context, sent, is_only));
        }
        Err(OpenError::Timeout(negotiated))
    }

    fn start(
        client: Arc<dyn Client>,
        config: Arc<Config>,
        context: Context,
        sent: BootInstant,
        is_only: bool,
    ) -> Arc<Self> {
        let timeout = client.session_timeout();
        let heartbeat = Heartbeat::new(timeout, config.tick_time, sent);
        let states = client.states();
        let session = Arc::new(Self {
            id: client.session_id(),
            timeout,
            context,
            config,
            client: Mutex::new(Some(client)),
            link: watch::Sender::new(LinkState::Up),
            terminated: CancellationToken::new(),
            deadlines: Mutex::new(GuardDeadlines::new(timeout, heartbeat)),
            active: AtomicUsize::new(0),
            watches: WatchBudget::default(),
            is_only,
        });
        tracing::debug!(session = session.id, ?timeout, "session opened");
        drop(session.context.spawn(Arc::clone(&session).follow(states)));
        drop(session.context.spawn(Arc::clone(&session).beat()));
        session
    }

    pub(crate) const fn id(&self) -> i64 {
        self.id
    }

    /// The path of the session's own node, which its heartbeat makes and writes to.
    pub(crate) fn own_node(&self) -> String {
        let sessions = self.config.below_root(node_path::sessions(self.config.layout));
        format!("{sessions}/{:016x}", self.id)
    }

    pub(crate) const fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.context.clock()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn client(&self) -> Result<Arc<dyn Client>, RequestError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.as_ref().map(Arc::clone).ok_or_else(|| RequestError::SessionEnded(Arc::new(Error::Closed)))
    }

    fn deadlines(&self) -> MutexGuard<'_, GuardDeadlines> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches of that many bytes, if there is room for them.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<WatchReservation> {
        self.watches.take(bytes).then(|| WatchReservation { session: Arc::clone(self), bytes })
    }

    /// Notes an answered request, and tells the guards when their deadline moved by enough to be worth it.
    fn answered(&self, request: RequestProof, sent: BootInstant) {
        let received = self.clock().now();
        self.deadlines().answered(request, sent, received);
    }

    /// Begins the validity of a grant. `None` when the session has ended, or is not certain to live right now.
    pub(crate) fn admit(&self) -> Option<Admission> {
        self.deadlines().admit(self.clock())
    }

    /// Forgets a grant.
    pub(crate) fn dismiss(&self, number: u64) {
        self.deadlines().dismiss(number);
    }

    pub(crate) fn is_ended(&self) -> bool {
        *self.link.borrow() == LinkState::Ended
    }

    /// Resolves when requests have a chance: connected. Or none at all: ended.
    pub(crate) async fn connected(&self) {
        let mut link = self.link.subscribe();
        // The client knows first; what is sent while it is disconnected waits in it, and runs on the next connection.
        while self.client().is_ok_and(|client| client.state() != SessionState::Connected) {
            // An end is told once, and is seen here also by whoever comes later.
            // Safeguard: nobody waits for the connection of a session that has ended (ZooKeeper)
            if *link.borrow_and_update() == LinkState::Ended || link.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves when the session has ended, or was disconnected for all of `limit`.
    pub(crate) async fn failed(&self, limit: Duration) -> SessionFailure {
        let mut link = self.link.subscribe();
        loop {
            let now = *link.borrow_and_update();
            match now {
                LinkState::Ended => return SessionFailure::Ended,
                LinkState::Up => {
                    let _ = link.changed().await;
                }
                LinkState::Down => {
                    if self.clock().timeout(limit, link.changed()).await.is_none() {
                        return SessionFailure::Outage;
                    }
                }
            }
        }
    }

    /// Reports to `outage` when the session is disconnected, and when it is connected again. Resolves when it has ended.
    pub(crate) async fn report(&self, outage: &Outage) {
        let mut link = self.link.subscribe();
        let mut was_down = false;
        loop {
            let now = *link.borrow_and_update();
            match now {
                LinkState::Ended => return,
                // Nothing is known of requests that failed for another reason.
                LinkState::Up if !was_down => {}
                LinkState::Up => outage.answered(),
                LinkState::Down => outage.failed(Error::no_answer(self.config.url(), "the session is disconnected")),
            }
            was_down = now == LinkState::Down;
            // The sender is `self`'s own, so it is there.
            let _ = link.changed().await;
        }
    }

    /// Ends the validity of every guard for that reason; later grants are refused.
    fn end(&self, loss: Loss) {
        self.deadlines().end(loss);
        self.link.send_replace(LinkState::Ended);
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
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (deadline, held) = {
            let deadlines = self.deadlines();
            (deadlines.deadline(), deadlines.guards())
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
        let context = Context::current();
        let session = Session::open(Arc::new(config), context.clone(), true).await.unwrap();
        server.end_session(session.id()).await.unwrap();
        let clock = context.clock();
        clock.timeout(LIMIT, session.terminated()).await.expect("the news of its end");
        // The client's handle is still there: only the end of the session says that there is no hope.
        assert!(session.client().is_ok_and(|client| client.state() == SessionState::Ended));
        clock.timeout(LIMIT, session.connected()).await.expect("it is over");
    }
}

//! What all locks of one connection share: its settings, its thread, and its sessions.

use std::{sync::Arc, time::Duration};

use lock_core::{Clock, Error, LockName};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    context::Context,
    session::{Session, WatchReservation},
    session_pool::{self, SessionPool},
    thread::SessionThread,
};

/// How long a session may take to end in the background before its thread is ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    config: Arc<Config>,
    thread: SessionThread,
    sessions: SessionPool,
    closed: CancellationToken,
}

impl Connection {
    /// A connection without a session yet, on a thread of its own.
    pub(crate) fn start(config: Config) -> Result<Self, Error> {
        let thread = SessionThread::start()
            .map_err(|error| Error::unavailable(config.url(), "no thread could be started", error))?;
        Ok(Self::on(thread, config))
    }

    /// A connection without a session yet, whose tasks run in `context`.
    pub(crate) fn within(context: Context, config: Config) -> Self {
        Self::on(SessionThread::within(context), config)
    }

    fn on(thread: SessionThread, config: Config) -> Self {
        let (sessions, closed) = (SessionPool::default(), CancellationToken::new());
        Self { config: Arc::new(config), thread, sessions, closed }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The path of what is called `name`: its directory, or in the strategy `herd` its one node.
    pub(crate) fn directory(&self, name: &LockName) -> String {
        format!("{}/{}", self.config.root, name.to_component())
    }

    pub(crate) const fn context(&self) -> &Context {
        self.thread.context()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.context().clock()
    }

    pub(crate) const fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Runs `work` where the connection's tasks run, to its end even if the returned future is dropped.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.thread.run(work(Arc::clone(self))).await.unwrap_or(Err(Error::Closed))
    }

    /// Watches of that many bytes, in a session that is there or in a new one. Within [`Connection::run`] only.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<WatchReservation, Error> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::Closed),
            reservation = self.sessions.reserve(&self.config, self.context(), bytes) => reservation,
        }
    }

    /// Ends all sessions, and all nodes with them, within `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), Error> {
        let deadline = self.clock().now().saturating_add(limit);
        self.closed.cancel();
        let clean = self.context().cleanup().close(limit).await;
        let sessions = self.sessions.take().await;
        if sessions.is_empty() {
            return Ok(());
        }
        let held = sessions.iter().any(|session| session.holds_anything());
        sessions.iter().for_each(|session| session.close());
        let left = deadline.saturating_since(self.clock().now());
        let ended = self.clock().timeout(left, session_pool::terminated(&sessions)).await.is_some();
        self.end_thread(sessions);
        if ended || clean && !held {
            return Ok(());
        }
        Err(Error::no_answer(self.config.url(), format!("not closed within {limit:?}: what is left ends by itself")))
    }

    /// Ends all sessions in the background.
    pub(crate) fn abandon(&self) {
        self.closed.cancel();
        let sessions = self.sessions.take_now();
        sessions.iter().for_each(|session| session.close());
        self.end_thread(sessions);
    }

    fn end_thread(&self, sessions: Vec<Arc<Session>>) {
        let (clock, end) = (self.clock(), self.thread.end().clone());
        drop(self.context().spawn(async move {
            let _ = clock.timeout(FAREWELL, session_pool::terminated(&sessions)).await;
            end.cancel();
        }));
    }
}

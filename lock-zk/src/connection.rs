//! What all locks of one connection share: its settings, its thread, and the present session.

use std::{sync::Arc, time::Duration};

use lock_core::{Clock, Error, Janitor, LockName};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{Config, runtime::Thread, session::Session, sweep::Keeping};

/// How long a session may take to end in the background before its thread is ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    config: Arc<Config>,
    clock: Clock,
    thread: Thread,
    janitor: Janitor,
    /// The present session. Locked while one is opened, so that all who need one share it.
    session: Mutex<Option<Arc<Session>>>,
    closed: CancellationToken,
}

impl Connection {
    /// A connection without a session yet.
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        let clock = Clock::boot();
        let thread =
            Thread::start().map_err(|error| Error::unavailable(config.url(), "no thread could be started", error))?;
        let janitor = Janitor::new(clock, thread.handle().clone());
        let (session, closed) = (Mutex::new(None), CancellationToken::new());
        Ok(Self { config: Arc::new(config), clock, thread, janitor, session, closed })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The path of what is called `name`: its directory, or in the strategy `herd` its one node.
    pub(crate) fn directory(&self, name: &LockName) -> String {
        format!("{}/{}", self.config.root, name.to_component())
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) const fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    pub(crate) fn keeping(&self, session: &Arc<Session>) -> Keeping {
        Keeping { session: Arc::clone(session), janitor: self.janitor.clone() }
    }

    /// Runs `work` on the connection's thread, to its end even if the returned future is dropped.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.thread.run(work(Arc::clone(self))).await.unwrap_or(Err(Error::Closed))
    }

    /// The present session, or a new one when that has ended. On the thread only: a session lives where it was opened.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Error> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::Closed),
            session = self.open() => session,
        }
    }

    async fn open(&self) -> Result<Arc<Session>, Error> {
        let mut present = self.session.lock().await;
        if let Some(session) = present.as_ref().filter(|session| !session.is_ended()) {
            return Ok(Arc::clone(session));
        }
        let session = Session::open(Arc::clone(&self.config), self.clock).await?;
        Ok(Arc::clone(present.insert(session)))
    }

    /// Ends the session, and all nodes with it, within `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), Error> {
        let deadline = self.clock.now().saturating_add(limit);
        self.closed.cancel();
        let clean = self.janitor.close(limit).await;
        let Some(session) = self.session.lock().await.take() else { return Ok(()) };
        let held = session.holds_anything();
        session.close();
        let left = deadline.saturating_since(self.clock.now());
        let ended = self.clock.timeout(left, session.terminated()).await.is_some();
        self.end_thread(session);
        if ended || clean && !held {
            return Ok(());
        }
        Err(Error::no_answer(self.config.url(), format!("not closed within {limit:?}: what is left ends by itself")))
    }

    /// Ends the session in the background.
    pub(crate) fn abandon(&self) {
        self.closed.cancel();
        match self.session.try_lock().ok().and_then(|mut session| session.take()) {
            Some(session) => {
                session.close();
                self.end_thread(session);
            }
            None => self.thread.end().cancel(),
        }
    }

    fn end_thread(&self, session: Arc<Session>) {
        let (clock, end) = (self.clock, self.thread.end().clone());
        self.thread.handle().spawn(async move {
            let _ = clock.timeout(FAREWELL, session.terminated()).await;
            end.cancel();
        });
    }
}

//! What all locks of one connection share: its settings, its thread, and its sessions.

use std::{sync::Arc, time::Duration};

use lock_core::{Clock, Context, Error, LockName};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, node_path,
    session::{Session, WatchReservation},
    session_pool::{self, SessionPool},
    thread::SessionThread,
    wire::RequestError,
};

/// How long a session may take to end in the background before its thread is ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection to a ZooKeeper ensemble: its sessions, and the thread on which their tasks run.
#[derive(Debug)]
pub(crate) struct Connection {
    config: Arc<Config>,
    context: Context,
    thread: SessionThread,
    sessions: SessionPool,
    closed: CancellationToken,
}

impl Connection {
    /// A connection without a session yet.
    pub(crate) fn new(config: Config, context: Context) -> Result<Self, Error> {
        let (context, thread) = SessionThread::start(context)
            .map_err(|error| Error::unavailable(config.url(), "no thread could be started", error))?;
        let (sessions, closed) = (SessionPool::default(), CancellationToken::new());
        Ok(Self { config: Arc::new(config), context, thread, sessions, closed })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The path of what is called `name`: its directory, or in the strategy `herd` its one node.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a name that cannot be a path, where the layout has it for one.
    pub(crate) fn directory(&self, name: &LockName) -> Result<String, Error> {
        Ok(self.config.below_root(&node_path::of_lock(self.config.layout, name)?))
    }

    pub(crate) const fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) const fn clock(&self) -> Clock {
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
        self.thread.run(Box::pin(work(Arc::clone(self)))).await.unwrap_or(Err(Error::Closed))
    }

    /// Watches of that many bytes, in a session that is there or in a new one. Within [`Connection::run`] only.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<WatchReservation, Error> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::Closed),
            reservation = self.sessions.reserve(&self.config, self.thread.context(), bytes) => reservation,
        }
    }

    /// The answer to what is asked in `session` once it is connected, unless an outage lasts for longer than the limit for
    /// an answer.
    pub(crate) async fn while_connected<T>(
        &self,
        session: &Session,
        what: &str,
        asking: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, Error> {
        let asking = async {
            session.connected().await;
            asking.await
        };
        tokio::select! {
            biased;
            answer = asking => answer.map_err(|error| Error::unavailable(self.config.url(), what, error)),
            _ = session.failed(self.config.response_timeout) => Err(Error::no_answer(self.config.url(), what)),
        }
    }

    /// Ends all sessions, and all nodes with them, within `limit`.
    pub(crate) async fn close(&self, limit: Duration) {
        self.closed.cancel();
        let sessions = self.sessions.take().await;
        sessions.iter().for_each(|session| session.close());
        let _ = self.clock().timeout(limit, session_pool::terminated(&sessions)).await;
        self.end_thread(sessions);
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
        drop(self.thread.context().spawn(async move {
            let _ = clock.timeout(FAREWELL, session_pool::terminated(&sessions)).await;
            end.cancel();
        }));
    }
}

//! What all locks of one connection share: its settings, its thread, and the present session.

use std::{sync::Arc, time::Duration};

use lock_core::{Clock, Contender, Error, Janitor, LockName, Snapshot};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use zookeeper_client::Error as ClientError;

use crate::{Config, queue, runtime::Thread, session::Session, sweep::Keeping};

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

    /// Who holds `name`, and who waits. On the thread only.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let session = self.session().await?;
        let look = async {
            session.connected().await;
            self.look(&session, name).await
        };
        tokio::select! {
            biased;
            snapshot = look => snapshot.map_err(|error| Error::unavailable(self.config.url(), "inspect", error)),
            _ = session.failed(self.config.connect_timeout) => Err(Error::no_answer(self.config.url(), "inspect")),
        }
    }

    async fn look(&self, session: &Session, name: &LockName) -> Result<Snapshot, ClientError> {
        let directory = format!("{}/{}", self.config.root, name.to_component());
        let children = match session.list_synced(&directory).await {
            Err(ClientError::NoNode) => return Ok(Snapshot::default()),
            other => other?,
        };
        let line = queue::line(&children);
        let paths: Vec<_> = line.iter().map(|node| format!("{directory}/{node}")).collect();
        let answers = futures::future::join_all(paths.iter().map(|path| session.read(path))).await;
        let mut contenders = Vec::with_capacity(line.len());
        for (node, answer) in line.into_iter().zip(answers) {
            match answer {
                Ok((payload, stat)) => contenders.push((Contender::new(node).with_payload(payload), stat.czxid)),
                Err(ClientError::NoNode) => {} // It left meanwhile.
                Err(error) => return Err(error),
            }
        }
        let mut contenders = contenders.into_iter();
        let holder = contenders.next().map(|(holder, czxid)| holder.with_token(czxid.unsigned_abs()));
        Ok(Snapshot::new(holder.into_iter().collect(), contenders.map(|(waiter, _)| waiter).collect()))
    }

    /// Ends the session, and all nodes with it, within `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), Error> {
        let deadline = self.clock.now().saturating_add(limit);
        self.closed.cancel();
        let clean = self.janitor.drain(limit).await;
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

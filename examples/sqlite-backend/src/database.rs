//! The thread that a connection's database belongs to.
//!
//! All requests of a connection run on one thread, in the order in which they were made. So no call into SQLite holds up a
//! task, and an undo comes after what it undoes, even if that one was stuck for so long that its caller gave it up.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use lock_core::{BootInstant, Clock, Error, Source};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::table::{LockTable, OpenOptions};

/// What each request passes before the database and after it. Tests have one that stops, delays or fails; an error after
/// the database is an answer that was lost.
pub type Failpoint = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A request to the database's thread, as a closure that runs there.
type DatabaseRequest = Box<dyn FnOnce(&mut DatabaseThread) + Send>;

/// Handle to the thread that uses the SQLite database; the thread ends when this value is dropped.
pub(crate) struct Database {
    url: String,
    clock: Clock,
    /// For how long the thread may answer nothing.
    limit: Duration,
    jobs: Mutex<Option<mpsc::Sender<DatabaseRequest>>>,
    /// When the thread was done with a request the last time, in nanoseconds since the machine was booted.
    last_done: Arc<AtomicU64>,
    ended: CancellationToken,
}

/// The state of the thread that uses the SQLite database.
struct DatabaseThread {
    opening: OpenOptions,
    failpoint: Failpoint,
    table: Option<LockTable>,
    /// Whether the database was there once. One that vanished is not made again, for its tokens would begin anew.
    was_there: bool,
    last_done: Arc<AtomicU64>,
    _ended: DropGuard,
}

impl Database {
    /// Starts the thread. It opens the database for the first request.
    pub(crate) fn start(url: String, opening: OpenOptions, limit: Duration, failpoint: Failpoint) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<DatabaseRequest>();
        let (last_done, ended, clock) = (Arc::new(AtomicU64::new(0)), CancellationToken::new(), opening.clock);
        let mut worker = DatabaseThread {
            opening,
            failpoint,
            table: None,
            was_there: false,
            last_done: Arc::clone(&last_done),
            _ended: ended.clone().drop_guard(),
        };
        let work = move || jobs.into_iter().for_each(|job| job(&mut worker));
        thread::Builder::new().name("lock-sqlite".to_owned()).spawn(work)?;
        Ok(Self { url, clock, limit, jobs: Mutex::new(Some(sender)), last_done, ended })
    }

    /// Has the thread do `work`, which is told when the request began. Gives what it returned with that moment.
    ///
    /// An error says nothing about whether the work was done: every request here may be repeated.
    pub(crate) async fn request<T, W>(&self, what: &'static str, work: W) -> Result<(T, BootInstant), Error>
    where
        T: Send + 'static,
        W: FnOnce(&mut LockTable, BootInstant) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, mut answer) = oneshot::channel();
        let clock = self.clock;
        let job: DatabaseRequest = Box::new(move |worker| {
            // Before the look at the caller: a request that is given up has begun by then, or never begins.
            let sent_at = clock.now();
            if reply.is_closed() {
                return;
            }
            let done = worker.run(|table| work(table, sent_at));
            let _ = reply.send(done.map(|done| (done, sent_at)));
        });
        self.send(job)?;
        let mut quiet_since = clock.now();
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    let answer = answer.unwrap_or_else(|_| Err("the thread of the database has ended".into()));
                    return answer.map_err(|error| Error::unavailable(&self.url, format!("{what} failed"), error));
                }
                () = clock.sleep_until(quiet_since.saturating_add(self.limit)) => {}
            }
            // As long as requests before this one are answered, it only waits for its turn.
            let last_done = BootInstant::from_nanos(self.last_done.load(Ordering::Acquire));
            if last_done <= quiet_since {
                let reason = format!("{what}: nothing was answered for {:?}", self.limit);
                return Err(Error::no_answer(&self.url, reason));
            }
            quiet_since = last_done;
        }
    }

    fn send(&self, job: DatabaseRequest) -> Result<(), Error> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        match jobs.as_ref().map(|jobs| jobs.send(job)) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::no_answer(&self.url, "the thread of the database has ended")),
            None => Err(Error::Closed),
        }
    }

    /// Ends the thread after the requests that it has, and waits for that.
    pub(crate) async fn close(&self, limit: Duration) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.clock.timeout(limit, self.ended.cancelled()).await;
    }
}

impl DatabaseThread {
    fn run<T>(&mut self, work: impl FnOnce(&mut LockTable) -> rusqlite::Result<T>) -> Result<T, Source> {
        let done = self.try_to(work);
        self.last_done.store(self.opening.clock.now().as_nanos(), Ordering::Release);
        done
    }

    /// After any error the database is opened anew.
    fn try_to<T>(&mut self, work: impl FnOnce(&mut LockTable) -> rusqlite::Result<T>) -> Result<T, Source> {
        (self.failpoint)()?;
        let mut table = match self.table.take().filter(LockTable::is_in_place) {
            Some(table) => table,
            None => self.opening.open(!self.was_there)?,
        };
        self.was_there = true;
        let done = work(&mut table)?;
        (self.failpoint)()?;
        self.table = Some(table);
        Ok(done)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("url", &self.url).finish_non_exhaustive()
    }
}

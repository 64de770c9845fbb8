//! The SPI: a connection, and how an acquisition goes.

use std::{fs, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{
    Backend, Backoff, BootInstant, Capabilities, Context, Error, Feature, Lease, LockName, Outage, Request, Snapshot,
    Wait,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    config::{NAME, TTL},
    database::{Database, Failpoint},
    lease::SqliteLease,
    rows::RowKeeper,
    table::{Attempt, AttemptState, OpenOptions},
};

/// How long a place in line lives without a renewal: a waiter that died holds up those behind it for no longer.
const PLACE_TTL: Duration = Duration::from_secs(5);
/// A waiter's first pause; later ones grow up to the setting `look_again`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Different for each boot of the machine; see `random(4)`.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A connection to the locks in a database file.
#[derive(Debug)]
pub struct Sqlite {
    config: Config,
    context: Context,
    database: Arc<Database>,
    rows: Arc<RowKeeper>,
}

impl Sqlite {
    /// Connects, and makes the database if it is missing.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that is not allowed; [`Error::Unavailable`] when the database cannot be opened
    /// within the connect limit.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// When the future is dropped, the connection is closed.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current()).await
    }

    /// As [`Sqlite::connect`], in a context of one's own. Its clock must be the one of all programs that use the file.
    ///
    /// # Errors
    /// Those of [`Sqlite::connect`].
    pub async fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        Self::connect_through(config, context, Arc::new(|| Ok(()))).await
    }

    /// As [`Sqlite::connect_in`], with `failpoint` before and after each request: for tests.
    #[doc(hidden)]
    pub async fn connect_through(config: Config, context: Context, failpoint: Failpoint) -> Result<Arc<Self>, Error> {
        config.check()?;
        let (url, clock) = (config.url(), context.clock());
        let boot = fs::read_to_string(BOOT_ID)
            .map_err(|error| Error::unavailable(&url, format!("reading {BOOT_ID} failed"), error))?;
        let opening = OpenOptions { path: config.path.clone(), boot: boot.trim().to_owned(), clock };
        let database = Database::start(url.clone(), opening, config.response_timeout, failpoint)
            .map_err(|error| Error::unavailable(url, "starting a thread failed", error))?;
        let database = Arc::new(database);
        let rows = Arc::new(RowKeeper::new(context.clone(), Arc::clone(&database)));
        let sqlite = Arc::new(Self { config, context, database, rows });
        sqlite.open().await?;
        Ok(sqlite)
    }

    /// Opens the database, within the connect limit.
    async fn open(&self) -> Result<(), Error> {
        let (clock, limit) = (self.context.clock(), self.config.connect_timeout);
        let mut pauses = Backoff::new(FIRST_PAUSE, self.config.look_again);
        let mut failed =
            Error::no_answer(self.config.url(), format!("opening the database took longer than {limit:?}"));
        let opened = clock.answer_timeout(limit, async {
            while let Err(error) = self.database.request("opening the database", |table, _| table.sweep()).await {
                failed = error;
                clock.sleep(pauses.pause()).await;
            }
        });
        opened.await.ok_or(failed)
    }

    /// Enters the line and waits in it until the attempt holds. Gives its token, and when the request was sent that was
    /// granted.
    async fn contend(
        &self,
        attempt: &Arc<Attempt>,
        outage: &Outage,
        stop: &CancellationToken,
    ) -> Result<(u64, BootInstant), Error> {
        let clock = self.context.clock();
        let mut pauses = Backoff::new(FIRST_PAUSE, self.config.look_again);
        let mut place = None;
        loop {
            let standing = match place {
                None => self.enter(attempt).await,
                Some(_) => self.look(attempt).await,
            };
            match standing {
                Ok((AttemptState::Holds(token), sent_at)) => return Ok((token, sent_at)),
                Ok((AttemptState::Refused, _)) => return Err(Error::NotAcquired { name: attempt.name.clone() }),
                Ok((AttemptState::Behind, sent_at)) => {
                    outage.answered();
                    place.get_or_insert_with(|| self.rows.keep(&attempt.id, attempt.place_ttl, sent_at));
                }
                Ok((AttemptState::MustEnter, _)) => {
                    place = None;
                    continue;
                }
                // An outage is bridged while the attempt waits. What the request did, it finds when it is made again.
                Err(error @ Error::Unavailable { .. }) if attempt.waits => outage.failed(error),
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Error::Cancelled),
                () = clock.sleep(pauses.pause()) => {}
            }
        }
    }

    async fn enter(&self, attempt: &Arc<Attempt>) -> Result<(AttemptState, BootInstant), Error> {
        let attempt = Arc::clone(attempt);
        self.database.request("an acquisition", move |table, sent_at| table.enter(&attempt, sent_at)).await
    }

    async fn look(&self, attempt: &Arc<Attempt>) -> Result<(AttemptState, BootInstant), Error> {
        let attempt = Arc::clone(attempt);
        self.database.request("a look at the queue", move |table, _| table.look(&attempt)).await
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(NAME)
            .with_ttl(TTL.range())
            .with(Feature::Fifo)
            .with(Feature::Queue)
            .with(Feature::Expiry)
            .with(Feature::ClocklessToken)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let ttl = request.ttl.unwrap_or(self.config.ttl);
        let attempt = Arc::new(Attempt {
            id: self.context.unique_id(),
            name: request.name,
            payload: request.payload,
            ttl,
            place_ttl: ttl.min(PLACE_TTL),
            waits: request.wait == Wait::UntilStopped,
        });
        match self.contend(&attempt, &request.outage, &stop).await {
            Ok((token, sent_at)) => Ok(Box::new(SqliteLease::new(Arc::clone(&self.rows), attempt, token, sent_at))),
            Err(error @ Error::NotAcquired { .. }) => Err(error),
            Err(error) => {
                // There may be a row: a place in line, or a grant whose answer was lost.
                if !matches!(error, Error::Cancelled) || self.rows.leave(&attempt).await.is_err() {
                    self.rows.leave_later("an acquisition", &attempt);
                }
                Err(error)
            }
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let name = name.clone();
        let (snapshot, _) = self.database.request("a look at the lock", move |table, _| table.show(&name)).await?;
        Ok(snapshot)
    }

    async fn close(&self, limit: Duration) {
        self.database.close(limit).await;
    }
}

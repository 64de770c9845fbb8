//! A database in a directory of its own. What the table keeps is read here past the backend.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    BootInstant, Clock, Context, Error, LockName, Locks, LocksOptions,
    conformance::{Down, Failure, Fixture, Kept, LONG_TTL, Severable},
};
use lock_sqlite_example::{Config, Sqlite, SqliteDriver};
use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;

use super::link::SqliteLink;

/// The ttl of a connection that can be cut off: several times as long as a machine with too much to do may stand still.
const SHORT_TTL: Duration = Duration::from_secs(6);

/// How long a transaction of the fixture waits for one of the backend.
const PATIENCE: Duration = Duration::from_secs(30);

/// The conformance [`Fixture`] of this backend: a new database file, and a way to read its table directly.
#[derive(Debug)]
pub(crate) struct SqliteFixture {
    directory: TempDir,
    /// For looks at the table.
    connection: Mutex<Connection>,
    /// Databases that another program has locked for good.
    locked: Mutex<Vec<Connection>>,
}

impl SqliteFixture {
    pub(crate) fn new() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let connection = open(directory.path().join("locks.db")).map_err(|error| error.to_string())?;
        Ok(Self { directory, connection: Mutex::new(connection), locked: Mutex::default() })
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("locks.db")
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(file: PathBuf) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

#[async_trait]
impl Fixture for SqliteFixture {
    /// By URL, as a program would.
    async fn connect(&self) -> Result<Locks, Failure> {
        let ttl = LONG_TTL.as_secs();
        let url = format!("sqlite://{}?ttl={ttl}s&look_again=20ms&outage_timeout=45s", self.file().display());
        let registry = lock::registry().with(SqliteDriver);
        Ok(lock::Config::from_url(&url)?.connect_with(&registry).await?)
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let link = SqliteLink::default();
        let mut config = Config::new(self.file())?;
        (config.ttl, config.look_again) = (SHORT_TTL, Duration::from_millis(20));
        let failpoint = link.failpoint();
        let sqlite = Sqlite::connect_through(config, Context::current(), failpoint).await?;
        let options = LocksOptions::default().with_outage_timeout(Duration::from_secs(10));
        Ok(Severable { locks: Locks::with_options(sqlite, options), link: Box::new(link) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        let file = match down {
            Down::Refusing => self.directory.path().join("no such directory/locks.db"),
            Down::Silent => {
                let file = tempfile::Builder::new()
                    .suffix(".db")
                    .tempfile_in(self.directory.path())
                    .and_then(|file| file.keep().map_err(|error| error.error))
                    .map_err(|error| Error::config("file", error.to_string(), "a file that can be made"))?
                    .1;
                let locked = open(file.clone()).and_then(|connection| {
                    connection.execute_batch("BEGIN EXCLUSIVE")?;
                    Ok(connection)
                });
                let locked = locked.map_err(|error| Error::config("file", error.to_string(), "a database"))?;
                self.locked.lock().unwrap_or_else(PoisonError::into_inner).push(locked);
                file
            }
        };
        let mut config = Config::new(file)?;
        config.connect_timeout = Duration::from_secs(1);
        Ok(Locks::new(Sqlite::connect(config).await?))
    }

    async fn residue(&self, names: &[LockName]) -> Result<Vec<String>, Failure> {
        let connection = self.connection();
        let mut rows = connection.prepare("SELECT place, held FROM lock_contender WHERE name = ?1")?;
        let mut left = Vec::new();
        for name in names {
            let rows = rows.query_map([name.as_str()], |row| {
                let (place, held): (i64, bool) = (row.get(0)?, row.get(1)?);
                Ok(format!("the {} at place {place} of {name:?}", if held { "holder" } else { "waiter" }))
            })?;
            left.extend(rows.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(left)
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        self.connection().execute("DELETE FROM lock_contender WHERE name = ?1", [name.as_str()])?;
        Ok(())
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        let until = {
            let connection = self.connection();
            let holder = "SELECT until FROM lock_contender WHERE name = ?1 AND place = ?2 AND held";
            let place = i64::try_from(token)?;
            connection.query_row(holder, (name.as_str(), place), |row| row.get::<_, i64>(0)).optional()?
        };
        let Some(until) = until else { return Ok(Kept::Gone) };
        let rest = BootInstant::from_nanos(until.unsigned_abs()).saturating_since(Clock::boot().now());
        Ok(if rest.is_zero() { Kept::Gone } else { Kept::For(rest) })
    }
}

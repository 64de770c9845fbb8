//! The table of contenders: all SQL, and what each statement means.
//!
//! A contender is a row from its arrival until it leaves. The rows of a name are its queue, in the order of `place`; the
//! first of those that are alive is the one that may hold. A row is alive until `until` on the boot-time clock, and only
//! during the boot that wrote it.

use std::{fs, io, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc, thread, time::Duration};

use lock_core::{BootInstant, Clock, Contender, LockName, Mode, Snapshot};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior};

/// `AUTOINCREMENT` never gives a number twice, also when rows are deleted: SQLite keeps the highest number in a row of its
/// own table `sqlite_sequence`, which nothing here deletes. So a place is a fencing token, too: places are granted in
/// their order, and a contender that lost its place gets a new one at the end.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS lock_contender (
    place   INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT    NOT NULL UNIQUE,
    name    TEXT    NOT NULL COLLATE BINARY,
    payload BLOB    NOT NULL,
    held    INTEGER NOT NULL DEFAULT 0,
    since   INTEGER NOT NULL,
    boot    TEXT    NOT NULL,
    until   INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS lock_contender_name ON lock_contender (name, place);
";

const DELETE_ALL_DEAD: &str = "DELETE FROM lock_contender WHERE boot <> ?1 OR until <= ?2";
const DELETE_DEAD: &str = "DELETE FROM lock_contender WHERE name = ?1 AND (boot <> ?2 OR until <= ?3)";

/// Does nothing when the contender has a row already: an attempt whose answer was lost is made again.
const ENTER: &str = "
INSERT INTO lock_contender (id, name, payload, since, boot, until)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE ?7 OR NOT EXISTS (SELECT 1 FROM lock_contender WHERE name = ?2)
ON CONFLICT (id) DO NOTHING";

const FIRST: &str = "SELECT id, place FROM lock_contender WHERE name = ?1 ORDER BY place LIMIT 1";
const HOLD: &str = "UPDATE lock_contender SET held = 1, since = ?2, until = max(until, ?3) WHERE id = ?1";
const STAY: &str = "UPDATE lock_contender SET until = max(until, ?2) WHERE id = ?1";

/// A row that is dead stays dead, also while it is still there: whoever looked has seen the lock free.
const RENEW: &str = "UPDATE lock_contender SET until = max(until, ?4) WHERE id = ?1 AND boot = ?2 AND until > ?3";

const IS_BEHIND: &str = "
SELECT EXISTS (
    SELECT 1 FROM lock_contender me, lock_contender other
    WHERE me.id = ?1 AND me.boot = ?2 AND me.until > ?3
      AND other.name = me.name AND other.place < me.place AND other.boot = ?2 AND other.until > ?3
)";

/// By the contender's own id, never by the name: a successor's row has the same name.
const LEAVE: &str = "DELETE FROM lock_contender WHERE id = ?1 RETURNING boot = ?2 AND until > ?3";

const SHOW: &str = "
SELECT id, payload, place, held, since, until FROM lock_contender
WHERE name = ?1 AND boot = ?2 AND until > ?3 ORDER BY place";

/// How often a transaction looks whether that of another connection is over: about two seconds in all.
const BUSY_LOOKS: i32 = 2_000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// One attempt to acquire a lock: its unique id, and what its row says.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Different for all attempts of all programs.
    pub(crate) id: String,
    pub(crate) name: LockName,
    pub(crate) payload: Arc<[u8]>,
    /// How long the row of a holder lives without a renewal.
    pub(crate) ttl: Duration,
    /// How long the row of a waiter lives without a renewal.
    pub(crate) place_ttl: Duration,
    pub(crate) waits: bool,
}

/// The state of an attempt after a look at the table: it holds, waits, has to enter again, or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptState {
    /// It holds, with this token.
    Holds(u64),
    /// It has a place behind another.
    Behind,
    /// It is the first in line, or has lost its place because that was not renewed in time: it has to enter again.
    MustEnter,
    /// Another holds or waits, and the attempt does not wait: it has no row.
    Refused,
}

/// What is needed to open the database: its path, the boot of the machine, and a clock.
#[derive(Debug, Clone)]
pub(crate) struct OpenOptions {
    pub(crate) path: PathBuf,
    /// Which boot of the machine this is.
    pub(crate) boot: String,
    pub(crate) clock: Clock,
}

/// The open database with the table of all contenders' rows.
#[derive(Debug)]
pub(crate) struct LockTable {
    connection: Connection,
    opening: OpenOptions,
    /// The device and the number of the file that was opened.
    file: (u64, u64),
}

impl OpenOptions {
    /// Opens the database, and makes it if `create` says so.
    pub(crate) fn open(&self, create: bool) -> Result<LockTable, lock_core::Source> {
        let create = if create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_handler(Some(wait_for_others))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A token is on the disk before it is given out: it must not fall when the power fails.
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch(TABLE)?;
        Ok(LockTable { connection, opening: self.clone(), file: self.file()? })
    }

    /// The device and the number of the file that the path leads to.
    fn file(&self) -> io::Result<(u64, u64)> {
        let is = fs::metadata(&self.path)?;
        Ok((is.dev(), is.ino()))
    }
}

impl LockTable {
    /// Whether the path still leads to this database. If not, programs that connect now contend in another one.
    pub(crate) fn is_in_place(&self) -> bool {
        self.opening.file().is_ok_and(|file| file == self.file)
    }

    /// Deletes what has ended, of all names: whoever is killed leaves a row that nobody may ever ask for.
    pub(crate) fn sweep(&mut self) -> rusqlite::Result<()> {
        let now = nanos(self.opening.clock.now());
        self.connection.execute(DELETE_ALL_DEAD, (&self.opening.boot, now)).map(drop)
    }

    /// Takes the lock if the attempt is the first in line, or else a place in line if it waits. The lease counts from
    /// `sent_at`. May be repeated when an answer was lost.
    pub(crate) fn enter(&mut self, attempt: &Attempt, sent_at: BootInstant) -> rusqlite::Result<AttemptState> {
        let Attempt { id, name, payload, ttl, place_ttl, waits } = attempt;
        let (boot, clock, name) = (&self.opening.boot, self.opening.clock, name.as_str());
        let place_until = nanos(sent_at.saturating_add(*place_ttl));
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read while no other connection can write: whoever is dead now cannot be renewed before this transaction ends.
        let now = nanos(clock.now());
        let since = i64::try_from(clock.wall_micros()).unwrap_or(i64::MAX);
        transaction.execute(DELETE_DEAD, (name, boot, now))?;
        transaction.execute(ENTER, (id, name, payload.as_ref(), since, boot, place_until, waits))?;
        let (first, place) =
            transaction.query_row(FIRST, [name], |row| Ok((row.get::<_, String>(0)?, unsigned(row, 1)?)))?;
        let standing = if first == *id {
            transaction.execute(HOLD, (id, since, nanos(sent_at.saturating_add(*ttl))))?;
            AttemptState::Holds(place)
        } else if *waits {
            transaction.execute(STAY, (id, place_until))?;
            AttemptState::Behind
        } else {
            AttemptState::Refused
        };
        transaction.commit()?;
        Ok(standing)
    }

    /// Looks whether an attempt with a place is still behind another. Only reads, so that waiters hold up nobody.
    pub(crate) fn look(&self, attempt: &Attempt) -> rusqlite::Result<AttemptState> {
        let now = nanos(self.opening.clock.now());
        let is_behind =
            self.connection.query_row(IS_BEHIND, (&attempt.id, &self.opening.boot, now), |row| row.get(0))?;
        Ok(if is_behind { AttemptState::Behind } else { AttemptState::MustEnter })
    }

    /// Has each of these rows live for its ttl from `sent_at`; says of each whether it was alive.
    pub(crate) fn renew(&mut self, rows: &[(String, Duration)], sent_at: BootInstant) -> rusqlite::Result<Vec<bool>> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = nanos(self.opening.clock.now());
        let renew = |(id, ttl): &(String, Duration)| {
            let until = nanos(sent_at.saturating_add(*ttl));
            Ok(transaction.execute(RENEW, (id, &self.opening.boot, now, until))? == 1)
        };
        let renewed = rows.iter().map(renew).collect::<rusqlite::Result<_>>()?;
        transaction.commit()?;
        Ok(renewed)
    }

    /// Deletes a contender's row; says whether it was alive.
    pub(crate) fn leave(&mut self, id: &str) -> rusqlite::Result<bool> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = nanos(self.opening.clock.now());
        let was_alive = transaction.query_row(LEAVE, (id, &self.opening.boot, now), |row| row.get(0)).optional()?;
        transaction.commit()?;
        Ok(was_alive.unwrap_or(false))
    }

    /// Who holds that name, and who waits for it.
    pub(crate) fn show(&self, name: &LockName) -> rusqlite::Result<Snapshot> {
        let now = self.opening.clock.now();
        let mut statement = self.connection.prepare(SHOW)?;
        let rows = statement.query_map((name.as_str(), &self.opening.boot, nanos(now)), |row| {
            let contender = Contender::new(row.get::<_, String>(0)?)
                .with_payload(row.get::<_, Vec<u8>>(1)?)
                .with_mode(Mode::Exclusive)
                .with_since_micros(unsigned(row, 4)?)
                .with_remaining(BootInstant::from_nanos(unsigned(row, 5)?).saturating_since(now));
            Ok(if row.get(3)? { (contender.with_token(unsigned(row, 2)?), true) } else { (contender, false) })
        })?;
        let mut snapshot = Snapshot::default();
        for row in rows {
            let (contender, held) = row?;
            if held { snapshot.holders.push(contender) } else { snapshot.queue.push(contender) }
        }
        Ok(snapshot)
    }
}

/// Waits a moment for the transaction of another connection, and gives up after so many. SQLite tells nobody when a
/// transaction ends, and its own pauses grow to 100 ms: whoever waited longest would look the most rarely.
fn wait_for_others(looks: i32) -> bool {
    thread::park_timeout(BUSY_PAUSE);
    looks < BUSY_LOOKS
}

/// An instant as the table has it. SQLite's numbers are signed.
fn nanos(instant: BootInstant) -> i64 {
    i64::try_from(instant.as_nanos()).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> (tempfile::TempDir, LockTable) {
        let directory = tempfile::tempdir().unwrap();
        let opening =
            OpenOptions { path: directory.path().join("locks.db"), boot: "this one".to_owned(), clock: Clock::boot() };
        let table = opening.open(true).unwrap();
        (directory, table)
    }

    fn attempt(id: &str, ttl: Duration) -> Attempt {
        let name = LockName::new("a").unwrap();
        Attempt { id: id.to_owned(), name, payload: Arc::new([]), ttl, place_ttl: ttl, waits: true }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_attempt_that_is_made_again_finds_what_it_did_the_first_time() {
        let (_directory, mut table) = table();
        let [first, second] = ["first", "second"].map(|id| attempt(id, HOUR));
        for _ in 0..2 {
            assert_eq!(table.enter(&first, Clock::boot().now()).unwrap(), AttemptState::Holds(1));
            assert_eq!(table.enter(&second, Clock::boot().now()).unwrap(), AttemptState::Behind);
        }
        assert_eq!(table.show(&first.name).unwrap().queue.len(), 1);
        assert_eq!([table.leave("first").unwrap(), table.leave("first").unwrap()], [true, false]);
        assert_eq!(table.look(&second).unwrap(), AttemptState::MustEnter);
    }

    #[test]
    fn a_row_that_is_dead_is_not_renewed_and_its_place_goes_to_the_next() {
        let (_directory, mut table) = table();
        let [dead, next] = [attempt("dead", Duration::ZERO), attempt("next", HOUR)];
        table.enter(&dead, Clock::boot().now()).unwrap();
        let late = table.renew(&[("dead".to_owned(), HOUR)], Clock::boot().now()).unwrap();
        assert_eq!(late, [false]);
        assert_eq!(table.show(&dead.name).unwrap(), Snapshot::default());
        assert_eq!(table.enter(&next, Clock::boot().now()).unwrap(), AttemptState::Holds(2));
    }

    #[test]
    fn a_renewal_never_shortens_a_lease() {
        let (_directory, mut table) = table();
        let holder = attempt("holder", HOUR);
        table.enter(&holder, Clock::boot().now()).unwrap();
        // The place of a waiter, whose renewal was under way at the grant, has a shorter ttl.
        assert_eq!(table.renew(&[("holder".to_owned(), HOUR / 60)], Clock::boot().now()).unwrap(), [true]);
        let remaining = table.show(&holder.name).unwrap().holders[0].remaining.unwrap();
        assert!(remaining > HOUR / 2, "{remaining:?}");
    }
}

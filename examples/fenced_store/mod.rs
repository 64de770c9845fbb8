//! A table in an SQLite file behind a fence, for the examples `axum_service` and `batch_worker`.

use std::{error::Error, path::Path, time::Duration};

use lock::{
    FencingToken,
    fence::{StaleToken, sql::sqlite},
};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// Why a write was not done.
pub(crate) type WriteError = Box<dyn Error + Send + Sync>;

/// The file, and in it a table of results that only the holder of a lock may write.
pub(crate) struct FencedStore {
    connection: Connection,
}

impl FencedStore {
    /// Opens the file and makes what is missing in it.
    pub(crate) fn open(file: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.execute(sqlite::TABLE, [])?;
        let results = "CREATE TABLE IF NOT EXISTS results (job TEXT PRIMARY KEY, result TEXT NOT NULL)";
        connection.execute(results, [])?;
        Ok(Self { connection })
    }

    /// The result of a job, if there is one.
    pub(crate) fn result(&self, job: &str) -> rusqlite::Result<Option<String>> {
        let query = "SELECT result FROM results WHERE job = ?1";
        self.connection.query_row(query, [job], |row| row.get(0)).optional()
    }

    /// Writes the result of a job, unless a later holder of the lock `resource` has written before: then the error is a
    /// [`StaleToken`], and nothing is changed.
    pub(crate) fn finish(
        &mut self,
        resource: &str,
        token: FencingToken,
        job: &str,
        result: &str,
    ) -> Result<(), WriteError> {
        // Until the commit no other transaction comes between the check and the write.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if transaction.execute(sqlite::ADMIT, (resource, token.to_string()))? == 0 {
            return Err(StaleToken::new(resource, token, highest(&transaction, resource)?).into());
        }
        let insert = "INSERT INTO results (job, result) VALUES (?1, ?2) ON CONFLICT (job) DO UPDATE SET result = ?2";
        transaction.execute(insert, [job, result])?;
        Ok(transaction.commit()?)
    }
}

/// The token that was in the way.
fn highest(transaction: &Transaction<'_>, resource: &str) -> Result<FencingToken, WriteError> {
    let text: String = transaction.query_row(sqlite::HIGHEST, [resource], |row| row.get(0))?;
    Ok(text.parse()?)
}

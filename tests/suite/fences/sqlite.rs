//! A table, in SQLite.

use std::path::Path;

use lock::{
    FencingToken,
    fence::{StaleToken, sql::sqlite},
};
use lock_lab::servers::ZooKeeper;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::{numbered, old_and_new};

fn open(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    connection.execute(sqlite::TABLE, []).unwrap();
    connection.execute("CREATE TABLE IF NOT EXISTS report (line TEXT NOT NULL)", []).unwrap();
    connection
}

/// As a program would use the statements: the check is the first of the transaction.
fn admit(transaction: &Transaction<'_>, resource: &str, token: FencingToken) -> Result<(), StaleToken> {
    match transaction.execute(sqlite::ADMIT, (resource, token.to_string())).unwrap() {
        0 => Err(StaleToken::new(resource, token, highest(transaction, resource).expect("there is a higher one"))),
        1 => Ok(()),
        rows => panic!("{rows} rows of one resource"),
    }
}

fn highest(connection: &Connection, resource: &str) -> Option<FencingToken> {
    let text: Option<String> = connection.query_row(sqlite::HIGHEST, [resource], |row| row.get(0)).optional().unwrap();
    text.map(|text| text.parse().unwrap())
}

/// A transaction of several statements under the fence.
fn report(connection: &mut Connection, token: FencingToken, lines: &[&str]) -> Result<(), StaleToken> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    admit(&transaction, "report", token)?; // rolled back when it is dropped
    transaction.execute("DELETE FROM report", []).unwrap();
    for line in lines {
        transaction.execute("INSERT INTO report (line) VALUES (?1)", [line]).unwrap();
    }
    transaction.commit().unwrap();
    Ok(())
}

fn lines(connection: &Connection) -> Vec<String> {
    let mut statement = connection.prepare("SELECT line FROM report ORDER BY rowid").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn the_old_holder_is_refused_and_the_new_one_writes_again_and_again() {
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let (old, new) = old_and_new(&ensemble.url()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store");
    // Two holders, two connections.
    let (mut first, mut second) = (open(&file), open(&file));
    report(&mut first, old, &["first"]).unwrap();
    report(&mut second, new, &["second"]).unwrap();
    report(&mut second, new, &["third", "and more"]).unwrap();
    let refused = report(&mut first, old, &["late"]).unwrap_err();
    assert_eq!(refused, StaleToken::new("report", old, new));
    assert_eq!(lines(&second), ["third", "and more"]);
    assert_eq!(highest(&first, "report"), Some(new));
    assert_eq!(highest(&first, "another"), None);
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_the_fence_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut connection = open(&dir.path().join("store"));
    report(&mut connection, numbered(1), &["kept"]).unwrap();
    let transaction = connection.transaction().unwrap();
    admit(&transaction, "report", numbered(2)).unwrap();
    transaction.rollback().unwrap();
    assert_eq!(highest(&connection, "report"), Some(numbered(1)));
    assert_eq!(lines(&connection), ["kept"]);
}

#[test]
fn the_database_compares_tokens_as_this_program_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut connection = open(&dir.path().join("store"));
    let transaction = connection.transaction().unwrap();
    let numbers = [0, 9, 10, 1 << 53, (1 << 53) + 1, i64::MAX.unsigned_abs() + 1, u64::MAX];
    let tokens = [0, 9, 10, u32::MAX].map(|era| numbers.map(|number| FencingToken { era, number })).concat();
    for highest in &tokens {
        for given in &tokens {
            transaction.execute("DELETE FROM lock_fence", []).unwrap();
            admit(&transaction, "report", *highest).unwrap();
            let expected = StaleToken::check("report", *given, Some(*highest));
            assert_eq!(admit(&transaction, "report", *given), expected);
        }
    }
}

#[test]
fn the_database_compares_integers_as_this_program_compares_tokens() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute(sqlite::integer::TABLE, []).unwrap();
    let highest = || -> Option<i64> {
        connection.query_row(sqlite::integer::HIGHEST, ["report"], |row| row.get(0)).optional().unwrap()
    };
    assert_eq!(highest(), None);
    let numbers = [0, 9, 10, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, 9_999_999_999_999_999];
    let tokens = [0, 9, 10, 921].map(|era| numbers.map(|number| FencingToken { era, number })).concat();
    for seen in &tokens {
        for given in &tokens {
            connection.execute("DELETE FROM lock_fence_integer", []).unwrap();
            let admit = |token: FencingToken| {
                connection.execute(sqlite::integer::ADMIT, ("report", token.to_i64().unwrap())).unwrap()
            };
            assert_eq!(admit(*seen), 1);
            assert_eq!(admit(*given), usize::from(given >= seen), "{given} after {seen}");
            let kept = FencingToken::from_i64(highest().unwrap()).unwrap();
            assert_eq!(kept, *given.max(seen));
        }
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let connection = open(&dir.path().join("store"));
    connection.execute(sqlite::ADMIT, ("report", "34")).unwrap_err();
    assert_eq!(highest(&connection, "report"), None);
    connection.execute(sqlite::integer::TABLE, []).unwrap();
    connection.execute(sqlite::integer::ADMIT, ("report", -1)).unwrap_err();
    connection.execute(sqlite::integer::ADMIT, ("report", numbered(34).to_string())).unwrap_err();
    connection.execute(sqlite::integer::ADMIT, ("report", 34.5)).unwrap_err();
}

/// The statement for a table with a column of its own, as the documentation has it.
#[test]
fn one_statement_is_enough_for_a_table_with_a_column_for_the_token() {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, token TEXT NOT NULL)", [])
        .unwrap();
    connection.execute("INSERT INTO account VALUES (7, 100, ?1)", [numbered(0).to_string()]).unwrap();
    let update = |token: u64, balance: i64| {
        let statement = "UPDATE account SET balance = :balance, token = :token WHERE id = :id AND token <= :token";
        let token = numbered(token).to_string();
        connection.execute(statement, rusqlite::named_params! {":balance": balance, ":token": token, ":id": 7}).unwrap()
    };
    assert_eq!(update(34, 110), 1);
    assert_eq!(update(34, 120), 1);
    assert_eq!(update(33, 90), 0);
    let balance: i64 = connection.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap();
    assert_eq!(balance, 120);
}

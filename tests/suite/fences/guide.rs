//! The code of docs/fencing.md.

use std::{
    error::Error,
    process::{Command, Output},
};

use lock::{FencingToken, fence::redis::SCRIPT};
use lock_lab::servers::Redis;
use redis::AsyncCommands;
use rusqlite::Connection;

use super::super::guides::blocks;

const PAGE: &str = include_str!("../../../docs/fencing.md");

/// Writes a balance, unless a later holder of the lock has written.
fn set_balance(connection: &Connection, id: i64, balance: i64, token: FencingToken) -> Result<(), Box<dyn Error>> {
    let statement = "UPDATE account SET balance = ?1, token = ?2 WHERE id = ?3 AND token <= ?2";
    match connection.execute(statement, (balance, token.to_i64()?, id))? {
        1 => Ok(()),
        _ => Err("another holder has written since, or there is no such account".into()),
    }
}

/// An account with a balance of 100 and a column of that type for the token.
fn account(token: &str) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let table = format!("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, token {token})");
    connection.execute(&table, []).unwrap();
    connection.execute("INSERT INTO account (id, balance) VALUES (7, 100)", []).unwrap();
    connection
}

fn balance(connection: &Connection) -> i64 {
    connection.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap()
}

/// Tokens in their order, and one that comes late.
const TOKENS: [FencingToken; 3] = [
    FencingToken { era: 0, number: 1_795_366_024_067_250 },
    FencingToken { era: 3, number: 9 },
    FencingToken { era: 3, number: 10 },
];

#[test]
fn the_function_of_the_page_lets_no_late_write_pass() {
    let connection = account("BIGINT NOT NULL DEFAULT 0");
    for (new, token) in (0..).zip(TOKENS) {
        set_balance(&connection, 7, new, token).unwrap();
        set_balance(&connection, 7, new, token).unwrap();
    }
    for late in [TOKENS[0], TOKENS[1], FencingToken { era: 922, number: 0 }] {
        set_balance(&connection, 7, 100, late).unwrap_err();
    }
    assert_eq!(balance(&connection), 2);
}

#[test]
fn the_statement_of_the_page_takes_both_forms() {
    let statement = blocks(PAGE, "sql").remove(0);
    let update = |connection: &Connection, token: &dyn rusqlite::ToSql, balance: i64| {
        let parameters = rusqlite::named_params! {":balance": balance, ":token": token, ":id": 7};
        connection.execute(&statement, parameters).unwrap()
    };
    let integers = account("BIGINT NOT NULL DEFAULT 0");
    let text = account("TEXT COLLATE BINARY NOT NULL DEFAULT ''");
    for (new, token) in (0..).zip(TOKENS) {
        assert_eq!(update(&integers, &token.to_i64().unwrap(), new), 1);
        assert_eq!(update(&text, &token.to_string(), new), 1);
    }
    assert_eq!(update(&integers, &TOKENS[1].to_i64().unwrap(), 100), 0);
    assert_eq!(update(&text, &TOKENS[1].to_string(), 100), 0);
    assert_eq!((balance(&integers), balance(&text)), (2, 2));
}

#[tokio::test]
async fn the_script_is_run_from_a_shell_with_the_token_as_an_integer() {
    let script = blocks(PAGE, "sh").remove(0);
    let mut server = Redis::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("fence.lua"), SCRIPT).unwrap();
    let url = server.url();
    let run = |token: FencingToken| -> Output {
        let mut shell = Command::new("sh");
        // What redis-cli(1) would sign in with, at a server without users.
        shell.env_remove("REDISCLI_AUTH");
        shell.args(["-c", &script]).current_dir(&dir).env("STORE", &url);
        shell.env("LOCK_TOKEN_INT", token.to_i64().unwrap().to_string()).output().unwrap()
    };
    for token in TOKENS {
        let ran = run(token);
        assert!(ran.status.success(), "{ran:?}");
    }
    let refused = run(TOKENS[1]);
    assert!(!refused.status.success(), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&TOKENS[2].to_string()), "{said}");
    let value: String = server.connection().await.unwrap().get("report").await.unwrap();
    assert_eq!(value, "all is well");
    server.kill();
    assert!(!run(TOKENS[2]).status.success(), "a server that does not answer has written nothing");
}

#[test]
fn the_table_of_the_page_shows_the_forms_as_they_are() {
    let token = FencingToken { era: 3, number: 1_795_366_024_067_250 };
    let row = format!("| `{token}` | `{}` |", token.to_i64().unwrap());
    assert!(PAGE.contains(&row), "{row}");
}

//! Holds a lock in an SQLite database for as long as standard input is open; start it twice to see one wait for the other.
//!
//! ```text
//! cargo run --package lock-sqlite-example --example demo -- 'sqlite:///tmp/locks.db?ttl=5s' NAME
//! ```

use std::{env, error::Error, io, time::Duration};

use lock::{Config, Loss};
use lock_sqlite_example::SqliteDriver;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, name] = arguments.as_slice() else { return Err("usage: demo URL NAME".into()) };
    // The drivers that ship, and one more.
    let registry = lock::registry().with(SqliteDriver);
    let locks = Config::from_url(url)?.connect_with(&registry).await?;

    println!("waiting for {name}");
    let guard = locks.mutex(name).lock().await?;
    println!("held with token {}; the end of the input gives it back", guard.token());

    let lost: Option<Loss> = tokio::select! {
        loss = guard.lost() => Some(loss),
        read = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())) => { read??; None }
    };
    match lost {
        Some(loss) => println!("lost: {loss}"),
        None => guard.release().await?,
    }
    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}

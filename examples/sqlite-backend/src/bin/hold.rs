//! Holds the lock NAME of the database file FILE until its input ends: `hold FILE NAME TTL_IN_SECONDS`. The tests kill it.

use std::{env, error::Error, io::Read as _, time::Duration};

use lock_core::Locks;
use lock_sqlite_example::{Config, Sqlite};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, name, ttl] = arguments.as_slice() else { return Err("usage: hold FILE NAME TTL_IN_SECONDS".into()) };
    let mut config = Config::new(file)?;
    config.ttl = Duration::from_secs(ttl.parse()?);
    let locks = Locks::new(Sqlite::connect(config).await?);
    let guard = locks.mutex(name).lock().await?;
    println!("held {}", guard.token().number);
    // On a thread of its own, so that the lease is renewed meanwhile.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    guard.release().await?;
    Ok(locks.close(Duration::from_secs(5)).await?)
}

//! A guarded operation: adds an amount to a balance in Redis. A journal in a file is changed before, and restored when it
//! does not come to that.
//!
//! ```text
//! LOCK_URL=redis://127.0.0.1:6379 cargo run --example deposit -- redis://127.0.0.1:6379 JOURNAL AMOUNT [apply|commit]
//! ```
//!
//! With the last argument it says when it is there and waits for a line of input, blocking: stop it there (`kill -STOP`) for
//! longer than its lease lives, and see what it does when it goes on.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use lock::{
    FencingToken, Operation,
    fence::redis::{FenceError, FencedKey},
};
use redis::{AsyncCommands, AsyncConnectionConfig, aio::MultiplexedConnection};

/// How long an answer of the store is waited for. Of a write without one nobody knows whether it was made, so this is more than the half
/// second of the client crate.
const STORE_LIMIT: Duration = Duration::from_secs(10);

/// A guarded [`Operation`] that adds an amount to a balance in Redis and writes it to a journal file.
struct Deposit {
    store: MultiplexedConnection,
    journal: PathBuf,
    amount: i64,
    balance: i64,
    pause: Option<String>,
}

impl Operation for Deposit {
    /// The text of the journal.
    type Snapshot = String;
    /// The new balance.
    type Output = i64;
    type Error = Box<dyn Error + Send + Sync>;

    async fn snapshot(&mut self) -> Result<String, Self::Error> {
        self.balance = self.store.get::<_, Option<i64>>("balance").await?.unwrap_or(0);
        Ok(fs::read_to_string(&self.journal)?)
    }

    async fn apply(&mut self, token: FencingToken) -> Result<(), Self::Error> {
        self.balance += self.amount;
        fs::write(&self.journal, format!("{token}: the balance will be {}\n", self.balance))?;
        self.pause("apply")
    }

    async fn commit(&mut self, token: FencingToken) -> Result<i64, Self::Error> {
        self.pause("commit")?;
        match FencedKey::new("balance").set(&mut self.store, token, self.balance.to_string()).await {
            Ok(()) => Ok(self.balance),
            Err(FenceError::Stale(stale)) => Err(stale.into()),
            // No answer: the write may have been done, and with the same token it may be done again.
            Err(_) => {
                FencedKey::new("balance").set(&mut self.store, token, self.balance.to_string()).await?;
                Ok(self.balance)
            }
        }
    }

    async fn restore(&mut self, snapshot: String, _token: FencingToken) -> Result<(), Self::Error> {
        Ok(fs::write(&self.journal, snapshot)?)
    }
}

impl Deposit {
    fn pause(&self, step: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.pause.as_deref() == Some(step) {
            println!("in {step}");
            io::stdout().flush()?;
            io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (store, journal, amount, pause) = match arguments.as_slice() {
        [store, journal, amount] => (store, journal, amount, None),
        [store, journal, amount, pause] => (store, journal, amount, Some(pause.clone())),
        _ => return Err("usage: deposit STORE JOURNAL AMOUNT [apply|commit]".into()),
    };
    let limits =
        AsyncConnectionConfig::new().set_connection_timeout(Some(STORE_LIMIT)).set_response_timeout(Some(STORE_LIMIT));
    let store = redis::Client::open(store.as_str())?.get_multiplexed_async_connection_with_config(&limits).await?;
    let locks = lock::connect_from_env().await?;
    let guard = locks.mutex("examples/deposit").lock().await?;
    let deposit = Deposit { store, journal: journal.into(), amount: amount.parse()?, balance: 0, pause };
    let code = match guard.transact(deposit).await {
        Ok(committed) => {
            println!("committed: {}", committed.output);
            ExitCode::SUCCESS
        }
        Err(abandoned) => {
            println!("{abandoned}");
            ExitCode::FAILURE
        }
    };
    drop(guard);
    locks.close(Duration::from_secs(5)).await?;
    Ok(code)
}

//! A command for `lock run` that writes to a store which checks the fencing token, all the time, and goes on when it is told
//! to end. It says what happens to it: `writing`, `refused` for the first write that the store refuses, `told to end`.
//!
//! ```text
//! lock run NAME -- fenced_writer redis://127.0.0.1:6379
//! ```

use std::{
    env,
    error::Error,
    io::{self, Write as _},
    process,
    time::Duration,
};

use lock::{
    Clock, FencingToken,
    fence::redis::{FenceError, FencedKey},
};
use redis::AsyncConnectionConfig;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "fenced_writer URL, under `lock run`";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let token: FencingToken = env::var("LOCK_TOKEN")?.parse()?;
    let store = redis::Client::open(env::args().nth(1).ok_or(USAGE)?)?;
    // Without limits: stopped before an answer came, this program is to find it when it goes on.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut store = store.get_multiplexed_async_connection_with_config(&config).await?;
    let key = FencedKey::new("value");
    key.set(&mut store, token, "written").await?;
    let mut told = signal(SignalKind::terminate())?;
    say(&format!("writing {}", process::id()))?;
    let mut refused = false;
    loop {
        tokio::select! {
            _ = told.recv() => say("told to end")?,
            () = Clock::boot().sleep(Duration::from_millis(1)) => {}
        }
        match key.set(&mut store, token, "written").await {
            Ok(()) if refused => say("written after a refusal")?,
            Ok(()) => {}
            Err(FenceError::Stale(_)) if !refused => {
                refused = true;
                say("refused")?;
            }
            Err(FenceError::Stale(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn say(what: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what}")?;
    out.flush()
}

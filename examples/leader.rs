//! Of all instances of this program one leads, and works; the others stand by.
//!
//! ```text
//! LOCK_URL=zk://127.0.0.1:2181 cargo run --example leader -- scheduler host-7
//! ```
//!
//! SIGTERM hands the leadership over at once, so that a rolling restart costs no lease: the next one leads after a round trip.

use std::{env, error::Error, time::Duration};

use lock::{Clock, FencingToken, Term};
use tokio::signal::unix::{SignalKind, signal};

/// How long one piece of work takes.
const PIECE: Duration = Duration::from_millis(50);

/// How long after an outage the next attempt is made.
const PAUSE: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [election, name] = arguments.as_slice() else { return Err("usage: leader ELECTION NAME".into()) };
    let mut terminate = signal(SignalKind::terminate())?;
    let locks = lock::connect_from_env().await?;
    let election = locks.election(election);
    loop {
        let elected = tokio::select! {
            elected = election.campaign(name.as_bytes()) => elected,
            // The candidacy is withdrawn with its future.
            _ = terminate.recv() => break,
        };
        let term = match elected {
            Ok(term) => term,
            Err(error) if error.is_temporary() => {
                eprintln!("{error}");
                Clock::boot().sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        println!("{name} leads with token {}", term.token());
        let ended = tokio::select! {
            ended = lead(&term) => ended,
            // The work was dropped at an await, which is where it may be.
            _ = terminate.recv() => {
                term.resign().await?;
                println!("{name} has resigned");
                break;
            }
        };
        println!("{name} leads no more: {ended}");
    }
    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}

/// Works until the leadership is lost, and says how.
async fn lead(term: &Term) -> lock::Error {
    loop {
        if let Err(lost) = term.run(work(term.token())).await {
            return lost;
        }
    }
}

/// One piece of work. What it changes elsewhere it changes with the token, which the store compares.
async fn work(_token: FencingToken) {
    Clock::boot().sleep(PIECE).await;
}

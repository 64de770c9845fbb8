//! A batch that several workers may start, of whom one does it; the results are in an SQLite file that refuses late writes.
//!
//! ```text
//! LOCK_URL=redis://127.0.0.1:6379 cargo run --example batch_worker -- results.db WORKER [--pause]
//! ```
//!
//! With `--pause` it waits for a line of input right before its first write, blocking: stop it there (`kill -STOP`) for longer
//! than its lease lives, let another worker do the batch, and see what comes of the late write when it goes on.

#[path = "fenced_store/mod.rs"]
mod fenced_store;

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use fenced_store::{FencedStore, WriteError};
use lock::{Guard, fence::StaleToken};

/// The lock of the batch.
const NAME: &str = "examples/batch";

/// What there is to do.
const JOBS: [&str; 3] = ["monday", "tuesday", "wednesday"];

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<ExitCode, WriteError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (file, worker, pause) = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [file, worker] => ((*file).to_owned(), (*worker).to_owned(), false),
        [file, worker, "--pause"] => ((*file).to_owned(), (*worker).to_owned(), true),
        _ => return Err("usage: batch_worker FILE WORKER [--pause]".into()),
    };
    let mut store = FencedStore::open(file.as_ref())?;
    let locks = lock::connect_from_env().await?;
    let guard = locks.mutex(NAME).lock().await?;
    println!("{worker} has token {}", guard.token());
    let done = work(&mut store, &guard, &worker, pause);
    drop(guard);
    locks.close(Duration::from_secs(5)).await?;
    match done {
        Ok(()) => {
            println!("{worker} has done the batch");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.is::<StaleToken>() => {
            println!("{worker} was refused: {error}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

/// Does the jobs that are not done yet.
fn work(store: &mut FencedStore, guard: &Guard, worker: &str, pause: bool) -> Result<(), WriteError> {
    for (number, job) in JOBS.iter().enumerate() {
        if store.result(job)?.is_some() {
            continue;
        }
        // Spares work in vain. It protects nothing: the lock may be lost right after the look.
        if !guard.is_valid() {
            return Err("the lock was lost".into());
        }
        if pause && number == 0 {
            println!("about to write");
            io::stdout().flush()?;
            io::stdin().read_line(&mut String::new())?;
        }
        store.finish(NAME, guard.token(), job, &format!("done by {worker}"))?;
    }
    Ok(())
}

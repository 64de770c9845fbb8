//! Increments the number in a file, under a lock: several of these at once lose no update.
//!
//! ```text
//! LOCK_URL=redis://127.0.0.1:6379 cargo run --example counter -- FILE TIMES [--without-lock]
//! ```

use std::{env, error::Error, fs, io, path::Path, process, time::Duration};

use lock::Clock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [file, times] => with_lock(Path::new(file), times.parse()?).await,
        [file, times, "--without-lock"] => without_lock(Path::new(file), times.parse()?).await,
        _ => Err("usage: counter FILE TIMES [--without-lock]".into()),
    }
}

async fn with_lock(file: &Path, times: u32) -> Result<(), Box<dyn Error>> {
    let locks = lock::connect_from_env().await?;
    for _ in 0..times {
        let guard = locks.mutex("examples/counter").lock().await?;
        // Cut off if the lock is lost, so that nothing is written without it.
        guard.run(increment(file)).await??;
        guard.release().await?;
    }
    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}

async fn without_lock(file: &Path, times: u32) -> Result<(), Box<dyn Error>> {
    for _ in 0..times {
        increment(file).await?;
    }
    Ok(())
}

/// Reads, computes for a moment, writes. Another process that reads in that moment writes the same number.
async fn increment(file: &Path) -> io::Result<()> {
    let number: u64 = fs::read_to_string(file)?.trim().parse().map_err(io::Error::other)?;
    Clock::boot().sleep(Duration::from_micros(100)).await;
    // Renamed into place, so that every reader sees a whole number.
    let next = file.with_extension(process::id().to_string());
    fs::write(&next, format!("{}\n", number + 1))?;
    fs::rename(&next, file)
}

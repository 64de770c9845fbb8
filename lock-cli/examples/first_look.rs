//! A program that holds a lock, and is stopped (`kill -STOP`) for longer than its lease lives: what it finds at its first
//! look at the guard when it goes on. It says `held`, and after each stop what it found: `valid` or `lost`, and `told` or
//! `untold`: whether a task that waits to be told of the loss had been told of it by then.
//!
//! ```text
//! LOCK_URL=redis://127.0.0.1:6379?ttl=6s first_look NAME
//! ```

use std::{
    env,
    error::Error,
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use lock::{Clock, Guard};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// No pause takes so long unless the program was stopped: the machine itself may stand still for a second or two. What is left of a
/// lease when the program is stopped has to be longer, as it is of one of six seconds.
const GAP: Duration = Duration::from_secs(3);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = lock::connect_from_env().await?;
    let mutex = locks.mutex(env::args().nth(1).ok_or("first_look NAME")?);
    loop {
        let Ok(guard) = mutex.lock().await else {
            Clock::boot().sleep(PAUSE).await;
            continue;
        };
        let told = Arc::new(AtomicBool::new(false));
        let waiting = {
            let (validity, told) = (guard.validity().clone(), Arc::clone(&told));
            tokio::spawn(async move {
                validity.lost().await;
                told.store(true, Ordering::Release);
            })
        };
        say("held")?;
        // On a thread of its own, so that nothing of the library runs between a stop and the look.
        let (guard, found) = tokio::task::spawn_blocking(move || first_look(guard, &told)).await?;
        say(found)?;
        waiting.abort();
        // Lost, so there is nothing to give back.
        let _ = guard.release().await;
    }
}

/// Looks all the time, and gives what the first look after a stop has found.
fn first_look(guard: Guard, told: &AtomicBool) -> (Guard, &'static str) {
    let clock = Clock::boot();
    let mut looked = clock.now();
    loop {
        thread::park_timeout(PAUSE);
        let before = clock.now();
        let (valid, told) = (guard.is_valid(), told.load(Ordering::Acquire));
        let after = clock.now();
        // Stopped in the middle of a look, it may have looked before: then the next look is the first one.
        let stopped_before = before.saturating_since(looked) > GAP;
        let stopped_in = after.saturating_since(before) > GAP && !valid;
        if stopped_before || stopped_in || !valid {
            let found = match (valid, told) {
                (true, true) => "valid told",
                (true, false) => "valid untold",
                (false, _) if !stopped_before && !stopped_in => "lost without a stop",
                (false, true) => "lost told",
                (false, false) => "lost untold",
            };
            return (guard, found);
        }
        looked = before;
    }
}

fn say(what: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what}")?;
    out.flush()
}

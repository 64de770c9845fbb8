//! `lock run`: a command that runs while a lock is held.

use std::time::Duration;

use lock::{Clock, Config, Error, Guard, Locks};
use nix::sys::signal::Signal;

use crate::{
    arguments::Run,
    failure::{CONFIG, Failure, LOST, SIGNALLED, say},
    signals::{self, Signals},
    supervision::{Ended, Supervision},
};

/// How long giving the lock back and disconnecting may take, before it is left to its ttl.
const CLOSING: Duration = Duration::from_secs(5);

/// Connects, acquires, runs the command and gives the lock back. Returns the exit status.
pub(crate) async fn run(config: Config, options: &Run) -> Result<u8, Failure> {
    signals::block_terminal_stops()?;
    let mut signals = Signals::listen()?;
    let url = config.to_url();
    let locks = tokio::select! {
        connected = config.connect() => connected?,
        signal = signals.next_ending() => return Ok(signalled(signal)),
    };
    let held = run_locked(&locks, &mut signals, &url, options).await;
    let closing = async {
        let status = match held {
            Held::Ended(ended, guard) => settle(ended, guard).await,
            Held::Not(status) => status,
        };
        if let Err(error) = locks.close(CLOSING).await {
            warn(error);
        }
        status
    };
    tokio::select! {
        status = closing => status,
        // Asked to end while it is ending: the rest is left to the ttl.
        signal = signals.next_ending() => Ok(signalled(signal)),
    }
}

/// What came of an acquisition.
enum Held {
    /// The command ran; the lock is to be given back.
    Ended(Ended, Guard),
    /// The command did not run.
    Not(Result<u8, Failure>),
}

async fn run_locked(locks: &Locks, signals: &mut Signals, url: &str, options: &Run) -> Held {
    let guard = tokio::select! {
        guard = acquire(locks, options) => match guard {
            Ok(guard) => guard,
            Err(failure) => return Held::Not(Err(failure)),
        },
        signal = signals.next_ending() => return Held::Not(Ok(signalled(signal))),
    };
    match Supervision::start(&guard, url, options).await {
        Ok(supervision) => Held::Ended(supervision.until_ended(signals).await, guard),
        Err(failure) => {
            // Given back in the background, while the connection is closed.
            drop(guard);
            Held::Not(Err(failure))
        }
    }
}

async fn acquire(locks: &Locks, options: &Run) -> Result<Guard, Failure> {
    let mut mutex = locks.mutex(&options.name);
    if let Some(ttl) = options.ttl {
        mutex = mutex.ttl(ttl);
    }
    if let Some(limit) = options.wait {
        mutex = mutex.wait(limit);
    }
    let conflict = |why: String| Failure::new(options.conflict_exit_code, why);
    let acquired = match options.no_wait {
        true => mutex.try_lock().await,
        false => mutex.lock().await.map(Some),
    };
    match acquired {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(conflict(format!("lock {:?} is held by another", options.name))),
        Err(error @ Error::NotAcquired { .. }) => Err(conflict(error.to_string())),
        Err(error @ Error::Unsupported { .. }) if options.ttl.is_some() => {
            let hint = "leave --ttl out and set session_timeout in the URL";
            Err(Failure::new(CONFIG, format!("{error}; {hint}")))
        }
        Err(other) => Err(other.into()),
    }
}

/// Gives the lock back, and says what the whole came to.
async fn settle(ended: Ended, guard: Guard) -> Result<u8, Failure> {
    match ended {
        Ended::Lost(why) => {
            drop(guard);
            Err(Failure::new(LOST, format!("{why}; the command was ended")))
        }
        Ended::ByItself(status) => match Clock::boot().timeout(CLOSING, guard.release()).await {
            // It was lost, and the command had ended before it could be told.
            Some(Err(error @ Error::Lost { .. })) => Err(Failure::new(LOST, error.to_string())),
            Some(Err(error)) => {
                warn(error);
                Ok(status)
            }
            Some(Ok(())) | None => Ok(status),
        },
    }
}

fn warn(error: Error) {
    say(Failure::from(error));
}

fn signalled(signal: Signal) -> u8 {
    SIGNALLED + signal as u8
}

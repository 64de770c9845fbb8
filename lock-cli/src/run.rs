//! `lock run`: a command that runs while a lock is held.

use std::time::Duration;

use lock::{Clock, Config, Error, Feature, Locks};
use nix::sys::signal::Signal;

use crate::{
    arguments::Run,
    failure::{CONFIG, Failure, LOST, SIGNALLED, say},
    grip::Grip,
    service::Service,
    signals::{self, Signals},
    supervision::{Ended, Job, Supervision},
};

/// How long giving the lock back and disconnecting may take, before it is left to its ttl.
const CLOSING: Duration = Duration::from_secs(5);

/// Connects, acquires, runs the command and gives the lock back. Returns the exit status.
pub(crate) async fn run(service: &Service, options: &Run) -> Result<u8, Failure> {
    let Run { command, kill_after, max_hold, .. } = options;
    if max_hold.is_some_and(|limit| limit.is_zero()) {
        return Err(Error::config("--max-hold", "0s", "more than zero").into());
    }
    let (locks, mut signals) = match connect(service.config.clone()).await? {
        Connected::Yes(locks, signals) => (locks, signals),
        Connected::Interrupted(status) => return Ok(status),
    };
    let job = Job { command, service, kill_after: *kill_after, max_hold: *max_hold };
    let held = while_held(&mut signals, acquire(&locks, options), &job).await;
    let closing = async {
        let status = match held {
            Held::Ended(ended, grip) => settle(ended, grip).await,
            Held::Not(failure) => Err(failure),
            Held::Interrupted(status) => Ok(status),
        };
        close(&locks).await;
        status
    };
    tokio::select! {
        status = closing => status,
        // Asked to end while it is ending: the rest is left to the ttl.
        signal = signals.next_ending() => Ok(signalled(signal)),
    }
}

/// What came of connecting.
pub(crate) enum Connected {
    /// The connection, and the signals from now on.
    Yes(Locks, Signals),
    /// Asked to end; the exit status.
    Interrupted(u8),
}

/// Connects, for a program that supervises a command.
pub(crate) async fn connect(config: Config) -> Result<Connected, Failure> {
    signals::block_terminal_stops()?;
    let mut signals = Signals::listen()?;
    tokio::select! {
        locks = inherited(config)?.connect() => Ok(Connected::Yes(locks?, signals)),
        signal = signals.next_ending() => Ok(Connected::Interrupted(signalled(signal))),
    }
}

/// Where the kernel keeps a lock for as long as a process lives, it must outlive ours: should we be killed, the lock is
/// free when the guardian has ended the command, and not before.
fn inherited(config: Config) -> Result<Config, Error> {
    let url = config.to_url();
    if config.scheme() != "local" || url.contains("inherit=") {
        return Ok(config);
    }
    let separator = if url.contains('?') { '&' } else { '?' };
    Config::from_url(&format!("{url}{separator}inherit=yes"))
}

/// What came of an acquisition.
pub(crate) enum Held {
    /// The command ran; the lock is to be given back.
    Ended(Ended, Grip),
    /// The command did not run.
    Not(Failure),
    /// Asked to end before that; the exit status.
    Interrupted(u8),
}

/// Acquires, and runs the command while it is held.
pub(crate) async fn while_held(
    signals: &mut Signals,
    acquisition: impl Future<Output = Result<Grip, Failure>>,
    job: &Job<'_>,
) -> Held {
    let grip = tokio::select! {
        grip = acquisition => match grip {
            Ok(grip) => grip,
            Err(failure) => return Held::Not(failure),
        },
        signal = signals.next_ending() => return Held::Interrupted(signalled(signal)),
    };
    match Supervision::start(&grip, job).await {
        Ok(supervision) => Held::Ended(supervision.until_ended(signals).await, grip),
        Err(failure) => {
            // Given back in the background, while the connection is closed.
            drop(grip);
            Held::Not(failure)
        }
    }
}

/// Sets the options that all ways of asking for a lock have.
macro_rules! with_options {
    ($asking:expr, $options:expr) => {{
        let (mut asking, options): (_, &Run) = ($asking, $options);
        if let Some(ttl) = options.ttl {
            asking = asking.ttl(ttl);
        }
        if let Some(limit) = options.wait {
            asking = asking.timeout(limit);
        }
        // Not the maximum time: that would give the lock back by the clock, while the command may still live.
        asking
    }};
}

async fn acquire(locks: &Locks, options: &Run) -> Result<Grip, Failure> {
    let conflict = |why: String| Failure::new(options.conflict_exit_code, why);
    match ask(locks, options).await {
        Ok(Some(grip)) => Ok(grip),
        Ok(None) => Err(conflict(format!("lock {:?} is held by another", options.name))),
        Err(error @ Error::NotAcquired { .. }) => Err(conflict(error.to_string())),
        Err(other) => Err(refused(other)),
    }
}

/// Asks for it the way that the command line says.
async fn ask(locks: &Locks, options: &Run) -> Result<Option<Grip>, Error> {
    let (name, now) = (&options.name, options.no_wait);
    if let Some(permits) = options.permits {
        let semaphore = with_options!(locks.semaphore(name, permits.get()), options);
        let permit = if now { semaphore.try_acquire().await? } else { Some(semaphore.acquire().await?) };
        return Ok(permit.map(Grip::Permit));
    }
    let guard = if options.shared {
        let lock = with_options!(locks.rwlock(name), options);
        if now { lock.try_read().await? } else { Some(lock.read().await?) }
    } else {
        let mutex = with_options!(locks.mutex(name), options);
        if now { mutex.try_lock().await? } else { Some(mutex.lock().await?) }
    };
    Ok(guard.map(Grip::Lock))
}

/// What an acquisition failed with, with a way out where there is one.
pub(crate) fn refused(error: Error) -> Failure {
    match &error {
        Error::Unsupported { feature, backend: "zk" } if *feature == Feature::Ttl.name() => {
            Failure::new(CONFIG, format!("{error}; leave --ttl out and set session_timeout in the URL"))
        }
        _ => error.into(),
    }
}

/// Gives the lock back once the command is gone, and says what the whole came to. When the future is dropped before that, the
/// lock is left to its ttl.
pub(crate) async fn settle(ended: Ended, grip: Grip) -> Result<u8, Failure> {
    match ended {
        Ended::Lost { why, remains } => Err(remains.settle(&why, grip).await),
        Ended::ByItself { status, .. } => match Clock::boot().timeout(CLOSING, grip.release()).await {
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

/// Disconnects.
pub(crate) async fn close(locks: &Locks) {
    if let Err(error) = locks.close(CLOSING).await {
        warn(error);
    }
}

fn warn(error: Error) {
    say(Failure::from(error));
}

/// The exit status after a signal.
pub(crate) fn signalled(signal: Signal) -> u8 {
    SIGNALLED + signal as u8
}

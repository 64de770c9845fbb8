//! `lock run`: a command that runs while a lock is held.

use std::time::Duration;

use futures::join;
use lock::{BootInstant, Clock, Config, Error, Feature, LockName, Locks};

use crate::{
    ancestors,
    arguments::RunArguments,
    at_least::{HoldOutcome, hold_on},
    failure::{CONFIG, Failure, LOST, USAGE, say},
    held_lock::HeldLock,
    service::ServiceConfig,
    shown::rounded,
    signals::{self, SignalStream, signalled},
    supervision::{CommandOptions, CommandOutcome, Supervision},
    waiting,
};

/// How long giving the lock back and disconnecting may take, before it is left to its ttl.
const CLOSING: Duration = Duration::from_secs(5);

/// How long the service may take to say why a lock was lost.
const ASKING_WHY: Duration = Duration::from_secs(1);

/// Connects, acquires, runs the command and gives the lock back. Returns the exit status.
pub(crate) async fn run(service: &ServiceConfig, options: &RunArguments) -> Result<u8, Failure> {
    let RunArguments { name, command, kill_after, max_hold, at_least, .. } = options;
    if max_hold.is_some_and(|limit| limit.is_zero()) {
        return Err(Error::config("--max-hold", "0s", "more than zero").into());
    }
    if let (Some(least), Some(most)) = (at_least, max_hold)
        && least > most
    {
        let (least, most) = (rounded(*least), rounded(*most));
        return Err(Failure::new(USAGE, format!("--at-least {least} is longer than --max-hold {most}")));
    }
    if !options.nested {
        ancestors::check(&service.config, name.as_ref(), options.permits.is_some())?;
    }
    let begin = Clock::boot().now();
    let limit = if options.no_wait { Some(Duration::ZERO) } else { options.wait };
    let (locks, mut signals) = match connect(service.config.clone(), limit).await? {
        ConnectOutcome::Yes(locks, signals) => (locks, signals),
        ConnectOutcome::Interrupted(status) => return Ok(status),
    };
    let job = CommandOptions { command, service, kill_after: *kill_after, max_hold: *max_hold, at_least: *at_least };
    let acquiring = Box::pin(acquire(&locks, options, begin));
    let acquiring = async {
        // Without waiting there is nothing to tell, however long the one attempt takes.
        match options.no_wait {
            true => acquiring.await,
            false => waiting::for_lock(&locks, options.wanted(), acquiring).await,
        }
    };
    let outcome = while_held(&mut signals, acquiring, &job).await;
    let closing = async {
        let status = match outcome {
            RunOutcome::Ended(ended, held) => settle(&locks, ended, held).await,
            RunOutcome::Not(failure) => Err(failure),
            RunOutcome::Over(status) => Ok(status),
        };
        // Said before the connection is closed, which may take its time and have something to say itself.
        let status = status.unwrap_or_else(Failure::said);
        close(&locks).await;
        status
    };
    tokio::select! {
        status = closing => Ok(status),
        // Asked to end while it is ending: the rest is left to the ttl.
        signal = signals.next_ending() => Ok(signalled(signal)),
    }
}

/// The outcome of connecting to the lock service: a connection, or the signal that interrupted the attempt.
pub(crate) enum ConnectOutcome {
    /// The connection, and the signals from now on.
    Yes(Locks, SignalStream),
    /// Asked to end; the exit status.
    Interrupted(u8),
}

/// Connects, for a program that supervises a command: within `limit` if there is one, so that what is not there yet is waited
/// for; else for as long as the configuration has an outage bridged. With a limit of zero nothing is waited for.
pub(crate) async fn connect(config: Config, limit: Option<Duration>) -> Result<ConnectOutcome, Failure> {
    signals::block_terminal_stops()?;
    let mut signals = SignalStream::listen()?;
    let bridging = match limit {
        Some(limit) => config.clone().with_outage_timeout(limit),
        None => config.clone(),
    };
    let connecting = waiting::for_service(&config, Box::pin(inherited(bridging).connect()));
    let connecting = async {
        match limit.filter(|limit| !limit.is_zero()) {
            None => connecting.await,
            Some(limit) => Clock::boot().timeout(limit, connecting).await.unwrap_or_else(|| {
                Err(Error::no_answer(config.to_string(), format!("no connection within {}", rounded(limit))))
            }),
        }
    };
    tokio::select! {
        locks = connecting => Ok(ConnectOutcome::Yes(locks?, signals)),
        signal = signals.next_ending() => Ok(ConnectOutcome::Interrupted(signalled(signal))),
    }
}

/// Where the kernel keeps a lock for as long as a process lives, it must outlive ours: should we be killed, the lock is
/// free when the guardian has ended the command, and not before.
fn inherited(config: Config) -> Config {
    // Safeguard: a local lock outlives `lock run` until its command is gone
    if config.scheme() == "local" { config.with_default("inherit", "yes") } else { config }
}

/// The outcome of acquiring a lock and running the command under it.
pub(crate) enum RunOutcome {
    /// The command ran; the lock is to be given back.
    Ended(CommandOutcome, HeldLock),
    /// The command did not run.
    Not(Failure),
    /// Nothing is to be given back; the exit status.
    Over(u8),
}

/// Acquires, and runs the command while it is held.
pub(crate) async fn while_held(
    signals: &mut SignalStream,
    acquisition: impl Future<Output = Result<HeldLock, Failure>>,
    job: &CommandOptions<'_>,
) -> RunOutcome {
    let held = tokio::select! {
        held = acquisition => match held {
            Ok(held) => held,
            Err(failure) => return RunOutcome::Not(failure),
        },
        signal = signals.next_ending() => return RunOutcome::Over(signalled(signal)),
    };
    let until = job.at_least.map(|least| Clock::boot().now().saturating_add(least));
    match Supervision::start(&held, job).await {
        Ok(supervision) => {
            let ended = supervision.until_ended(signals).await;
            let was_interrupted = matches!(ended, CommandOutcome::ByItself { interrupted: true, .. });
            let Some(until) = until.filter(|_| !was_interrupted) else { return RunOutcome::Ended(ended, held) };
            match (hold_on(&held, until, signals).await, ended) {
                (HoldOutcome::Lost(why), CommandOutcome::ByItself { status, .. }) => {
                    say(why);
                    RunOutcome::Over(status)
                }
                (HoldOutcome::Interrupted(status), CommandOutcome::ByItself { .. }) => {
                    RunOutcome::Ended(CommandOutcome::ByItself { status, interrupted: true }, held)
                }
                (_, ended) => RunOutcome::Ended(ended, held),
            }
        }
        Err(failure) => {
            // Given back in the background, while the connection is closed.
            drop(held);
            RunOutcome::Not(failure)
        }
    }
}

/// Sets the options that all ways of asking for a lock have.
macro_rules! with_options {
    ($asking:expr, $options:expr, $begin:expr) => {{
        let (mut asking, options): (_, &RunArguments) = ($asking, $options);
        if let Some(ttl) = options.ttl {
            asking = asking.ttl(ttl);
        }
        if let Some(limit) = options.wait {
            // What connecting took is a part of it.
            asking = asking.timeout(limit.saturating_sub(Clock::boot().now().saturating_since($begin)));
        }
        // Not the maximum time: that would give the lock back by the clock, while the command may still live.
        asking
    }};
}

async fn acquire(locks: &Locks, options: &RunArguments, begin: BootInstant) -> Result<HeldLock, Failure> {
    let conflict = |why: String| Failure::new(options.conflict_exit_code, why);
    match ask(locks, options, begin).await {
        Ok(Some(held)) => Ok(held),
        Ok(None) | Err(Error::NotAcquired { .. }) => Err(conflict(waiting::not_acquired(locks, options).await)),
        Err(other) => Err(refused(other)),
    }
}

/// Asks for it the way that the command line says.
async fn ask(locks: &Locks, options: &RunArguments, begin: BootInstant) -> Result<Option<HeldLock>, Error> {
    let (name, now) = (&options.name, options.no_wait);
    if let Some(permits) = options.permits {
        let semaphore = with_options!(locks.semaphore(name, permits.get()), options, begin);
        let permit = if now { semaphore.try_acquire().await? } else { Some(semaphore.acquire().await?) };
        return Ok(permit.map(HeldLock::Permit));
    }
    let guard = if options.shared {
        let lock = with_options!(locks.rwlock(name), options, begin);
        if now { lock.try_read().await? } else { Some(lock.read().await?) }
    } else {
        let mutex = with_options!(locks.mutex(name), options, begin);
        if now { mutex.try_lock().await? } else { Some(mutex.lock().await?) }
    };
    Ok(guard.map(HeldLock::Lock))
}

/// What an acquisition failed with, with a way out where there is one.
pub(crate) fn refused(error: Error) -> Failure {
    match &error {
        Error::Unsupported { feature, backend: "zk", .. } if *feature == Feature::Ttl.name() => {
            Failure::new(CONFIG, format!("{error}; leave --ttl out and set session_timeout in the URL"))
        }
        _ => error.into(),
    }
}

/// Gives the lock back once the command is gone, and says what the whole came to. When the future is dropped before that, the
/// lock is left to its ttl.
pub(crate) async fn settle(locks: &Locks, ended: CommandOutcome, held: HeldLock) -> Result<u8, Failure> {
    match ended {
        CommandOutcome::Lost { why, remains } => {
            let name = held.name().clone();
            let (cause, (status, rest)) = join!(cause(locks, &name), remains.settle(held));
            Err(Failure::new(status, format!("{why}{cause}; {rest}")))
        }
        CommandOutcome::ByItself { status, .. } => match Clock::boot().timeout(CLOSING, held.release()).await {
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

/// What is wrong with the service of a lock that was lost, for the end of a sentence: a refusal of a user whose password has
/// changed, say. Empty where the service answers.
async fn cause(locks: &Locks, name: &LockName) -> String {
    match Clock::boot().timeout(ASKING_WHY, locks.inspect(name.as_str())).await {
        Some(Err(error)) => format!(" ({})", Failure::from(error)),
        Some(Ok(_)) | None => String::new(),
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

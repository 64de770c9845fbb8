//! `lock elect`: a command that runs while its candidate leads; and who leads, for those who observe.

use std::time::Duration;

use lock::{Clock, Config, Leader, Locks};
use serde::Serialize;

use crate::{
    ancestors,
    arguments::ElectArguments,
    escaped,
    failure::{Failure, LOST, NOT_ENDED, UNAVAILABLE, say},
    follow::{follow, now},
    held_lock::HeldLock,
    run::{ConnectOutcome, RunOutcome, close, connect, refused, settle, while_held},
    service::ServiceConfig,
    shown::{PayloadJson, TokenJson, words},
    signals::{SignalStream, signalled},
    supervision::{CommandOptions, CommandOutcome},
    waiting::{self, Wanted},
};

/// The pause after a term that was shorter than that, and before a service that was unavailable is tried again: a command
/// that fails at once must not keep the election busy.
const PAUSE: Duration = Duration::from_secs(1);

/// Campaigns, and runs the command while leading. Returns the exit status.
pub(crate) async fn elect(service: &ServiceConfig, options: &ElectArguments) -> Result<u8, Failure> {
    if !options.nested {
        ancestors::check(&service.config, options.name.as_ref(), false)?;
    }
    let (locks, mut signals) = match connect(service.config.clone(), None).await? {
        ConnectOutcome::Yes(locks, signals) => (locks, signals),
        ConnectOutcome::Interrupted(status) => return Ok(status),
    };
    let ElectArguments { command, kill_after, .. } = options;
    let job = CommandOptions { command, service, kill_after: *kill_after, max_hold: None, at_least: None };
    let status = loop {
        match term(&locks, &mut signals, options, &job).await {
            TermOutcome::Last(status) => break status,
            TermOutcome::Left(status) => return Ok(status),
            TermOutcome::Over(Err(failure)) if options.again => say(failure),
            TermOutcome::Over(status) if !options.again => break status,
            TermOutcome::Over(_) => {}
        }
        tokio::select! {
            () = Clock::boot().sleep(PAUSE) => {}
            signal = signals.next_ending() => break Ok(signalled(signal)),
        }
    };
    // Said before the connection is closed, which may take its time and have something to say itself.
    let status = status.unwrap_or_else(Failure::said);
    tokio::select! {
        () = close(&locks) => Ok(status),
        // Asked to end while it is ending: the rest is left to the ttl.
        signal = signals.next_ending() => Ok(signalled(signal)),
    }
}

/// How one term of leadership ended, and whether the candidate campaigns for another one.
enum TermOutcome {
    /// So that another one may follow.
    Over(Result<u8, Failure>),
    /// For good.
    Last(Result<u8, Failure>),
    /// Interrupted while it was given back, for which the command may have to be gone first: the rest is left to the ttl.
    Left(u8),
}

async fn term(
    locks: &Locks,
    signals: &mut SignalStream,
    options: &ElectArguments,
    job: &CommandOptions<'_>,
) -> TermOutcome {
    let wanted = Wanted { name: options.name.as_ref(), permit: false };
    let campaigning = waiting::for_lock(locks, wanted, Box::pin(campaign(locks, options)));
    let (ended, held) = match while_held(signals, campaigning, job).await {
        RunOutcome::Ended(ended, held) => (ended, held),
        RunOutcome::Not(failure) if [UNAVAILABLE, LOST].contains(&failure.status) => {
            return TermOutcome::Over(Err(failure));
        }
        // Neither a wrong setting nor a command that cannot be run gets better.
        RunOutcome::Not(failure) => return TermOutcome::Last(Err(failure)),
        RunOutcome::Over(status) => return TermOutcome::Last(Ok(status)),
    };
    let interrupted = matches!(ended, CommandOutcome::ByItself { interrupted: true, .. });
    tokio::select! {
        status = settle(locks, ended, held) => match status {
            // The next term must not run beside what is left of this one.
            Err(failure) if failure.status == NOT_ENDED => TermOutcome::Last(Err(failure)),
            status if interrupted => TermOutcome::Last(status),
            status => TermOutcome::Over(status),
        },
        signal = signals.next_ending() => TermOutcome::Left(signalled(signal)),
    }
}

async fn campaign(locks: &Locks, options: &ElectArguments) -> Result<HeldLock, Failure> {
    let mut election = locks.election(&options.name);
    if let Some(ttl) = options.ttl {
        election = election.ttl(ttl);
    }
    election.campaign(locks.payload()).await.map(HeldLock::Term).map_err(refused)
}

/// Prints each leader as it comes, until interrupted or nobody reads any more. Returns the exit status.
pub(crate) async fn observe(config: Config, options: &ElectArguments) -> Result<u8, Failure> {
    let leaders = |locks: &Locks| locks.election(&options.name).observe();
    follow(config, leaders, |_, leader| {
        Some(if options.json { json(options.name.as_ref(), &leader) } else { text(&leader) })
    })
    .await
}

fn text(leader: &Leader) -> String {
    format!("{} token={} {}", now(), leader.token, words(&leader.payload))
}

fn json(name: &str, leader: &Leader) -> String {
    /// One line of `lock elect --observe --json`: the present leader as a JSON object.
    #[derive(Serialize)]
    struct LeaderLine<'a> {
        time: String,
        name: &'a str,
        #[serde(flatten)]
        token: TokenJson,
        id: &'a str,
        #[serde(flatten)]
        payload: PayloadJson<'a>,
    }
    let payload = PayloadJson::new(&leader.payload);
    let line = LeaderLine { time: now(), name, token: TokenJson::new(Some(leader.token)), id: &leader.id, payload };
    escaped::json(&line)
}

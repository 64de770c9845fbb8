//! `lock elect`: a command that runs while its candidate leads; and who leads, for those who observe.

use std::time::Duration;

use lock::{Clock, Config, Leader, Locks};
use serde::Serialize;

use crate::{
    arguments::Elect,
    escaped,
    failure::{Failure, LOST, NOT_ENDED, UNAVAILABLE, say},
    follow::{follow, now},
    grip::Grip,
    run::{Connected, Held, close, connect, refused, settle, signalled, while_held},
    service::Service,
    shown::{Payload, words},
    signals::Signals,
    supervision::{Ended, Job},
};

/// The pause after a term that was shorter than that, and before a service that was unavailable is tried again: a command
/// that fails at once must not keep the election busy.
const PAUSE: Duration = Duration::from_secs(1);

/// Campaigns, and runs the command while leading. Returns the exit status.
pub(crate) async fn elect(service: &Service, options: &Elect) -> Result<u8, Failure> {
    let (locks, mut signals) = match connect(service.config.clone()).await? {
        Connected::Yes(locks, signals) => (locks, signals),
        Connected::Interrupted(status) => return Ok(status),
    };
    let job = Job { command: &options.command, service, kill_after: options.kill_after, max_hold: None };
    let status = loop {
        match term(&locks, &mut signals, options, &job).await {
            Term::Last(status) => break status,
            Term::Left(status) => return Ok(status),
            Term::Over(Err(failure)) if options.again => say(failure),
            Term::Over(status) if !options.again => break status,
            Term::Over(_) => {}
        }
        tokio::select! {
            () = Clock::boot().sleep(PAUSE) => {}
            signal = signals.next_ending() => break Ok(signalled(signal)),
        }
    };
    tokio::select! {
        () = close(&locks) => status,
        // Asked to end while it is ending: the rest is left to the ttl.
        signal = signals.next_ending() => Ok(signalled(signal)),
    }
}

/// How a term ended.
enum Term {
    /// So that another one may follow.
    Over(Result<u8, Failure>),
    /// For good.
    Last(Result<u8, Failure>),
    /// Interrupted while it was given back, for which the command may have to be gone first: the rest is left to the ttl.
    Left(u8),
}

async fn term(locks: &Locks, signals: &mut Signals, options: &Elect, job: &Job<'_>) -> Term {
    let (ended, grip) = match while_held(signals, campaign(locks, options), job).await {
        Held::Ended(ended, grip) => (ended, grip),
        Held::Not(failure) if [UNAVAILABLE, LOST].contains(&failure.status) => return Term::Over(Err(failure)),
        // Neither a wrong setting nor a command that cannot be run gets better.
        Held::Not(failure) => return Term::Last(Err(failure)),
        Held::Interrupted(status) => return Term::Last(Ok(status)),
    };
    let interrupted = matches!(ended, Ended::ByItself { interrupted: true, .. });
    tokio::select! {
        status = settle(ended, grip) => match status {
            // The next term must not run beside what is left of this one.
            Err(failure) if failure.status == NOT_ENDED => Term::Last(Err(failure)),
            status if interrupted => Term::Last(status),
            status => Term::Over(status),
        },
        signal = signals.next_ending() => Term::Left(signalled(signal)),
    }
}

async fn campaign(locks: &Locks, options: &Elect) -> Result<Grip, Failure> {
    let mut election = locks.election(&options.name);
    if let Some(ttl) = options.ttl {
        election = election.ttl(ttl);
    }
    let term = match &options.payload {
        Some(payload) => election.campaign(payload.as_bytes()).await,
        None => election.campaign(locks.payload()).await,
    };
    term.map(Grip::Term).map_err(refused)
}

/// Prints each leader as it comes, until interrupted or nobody reads any more. Returns the exit status.
pub(crate) async fn observe(config: Config, options: &Elect) -> Result<u8, Failure> {
    let leaders = |locks: &Locks| locks.election(&options.name).observe();
    follow(config, leaders, |_, leader| Some(if options.json { json(&options.name, &leader) } else { text(&leader) }))
        .await
}

fn text(leader: &Leader) -> String {
    format!("{} token={} {}", now(), leader.token, words(&leader.payload))
}

fn json(name: &str, leader: &Leader) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        time: String,
        name: &'a str,
        token: String,
        id: &'a str,
        #[serde(flatten)]
        payload: Payload<'a>,
    }
    let payload = Payload::new(&leader.payload);
    let line = Line { time: now(), name, token: leader.token.to_string(), id: &leader.id, payload };
    escaped::json(&line)
}

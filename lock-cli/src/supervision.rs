//! The command, its process group, and what happens to it while the lock is held and when it is lost.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt as _, pin::pin, process::ExitStatus, time::Duration};

use lock::{BootInstant, Clock, Loss};
use nix::{
    sys::{
        signal::Signal,
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use tokio::process::{Child, Command};

use crate::{
    ancestors,
    failure::{Failure, LOST, NOT_FOUND, NOT_RUN, SIGNALLED, notice, say},
    group,
    guardian::Guardian,
    held_lock::HeldLock,
    killed_group::KilledGroup,
    plan::{SignalPlan, SignalTiming},
    service::ServiceConfig,
    signals::{self, NOT_SUSPENDED, SignalStream},
    terminal::Terminal,
};

/// How often in the validity that a grant begins with it is looked at anew.
const LOOKS: u32 = 8;

/// How the supervised command ended: by itself, or by SIGKILL after the lock was lost.
#[derive(Debug)]
pub(crate) enum CommandOutcome {
    /// By itself, with this exit status.
    ByItself {
        /// As a shell says it.
        status: u8,
        /// Whether `lock` was asked to end meanwhile, or the command by its terminal.
        interrupted: bool,
    },
    /// It got the last signal, because the lock was lost or held for its maximum time.
    Lost {
        /// Why.
        why: String,
        /// What may have something left.
        remains: Box<KilledGroup>,
    },
}

/// The command to run under the lock, and its options for ending it.
#[derive(Debug)]
pub(crate) struct CommandOptions<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) service: &'a ServiceConfig,
    pub(crate) kill_after: Duration,
    /// For how long the lock is held at most.
    pub(crate) max_hold: Option<Duration>,
    /// For how long the lock is held at least.
    pub(crate) at_least: Option<Duration>,
}

/// A running command, the lock it runs under, and the guardian that ends it if `lock run` cannot.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    held: &'a HeldLock,
    guardian: Guardian,
    /// Until when the lock is held, as the guardian was told before the command was started.
    until: BootInstant,
    command: Child,
    terminal: Option<Terminal>,
    kill_after: Duration,
    bounds: SignalTiming,
    interrupted: bool,
}

/// The reason why a running command has to be ended, and when it gets its signals.
#[derive(Debug)]
struct Termination {
    why: String,
    plan: SignalPlan,
}

impl<'a> Supervision<'a> {
    /// Starts the guardian, and the command in its group.
    pub(crate) async fn start(held: &'a HeldLock, job: &CommandOptions<'_>) -> Result<Self, Failure> {
        let kill_after = job.kill_after;
        let bounds = SignalTiming::new(Clock::boot().now(), held.validity().remaining(), kill_after, job.max_hold);
        let mut guardian = Guardian::start(kill_after).await?;
        // Before the command runs: should this process be stopped or starved from then on, the guardian knows when to act.
        let until = held.validity().valid_until().ok_or_else(|| too_late(held))?;
        // Safeguard: the guardian knows until when the lock is held before the command runs (lock run)
        guardian.plan(bounds.plan(until)).await?;
        let terminal = Terminal::of_stdin();
        // Before the command runs, so that its first read from the terminal does not stop it.
        if let Some(terminal) = &terminal {
            terminal.give_unasked(guardian.group());
        }
        match signals::without_block(|| command(held, job, guardian.group()).spawn()) {
            Ok(command) => {
                Ok(Self { held, guardian, until, command, terminal, kill_after, bounds, interrupted: false })
            }
            Err(error) => {
                if let Some(terminal) = &terminal {
                    terminal.take_back(guardian.group());
                }
                Err(not_run(job, &error))
            }
        }
    }

    /// Passes signals on until the command ends, or ends its whole group when the lock is lost.
    pub(crate) async fn until_ended(mut self, signals: &mut SignalStream) -> CommandOutcome {
        let group = self.guardian.group();
        let ended = self.until_ended_or_lost(signals).await;
        let ended = match ended {
            Ok(status) => {
                self.guardian.dismiss().await;
                let status = exit_status(status);
                let by_terminal = signals::is_of_terminal(status)
                    && self.terminal.as_ref().is_some_and(|terminal| terminal.signals(group));
                let interrupted = self.interrupted || by_terminal;
                CommandOutcome::ByItself { status, interrupted }
            }
            Err(Termination { why, plan }) => {
                let deadline = plan.last(Clock::boot().now(), self.kill_after);
                // Safeguard: what is left of the command is ended before the lock is given back (lock run)
                self.end(deadline, signals).await;
                CommandOutcome::Lost { why, remains: Box::new(KilledGroup { group, command: self.command }) }
            }
        };
        if let Some(terminal) = &self.terminal {
            terminal.take_back(group);
        }
        ended
    }

    async fn until_ended_or_lost(&mut self, signals: &mut SignalStream) -> Result<ExitStatus, Termination> {
        let Self { held, guardian, until, command, terminal, bounds, interrupted, .. } = self;
        let group = guardian.group();
        let unknown = bounds.plan(*until);
        let mut lost = pin!(watch(held, guardian, *until, bounds));
        loop {
            let pid = command.id();
            tokio::select! {
                biased;
                loss = &mut lost => return Err(loss),
                status = command.wait() => {
                    let why = |error| format!("the command's end is unknown: {error}");
                    return status.map_err(|error| Termination { why: why(error), plan: unknown });
                }
                signal = signals.next() => {
                    *interrupted |= signals::is_ending(signal);
                    follow(signal, group, pid, terminal.as_ref());
                }
            }
        }
    }

    /// Ends the whole group, and still passes signals on meanwhile.
    async fn end(&mut self, deadline: BootInstant, signals: &mut SignalStream) {
        let group = self.guardian.group();
        let mut ending = pin!(self.guardian.end_group(deadline));
        loop {
            let pid = self.command.id();
            tokio::select! {
                biased;
                () = &mut ending => break,
                signal = signals.next() => follow(signal, group, pid, self.terminal.as_ref()),
            }
        }
    }
}

fn command(held: &HeldLock, job: &CommandOptions<'_>, group: Pid) -> Command {
    let (program, arguments) = job.command.split_first().expect("the command line requires a command");
    let mut command = Command::new(program);
    command.args(arguments).env("LOCK_NAME", held.name().as_str()).process_group(group.as_raw());
    job.service.name_to(&mut command);
    ancestors::tell(&mut command, &job.service.config, held);
    let token = held.token();
    let integer = token.and_then(|token| token.to_i64().ok());
    for (variable, value) in [
        ("LOCK_TOKEN", token.map(|token| token.to_string())),
        ("LOCK_TOKEN_INT", integer.map(|token| token.to_string())),
    ] {
        match value {
            Some(value) => command.env(variable, value),
            // Not that of somebody who has started us.
            None => command.env_remove(variable),
        };
    }
    command
}

/// The lock was lost before the command was started.
fn too_late(held: &HeldLock) -> Failure {
    let loss = held.validity().loss().unwrap_or(Loss::Expired);
    Failure::new(LOST, format!("lock {:?} was lost: {loss}; the command was not run", held.name()))
}

fn not_run(job: &CommandOptions<'_>, error: &io::Error) -> Failure {
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    Failure::new(status, format!("cannot run {:?}: {error}", job.command[0]))
}

/// Returns why the command has to end, and by when: because the lock is lost, or is about to be when no renewal came in
/// time, or because of its maximum time. Until then it keeps the guardian informed, which knows of `until` already.
///
/// A lock that is lost early has no deadline any more. What is left of its command gets the last signal by the end of the
/// validity as it was last known, so that is looked at anew several times in each validity.
async fn watch(held: &HeldLock, guardian: &mut Guardian, mut until: BootInstant, bounds: &SignalTiming) -> Termination {
    let (clock, validity) = (Clock::boot(), held.validity());
    let look = validity.remaining() / LOOKS;
    let mut guarded = true;
    loop {
        let plan = bounds.plan(until);
        tokio::select! {
            _ = validity.lost() => return Termination { why: lost(held, bounds), plan },
            () = clock.sleep_until(plan.ask.min(clock.now().saturating_add(look))) => {}
        }
        let Some(later) = validity.valid_until() else { return Termination { why: lost(held, bounds), plan } };
        let plan = bounds.plan(later);
        if plan.ask <= clock.now() {
            return Termination { why: lost(held, bounds), plan };
        }
        if later != until && guarded && guardian.plan(plan).await.is_err() {
            guarded = false;
            say("the guardian process has ended; should `lock` be killed, the command will go on");
        }
        until = later;
    }
}

fn lost(held: &HeldLock, bounds: &SignalTiming) -> String {
    let name = held.name();
    match held.validity().loss() {
        Some(loss) => format!("lock {name:?} was lost: {loss}"),
        None if bounds.is_held_too_long(Clock::boot().now()) => format!("lock {name:?} was held for its maximum time"),
        None => format!("lock {name:?} is about to be lost: no renewal was acknowledged in time"),
    }
}

/// Does with a signal what is to be done with it.
fn follow(signal: Signal, group: Pid, command: Option<u32>, terminal: Option<&Terminal>) {
    match signal {
        Signal::SIGCHLD => match stopped_by(command) {
            Some(Signal::SIGTSTP) => {
                notice(NOT_SUSPENDED);
                group::send(group, Signal::SIGCONT);
            }
            Some(Signal::SIGTTIN | Signal::SIGTTOU) if terminal.is_some_and(|terminal| terminal.give(group)) => {
                group::send(group, Signal::SIGCONT);
            }
            _ => {}
        },
        Signal::SIGTSTP => notice(NOT_SUSPENDED),
        Signal::SIGCONT => {
            // Perhaps the shell's `fg`: it made us the foreground.
            if let Some(terminal) = terminal {
                terminal.give_unasked(group);
            }
            group::send(group, signal);
        }
        other if signals::is_passed_on(other) => group::send(group, other),
        _ => {}
    }
}

/// The signal that has just stopped the command, if one has. After Ctrl-Z, or for the lack of the terminal, nobody but us could
/// continue it: the shell waits for us, not for it.
fn stopped_by(command: Option<u32>) -> Option<Signal> {
    let pid = command.and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw)?;
    match waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        _ => None,
    }
}

/// As shells say it: the command's own, or 128 and the number of the signal that ended it.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| i32::from(SIGNALLED) + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

//! The command, its process group, and what happens to it while the lock is held and when it is lost.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt as _, pin::pin, process::ExitStatus, time::Duration};

use lock::{BootInstant, Clock, LOCK_URL};
use nix::{
    sys::{
        signal::Signal,
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use tokio::process::{Child, Command};

use crate::{
    failure::{Failure, LOST, NOT_FOUND, NOT_RUN, SIGNALLED, say},
    grip::Grip,
    group,
    guardian::Guardian,
    signals::{self, Signals},
    terminal::Terminal,
};

/// How long a killed command may take to be gone before it is left to the kernel.
const REAPING: Duration = Duration::from_secs(5);

/// Which part of the validity that a grant begins with is kept to end the command in, when renewals fail. Small, because a
/// session's validity is always far below its time-out.
const GRACE: u32 = 8;

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself, with this exit status.
    ByItself {
        /// As a shell says it.
        status: u8,
        /// Whether `lock` was asked to end meanwhile.
        interrupted: bool,
    },
    /// It was ended, because the lock was lost: why.
    Lost(String),
}

/// What is to be run, and how.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) url: &'a str,
    pub(crate) kill_after: Duration,
    /// For how long the lock is held at most.
    pub(crate) max_hold: Option<Duration>,
}

/// A command that runs while the lock is held.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    grip: &'a Grip,
    guardian: Guardian,
    /// What the guardian was told before the command was started.
    promised: BootInstant,
    command: Child,
    terminal: Option<Terminal>,
    kill_after: Duration,
    limit: Option<BootInstant>,
    interrupted: bool,
}

impl<'a> Supervision<'a> {
    /// Starts the guardian, and the command in its group.
    pub(crate) async fn start(grip: &'a Grip, job: &Job<'_>) -> Result<Self, Failure> {
        let limit = job.max_hold.map(|limit| Clock::boot().now().saturating_add(limit));
        let kill_after = job.kill_after;
        let mut guardian = Guardian::start(kill_after).await?;
        // Before the command runs: should this process be stopped or starved from then on, the guardian knows when to act.
        let promised = grip.validity().valid_until().ok_or_else(|| too_late(grip))?;
        guardian.promise(promised).await?;
        let terminal = Terminal::of_stdin();
        // Before the command runs, so that its first read from the terminal does not stop it.
        if let Some(terminal) = &terminal {
            terminal.give(guardian.group());
        }
        match command(grip, job, guardian.group()).spawn() {
            Ok(command) => {
                Ok(Self { grip, guardian, promised, command, terminal, kill_after, limit, interrupted: false })
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
    pub(crate) async fn until_ended(mut self, signals: &mut Signals) -> Ended {
        let group = self.guardian.group();
        let ended = self.until_ended_or_lost(signals).await;
        let ended = match ended {
            Ok(status) => {
                self.guardian.dismiss().await;
                Ended::ByItself { status: exit_status(status), interrupted: self.interrupted }
            }
            Err(why) => {
                self.end(signals).await;
                Ended::Lost(why)
            }
        };
        if let Some(terminal) = &self.terminal {
            terminal.take_back(group);
        }
        ended
    }

    async fn until_ended_or_lost(&mut self, signals: &mut Signals) -> Result<ExitStatus, String> {
        let Self { grip, guardian, promised, command, terminal, kill_after, limit, interrupted } = self;
        let group = guardian.group();
        let grace = (grip.validity().remaining() / GRACE).min(*kill_after);
        let mut lost = pin!(watch(grip, guardian, *promised, grace, *limit));
        loop {
            let pid = command.id();
            tokio::select! {
                biased;
                why = &mut lost => return Err(why),
                status = command.wait() => return status.map_err(|error| format!("the command's end is unknown: {error}")),
                signal = signals.next() => {
                    *interrupted |= signals::is_ending(signal);
                    follow(signal, group, pid, terminal.as_ref());
                }
            }
        }
    }

    /// Ends the whole group, and still passes signals on meanwhile.
    async fn end(&mut self, signals: &mut Signals) {
        let group = self.guardian.group();
        let mut ending = pin!(self.guardian.end_group(self.kill_after));
        loop {
            let pid = self.command.id();
            tokio::select! {
                biased;
                () = &mut ending => break,
                signal = signals.next() => follow(signal, group, pid, self.terminal.as_ref()),
            }
        }
        let _ = Clock::boot().timeout(REAPING, self.command.wait()).await;
    }
}

fn command(grip: &Grip, job: &Job<'_>, group: Pid) -> Command {
    let (program, arguments) = job.command.split_first().expect("the command line requires a command");
    let mut command = Command::new(program);
    command.args(arguments).env("LOCK_NAME", grip.name().as_str()).env(LOCK_URL, job.url).process_group(group.as_raw());
    match grip.token() {
        Some(token) => command.env("LOCK_TOKEN", token.to_string()),
        // Not that of somebody who has started us.
        None => command.env_remove("LOCK_TOKEN"),
    };
    command
}

/// The lock was lost before the command was started.
fn too_late(grip: &Grip) -> Failure {
    Failure::new(LOST, format!("{}; the command was not run", lost(grip, Duration::ZERO, None)))
}

fn not_run(job: &Job<'_>, error: &io::Error) -> Failure {
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    Failure::new(status, format!("cannot run {:?}: {error}", job.command[0]))
}

/// Returns why the lock is lost, or is about to be: when no renewal came in time, the command is given `grace` of what is
/// left to end in. Until then it keeps the guardian informed, which was told `until` already.
async fn watch(
    grip: &Grip,
    guardian: &mut Guardian,
    mut until: BootInstant,
    grace: Duration,
    limit: Option<BootInstant>,
) -> String {
    let validity = grip.validity();
    let mut guarded = true;
    loop {
        tokio::select! {
            _ = validity.lost() => return lost(grip, grace, limit),
            () = Clock::boot().sleep_until(until.saturating_sub(grace)) => {}
        }
        match validity.valid_until().filter(|_| validity.remaining() > grace) {
            Some(later) => until = later,
            None => return lost(grip, grace, limit),
        }
        if guarded && guardian.promise(until).await.is_err() {
            guarded = false;
            say("the guardian process has ended; should `lock` be killed, the command will go on");
        }
    }
}

fn lost(grip: &Grip, grace: Duration, limit: Option<BootInstant>) -> String {
    let name = grip.name();
    match grip.validity().loss() {
        Some(loss) => format!("lock {name:?} was lost: {loss}"),
        None if limit.is_some_and(|limit| limit.saturating_since(Clock::boot().now()) <= grace) => {
            format!("lock {name:?} was held for its maximum time")
        }
        None => format!("lock {name:?} is about to be lost: no renewal was acknowledged in time"),
    }
}

/// Does with a signal what is to be done with it.
fn follow(signal: Signal, group: Pid, command: Option<u32>, terminal: Option<&Terminal>) {
    match signal {
        Signal::SIGCHLD if stopped_by_terminal(command) => {
            say("`lock run` cannot be suspended, since its lock would be lost; going on");
            group::send(group, Signal::SIGCONT);
        }
        Signal::SIGCONT => {
            // Perhaps the shell's `fg`: it made us the foreground.
            if let Some(terminal) = terminal {
                terminal.give(group);
            }
            group::send(group, signal);
        }
        other if signals::is_passed_on(other) => group::send(group, other),
        _ => {}
    }
}

/// Whether the command was just stopped by Ctrl-Z. Nobody could continue it: the shell waits for us, not for it.
fn stopped_by_terminal(command: Option<u32>) -> bool {
    let Some(pid) = command.and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw) else { return false };
    let stopped = waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
    matches!(stopped, Ok(WaitStatus::Stopped(_, Signal::SIGTSTP)))
}

/// As shells say it: the command's own, or 128 and the number of the signal that ended it.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| i32::from(SIGNALLED) + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

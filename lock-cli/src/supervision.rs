//! The command, its process group, and what happens to it while the lock is held and when it is lost.

use std::{io, os::unix::process::ExitStatusExt as _, pin::pin, process::ExitStatus, time::Duration};

use lock::{Clock, Guard};
use nix::{
    sys::{
        signal::Signal,
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use tokio::process::{Child, Command};

use crate::{
    arguments::Run,
    failure::{Failure, NOT_FOUND, NOT_RUN, SIGNALLED, say},
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
    ByItself(u8),
    /// It was ended, because the lock was lost: why.
    Lost(String),
}

/// A command that runs while the lock is held.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    guard: &'a Guard,
    guardian: Guardian,
    command: Child,
    terminal: Option<Terminal>,
    kill_after: Duration,
}

impl<'a> Supervision<'a> {
    /// Starts the guardian, and the command in its group.
    pub(crate) async fn start(guard: &'a Guard, url: &str, options: &Run) -> Result<Self, Failure> {
        let guardian = Guardian::start(options.kill_after).await?;
        let terminal = Terminal::of_stdin();
        // Before the command runs, so that its first read from the terminal does not stop it.
        if let Some(terminal) = &terminal {
            terminal.give(guardian.group());
        }
        match command(guard, url, options, guardian.group()).spawn() {
            Ok(command) => Ok(Self { guard, guardian, command, terminal, kill_after: options.kill_after }),
            Err(error) => {
                if let Some(terminal) = &terminal {
                    terminal.take_back(guardian.group());
                }
                Err(not_run(options, &error))
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
                Ended::ByItself(exit_status(status))
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
        let Self { guard, guardian, command, terminal, kill_after } = self;
        let group = guardian.group();
        let grace = (guard.remaining() / GRACE).min(*kill_after);
        let mut lost = pin!(watch(guard, guardian, grace));
        loop {
            let pid = command.id();
            tokio::select! {
                biased;
                why = &mut lost => return Err(why),
                status = command.wait() => return status.map_err(|error| format!("the command's end is unknown: {error}")),
                signal = signals.next() => follow(signal, group, pid, terminal.as_ref()),
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

fn command(guard: &Guard, url: &str, options: &Run, group: Pid) -> Command {
    let (program, arguments) = options.command.split_first().expect("the command line requires a command");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LOCK_NAME", guard.name().as_str())
        .env("LOCK_TOKEN", guard.token().to_string())
        .env(lock::LOCK_URL, url)
        .process_group(group.as_raw());
    command
}

fn not_run(options: &Run, error: &io::Error) -> Failure {
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    Failure::new(status, format!("cannot run {:?}: {error}", options.command[0]))
}

/// Returns why the lock is lost, or is about to be: when no renewal came in time, the command is given `grace` of what is
/// left to end in. Until then it keeps the guardian informed.
async fn watch(guard: &Guard, guardian: &mut Guardian, grace: Duration) -> String {
    let mut guarded = true;
    loop {
        let Some(until) = guard.valid_until().filter(|_| guard.remaining() > grace) else { return lost(guard) };
        if guarded && guardian.promise(until).await.is_err() {
            guarded = false;
            say("the guardian process has ended; should `lock run` be killed, the command will go on");
        }
        tokio::select! {
            _ = guard.lost() => return lost(guard),
            () = Clock::boot().sleep_until(until.saturating_sub(grace)) => {}
        }
    }
}

fn lost(guard: &Guard) -> String {
    match guard.validity().loss() {
        Some(loss) => format!("lock {:?} was lost: {loss}", guard.name()),
        None => format!("lock {:?} is about to be lost: no renewal was acknowledged in time", guard.name()),
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

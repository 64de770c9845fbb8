//! Signals that this program receives.

use std::{fs, future::poll_fn, io, task::Poll};

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::failure::{SIGNALLED, notice};

/// Passed on to the command. Those that a program raises by its own fault are not among them, nor are KILL and STOP, which
/// nobody can catch: for these there is the guardian.
const PASSED_ON: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGPROF,
    Signal::SIGCONT,
];

/// Caught, and not passed on: a command that stopped or ended, and what stops a program, which a holder must not follow. The last
/// two also come when another program of its group, such as a pager that it writes to, wants the terminal.
const CAUGHT: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// They ask a program to end.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// What Ctrl-Z brings about: whoever stands still renews nothing.
pub(crate) const NOT_SUSPENDED: &str =
    "not suspended, since the lock or the place in its queue would be lost; going on";

/// The stream of the Unix signals that this process receives and does not end by.
#[derive(Debug)]
pub(crate) struct SignalStream {
    streams: Vec<(Signal, unix::Signal)>,
}

impl SignalStream {
    /// Catches from now on what a program that supervises a command has to know of, and what must not stop it.
    pub(crate) fn listen() -> io::Result<Self> {
        Self::of(PASSED_ON.into_iter().chain(CAUGHT))
    }

    /// Catches from now on what asks a program to end.
    pub(crate) fn listen_for_end() -> io::Result<Self> {
        Self::of(ENDING)
    }

    /// Signals that were ignored when this program was started (by `nohup`, or by a shell for its background jobs) stay ignored,
    /// here and in the command.
    fn of(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = signals.into_iter().filter(|signal| ignored & bit(*signal) == 0);
        let listen = |signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        Ok(Self { streams: wanted.map(listen).collect::<io::Result<_>>()? })
    }

    /// The next signal.
    ///
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks a program to end. Of one that would have stopped it, the user is told that it did not.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                ending if is_ending(ending) => return ending,
                Signal::SIGTSTP => notice(NOT_SUSPENDED),
                _ => {}
            }
        }
    }
}

/// The exit status of a program that a signal ended, as shells say it.
pub(crate) fn signalled(signal: Signal) -> u8 {
    SIGNALLED + signal as u8
}

/// Whether that is the status of a program that was ended by its terminal: by Ctrl-C or Ctrl-\, or because it hung up.
pub(crate) fn is_of_terminal(status: u8) -> bool {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP].map(signalled).contains(&status)
}

/// Whether it asks a program to end.
pub(crate) fn is_ending(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

/// Whether the command is to get it as well.
pub(crate) fn is_passed_on(signal: Signal) -> bool {
    PASSED_ON.contains(&signal)
}

/// Keeps the terminal from stopping this process when it writes to it or takes it back from the background.
pub(crate) fn block_terminal_stops() -> io::Result<()> {
    Ok(SigSet::from(Signal::SIGTTOU).thread_block()?)
}

/// Starts a program by `start`. It would inherit what is blocked here, and is to be stopped as any other.
pub(crate) fn without_block<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    SigSet::from(Signal::SIGTTOU).thread_unblock()?;
    let started = start();
    block_terminal_stops()?;
    started
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

/// The signals that this process ignores, as the kernel lists them; see `proc_pid_status(5)`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

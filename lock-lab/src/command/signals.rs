//! Signals that ask the program to end.

use std::{fs, future::poll_fn, task::Poll};

use lock_lab::LabError;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The stream of the Unix signals that ask the laboratory to end.
#[derive(Debug)]
pub(super) struct EndingSignals(Vec<(u8, unix::Signal)>);

impl EndingSignals {
    /// Catches these signals from now on. A signal that was ignored when the program started stays ignored: `nohup` keeps
    /// SIGHUP from a run that takes an hour, and a shell keeps SIGINT from its background jobs.
    pub(super) fn listen() -> Result<Self, LabError> {
        let ignored = ignored();
        let ending = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw);
        let wanted = ending.into_iter().filter_map(|number| u8::try_from(number).ok());
        let listen = |number: u8| {
            let refused = |source| LabError::Io { action: format!("listening to signal {number}"), source };
            Ok((number, unix::signal(SignalKind::from_raw(number.into())).map_err(refused)?))
        };
        wanted.filter(|number| ignored & (1 << (number - 1)) == 0).map(listen).collect::<Result<_, _>>().map(Self)
    }

    /// The number of the next signal.
    pub(super) async fn next(&mut self) -> u8 {
        poll_fn(|cx| {
            let came =
                self.0.iter_mut().find_map(|(number, stream)| stream.poll_recv(cx).is_ready().then_some(*number));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The signals that this process ignores, as the kernel lists them; see `proc_pid_status(5)`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

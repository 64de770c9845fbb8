//! The guardian: a second process of `lock run`, so that the command does not go on without the lock when the first one is
//! killed or stopped.
//!
//! It leads the command's process group, and reads from a pipe when the group is to be ended, as far as `lock run` knows: the
//! first of it is in the pipe before the command runs. When the pipe closes without a farewell (`lock run` was killed), or
//! that time comes without news (`lock run` is stopped or starved), it ends the group; an end that `lock run` has begun it
//! completes.
//! A signal of the kernel to the children of a dead process (`PR_SET_PDEATHSIG`) would reach the command only, not what the
//! command started, and would not fire for a process that is merely stopped.

use std::{io, os::fd::AsFd, process::Stdio, time::Duration};

use lock::{BootInstant, Clock, LOCK_PASSWORD, LOCK_URL};
use nix::{
    sys::signal::SigSet,
    unistd::{Pid, getpgrp},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
};

use crate::{
    failure::{Failure, say},
    group,
    plan::SignalPlan,
};

/// How long the guardian may take to start and to end; some milliseconds are usual.
const LIMIT: Duration = Duration::from_secs(10);

/// A message from `lock run` to its guardian process, one line on their pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardianMessage {
    /// The group is to be ended so, unless it is told otherwise.
    Plan(SignalPlan),
    /// `lock run` has asked the group to end, and SIGKILL comes then.
    Ending(BootInstant),
    /// The command has ended by itself; what it left in the background may stay.
    Farewell,
}

impl GuardianMessage {
    fn line(self) -> String {
        match self {
            Self::Plan(SignalPlan { ask, kill }) => format!("plan {} {}\n", ask.as_nanos(), kill.as_nanos()),
            Self::Ending(kill) => format!("ending {}\n", kill.as_nanos()),
            Self::Farewell => "farewell\n".to_owned(),
        }
    }

    fn read(line: &str) -> Option<Self> {
        let time = |text: &str| text.parse().ok().map(BootInstant::from_nanos);
        match line.split_once(' ') {
            None if line == "farewell" => Some(Self::Farewell),
            Some(("ending", kill)) => time(kill).map(Self::Ending),
            Some(("plan", times)) => {
                let (ask, kill) = times.split_once(' ')?;
                Some(Self::Plan(SignalPlan { ask: time(ask)?, kill: time(kill)? }))
            }
            _ => None,
        }
    }
}

/// Handle to the guardian, the child process that ends the command's process group when `lock run` is killed or stopped.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
    pipe: ChildStdin,
    group: Pid,
}

impl Guardian {
    /// Starts it, in a new process group that it leads. It acts only once it was told until when the lock is held.
    pub(crate) async fn start(kill_after: Duration) -> io::Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .arg("guardian")
            .arg("--kill-after")
            .arg(humantime::format_duration(kill_after).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It talks to no service.
            .env_remove(LOCK_URL)
            .env_remove(LOCK_PASSWORD)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("the guardian process did not start");
        let group = process.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw).ok_or_else(missing)?;
        let (Some(pipe), Some(mut ready)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(missing());
        };
        // Before it has blocked its signals, one to the group would end it.
        match Clock::boot().timeout(LIMIT, ready.read_u8()).await {
            Some(Ok(_)) => Ok(Self { process, pipe, group }),
            _ => Err(missing()),
        }
    }

    /// The group that it leads.
    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Tells it when the group is to be ended.
    pub(crate) async fn plan(&mut self, plan: SignalPlan) -> io::Result<()> {
        self.tell(GuardianMessage::Plan(plan.in_its_place())).await
    }

    /// Ends the group, and the guardian with it. What is left at `deadline` gets SIGKILL.
    pub(crate) async fn end_group(&mut self, deadline: BootInstant) {
        // Before the group is asked: should this process be stopped or killed now, the guardian sees to the end. It does not ask a
        // second time.
        let _ = self.tell(GuardianMessage::Ending(deadline)).await;
        group::ask_to_end(self.group);
        group::end(self.group, deadline).await;
        let _ = Clock::boot().timeout(LIMIT, self.process.wait()).await;
    }

    /// Lets it go without touching the group.
    pub(crate) async fn dismiss(mut self) {
        let _ = self.tell(GuardianMessage::Farewell).await;
        // Killed when it takes too long, as the process is dropped.
        let _ = Clock::boot().timeout(LIMIT, self.process.wait()).await;
    }

    /// Writes a line, which the kernel takes as a whole or not at all. It takes none when the guardian has been stopped for so
    /// long that its pipe is full: then the command does not wait for it either, and what it was told before still holds.
    async fn tell(&mut self, message: GuardianMessage) -> io::Result<()> {
        let line = message.line();
        Clock::boot().timeout(group::LOOK, self.pipe.write_all(line.as_bytes())).await.unwrap_or(Ok(()))
    }
}

/// The guardian's own program.
pub(crate) async fn guard(kill_after: Duration) -> Result<u8, Failure> {
    // What is sent to the group is for the command: of all signals only KILL and STOP touch the guardian.
    SigSet::all().thread_block().map_err(io::Error::from)?;
    let pipe = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut lines = BufReader::new(pipe).lines();
    say_ready()?;

    let clock = Clock::boot();
    let mut plan = None;
    let (why, deadline) = loop {
        let line = tokio::select! {
            biased;
            line = lines.next_line() => line.ok().flatten(),
            () = passed(clock, plan) => break (Some("`lock run` has not renewed it in time"), None),
        };
        match line.as_deref().and_then(GuardianMessage::read) {
            Some(GuardianMessage::Plan(later)) => plan = Some(later),
            // Safeguard: the guardian completes an end that `lock run` began (lock run)
            Some(GuardianMessage::Ending(deadline)) => break (None, Some(deadline)),
            Some(GuardianMessage::Farewell) => return Ok(0),
            None => break (Some("`lock run` was killed"), None),
        }
    };
    if let Some(why) = why {
        say(format_args!("the lock is lost: {why}; ending the command"));
        group::ask_to_end(getpgrp());
    }
    let now = clock.now();
    let last = || plan.map_or(now, |plan: SignalPlan| plan.last(now, kill_after));
    let says = |left: &str| {
        // Else `lock run` says it.
        if why.is_some() {
            say(format_args!("the lock is lost, and {left} of the command cannot be ended"));
        }
    };
    group::end_own(getpgrp(), deadline.unwrap_or_else(last), says).await;
    // Not reached: the last signal is for the guardian, too.
    Ok(0)
}

async fn passed(clock: Clock, plan: Option<SignalPlan>) {
    match plan {
        Some(plan) => clock.sleep_until(plan.ask).await,
        None => std::future::pending().await,
    }
}

/// One byte on standard output, which is closed then: nobody who reads from `lock run` waits for the guardian's end.
fn say_ready() -> io::Result<()> {
    use std::io::Write as _;
    let mut out = io::stdout();
    out.write_all(b"r")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back() {
        let last = BootInstant::from_nanos(u64::MAX);
        let plan = SignalPlan { ask: BootInstant::from_nanos(0), kill: last };
        for message in [GuardianMessage::Plan(plan), GuardianMessage::Ending(last), GuardianMessage::Farewell] {
            assert_eq!(GuardianMessage::read(message.line().trim_end()), Some(message));
        }
        for nothing in ["plan 1", "plan soon later", "ending", "ending soon", "farewell 1"] {
            assert_eq!(GuardianMessage::read(nothing), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic_and_what_is_read_reads_back(line in "(plan [0-9]{0,21} ?|ending |farewell)?\\PC{0,24}") {
            if let Some(message) = GuardianMessage::read(&line) {
                proptest::prop_assert_eq!(GuardianMessage::read(message.line().trim_end()), Some(message));
            }
        }
    }
}

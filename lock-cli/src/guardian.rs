//! The guardian: a second process of `lock run`, so that the command does not go on without the lock when the first one is
//! killed or stopped.
//!
//! It leads the command's process group, and reads from a pipe what `lock run` knows of the lock's validity: the first of it
//! is in the pipe before the command runs. When the pipe closes without a farewell (`lock run` was killed), or the validity
//! passes without news (`lock run` is stopped or starved), it ends the group; an end that `lock run` has begun it completes.
//! A signal of the kernel to the children of a dead process (`PR_SET_PDEATHSIG`) would reach the command only, not what the
//! command started, and would not fire for a process that is merely stopped.

use std::{io, os::fd::AsFd, process::Stdio, time::Duration};

use lock::{BootInstant, Clock};
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
};

/// How long the guardian may take to start and to end; some milliseconds are usual.
const LIMIT: Duration = Duration::from_secs(10);

/// What `lock run` tells, a line each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// The lock is held until then, unless it is told otherwise.
    Until(BootInstant),
    /// `lock run` has asked the group to end.
    Ending,
    /// The command has ended by itself; what it left in the background may stay.
    Farewell,
}

impl Message {
    fn line(self) -> String {
        match self {
            Self::Until(until) => format!("until {}\n", until.as_nanos()),
            Self::Ending => "ending\n".to_owned(),
            Self::Farewell => "farewell\n".to_owned(),
        }
    }

    fn read(line: &str) -> Option<Self> {
        match line {
            "ending" => Some(Self::Ending),
            "farewell" => Some(Self::Farewell),
            other => other.strip_prefix("until ")?.parse().ok().map(BootInstant::from_nanos).map(Self::Until),
        }
    }
}

/// The guardian as `lock run` sees it.
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

    /// Tells it until when the lock is held.
    pub(crate) async fn promise(&mut self, until: BootInstant) -> io::Result<()> {
        self.tell(Message::Until(until)).await
    }

    /// Ends the group, and the guardian with it.
    pub(crate) async fn end_group(&mut self, kill_after: Duration) {
        group::ask_to_end(self.group);
        // It does not ask a second time, and sees to the end should this process be stopped or killed now.
        let _ = self.tell(Message::Ending).await;
        group::end(self.group, kill_after).await;
        let _ = Clock::boot().timeout(LIMIT, self.process.wait()).await;
    }

    /// Lets it go without touching the group.
    pub(crate) async fn dismiss(mut self) {
        let _ = self.tell(Message::Farewell).await;
        // Killed when it takes too long, as the process is dropped.
        let _ = Clock::boot().timeout(LIMIT, self.process.wait()).await;
    }

    async fn tell(&mut self, message: Message) -> io::Result<()> {
        self.pipe.write_all(message.line().as_bytes()).await
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
    let mut until = None;
    let why = loop {
        let line = tokio::select! {
            biased;
            line = lines.next_line() => line.ok().flatten(),
            () = passed(clock, until) => break Some("`lock run` has not renewed it in time"),
        };
        match line.as_deref().and_then(Message::read) {
            Some(Message::Until(later)) => until = Some(later),
            Some(Message::Ending) => break None,
            Some(Message::Farewell) => return Ok(0),
            None => break Some("`lock run` was killed"),
        }
    };
    if let Some(why) = why {
        say(format_args!("the lock is lost: {why}; ending the command"));
        group::ask_to_end(getpgrp());
    }
    group::end(getpgrp(), kill_after).await;
    // Not reached: the last signal is for the guardian, too.
    Ok(0)
}

async fn passed(clock: Clock, until: Option<BootInstant>) {
    match until {
        Some(until) => clock.sleep_until(until).await,
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
        for message in [Message::Until(BootInstant::from_nanos(u64::MAX)), Message::Ending, Message::Farewell] {
            assert_eq!(Message::read(message.line().trim_end()), Some(message));
        }
        assert_eq!(Message::read("until soon"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic_and_what_is_read_reads_back(line in "(until |ending|farewell)?\\PC{0,24}") {
            if let Some(message) = Message::read(&line) {
                proptest::prop_assert_eq!(Message::read(message.line().trim_end()), Some(message));
            }
        }
    }
}

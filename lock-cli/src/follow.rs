//! Following a stream of news, a line each, until interrupted or nobody reads any more.

use std::{
    io::{self, Write as _},
    os::fd::AsFd as _,
    time::{Duration, UNIX_EPOCH},
};

use futures::{Stream, StreamExt as _};
use lock::{Clock, Config, Error, Locks};
use lock_core::clock::wall_micros;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    failure::{Failure, say},
    signals::{SignalStream, signalled},
};

/// How long ending the connection may take.
const CLOSING: Duration = Duration::from_secs(2);
/// How often it is looked whether anybody still reads.
const LOOK: Duration = Duration::from_millis(500);

/// Connects, and prints what `line` makes of each item of `news`. While the service is out of reach that is said once, and
/// following goes on. Returns the exit status.
pub(crate) async fn follow<T, S>(
    config: Config,
    news: impl FnOnce(&Locks) -> Result<S, Error>,
    mut line: impl FnMut(&Locks, T) -> Option<String>,
) -> Result<u8, Failure>
where
    S: Stream<Item = Result<T, Error>> + Unpin,
{
    let mut signals = SignalStream::listen_for_end()?;
    let locks = tokio::select! {
        locks = config.with_outage_timeout(Duration::ZERO).connect() => locks?,
        signal = signals.next_ending() => return Ok(signalled(signal)),
    };
    let mut news = news(&locks)?;
    let mut outage = false;
    let status = loop {
        let item = tokio::select! {
            biased;
            signal = signals.next_ending() => break signalled(signal),
            item = news.next() => item,
            () = Clock::boot().sleep(LOOK), if !is_read() => break 0,
            () = Clock::boot().sleep(LOOK) => continue,
        };
        let printed = match item {
            None => break 0,
            Some(Ok(item)) => {
                outage = false;
                line(&locks, item).map_or(Ok(()), |line| print(&line))
            }
            Some(Err(error)) => {
                if !outage {
                    say(Failure::from(error));
                }
                outage = true;
                Ok(())
            }
        };
        match printed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break 0,
            Err(error) => return Err(error.into()),
        }
    };
    drop(news);
    let _ = locks.close(CLOSING).await;
    Ok(status)
}

/// The present moment, in UTC.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(wall_micros())).to_string()
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Whether anybody may still read what is written: a pipe whose reader is gone is in error.
fn is_read() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let _ = poll(&mut polled, PollTimeout::ZERO);
    !polled[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR))
}

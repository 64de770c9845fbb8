//! `lock status`.

use std::{
    io::{self, Write},
    time::Duration,
};

use lock::{Config, Contender, Snapshot};

use crate::failure::Failure;

/// How long ending the connection may take.
const CLOSING: Duration = Duration::from_secs(2);

/// Prints who holds `name` and who waits for it.
pub(crate) async fn status(config: Config, name: &str) -> Result<u8, Failure> {
    let locks = config.connect().await?;
    let snapshot = locks.inspect(name).await;
    let _ = locks.close(CLOSING).await;
    match write(&mut io::stdout().lock(), name, &snapshot?) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        written => Ok(written.map(|()| 0)?),
    }
}

fn write(out: &mut impl Write, name: &str, snapshot: &Snapshot) -> io::Result<()> {
    let state = if snapshot.holders.is_empty() { "free" } else { "held" };
    writeln!(out, "{name:?} is {state}")?;
    for holder in &snapshot.holders {
        writeln!(out, "  holder  {}", line(holder))?;
    }
    for (place, waiter) in snapshot.queue.iter().enumerate() {
        writeln!(out, "  waits {}  {}", place + 1, line(waiter))?;
    }
    Ok(())
}

/// Who it is, in its own words, which come from others: without control characters, so that they cannot play with the
/// reader's terminal.
fn line(contender: &Contender) -> String {
    let payload = String::from_utf8_lossy(&contender.payload);
    let payload: String = payload.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let mut line = format!("id={}", contender.id);
    if let Some(token) = contender.token {
        line += &format!(" token={token}");
    }
    if let Some(remaining) = contender.remaining {
        let millis = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
        line += &format!(" remaining={}", humantime::format_duration(Duration::from_millis(millis)));
    }
    if !payload.is_empty() {
        line += &format!(" {payload}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_and_waiters_are_shown_in_their_order() {
        let holder = Contender::new("a").with_token(7).with_remaining(Duration::from_micros(1_500_400));
        let snapshot =
            Snapshot::new(vec![holder.with_payload("host=h\u{1b}[2J")], vec![Contender::new("b"), Contender::new("c")]);
        let mut out = Vec::new();
        write(&mut out, "orders/1", &snapshot).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"orders/1\" is held\n  holder  id=a token=7 remaining=1s 500ms host=h\u{fffd}[2J\n  waits 1  id=b\n  \
             waits 2  id=c\n"
        );
    }
}

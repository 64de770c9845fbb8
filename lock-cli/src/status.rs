//! `lock status`.

use std::{
    io::{self, Write},
    time::Duration,
};

use lock::{Config, Locks, Snapshot};

use crate::{
    arguments::StatusArguments,
    escaped::json,
    failure::Failure,
    shown::{StatusJson, line},
};

/// How long ending the connection may take.
const CLOSING: Duration = Duration::from_secs(2);

/// Prints who holds the lock and who waits for it.
pub(crate) async fn status(config: Config, options: &StatusArguments) -> Result<u8, Failure> {
    // Who looks wants to know now.
    let locks = config.with_outage_timeout(Duration::ZERO).connect().await?;
    let snapshot = locks.inspect(&options.name).await;
    let _ = locks.close(CLOSING).await;
    match write(&mut io::stdout().lock(), &locks, options, &snapshot?) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        written => Ok(written.map(|()| 0)?),
    }
}

fn write(out: &mut impl Write, locks: &Locks, options: &StatusArguments, snapshot: &Snapshot) -> io::Result<()> {
    let name = &options.name;
    if options.json {
        return writeln!(out, "{}", json(&StatusJson::new(locks, name, snapshot)));
    }
    let state = if snapshot.holders.is_empty() { "free" } else { "held" };
    writeln!(out, "{name:?} is {state}")?;
    for holder in &snapshot.holders {
        writeln!(out, "  holder  {}", line(locks, holder))?;
    }
    for (place, waiter) in snapshot.queue.iter().enumerate() {
        writeln!(out, "  waits {}  {}", place + 1, line(locks, waiter))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lock::{Contender, Mode};

    use super::*;

    async fn written(json: bool) -> String {
        let holder = Contender::new("a").with_token(7).with_remaining(Duration::from_micros(1_500_400));
        let holder = holder.with_mode(Mode::Read).with_since_micros(1_700_000_000_250_000);
        let snapshot = Snapshot::new(
            vec![holder.with_payload("host=h\u{1b}[2J")],
            vec![Contender::new("b").with_payload([0xff]), Contender::new("c")],
        );
        let locks = lock::connect("memory://?era=3").await.unwrap();
        let mut out = Vec::new();
        write(&mut out, &locks, &StatusArguments { name: "orders/1".to_owned(), json }, &snapshot).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn holders_and_waiters_are_shown_in_their_order() {
        assert_eq!(
            written(false).await,
            "\"orders/1\" is held\n  holder  id=a mode=read token=0000000003-00000000000000000007 remaining=1s 500ms \
             since=2023-11-14T22:13:20.250Z host=h\\u{1b}[2J\n  waits 1  id=b \u{fffd}\n  waits 2  id=c\n"
        );
    }

    #[tokio::test]
    async fn the_keys_for_programs_are_these() {
        let holder = r#"{"id":"a","payload":"host=h\u001b[2J","mode":"read","permits":null,"token":"0000000003-00000000000000000007","token_int":30000000000000007,"remaining_ms":1500,"since":"2023-11-14T22:13:20.250Z"}"#;
        let rest = r#""mode":null,"permits":null,"token":null,"token_int":null,"remaining_ms":null,"since":null}"#;
        let queue =
            format!(r#"{{"id":"b","payload":null,"payload_base64":"/w==",{rest},{{"id":"c","payload":"",{rest}"#);
        let expected = format!(r#"{{"name":"orders/1","held":true,"holders":[{holder}],"queue":[{queue}]}}"#);
        assert_eq!(written(true).await, expected + "\n");
    }
}

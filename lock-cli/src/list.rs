//! `lock list`.

#![allow(clippy::doc_markdown, reason = "the comments of the arguments are the help text, which shows no markup")]

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use futures::{StreamExt, stream};
use lock::{Config, LockName, Locks, Snapshot};

use crate::{
    escaped::{json, plain},
    failure::{Failure, say},
    shown::{StatusJson, line},
};

/// How long ending the connection may take.
const CLOSING: Duration = Duration::from_secs(2);

/// How many locks are looked at in one moment.
const AT_ONCE: usize = 16;

/// Show which locks are held, by whom and since when: a line for each holder.
///
/// Locks and semaphores that are free are not shown. What is granted or given back meanwhile may be shown or not. The service reads all
/// that it keeps for this, so it is for people and their tools, and not for programs that lock.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only locks whose names begin with this text.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Print one JSON object a line, one for each lock, with the keys of `lock status --json`.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints what is held. Returns the exit status.
pub(crate) async fn list(config: Config, options: &ListArguments) -> Result<u8, Failure> {
    // Who looks wants to know now.
    let locks = config.with_outage_timeout(Duration::ZERO).connect().await?;
    let listed = show(&locks, options).await;
    let _ = locks.close(CLOSING).await;
    listed
}

async fn show(locks: &Locks, options: &ListArguments) -> Result<u8, Failure> {
    let names = locks.list(&options.prefix).await?;
    let looks = stream::iter(names).map(async |name| (locks.inspect(name.as_str()).await, name));
    let mut looks = std::pin::pin!(looks.buffered(AT_ONCE));
    let mut status = 0;
    while let Some((look, name)) = looks.next().await {
        match look.map(|seen| write(&mut io::stdout().lock(), locks, options, &name, &seen)) {
            Ok(Ok(())) => {}
            // The reader, such as `head`, has seen enough.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            Ok(Err(error)) => return Err(error.into()),
            // One that cannot be looked at hides no others.
            Err(error) => {
                let failure = Failure::from(error);
                say(format_args!("{name:?}: {failure}"));
                status = failure.status;
            }
        }
    }
    Ok(status)
}

fn write(
    out: &mut impl Write,
    locks: &Locks,
    options: &ListArguments,
    name: &LockName,
    seen: &Snapshot,
) -> io::Result<()> {
    if seen.holders.is_empty() {
        // Given back since.
        return Ok(());
    }
    if options.json {
        return writeln!(out, "{}", json(&StatusJson::new(locks, name.as_str(), seen)));
    }
    for holder in &seen.holders {
        writeln!(out, "{} {}", plain(&format!("{name:?}")), line(locks, holder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lock::{Contender, Mode};

    use super::*;

    async fn written(json: bool) -> String {
        let reader = |id: &str, token| {
            Contender::new(id).with_token(token).with_mode(Mode::Read).with_since_micros(1_700_000_000_250_000)
        };
        let seen = Snapshot::new(vec![reader("a", 7).with_payload("h\u{1b}[2J"), reader("b", 8)], Vec::new());
        let locks = lock::connect("memory://?era=3").await.unwrap();
        let (mut out, options) = (Vec::new(), ListArguments { prefix: String::new(), json });
        let name = LockName::new("orders/\u{202e}1\u{9b}").unwrap();
        write(&mut out, &locks, &options, &name, &seen).unwrap();
        write(&mut out, &locks, &options, &LockName::new("free").unwrap(), &Snapshot::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn each_holder_has_a_line_and_names_of_others_do_not_play_with_a_terminal() {
        let name = r#""orders/\u{202e}1\u{9b}""#;
        let rest = "mode=read token=0000000003-0000000000000000000";
        let since = "since=2023-11-14T22:13:20.250Z";
        let expected = format!("{name} id=a {rest}7 {since} h\\u{{1b}}[2J\n{name} id=b {rest}8 {since}\n");
        assert_eq!(written(false).await, expected);
    }

    #[tokio::test]
    async fn for_programs_each_lock_is_an_object_on_a_line() {
        let written = written(true).await;
        let [line] = written.lines().collect::<Vec<_>>()[..] else { panic!("{written}") };
        assert!(line.starts_with(r#"{"name":"orders/\u202e1\u009b","held":true,"holders":[{"id":"a","#), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap()["holders"].as_array().unwrap().len(), 2);
    }
}

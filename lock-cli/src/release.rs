//! `lock release --force`.

#![allow(clippy::doc_markdown, reason = "the comments of the arguments are the help text, which shows no markup")]

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use lock::{Config, Contender, FencingToken, Locks};
use serde::Serialize;

use crate::{
    escaped::json,
    failure::{Failure, USAGE},
    shown::{ContenderJson, line},
};

/// How long ending the connection may take.
const CLOSING: Duration = Duration::from_secs(2);

/// There is no such grant (any more).
const NOT_THERE: u8 = 1;

const WITHOUT_FORCE: &str = "only --force takes a lock away from its holder: the next one is granted it at once, while this holder may \
                             still be at work under it and hears of that later, or never if it is stopped; what compares fencing \
                             tokens is protected, and nothing else is";

/// Take a lock, or a permit, away from the one holder that has this token.
///
/// This breaks the promise that at most one holds the lock. The next one is granted it at once. The former holder hears of it at
/// its next renewal at the latest, a third of the ttl later; under `lock run` its command is ended then, with exit status 76. If
/// it is stopped it hears nothing. Only what compares fencing tokens refuses what it still does, so end its process first where
/// you can. A grant with another token is never ended, so this may be repeated. Exit status: 0 when the grant was ended,
/// 1 when there is no such grant (any more), else as for `lock`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    /// Which lock.
    pub(crate) name: String,

    /// Yes, take it away from its holder.
    #[arg(long)]
    pub(crate) force: bool,

    /// The holder's token, as `lock list`, `lock status`, LOCK_TOKEN or LOCK_TOKEN_INT have it.
    #[arg(long)]
    pub(crate) token: FencingToken,

    /// Print one JSON object: name, token, released (true or false), holder (whose grant was ended, or null), holders (who holds the
    /// lock now, when there was no such grant, else null); of each what `lock status --json` says.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `lock release --json` prints.
#[derive(Debug, Serialize)]
struct ReleaseJson<'a> {
    name: &'a str,
    token: String,
    released: bool,
    holder: Option<ContenderJson<'a>>,
    holders: Option<Vec<ContenderJson<'a>>>,
}

/// What has become of the grant that was to be ended.
#[derive(Debug)]
enum ForcedRelease {
    /// It was this holder's, and is ended.
    Ended(Contender),
    /// It is not there, and these hold the lock now.
    NotThere(Vec<Contender>),
}

/// Ends the grant. Returns the exit status.
pub(crate) async fn release(config: Config, options: &ReleaseArguments) -> Result<u8, Failure> {
    let locks = config.connect().await?;
    let done = force(&locks, options).await;
    let _ = locks.close(CLOSING).await;
    let done = done?;
    match write(&mut io::stdout().lock(), &locks, options, &done) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        // Whether somebody reads it does not change what was done.
        _ => {}
    }
    Ok(if matches!(done, ForcedRelease::Ended(_)) { 0 } else { NOT_THERE })
}

/// Refuses a release without `--force`.
pub(crate) fn check(options: &ReleaseArguments) -> Result<(), Failure> {
    if options.force { Ok(()) } else { Err(Failure::new(USAGE, WITHOUT_FORCE)) }
}

async fn force(locks: &Locks, options: &ReleaseArguments) -> Result<ForcedRelease, Failure> {
    match locks.revoke(&options.name, options.token).await? {
        Some(holder) => Ok(ForcedRelease::Ended(holder)),
        None => Ok(ForcedRelease::NotThere(locks.inspect(&options.name).await?.holders)),
    }
}

fn write(out: &mut impl Write, locks: &Locks, options: &ReleaseArguments, done: &ForcedRelease) -> io::Result<()> {
    let ReleaseArguments { name, token, .. } = options;
    if options.json {
        let shown = |contender| ContenderJson::new(locks, contender);
        let (released, holder, holders) = match done {
            ForcedRelease::Ended(holder) => (true, Some(shown(holder)), None),
            ForcedRelease::NotThere(holders) => (false, None, Some(holders.iter().map(shown).collect())),
        };
        return writeln!(out, "{}", json(&ReleaseJson { name, token: token.to_string(), released, holder, holders }));
    }
    match done {
        ForcedRelease::Ended(holder) => writeln!(out, "{name:?} was taken away from {}", line(locks, holder)),
        ForcedRelease::NotThere(holders) if holders.is_empty() => writeln!(out, "{name:?} is free: nobody has {token}"),
        ForcedRelease::NotThere(holders) => {
            let holders = holders.iter().map(|holder| line(locks, holder)).collect::<Vec<_>>().join(" and ");
            writeln!(out, "{name:?} is not held with {token}, but by {holders}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(json: bool, done: ForcedRelease) -> String {
        let locks = lock::connect("memory://?era=3").await.unwrap();
        let token = FencingToken { era: 3, number: 7 };
        let (mut out, name) = (Vec::new(), "orders/1".to_owned());
        write(&mut out, &locks, &ReleaseArguments { name, force: true, token, json }, &done).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn holder(token: u64) -> Contender {
        Contender::new("a").with_token(token).with_payload("h\u{1b}[2J")
    }

    #[tokio::test]
    async fn whose_it_was_or_who_holds_it_instead_is_said() {
        let token = "0000000003-0000000000000000000";
        let ended = written(false, ForcedRelease::Ended(holder(7))).await;
        assert_eq!(ended, format!("\"orders/1\" was taken away from id=a token={token}7 h\\u{{1b}}[2J\n"));
        let other = written(false, ForcedRelease::NotThere(vec![holder(8)])).await;
        assert_eq!(
            other,
            format!("\"orders/1\" is not held with {token}7, but by id=a token={token}8 h\\u{{1b}}[2J\n")
        );
        let free = written(false, ForcedRelease::NotThere(Vec::new())).await;
        assert_eq!(free, format!("\"orders/1\" is free: nobody has {token}7\n"));
    }

    #[tokio::test]
    async fn the_keys_for_programs_are_these() {
        let begin = r#"{"name":"orders/1","token":"0000000003-00000000000000000007","released":"#;
        let ended = written(true, ForcedRelease::Ended(holder(7))).await;
        assert!(ended.starts_with(&format!("{begin}true,\"holder\":{{\"id\":\"a\",")), "{ended}");
        assert!(ended.ends_with("},\"holders\":null}\n"), "{ended}");
        let free = written(true, ForcedRelease::NotThere(Vec::new())).await;
        assert_eq!(free, format!("{begin}false,\"holder\":null,\"holders\":[]}}\n"));
    }
}

//! How a lock and its contenders are shown, to people and to programs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use lock::{Contender, FencingToken, Locks, Mode, Snapshot};
use serde::Serialize;

use crate::escaped::plain;

/// The state of one lock as the JSON object of `lock status --json`, whose help is the contract.
#[derive(Debug, Serialize)]
pub(crate) struct StatusJson<'a> {
    name: &'a str,
    held: bool,
    holders: Vec<ContenderJson<'a>>,
    queue: Vec<ContenderJson<'a>>,
}

/// One holder or waiting contender, as in a [`StatusJson`].
#[derive(Debug, Serialize)]
pub(crate) struct ContenderJson<'a> {
    id: &'a str,
    #[serde(flatten)]
    payload: PayloadJson<'a>,
    mode: Option<&'static str>,
    permits: Option<u32>,
    #[serde(flatten)]
    token: TokenJson,
    remaining_ms: Option<u64>,
    since: Option<String>,
}

/// A fencing token in JSON, in its two forms: null where there is none, and where the integer has no room for it.
#[derive(Debug, Serialize)]
pub(crate) struct TokenJson {
    token: Option<String>,
    token_int: Option<i64>,
}

impl TokenJson {
    pub(crate) fn new(token: Option<FencingToken>) -> Self {
        Self { token: token.map(|token| token.to_string()), token_int: token.and_then(|token| token.to_i64().ok()) }
    }
}

/// A contender's payload in JSON: as text where it is UTF-8, in base64 otherwise.
#[derive(Debug, Serialize)]
pub(crate) struct PayloadJson<'a> {
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl<'a> PayloadJson<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self { payload: Some(text), payload_base64: None },
            Err(_) => Self { payload: None, payload_base64: Some(BASE64_STANDARD.encode(bytes)) },
        }
    }
}

impl<'a> StatusJson<'a> {
    pub(crate) fn new(locks: &Locks, name: &'a str, snapshot: &'a Snapshot) -> Self {
        let all = |contenders: &'a [Contender]| contenders.iter().map(|one| ContenderJson::new(locks, one)).collect();
        Self { name, held: !snapshot.holders.is_empty(), holders: all(&snapshot.holders), queue: all(&snapshot.queue) }
    }
}

impl<'a> ContenderJson<'a> {
    pub(crate) fn new(locks: &Locks, contender: &'a Contender) -> Self {
        Self {
            id: &contender.id,
            payload: PayloadJson::new(&contender.payload),
            mode: contender.mode.map(|mode| match mode {
                Mode::Read => "read",
                Mode::Permit { .. } => "permit",
                _ => "exclusive",
            }),
            permits: contender.mode.and_then(|mode| if let Mode::Permit { of } = mode { Some(of.get()) } else { None }),
            token: TokenJson::new(contender.token.map(|number| locks.fencing_token(number))),
            remaining_ms: contender.remaining.map(millis),
            since: contender.since.and_then(rfc3339),
        }
    }
}

/// A contender, for people.
pub(crate) fn line(locks: &Locks, contender: &Contender) -> String {
    let mut line = format!("id={}", plain(&contender.id));
    if let Some(mode) = contender.mode {
        line += &match mode {
            Mode::Permit { of } => format!(" mode=permit/{of}"),
            other => format!(" mode={other}"),
        };
    }
    if let Some(number) = contender.token {
        line += &format!(" token={}", locks.fencing_token(number));
    }
    if let Some(remaining) = contender.remaining {
        line += &format!(" remaining={}", humantime::format_duration(Duration::from_millis(millis(remaining))));
    }
    if let Some(since) = contender.since.and_then(rfc3339) {
        line += &format!(" since={since}");
    }
    if !contender.payload.is_empty() {
        line += &format!(" {}", words(&contender.payload));
    }
    line
}

/// Who a contender is, in its own words if it has any, and since when.
pub(crate) fn who(contender: &Contender) -> String {
    let who = match contender.payload.as_slice() {
        [] => format!("id={}", plain(&contender.id)),
        payload => words(payload),
    };
    let since = contender.since.and_then(rfc3339).map(|since| format!(" since {since}"));
    who + &since.unwrap_or_default()
}

/// A duration for people, never shorter than it is: in whole seconds, in tenths below ten seconds, in milliseconds below one.
pub(crate) fn rounded(duration: Duration) -> String {
    let step = match duration.as_millis() {
        0..1_000 => 1,
        1_000..10_000 => 100,
        _ => 1_000,
    };
    let steps = duration.as_micros().div_ceil(step * 1_000);
    let millis = u64::try_from(steps * step).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// Somebody's own words, fit for a terminal.
pub(crate) fn words(bytes: &[u8]) -> String {
    // Safeguard: what others wrote is fit for a terminal (command line)
    plain(&String::from_utf8_lossy(bytes)).into_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// In UTC. `None` for what is no time of this era: it comes from others.
fn rfc3339(time: SystemTime) -> Option<String> {
    const YEAR_9999: Duration = Duration::from_secs(253_370_764_800);
    let since = time.duration_since(UNIX_EPOCH).ok().filter(|since| *since < YEAR_9999)?;
    Some(humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_round() {
        let micros = |micros| rounded(Duration::from_micros(micros));
        assert_eq!(micros(0), "0s");
        assert_eq!(micros(12_001), "13ms");
        assert_eq!(micros(4_999_998), "5s");
        assert_eq!(micros(4_400_001), "4s 500ms");
        assert_eq!(micros(59_998_123), "1m");
        assert!(!micros(u64::MAX).contains("ms"));
    }
}

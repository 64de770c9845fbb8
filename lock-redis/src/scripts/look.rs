//! A look at a name: who holds it, and how.

use std::{str::FromStr, time::Duration};

use redis::Value;

use super::{PROLOGUE, remaining, text};
use crate::{
    keys::Keys,
    node::{NodeError, Script, ScriptCall},
};

static INSPECT: Script = Script::with_prologue(PROLOGUE, include_str!("inspect.lua"));

/// Who holds a name, as one server sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// Who holds the lock alone.
    pub alone: Option<Holder>,
    /// Who reads, in the order of their grants.
    pub readers: Vec<Holder>,
    /// Who holds a permit, in the order of their grants.
    pub permits: Vec<Holder>,
}

/// A holder, as one server sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The value of its attempt; for a lock key of another type the name of the type.
    pub value: Vec<u8>,
    /// The number of its grant; `None` for a holder of another library.
    pub number: Option<u64>,
    /// Who it is, in its own words; empty for a holder of another library.
    pub payload: Vec<u8>,
    /// How long the server still keeps it; `None` without an expiry.
    pub remaining: Option<Duration>,
    /// When it was granted, in microseconds of the server's clock; `None` for a holder of another library.
    pub since: Option<u64>,
    /// Of how many permits it holds one; `None` for those that hold the lock.
    pub of: Option<u32>,
}

/// Asks who holds the name of `keys`.
#[must_use]
pub fn inspect(keys: &Keys) -> ScriptCall {
    ScriptCall::new(&INSPECT)
        .key(keys.lock())
        .key(keys.token())
        .key(keys.readers())
        .key(keys.reading())
        .key(keys.permits())
        .key(keys.permitted())
}

/// Reads the answer to [`inspect`].
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn look(answer: &Value) -> Result<Look, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let [Value::Array(alone), Value::Array(readers), Value::Array(permits)] = parts.as_slice() else {
        return Err(nonsense());
    };
    let alone = if alone.is_empty() { None } else { Some(alone_of(alone).ok_or_else(nonsense)?) };
    let [readers, permits] = [members(readers), members(permits)];
    Ok(Look { alone, readers: readers.ok_or_else(nonsense)?, permits: permits.ok_or_else(nonsense)? })
}

/// Reads from the answer to [`inspect`] who holds the lock alone; `None` when nobody does.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn holder(answer: &Value) -> Result<Option<Holder>, NodeError> {
    look(answer).map(|look| look.alone)
}

fn alone_of(parts: &[Value]) -> Option<Holder> {
    let [kind, Value::BulkString(value), Value::Int(left), number, Value::BulkString(payload), since] = parts else {
        return None;
    };
    let value = match text(kind) {
        Some("string") => value.clone(),
        kind => kind.unwrap_or_default().as_bytes().to_vec(),
    };
    let number_in = |value| text(value).and_then(|digits| digits.parse().ok());
    Some(Holder {
        value,
        number: number_in(number),
        payload: payload.clone(),
        remaining: remaining(*left),
        since: number_in(since),
        of: None,
    })
}

fn members(all: &[Value]) -> Option<Vec<Holder>> {
    let mut members = Vec::with_capacity(all.len());
    for one in all {
        let Value::Array(parts) = one else { return None };
        let [Value::BulkString(value), Value::Int(left), Value::BulkString(note)] = parts.as_slice() else {
            return None;
        };
        // One without a note that makes sense is no holder of this library; its place is taken all the same.
        let note = Note::of(note).unwrap_or_default();
        let Some(left) = remaining(*left)?.checked_sub(note.delay) else { continue };
        members.push(Holder {
            value: value.clone(),
            number: note.number,
            payload: note.payload,
            remaining: Some(left),
            since: note.since,
            of: note.of,
        });
    }
    members.sort_by_key(|member| member.number);
    Some(members)
}

/// What the server notes of a reader or a permit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Note {
    number: Option<u64>,
    since: Option<u64>,
    delay: Duration,
    of: Option<u32>,
    payload: Vec<u8>,
}

impl Note {
    fn of(note: &[u8]) -> Option<Self> {
        let mut parts = note.splitn(5, |byte| *byte == b' ');
        let number = number(parts.next()?)?;
        let since = self::number(parts.next()?)?;
        let delay = Duration::from_millis(self::number(parts.next()?)?);
        let of = self::number::<u32>(parts.next()?)?;
        let payload = parts.next()?.to_vec();
        Some(Self { number: Some(number), since: Some(since), delay, of: (of > 0).then_some(of), payload })
    }
}

fn number<T: FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_note_is_read_as_it_was_written(
            given: u64, since: u64, delay in 0..1_000_000_u64, of in 1_u32.., payload: Vec<u8>,
        ) {
            let mut note = format!("{given} {since} {delay} {of} ").into_bytes();
            note.extend_from_slice(&payload);
            let expected = Note {
                number: Some(given),
                since: Some(since),
                delay: Duration::from_millis(delay),
                of: Some(of),
                payload,
            };
            prop_assert_eq!(Note::of(&note), Some(expected));
        }

        #[test]
        fn any_other_note_is_none_of_ours(note in "[a-z ]{0,12}") {
            prop_assert_eq!(Note::of(note.as_bytes()), None);
        }
    }
}

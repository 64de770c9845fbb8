//! A look at a name: who holds it, and how.

use std::{str::FromStr, time::Duration};

use lock_redis::{
    keys::Keys,
    node::{NodeError, Script, ScriptCall, Value, text},
    protocol::packed::Lock,
};

use super::answers::millis;

static INSPECT: Script = Script::new(concat!(include_str!("prologue.lua"), include_str!("inspect.lua")));

/// Who holds a name, as one server sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Who holds the lock alone.
    pub(crate) alone: Option<Holder>,
    /// Who reads, in the order of their grants.
    pub(crate) readers: Vec<Holder>,
}

/// A holder, as one server sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The value of its attempt; for a lock key of another type the name of the type.
    pub(crate) value: Vec<u8>,
    /// The number of its grant; `None` for a holder of another library.
    pub(crate) number: Option<u64>,
    /// Who it is, in its own words; empty for a holder of another library.
    pub(crate) payload: Vec<u8>,
    /// How long the server still keeps it; `None` without an expiry.
    pub(crate) remaining: Option<Duration>,
    /// When it was granted, in microseconds of the server's clock; `None` for a holder of another library.
    pub(crate) since: Option<u64>,
}

/// Asks who holds the name of `keys`.
#[must_use]
pub(crate) fn inspect(keys: &Keys) -> ScriptCall {
    ScriptCall::new(&INSPECT).key(keys.lock())
}

/// Reads the answer to [`inspect`].
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub(crate) fn look(answer: &Value) -> Result<Look, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let [Value::Array(alone), Value::Array(readers)] = parts.as_slice() else { return Err(nonsense()) };
    let alone = if alone.is_empty() { None } else { Some(alone_of(alone).ok_or_else(nonsense)?) };
    Ok(Look { alone, readers: members(readers).ok_or_else(nonsense)? })
}

fn alone_of(parts: &[Value]) -> Option<Holder> {
    let [kind, Value::BulkString(held), Value::Int(left)] = parts else { return None };
    let remaining = millis(*left);
    if text(kind) != Some("string") {
        return Some(Holder { value: text(kind)?.as_bytes().to_vec(), remaining, ..Holder::default() });
    }
    Some(match Lock::read(held) {
        Some(Lock { number, value, since, payload }) => {
            Holder { value, number: Some(number), payload, remaining, since: Some(since) }
        }
        None => Holder { value: held.clone(), remaining, ..Holder::default() },
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
        let Some(left) = millis(*left)?.checked_sub(note.delay) else { continue };
        members.push(Holder {
            value: value.clone(),
            number: note.number,
            payload: note.payload,
            remaining: Some(left),
            since: note.since,
        });
    }
    members.sort_by_key(|member| member.number);
    Some(members)
}

/// The note that a server keeps on a reader: its number, since when it reads, its lock delay and its payload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Note {
    number: Option<u64>,
    since: Option<u64>,
    delay: Duration,
    payload: Vec<u8>,
}

impl Note {
    fn of(note: &[u8]) -> Option<Self> {
        let mut parts = note.splitn(5, |byte| *byte == b' ');
        let number = number(parts.next()?)?;
        let since = self::number(parts.next()?)?;
        let delay = Duration::from_millis(self::number(parts.next()?)?);
        let _of: u32 = self::number(parts.next()?)?;
        let payload = parts.next()?.to_vec();
        Some(Self { number: Some(number), since: Some(since), delay, payload })
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
            given: u64, since: u64, delay in 0..1_000_000_u64, of: u32, payload: Vec<u8>,
        ) {
            let mut note = format!("{given} {since} {delay} {of} ").into_bytes();
            note.extend_from_slice(&payload);
            let expected = Note {
                number: Some(given),
                since: Some(since),
                delay: Duration::from_millis(delay),
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

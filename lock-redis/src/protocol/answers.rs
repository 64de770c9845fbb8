//! What the scripts answer, and what is published about a grant.

use std::time::Duration;

use super::{
    claim::HandedOver,
    packed::{VALUE, unpack},
};
use crate::node::{NodeError, Value, text};

/// What an attempt is answered that would enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It holds, with this number.
    Granted(u64),
    /// It stands in line.
    InLine(InLine),
    /// Others hold it or wait for it, and this attempt does not wait.
    Held {
        /// How long they hold it unless it is renewed; `None` without an end.
        left: Option<Duration>,
        /// More could be granted than one script grants.
        more: bool,
    },
    /// Those who hold or wait for a permit named another number of permits: this one.
    Permits(u64),
    /// It was undone before.
    Undone,
    /// Another version of this library uses the name.
    OtherFormat,
}

/// How one stands in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InLine {
    /// How many are ahead.
    pub ahead: u64,
    /// For the first in line, after how long it may open by itself; `None` without an end.
    pub left: Option<Duration>,
    /// The newest number that was given out: any later grant has a higher one.
    pub newest: u64,
    /// What the server noted of it by this request.
    pub stamp: u64,
    /// More could be granted than one script grants.
    pub more: bool,
}

/// What became of one that stood in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It still stands there.
    InLine(InLine),
    /// It holds with this number, for a whole ttl from this beat on.
    Granted(u64),
    /// It is not known any more.
    Gone,
}

/// What a release, an undo or a downgrade is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Whether the attempt had what it was about.
    pub had: bool,
    /// More could be granted than one script grants.
    pub more: bool,
}

impl Entered {
    /// Whether the attempt has something on the server now.
    #[must_use]
    pub const fn left_something(&self) -> bool {
        matches!(self, Self::Granted(_) | Self::InLine(_))
    }
}

/// Reads the answer to one that would enter.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn entered(answer: &Value) -> Result<Entered, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    if let Value::Int(number) = answer {
        return whole(*number).map(Entered::Granted).ok_or_else(nonsense);
    }
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let Some((kind, rest)) = parts.split_first().and_then(|(kind, rest)| Some((text(kind)?, rest))) else {
        return Err(nonsense());
    };
    let entered = match (kind, rest) {
        ("in line", [Value::Int(ahead), Value::Int(left), Value::Int(newest), Value::Int(stamp), Value::Int(more)]) => {
            in_line([*ahead, *left, *newest, *stamp, *more]).map(Entered::InLine)
        }
        ("held", [Value::Int(left), Value::Int(more)]) => {
            Some(Entered::Held { left: remaining(*left), more: *more != 0 })
        }
        ("permits", [Value::Int(of)]) => whole(*of).map(Entered::Permits),
        ("undone", []) => Some(Entered::Undone),
        ("format", []) => Some(Entered::OtherFormat),
        _ => None,
    };
    entered.ok_or_else(nonsense)
}

/// Reads the answer to a beat for so many places.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn beaten(answer: &Value, places: usize) -> Result<(Vec<Standing>, bool), NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let [Value::Int(newest), Value::Int(more), each @ ..] = parts.as_slice() else { return Err(nonsense()) };
    let standing = |one: &Value| {
        let Value::Array(parts) = one else { return None };
        match parts.as_slice() {
            [Value::Int(0), Value::Int(ahead), Value::Int(left), Value::Int(stamp)] => {
                in_line([*ahead, *left, *newest, *stamp, *more]).map(Standing::InLine)
            }
            [Value::Int(1), Value::Int(number)] => whole(*number).map(Standing::Granted),
            [Value::Int(2)] => Some(Standing::Gone),
            _ => None,
        }
    };
    let all = each.iter().map(standing).collect::<Option<Vec<_>>>().filter(|all| all.len() == places);
    Ok((all.ok_or_else(nonsense)?, *more != 0))
}

/// Reads the answer to a release, an undo or a downgrade.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn done(answer: &Value) -> Result<Done, NodeError> {
    match answer {
        Value::Int(had @ 0..=1) => Ok(Done { had: *had == 1, more: false }),
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(had @ 0..=1), Value::Int(more @ 0..=1)] => Ok(Done { had: *had == 1, more: *more == 1 }),
            _ => Err(NodeError::nonsense(answer)),
        },
        _ => Err(NodeError::nonsense(answer)),
    }
}

/// Reads a message about a grant: of which attempt, and which one.
#[must_use]
pub fn handed_over(message: &[u8]) -> Option<(&str, HandedOver)> {
    let (value, rest) = message.split_at_checked(VALUE)?;
    let (number, rest) = unpack(rest)?;
    let (stamp, rest) = unpack(rest)?;
    let [more @ 0..=1] = rest else { return None };
    Some((std::str::from_utf8(value).ok()?, HandedOver { number, stamp, more: *more == 1 }))
}

fn in_line([ahead, left, newest, stamp, more]: [i64; 5]) -> Option<InLine> {
    let (ahead, newest, stamp) = (whole(ahead)?, whole(newest)?, whole(stamp)?);
    Some(InLine { ahead, left: remaining(left), newest, stamp, more: more != 0 })
}

fn whole(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

/// What `PTTL` says: -1 without an expiry.
pub(super) fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::packed::pack;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<i64>().prop_map(Value::Int),
            (0..3_i64).prop_map(Value::Int),
            prop_oneof!["in line", "held", "permits", "undone", "format"]
                .prop_map(|text: String| Value::BulkString(text.into_bytes())),
        ];
        leaf.prop_recursive(2, 16, 7, |inner| proptest::collection::vec(inner, 0..7).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn no_answer_makes_a_reader_panic(answer in value(), places in 0..3_usize) {
            let _ = (entered(&answer), beaten(&answer, places), done(&answer));
        }

        #[test]
        fn a_message_is_a_grant_of_its_attempt_or_nothing(number in 0..1_u64 << 53, stamp in 0..1_u64 << 53, more: bool, noise: Vec<u8>) {
            let value = [b'v'; VALUE];
            let message = [&value[..], &pack(number), &pack(stamp), &[u8::from(more)]].concat();
            let read = handed_over(&message);
            prop_assert_eq!(read, Some((std::str::from_utf8(&value).unwrap(), HandedOver { number, stamp, more })));
            prop_assert_eq!(handed_over(&message[1..]), None);
            prop_assert!(handed_over(&noise).is_none() || noise.len() == message.len());
        }
    }

    #[test]
    fn what_scripts_say_is_read() {
        let words = |kind: &str, rest: &[i64]| {
            let kind = Value::BulkString(kind.as_bytes().to_vec());
            Value::Array([kind].into_iter().chain(rest.iter().copied().map(Value::Int)).collect())
        };
        let ms = Duration::from_millis;
        let waits = InLine { ahead: 1, left: Some(ms(2)), newest: 3, stamp: 4, more: true };
        assert_eq!(entered(&Value::Int(7)).unwrap(), Entered::Granted(7));
        assert_eq!(entered(&words("in line", &[1, 2, 3, 4, 1])).unwrap(), Entered::InLine(waits));
        assert_eq!(entered(&words("held", &[-1, 0])).unwrap(), Entered::Held { left: None, more: false });
        let each =
            [vec![0, 1, 2, 4], vec![1, 7], vec![2]].map(|one| Value::Array(one.into_iter().map(Value::Int).collect()));
        let answer = Value::Array([Value::Int(3), Value::Int(1)].into_iter().chain(each).collect());
        let (standings, more) = beaten(&answer, 3).unwrap();
        assert_eq!((standings, more), (vec![Standing::InLine(waits), Standing::Granted(7), Standing::Gone], true));
        assert!(beaten(&answer, 2).is_err());
    }
}

//! Reading answers.

use redis::Value;

/// The text of an answer that is one.
#[must_use]
pub fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

//! RESP, version 2: requests as they come, and answers.

use std::borrow::Cow;

/// What a command answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A word such as `OK`.
    Status(Cow<'static, str>),
    /// An error, which begins with its code.
    Error(String),
    /// A whole number.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// Several answers.
    Array(Vec<Reply>),
}

impl Reply {
    /// `OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// A key has another type than the command is for.
    #[must_use]
    pub fn wrong_type() -> Self {
        Self::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
    }

    /// Any other error.
    #[must_use]
    pub fn err(text: &str) -> Self {
        Self::Error(format!("ERR {text}"))
    }

    /// A text or a number as bytes.
    #[must_use]
    pub fn bulk(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    /// Whether something is there.
    #[must_use]
    pub fn optional(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    /// A number of things.
    #[must_use]
    pub fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Writes it as a server sends it.
    pub fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(into, b'+', text.as_bytes()),
            Self::Error(text) => line(into, b'-', text.as_bytes()),
            Self::Int(number) => line(into, b':', number.to_string().as_bytes()),
            Self::Bulk(bytes) => {
                line(into, b'$', bytes.len().to_string().as_bytes());
                into.extend_from_slice(bytes);
                into.extend_from_slice(b"\r\n");
            }
            Self::Nil => into.extend_from_slice(b"$-1\r\n"),
            Self::Array(parts) => {
                line(into, b'*', parts.len().to_string().as_bytes());
                parts.iter().for_each(|part| part.write(into));
            }
        }
    }
}

fn line(into: &mut Vec<u8>, kind: u8, text: &[u8]) {
    into.push(kind);
    into.extend_from_slice(text);
    into.extend_from_slice(b"\r\n");
}

/// The requests of one connection, from its bytes.
#[derive(Debug, Default)]
pub struct Requests {
    bytes: Vec<u8>,
    read: usize,
}

impl Requests {
    /// More bytes have come.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next request, when all of it is there: an array of words.
    pub fn next_request(&mut self) -> Option<Vec<&[u8]>> {
        let mut rest = self.bytes.get(self.read..)?;
        let count = number(&mut rest, b'*')?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let length = number(&mut rest, b'$')?;
            words.push(rest.get(..length)?);
            rest = rest.get(length + 2..)?;
        }
        self.read = self.bytes.len() - rest.len();
        Some(words)
    }
}

fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'\r').filter(|end| rest.len() > end + 1)?;
    assert_eq!(rest[0], kind, "a client sends arrays of words");
    let text = std::str::from_utf8(&rest[1..end]).ok()?;
    *rest = &rest[end + 2..];
    text.parse().ok()
}

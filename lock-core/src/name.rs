//! Lock names: any Unicode text, escaped by each backend so that two names never share a key or a node.

use std::{fmt, fmt::Write as _, sync::Arc};

/// What is locked: 1 to 512 bytes of UTF-8 without NUL. Two names are the same lock when their bytes are the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(pub(crate) Arc<str>);

impl LockName {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as one safe path component: ASCII letters, digits, `_` and `-` stand for themselves, every other byte
    /// (a dot, a slash and the per cent sign, too) becomes `%XX`. Different names stay different; see
    /// [`LockName::from_component`] for the way back.
    #[must_use]
    pub fn to_component(&self) -> String {
        let mut component = String::with_capacity(self.0.len());
        for byte in self.0.bytes() {
            match byte {
                // Safeguard: catalogue: a name is escaped with its escapes
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => component.push(char::from(byte)),
                other => {
                    let _ = write!(component, "%{other:02X}");
                }
            }
        }
        component
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

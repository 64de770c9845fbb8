//! Where a server of a cluster sends a client.

use redis::RedisError;

use crate::wire::Address;

/// A redirection by a server of a cluster that does not have the keys of a command: `MOVED` or `ASK`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Another one has the slot; `None` when it does not say where that is.
    Moved { slot: u16, to: Option<Address> },
    /// Another one is about to have the slot, and may have these keys already: ask there, this once.
    Ask { to: Address },
}

impl Redirect {
    /// Reads an error of a server.
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let (to, slot) = error.redirect_node()?;
        let to = to.parse().ok();
        match error.code() {
            Some("MOVED") => Some(Self::Moved { slot, to }),
            Some("ASK") => Some(Self::Ask { to: to? }),
            _ => None,
        }
    }

    /// Whether it is about one request only.
    pub(crate) const fn is_for_once(&self) -> bool {
        matches!(self, Self::Ask { .. })
    }
}

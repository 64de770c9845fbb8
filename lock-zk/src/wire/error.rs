//! What a request that was not done, or is not known to be done, says.

use std::{error::Error, fmt, sync::Arc};

/// What the client said, for people.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why there is no answer to a request, or none that it was done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RequestError {
    /// The node, or the node above it, is not there.
    NoNode,
    /// A node of that name is there.
    NodeExists,
    /// The node above it is one that has no children.
    NoChildrenForEphemerals,
    /// The server knows no such request.
    Unimplemented,
    /// The server did not do it, for another reason.
    Refused(Cause),
    /// The server has too much to do, and did not do it.
    Throttled,
    /// The session has ended.
    SessionEnded(Cause),
    /// The request may have been done or not.
    Unknown(Cause),
}

/// What an error says about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered and did not do it.
    Refused,
    /// The server has too much to do, and did not do it. It may later.
    Throttled,
    /// The session has ended: its nodes are gone or about to go.
    SessionEnded,
    /// It may have been done or not.
    Unknown,
}

impl Outcome {
    /// Whether the same request may be answered later.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Throttled | Self::Unknown)
    }
}

impl RequestError {
    /// What it says about the request.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::NoNode
            | Self::NodeExists
            | Self::NoChildrenForEphemerals
            | Self::Unimplemented
            | Self::Refused(_) => Outcome::Refused,
            // A throttled request takes no place in the leader's order, so its answer settles nothing that was sent before it.
            Self::Throttled => Outcome::Throttled,
            Self::SessionEnded(_) => Outcome::SessionEnded,
            Self::Unknown(_) => Outcome::Unknown,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("the node is not there"),
            Self::NodeExists => f.write_str("the node is there already"),
            Self::NoChildrenForEphemerals => f.write_str("an ephemeral node has no children"),
            Self::Unimplemented => f.write_str("the server does not know the request"),
            Self::Throttled => f.write_str("the server has too much to do"),
            Self::Refused(cause) | Self::SessionEnded(cause) | Self::Unknown(cause) => cause.fmt(f),
        }
    }
}

impl Error for RequestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(cause) | Self::SessionEnded(cause) | Self::Unknown(cause) => cause.source(),
            _ => None,
        }
    }
}

//! The one error type: a variant for each reaction of the caller.

use std::{fmt, num::NonZeroU32};

use crate::{Feature, LockName};

/// A cause, kept for the reader of a log.
pub type Source = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Why a lock operation failed; each variant calls for one reaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the lock, and the wait limit passed. Nothing of this attempt is left on the server, or the
    /// cleanup is removing it.
    #[error("lock {name:?} was not acquired in time")]
    NotAcquired {
        /// What was to be locked.
        name: LockName,
    },

    /// The backend cannot be reached or does not answer: try again later. What an interrupted operation may have left
    /// on the server is removed by the cleanup as soon as it answers, or ends with its ttl.
    #[error("{backend} is unavailable: {reason}")]
    Unavailable {
        /// Which backend, in the form of its URL without secrets.
        backend: String,
        /// What was attempted and how it failed.
        reason: String,
        /// The client's own error, where there is one.
        #[source]
        source: Option<Source>,
    },

    /// The service refuses this program: its user or password, its certificate, what that user may do, or what other software
    /// has written in the place of the lock. Trying again is of no use before somebody has mended that.
    #[error("{backend} refuses this program: {reason}")]
    Refused {
        /// Which backend, in the form of its URL without secrets.
        backend: String,
        /// What was attempted and how it was refused.
        reason: String,
        /// The client's own error, where there is one.
        #[source]
        source: Option<Source>,
    },

    /// The lock was held and is not held any more: abandon the work, then start again with a new acquisition.
    #[error("lock {name:?} was lost: {loss}")]
    Lost {
        /// What was locked.
        name: LockName,
        /// Why it is lost.
        loss: Loss,
    },

    /// This backend cannot do that, and does not pretend to.
    #[error("{feature} is not supported by the backend {backend}{}", with(*setting))]
    Unsupported {
        /// What was asked for.
        feature: &'static str,
        /// The backend's name, as in [`Capabilities::backend`](crate::Capabilities::backend).
        backend: &'static str,
        /// The setting without which the backend does it, as `key=value`; `None` where no setting changes that.
        setting: Option<&'static str>,
    },

    /// The lock name is not 1 to 512 bytes without NUL.
    #[error("invalid lock name {name:?}: {problem}; allowed are 1 to 512 bytes of UTF-8 without NUL")]
    InvalidName {
        /// What was given.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// A setting is unknown or its value is not allowed.
    #[error("configuration: {key} = {value:?} is not allowed; allowed: {allowed}")]
    Config {
        /// Which setting.
        key: String,
        /// What was given.
        value: String,
        /// What would be accepted.
        allowed: String,
    },

    /// A re-entrant lock was asked for by the owner of the scope, and there is no scope around the call: a mistake in the
    /// program. Wrap the work in [`Owner::scope`](crate::Owner::scope), or name the owner to
    /// [`Mutex::reentrant`](crate::Mutex::reentrant).
    #[error("a re-entrant lock was asked for outside of an owner's scope; wrap the call in Owner::scope")]
    NoOwner,

    /// [`Locks::drain`](crate::Locks::drain) or [`Locks::close`](crate::Locks::close) was called.
    #[error("the connection was closed by this program")]
    Closed,

    /// A backend's answer to an acquisition that was told to stop. Programs never see it: they get
    /// [`Error::NotAcquired`] or [`Error::Closed`].
    #[error("the acquisition was told to stop")]
    Cancelled,
}

impl Error {
    /// An [`Error::Unavailable`] with the client's own error as its source.
    pub fn unavailable(backend: impl Into<String>, reason: impl Into<String>, source: impl Into<Source>) -> Self {
        Self::Unavailable { backend: backend.into(), reason: reason.into(), source: Some(source.into()) }
    }

    /// An [`Error::Unavailable`] without a further cause, such as a time limit that passed.
    pub fn no_answer(backend: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unavailable { backend: backend.into(), reason: reason.into(), source: None }
    }

    /// An [`Error::Refused`], with the client's own error where there is one.
    pub fn refused(backend: impl Into<String>, reason: impl Into<String>, source: Option<Source>) -> Self {
        Self::Refused { backend: backend.into(), reason: reason.into(), source }
    }

    /// An [`Error::Config`].
    pub fn config(key: impl Into<String>, value: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Config { key: key.into(), value: value.into(), allowed: allowed.into() }
    }

    /// An [`Error::Unsupported`].
    #[must_use]
    pub const fn unsupported(feature: Feature, backend: &'static str) -> Self {
        Self::Unsupported { feature: feature.name(), backend, setting: None }
    }

    /// The [`Error::Config`] of a contender that names another number of permits than the oldest one there.
    #[must_use]
    pub fn permits(name: &LockName, asked: NonZeroU32, there: NonZeroU32) -> Self {
        let allowed = format!("{there}, which the oldest contender of the semaphore {name:?} has named");
        Self::config("permits", asked.to_string(), allowed)
    }

    /// Whether the same call may succeed later without any change by the program or its configuration.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::NotAcquired { .. } | Self::Unavailable { .. } | Self::Lost { .. })
    }
}

fn with(setting: Option<&str>) -> String {
    setting.map(|setting| format!(" with {setting}; leave that setting out")).unwrap_or_default()
}

/// A downgrade that did not happen, of a guard of type `G`.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DowngradeFailed<G> {
    /// Why.
    #[source]
    pub error: Error,
    /// The guard, still held for writing, when nothing was attempted because the backend does not offer it. Otherwise the
    /// lock is lost or is being released.
    pub guard: Option<G>,
}

impl<G> From<DowngradeFailed<G>> for Error {
    fn from(failed: DowngradeFailed<G>) -> Self {
        failed.error
    }
}

/// Why a lock that was held is not held any more. Final: the guard never becomes valid again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The deadline passed without an acknowledged renewal, for no known reason (a starved runtime, a stopped process).
    Expired,
    /// The deadline passed while the backend could not be reached.
    Unreachable,
    /// The deadline passed while the server refused this program: its user or password, or what that user may do.
    Denied,
    /// The server does not have this lease any more: its key or node was deleted, ended there, or is another holder's.
    Revoked,
    /// The session that the lock shares with others of its connection has ended (ZooKeeper).
    SessionEnded,
    /// The program closed the connection.
    Closed,
    /// The guard was released.
    Released,
    /// It was held for as long as its program had allowed at most.
    MaxHoldExceeded,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ended before a renewal was acknowledged",
            Self::Unreachable => "its lease ended while the backend could not be reached",
            Self::Denied => "its lease ended while the server refused this program's user, password or rights",
            Self::Revoked => "the server does not have it any more",
            Self::SessionEnded => "the session has ended",
            Self::Closed => "the connection was closed by this program",
            Self::Released => "it was released",
            Self::MaxHoldExceeded => "it was held for its maximum time",
        })
    }
}

//! What can go wrong on the wire, sorted by what is true on the server afterwards.

use std::{fmt, sync::Arc, time::Duration};

use lock_core::Source;
use redis::{RedisError, ServerError};

use super::{
    lane::Replicas,
    route::{Address, Redirect},
};

/// Why a script has no answer. The one thing that matters: whether it may have run.
#[derive(Debug, Clone)]
pub enum NodeError {
    /// It certainly did not run, or changed nothing: it was never sent, or the server refused it.
    NotApplied(Failure),
    /// It may have run, may be about to run, or neither: the answer did not come, or makes no sense.
    Unknown(Failure),
}

/// What happened.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    reason: String,
    source: Option<Arc<RedisError>>,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// No connection, or it broke.
    Connection,
    /// No answer in time.
    TimedOut,
    /// The server takes no writes: it is a replica now, or may not write (`READONLY`, `NOREPLICAS`, `MISCONF`,
    /// `CLUSTERDOWN`).
    ReadOnly,
    /// Another server of the cluster has the keys.
    Moved,
    /// The server is not ready: another script runs, it loads its data, or it waits for its primary.
    Busy,
    /// The server is out of memory.
    OutOfMemory,
    /// A key beside the lock key has another type than this library gives it.
    WrongType,
    /// Too few replicas have acknowledged it (`min_replicas`).
    Unacknowledged,
    /// The credentials are wrong or do not suffice.
    Denied,
    /// Any other error of the server, or an answer that is none of this library's scripts'.
    Unexpected,
}

impl NodeError {
    /// What happened.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        match self {
            Self::NotApplied(failure) | Self::Unknown(failure) => failure,
        }
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> FailureKind {
        self.failure().kind
    }

    /// Whether the script may have run.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Whether the same may succeed in a moment.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        !matches!(self.kind(), FailureKind::WrongType | FailureKind::Denied | FailureKind::Unexpected)
    }

    /// Whether another connection may do better than this one.
    pub(crate) const fn wants_new_connection(&self) -> bool {
        matches!(self.kind(), FailureKind::Connection | FailureKind::TimedOut | FailureKind::ReadOnly)
    }

    /// This error as a program sees it. `url` names the server, without secrets.
    #[must_use]
    pub fn into_error(self, url: &str) -> lock_core::Error {
        let (Self::NotApplied(failure) | Self::Unknown(failure)) = self;
        match failure.source {
            Some(source) => lock_core::Error::unavailable(url, failure.reason, Box::new(source) as Source),
            None => lock_core::Error::no_answer(url, failure.reason),
        }
    }

    pub(crate) fn not_connected(error: RedisError) -> Self {
        let kind = match error.kind() {
            redis::ErrorKind::AuthenticationFailed => FailureKind::Denied,
            _ => match error.code() {
                Some(code) => sort(code).0,
                None => FailureKind::Connection,
            },
        };
        Self::NotApplied(Failure { kind, reason: "connecting failed".into(), source: Some(Arc::new(error)) })
    }

    pub(crate) fn connect_timed_out(limit: Duration) -> Self {
        let reason = format!("no connection within {limit:?}");
        Self::NotApplied(Failure { kind: FailureKind::TimedOut, reason, source: None })
    }

    pub(crate) fn no_primary() -> Self {
        let reason = "nobody is left to ask which server is the primary".into();
        Self::NotApplied(Failure { kind: FailureKind::Connection, reason, source: None })
    }

    pub(crate) fn cluster_is_down(address: &Address) -> Self {
        let reason = format!("{address} is cut off from its cluster, or a part of that is missing");
        Self::NotApplied(Failure { kind: FailureKind::ReadOnly, reason, source: None })
    }

    /// The primary has it, and too few replicas.
    pub(crate) fn unacknowledged(wanted: Replicas, acknowledged: i64) -> Self {
        let Replicas { count, within } = wanted;
        let reason = format!(
            "min_replicas={count}: {acknowledged} of {count} replicas acknowledged it within {within:?} (replica_timeout)"
        );
        Self::NotApplied(Failure { kind: FailureKind::Unacknowledged, reason, source: None })
    }

    /// Where a server of a cluster says that the keys are.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        self.failure().source.as_deref().and_then(Redirect::of)
    }

    /// A server was named as the primary, and says that it is none.
    pub(crate) fn not_primary(address: &Address) -> Self {
        let reason = format!("{address} was named as the primary and is none");
        Self::NotApplied(Failure { kind: FailureKind::ReadOnly, reason, source: None })
    }

    /// So few sentinels answer that they may be those who were cut off from the others.
    pub(crate) fn too_few_sentinels(service: &str, answers: usize, asked: usize, needed: usize) -> Self {
        let reason =
            format!("{answers} of {asked} sentinels name the primary of {service:?}, and at least {needed} must");
        Self::NotApplied(Failure { kind: FailureKind::Connection, reason, source: None })
    }

    /// Those who were asked for the primary answer, and know of none.
    pub(crate) fn unknown_service(service: &str) -> Self {
        let reason = format!("the sentinels know no service {service:?}");
        Self::NotApplied(Failure { kind: FailureKind::Unexpected, reason, source: None })
    }

    pub(crate) fn timed_out(limit: Duration) -> Self {
        let reason = format!("no answer within {limit:?}");
        Self::Unknown(Failure { kind: FailureKind::TimedOut, reason, source: None })
    }

    pub(crate) fn broken(error: RedisError) -> Self {
        let reason = "the connection broke".into();
        Self::Unknown(Failure { kind: FailureKind::Connection, reason, source: Some(Arc::new(error)) })
    }

    pub(crate) fn closed() -> Self {
        let reason = "the connection was closed".into();
        Self::NotApplied(Failure { kind: FailureKind::Connection, reason, source: None })
    }

    pub(crate) fn refused(error: ServerError) -> Self {
        let (kind, applied) = sort(error.code());
        let reason = format!("the server refused it with {}", error.code());
        let failure = Failure { kind, reason, source: Some(Arc::new(error.into())) };
        if applied { Self::Unknown(failure) } else { Self::NotApplied(failure) }
    }

    /// The same failure of something on which nothing relies.
    pub(crate) fn not_applied(self) -> Self {
        let (Self::NotApplied(failure) | Self::Unknown(failure)) = self;
        Self::NotApplied(failure)
    }

    /// The server does not know the script by its hash.
    pub(super) fn is_missing_script(&self) -> bool {
        self.failure().source.as_ref().is_some_and(|source| source.code() == Some("NOSCRIPT"))
    }

    /// An answer that none of the library's scripts gives. It ran, and nobody knows what it did.
    #[must_use]
    pub fn nonsense(answer: &redis::Value) -> Self {
        let reason = format!("the server answered {answer:?}");
        Self::Unknown(Failure { kind: FailureKind::Unexpected, reason, source: None })
    }
}

/// What an error code means, and whether a script may have changed something before it was raised. The server raises
/// these before the script starts, or at its first write; scripts that read wrong types only before they write get
/// `WRONGTYPE` in time, too. Anything else may come from the middle of a script.
fn sort(code: &str) -> (FailureKind, bool) {
    match code {
        // The last one: it is cut off from its cluster, where another one may have taken its place.
        "READONLY" | "NOREPLICAS" | "MISCONF" | "CLUSTERDOWN" => (FailureKind::ReadOnly, false),
        "MOVED" | "ASK" => (FailureKind::Moved, false),
        "BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN" | "NOTBUSY" => (FailureKind::Busy, false),
        "OOM" => (FailureKind::OutOfMemory, false),
        "WRONGTYPE" => (FailureKind::WrongType, false),
        "NOAUTH" | "WRONGPASS" | "NOPERM" => (FailureKind::Denied, false),
        "NOSCRIPT" => (FailureKind::Unexpected, false),
        _ => (FailureKind::Unexpected, true),
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = self.failure();
        f.write_str(&failure.reason)?;
        match &failure.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failure().source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> NodeError {
        let line = format!("-{code} 7 127.0.0.1:6379\r\n");
        let redis::Value::ServerError(error) = redis::parse_redis_value(line.as_bytes()).unwrap() else {
            panic!("{line:?} is no error");
        };
        NodeError::refused(error)
    }

    #[test]
    fn what_a_server_refuses_while_another_takes_over_is_not_applied_and_may_be_sent_again() {
        use FailureKind::{Busy, Moved, ReadOnly};
        for (code, kind, elsewhere) in [
            ("READONLY", ReadOnly, true),
            ("NOREPLICAS", ReadOnly, true),
            ("MISCONF", ReadOnly, true),
            ("CLUSTERDOWN", ReadOnly, true),
            ("LOADING", Busy, false),
            ("MASTERDOWN", Busy, false),
            ("TRYAGAIN", Busy, false),
            ("MOVED", Moved, false),
            ("ASK", Moved, false),
        ] {
            let error = refused(code);
            let said = (error.kind(), error.is_unknown(), error.is_temporary(), error.wants_new_connection());
            assert_eq!(said, (kind, false, true, elsewhere), "{code}");
        }
    }

    #[test]
    fn where_the_keys_are_is_read_from_the_refusal() {
        let to = Address::new("127.0.0.1", 6379);
        assert_eq!(refused("MOVED").redirect(), Some(Redirect::Moved { slot: 7, to: Some(to.clone()) }));
        assert_eq!(refused("ASK").redirect(), Some(Redirect::Ask { to }));
        assert_eq!(refused("READONLY").redirect(), None);
    }
}

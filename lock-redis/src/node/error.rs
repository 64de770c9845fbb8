//! What can go wrong on the wire, sorted by what is true on the server afterwards.

use std::{fmt, sync::Arc, time::Duration};

use lock_core::{Loss, Source};
use redis::{RedisError, ServerError};

use super::{Eviction, redirect::Redirect, replicas::Replicas};
use crate::wire::{Address, Network};

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
    /// Settings of a server that are a danger to locks, and which one it is.
    eviction: Option<(Address, Eviction)>,
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
    /// The server or this program did not accept the certificate of the other one (TLS).
    Untrusted,
    /// The server deletes keys when it is short of memory, and locks with them.
    Evicting,
    /// Any other error of the server, or an answer that is none of this library's scripts'.
    Unexpected,
}

impl Failure {
    fn new(kind: FailureKind, reason: String, source: Option<RedisError>) -> Self {
        Self { kind, reason, source: source.map(Arc::new), eviction: None }
    }
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
        {
            use FailureKind::{Denied, Evicting, Unexpected, Untrusted, WrongType};
            !matches!(self.kind(), WrongType | Denied | Untrusted | Evicting | Unexpected)
        }
    }

    /// Whether another connection may do better than this one.
    pub(crate) const fn wants_new_connection(&self) -> bool {
        matches!(self.kind(), FailureKind::Connection | FailureKind::TimedOut | FailureKind::ReadOnly)
    }

    /// Why a lease ends, if it does before a renewal of it succeeds, and this is how the latest one failed.
    #[must_use]
    pub const fn expiry_cause(&self) -> Loss {
        match self.kind() {
            FailureKind::Denied => Loss::Denied,
            _ => Loss::Unreachable,
        }
    }

    /// This error as a program sees it. `url` names the server, without secrets.
    #[must_use]
    pub fn into_error(self, url: &str) -> lock_core::Error {
        let is_temporary = self.is_temporary();
        let (Self::NotApplied(failure) | Self::Unknown(failure)) = self;
        if let Some((server, eviction)) = failure.eviction {
            return eviction.into_error(&server.to_string());
        }
        let source = failure.source.map(|source| Box::new(source) as Source);
        match source {
            source if !is_temporary => lock_core::Error::refused(url, failure.reason, source),
            Some(source) => lock_core::Error::unavailable(url, failure.reason, source),
            None => lock_core::Error::no_answer(url, failure.reason),
        }
    }

    pub(crate) fn not_connected(error: RedisError) -> Self {
        if let Some(why) = untrusted(&error) {
            return Self::NotApplied(Failure::new(FailureKind::Untrusted, why, Some(error)));
        }
        let kind = match error.kind() {
            redis::ErrorKind::AuthenticationFailed => FailureKind::Denied,
            _ => match error.code() {
                Some(code) => sort(code).0,
                None => FailureKind::Connection,
            },
        };
        let reason = match error.is_connection_dropped() && !error.is_connection_refusal() {
            true => {
                "the server hung up while connecting, as a port for TLS does with whom comes without it, and as one of another \
                 service does"
            }
            false => "connecting failed",
        };
        Self::NotApplied(Failure::new(kind, reason.into(), Some(error)))
    }

    pub(crate) fn connect_timed_out(limit: Duration, network: &dyn Network) -> Self {
        let hint = match network.is_encrypted() {
            true => ", which may be the silence of a server that does not speak TLS on that port",
            false => "",
        };
        let reason = format!("no connection within {limit:?}{hint}");
        Self::NotApplied(Failure::new(FailureKind::TimedOut, reason, None))
    }

    /// The server may delete locks.
    pub(crate) fn evicting(address: &Address, eviction: Eviction) -> Self {
        let reason = format!("{address} deletes keys when it is short of memory: {eviction}");
        Self::NotApplied(Failure {
            eviction: Some((address.clone(), eviction)),
            ..Failure::new(FailureKind::Evicting, reason, None)
        })
    }

    pub(crate) fn no_primary() -> Self {
        let reason = "nobody is left to ask which server is the primary".into();
        Self::NotApplied(Failure::new(FailureKind::Connection, reason, None))
    }

    pub(crate) fn cluster_is_down(address: &Address) -> Self {
        let reason = format!("{address} is cut off from its cluster, or a part of that is missing");
        Self::NotApplied(Failure::new(FailureKind::ReadOnly, reason, None))
    }

    /// The primary has it, and too few replicas.
    pub(crate) fn unacknowledged(wanted: Replicas, acknowledged: i64) -> Self {
        let Replicas { count, within } = wanted;
        let reason = format!(
            "min_replicas={count}: {acknowledged} of {count} replicas acknowledged it within {within:?} (replica_timeout)"
        );
        Self::NotApplied(Failure::new(FailureKind::Unacknowledged, reason, None))
    }

    /// Where a server of a cluster says that the keys are.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        self.failure().source.as_deref().and_then(Redirect::of)
    }

    /// A server was named as the primary, and says that it is none.
    pub(crate) fn not_primary(address: &Address) -> Self {
        let reason = format!("{address} was named as the primary and is none");
        Self::NotApplied(Failure::new(FailureKind::ReadOnly, reason, None))
    }

    /// So few sentinels answer that they may be those who were cut off from the others.
    pub(crate) fn too_few_sentinels(service: &str, answers: usize, asked: usize, needed: usize) -> Self {
        let reason =
            format!("{answers} of {asked} sentinels name the primary of {service:?}, and at least {needed} must");
        Self::NotApplied(Failure::new(FailureKind::Connection, reason, None))
    }

    /// Those who were asked for the primary answer, and know of none.
    pub(crate) fn unknown_service(service: &str) -> Self {
        let reason = format!("the sentinels know no service {service:?}");
        Self::NotApplied(Failure::new(FailureKind::Unexpected, reason, None))
    }

    pub(crate) fn timed_out(limit: Duration) -> Self {
        let reason = format!("no answer within {limit:?}");
        Self::Unknown(Failure::new(FailureKind::TimedOut, reason, None))
    }

    pub(crate) fn broken(error: RedisError) -> Self {
        let reason = "the connection broke".into();
        Self::Unknown(Failure::new(FailureKind::Connection, reason, Some(error)))
    }

    pub(crate) fn closed() -> Self {
        let reason = "the connection was closed".into();
        Self::NotApplied(Failure::new(FailureKind::Connection, reason, None))
    }

    pub(crate) fn refused(error: ServerError) -> Self {
        // Safeguard: the error inside of another one is read (Redis, Redlock)
        let code = raised(&error).unwrap_or(error.code());
        // A command that the user may not give may stand behind others in a script.
        let (kind, applied) = if is_denied_in_script(&error) { (FailureKind::Denied, true) } else { sort(code) };
        let reason = format!("the server refused it with {code}");
        let failure = Failure::new(kind, reason, Some(error.into()));
        if applied { Self::Unknown(failure) } else { Self::NotApplied(failure) }
    }

    /// The same failure of something on which nothing relies.
    pub(crate) fn not_applied(self) -> Self {
        let (Self::NotApplied(failure) | Self::Unknown(failure)) = self;
        Self::NotApplied(failure)
    }

    /// A cluster moves the slot, and only some of the keys are on this server.
    pub(crate) fn is_try_again(&self) -> bool {
        self.failure().source.as_ref().is_some_and(|source| source.code() == Some("TRYAGAIN"))
    }

    /// The server does not know the script by its hash.
    pub(super) fn is_missing_script(&self) -> bool {
        self.failure().source.as_ref().is_some_and(|source| source.code() == Some("NOSCRIPT"))
    }

    /// An answer that none of the library's scripts gives. It ran, and nobody knows what it did.
    #[must_use]
    pub fn nonsense(answer: &redis::Value) -> Self {
        let reason = format!("the server answered {answer:?}");
        Self::Unknown(Failure::new(FailureKind::Unexpected, reason, None))
    }
}

/// Why a connection could not be secured, if that is what went wrong.
#[cfg(feature = "_tls")]
fn untrusted(error: &RedisError) -> Option<String> {
    lock_tls::TlsFailure::of(error).map(ToString::to_string)
}

/// This build has no TLS.
#[cfg(not(feature = "_tls"))]
const fn untrusted(_error: &RedisError) -> Option<String> {
    None
}

/// The code of an error that a script ended with, where the server wraps it in another one, as up to Redis 6.2:
/// `ERR Error running script (call to f_…): @user_script:2: @user_script: 2: -READONLY You can't write …`.
fn raised(error: &ServerError) -> Option<&str> {
    let details = error.details().filter(|_| error.code() == "ERR")?;
    let (_, raised) = details.split_once("@user_script:")?;
    // The line, once as the error handler of the server writes it, and once more where the server itself raised it.
    let raised = raised.rsplit_once("@user_script:").map_or(raised, |(_, raised)| raised);
    let (line, raised) = raised.split_once(": ")?;
    let code = raised.trim_start_matches('-').split(' ').next()?;
    let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_code && line.trim().parse::<u32>().is_ok()).then_some(code)
}

/// Whether a script was ended because its user may not give one of its commands, or not on that key.
fn is_denied_in_script(error: &ServerError) -> bool {
    let said = |text| error.details().is_some_and(|details| details.contains(text));
    said("The user executing the script can't") || said("ACL failure in script")
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
        answered(&format!("{code} 7 127.0.0.1:6379"))
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

    fn answered(line: &str) -> NodeError {
        let redis::Value::ServerError(error) = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
        else {
            panic!("{line:?} is no error");
        };
        NodeError::refused(error)
    }

    /// As Redis 6.2.14 says them.
    #[test]
    fn an_error_that_an_old_server_wraps_in_another_one_is_what_the_script_ended_with() {
        use FailureKind::{Busy, Denied, OutOfMemory, ReadOnly, Unexpected, WrongType};
        let call = "ERR Error running script (call to f_f40ea01e4442df015067d61c36badbc343603ed1): @user_script:2: ";
        for (raised, kind, may_have_run) in [
            ("@user_script: 2: -READONLY You can't write against a read only replica. ", ReadOnly, false),
            ("@user_script: 2: -NOREPLICAS Not enough good replicas to write. ", ReadOnly, false),
            (
                "@user_script: 12: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. ",
                ReadOnly,
                false,
            ),
            ("@user_script: 2: -OOM command not allowed when used memory > 'maxmemory'. ", OutOfMemory, false),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType, false),
            ("-BUSY Redis is busy running a script.", Busy, false),
            ("@user_script: 2: The user executing the script can't run this command or subcommand", Denied, true),
            (
                "@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments",
                Denied,
                true,
            ),
            ("attempt to index a nil value", Unexpected, true),
            ("ERR value is not an integer or out of range", Unexpected, true),
            ("@user_script: 2: ", Unexpected, true),
        ] {
            let error = answered(&format!("{call}{raised}"));
            assert_eq!((error.kind(), error.is_unknown()), (kind, may_have_run), "{raised}");
        }
    }

    #[test]
    fn a_command_that_a_user_may_not_give_may_stand_behind_others_in_a_script() {
        let said = [
            "ERR The user executing the script can't run this command or subcommand script: f40e, on @user_script:2.",
            "NOPERM ACL failure in script: User u has no permissions to run the 'set' command script: f40e, on @user_script:2.",
        ];
        for said in said {
            let error = answered(said);
            assert!(error.kind() == FailureKind::Denied && error.is_unknown(), "{said}");
        }
        let error = answered("NOPERM this user has no permissions to run the 'evalsha' command");
        assert!(error.kind() == FailureKind::Denied && !error.is_unknown());
    }

    #[test]
    fn where_the_keys_are_is_read_from_the_refusal() {
        let to = Address::new("127.0.0.1", 6379);
        assert_eq!(refused("MOVED").redirect(), Some(Redirect::Moved { slot: 7, to: Some(to.clone()) }));
        assert_eq!(refused("ASK").redirect(), Some(Redirect::Ask { to }));
        assert_eq!(refused("READONLY").redirect(), None);
    }
}

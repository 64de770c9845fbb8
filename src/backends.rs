//! The one place that names every backend.

use std::sync::Arc;
#[cfg(feature = "redlock")]
use std::time::Duration;

use lock_core::{Backend, Error, Settings, memory};

/// A backend that a URL can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendKind {
    /// The URL's scheme.
    pub scheme: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// The least that connects to it.
    pub example: &'static str,
    /// The cargo feature of this crate that it needs, if any.
    pub feature: Option<&'static str>,
    /// Whether this build has it.
    pub available: bool,
}

/// Every backend there is, by scheme; those that this build lacks, too.
pub const BACKENDS: &[BackendKind] = &[
    BackendKind {
        scheme: "zk",
        summary: "ZooKeeper: a fair queue on an ensemble that survives the loss of a minority of its servers",
        example: "zk://127.0.0.1:2181/app",
        feature: Some("zk"),
        available: cfg!(feature = "zk"),
    },
    BackendKind {
        scheme: "redis",
        summary: "one Redis server: the shortest round trip, no safety beyond that one server's memory",
        example: "redis://127.0.0.1:6379",
        feature: Some("redis"),
        available: cfg!(feature = "redis"),
    },
    BackendKind {
        scheme: "redis+sentinel",
        summary: "Redis with Sentinels: follows the primary; a failover may lose what was not replicated",
        example: "redis+sentinel://127.0.0.1:26379,127.0.0.1:26380,127.0.0.1:26381/orders",
        feature: Some("redis"),
        available: cfg!(feature = "redis"),
    },
    BackendKind {
        scheme: "redis+cluster",
        summary: "a Redis cluster: spreads the locks; a failover may lose what was not replicated",
        example: "redis+cluster://127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381",
        feature: Some("redis"),
        available: cfg!(feature = "redis"),
    },
    BackendKind {
        scheme: "redlock",
        summary: "Redlock: a majority of independent Redis nodes, which survives the loss of a minority of them",
        example: "redlock://127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381",
        feature: Some("redlock"),
        available: cfg!(feature = "redlock"),
    },
    BackendKind {
        scheme: "local",
        summary: "this machine: locked files in a directory, without a server; a lock ends with its process",
        example: "local:///var/lib/app/locks",
        feature: Some("local"),
        available: cfg!(feature = "local"),
    },
    BackendKind {
        scheme: "memory",
        summary: "this process only: for tests and examples",
        example: "memory://",
        feature: None,
        available: true,
    },
];

/// Refuses a scheme that is not in [`BACKENDS`] or not in this build.
pub(crate) fn check(scheme: &str) -> Result<(), Error> {
    match BACKENDS.iter().find(|kind| kind.scheme == scheme) {
        Some(kind) if kind.available => Ok(()),
        _ => Err(no_such(scheme)),
    }
}

/// Connects to the backend that the scheme of `settings` names.
#[cfg_attr(
    not(any(feature = "zk", feature = "redis", feature = "redlock")),
    allow(clippy::unused_async, reason = "memory and local connect at once; the others do not")
)]
pub(crate) async fn connect(settings: Settings) -> Result<Arc<dyn Backend>, Error> {
    Ok(match settings.scheme.as_str() {
        #[cfg(feature = "zk")]
        "zk" => lock_zk::ZooKeeper::connect(lock_zk::Config::from_settings(settings)?).await?,
        #[cfg(feature = "redis")]
        "redis" | "redis+sentinel" | "redis+cluster" => {
            lock_redis::Redis::connect(lock_redis::Config::from_settings(settings)?).await?
        }
        #[cfg(feature = "redlock")]
        "redlock" => lock_redlock::Redlock::connect(lock_redlock::Config::from_settings(settings)?).await?,
        #[cfg(feature = "local")]
        "local" => lock_local::Local::connect(lock_local::Config::from_settings(settings)?)?,
        "memory" => memory::Memory::connect(memory::Config::from_settings(settings)?)?,
        other => return Err(no_such(other)),
    })
}

/// Makes the servers that `settings` name a deployment; returns for how long they grant nothing yet.
#[cfg(feature = "redlock")]
pub(crate) async fn initialize(settings: Settings, options: lock_redlock::InitOptions) -> Result<Duration, Error> {
    lock_redlock::init(&redlock(settings)?, options).await
}

/// Puts the server `new` in the place of the member `old`.
#[cfg(feature = "redlock")]
pub(crate) async fn replace(
    settings: Settings,
    old: (String, Option<u16>),
    new: (String, Option<u16>),
) -> Result<lock_redlock::Replaced, Error> {
    let [old, new] = [&old, &new].map(|(host, port)| (host.as_str(), port.unwrap_or(lock_redlock::Config::PORT)));
    lock_redlock::replace(&redlock(settings)?, old, new).await
}

#[cfg(feature = "redlock")]
fn redlock(settings: Settings) -> Result<lock_redlock::Config, Error> {
    if settings.scheme != "redlock" {
        return Err(Error::config("backend", settings.scheme, "redlock; only its servers are a deployment"));
    }
    lock_redlock::Config::from_settings(settings)
}

fn no_such(scheme: &str) -> Error {
    let available: Vec<_> = BACKENDS.iter().filter(|kind| kind.available).map(|kind| kind.scheme).collect();
    let available = available.join(", ");
    match BACKENDS.iter().find(|kind| kind.scheme == scheme).and_then(|kind| kind.feature) {
        Some(feature) => Error::config(
            "backend",
            scheme,
            format!("{available}; this program was built without {scheme}: turn on the feature `{feature}` of `lock`"),
        ),
        None => Error::config("backend", scheme, available),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_backend_of_the_list_is_connected_by_its_scheme_or_names_its_feature() {
        for kind in BACKENDS {
            let mut settings = crate::address::parse_unchecked(kind.example).unwrap();
            settings.values.insert("no_such_key".to_owned(), "17".to_owned());
            let error = connect(settings).await.unwrap_err().to_string();
            let expected = if kind.available { "no_such_key" } else { "turn on the feature" };
            assert!(error.contains(expected), "{}: {error}", kind.scheme);
        }
    }

    #[test]
    fn an_unknown_scheme_is_named_with_those_that_are_known() {
        let error = check("rediss").unwrap_err().to_string();
        assert!(error.contains("rediss") && error.contains("memory"), "{error}");
    }
}

//! The drivers that ship: one line each.

#[cfg(feature = "redlock")]
use lock_core::{Error, Settings};
use lock_core::{Registry, memory::MemoryDriver};

/// Adds the driver of a crate that this build has, or notes the feature that would bring it.
macro_rules! drivers {
    ($($feature:literal => $driver:path),* $(,)?) => {{
        let registry = Registry::new();
        $(
            #[cfg(feature = $feature)]
            let registry = registry.with($driver);
            #[cfg(not(feature = $feature))]
            let registry = registry.without($feature);
        )*
        registry
    }};
}

/// Every driver of this build, for [`Config::connect_with`](crate::Config::connect_with) and for those who want to know what
/// there is. A program adds its own by [`Registry::with`].
#[must_use]
pub fn registry() -> Registry {
    drivers! {
        "zk" => lock_zk::ZooKeeperDriver,
        "redis" => lock_redis::RedisDriver,
        "redlock" => lock_redlock::RedlockDriver,
        "local" => lock_local::LocalDriver,
        "etcd" => lock_etcd::EtcdDriver,
    }
    .with(MemoryDriver)
}

/// The configuration of a Redlock deployment.
#[cfg(feature = "redlock")]
pub(crate) fn redlock(settings: Settings) -> Result<lock_redlock::Config, Error> {
    if !matches!(settings.scheme.as_str(), "redlock" | "redlocks") {
        return Err(Error::config("backend", settings.scheme, "redlock; only its servers are a deployment"));
    }
    lock_redlock::Config::from_settings(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_scheme_is_connected_by_its_own_driver() {
        for scheme in registry().schemes() {
            let mut settings = crate::address::parse(scheme.example).unwrap();
            settings.values.insert("no_such_key".to_owned(), "17".to_owned());
            let error = registry().connect(settings).await.unwrap_err().to_string();
            assert!(error.contains("no_such_key"), "{}: {error}", scheme.name);
        }
    }

    #[test]
    fn a_scheme_that_this_build_lacks_is_refused_with_the_features_that_it_lacks() {
        let lacking = Registry::new().without("zk").with(MemoryDriver);
        assert!(lacking.driver("zk").unwrap_err().to_string().contains("lacks the cargo features zk"));
    }
}

//! Drivers: how a URL becomes a connection.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;

use crate::{Backend, Context, Error, Settings, settings::SettingDoc};

/// A kind of lock service, chosen by the scheme of a URL.
///
/// A program that has one of its own adds it to a [`Registry`]; it is reached by URL, TOML and environment then as every
/// other is.
#[async_trait]
pub trait Driver: Debug + Send + Sync + 'static {
    /// The schemes that it serves, in the order of the documentation.
    fn schemes(&self) -> &'static [Scheme];

    /// The keys that a URL of `scheme` may have beside its address.
    fn settings(&self, scheme: &str) -> Vec<SettingDoc>;

    /// Connects to the service that `settings` name, whose scheme is one of [`Driver::schemes`].
    ///
    /// # Errors
    /// [`Error::Config`] that names key, value and what is allowed; [`Error::Unavailable`] when the service cannot be
    /// reached within its connect limit.
    async fn connect(&self, settings: Settings, context: Context) -> Result<Arc<dyn Backend>, Error>;
}

/// A scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// What stands before `://`.
    pub name: &'static str,
    /// What it connects to, in one line.
    pub summary: &'static str,
    /// The form of the address, without settings.
    pub form: &'static str,
    /// The least that connects to it.
    pub example: &'static str,
    /// What stands before `://` where each connection is encrypted (TLS); `None` where nothing crosses a network.
    pub with_tls: Option<&'static str>,
}

impl Scheme {
    /// Whether a URL of this scheme, with or without TLS, begins so.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.with_tls == Some(name)
    }
}

/// The drivers that a program can reach by URL.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
    /// What this build lacks, for the error about a scheme that nobody serves.
    missing: Vec<&'static str>,
}

impl Registry {
    /// A registry without drivers.
    #[must_use]
    pub const fn new() -> Self {
        Self { drivers: Vec::new(), missing: Vec::new() }
    }

    /// With one more driver. Of two that serve one scheme, the one that came later does.
    #[must_use]
    pub fn with(mut self, driver: impl Driver) -> Self {
        self.drivers.push(Arc::new(driver));
        self
    }

    /// Notes a cargo feature that would bring one more driver.
    #[must_use]
    pub fn without(mut self, feature: &'static str) -> Self {
        self.missing.push(feature);
        self
    }

    /// Every driver, in the order in which they came.
    pub fn drivers(&self) -> impl Iterator<Item = &dyn Driver> {
        self.drivers.iter().map(AsRef::as_ref)
    }

    /// Every scheme, in the order in which the drivers came.
    pub fn schemes(&self) -> impl Iterator<Item = &'static Scheme> {
        self.drivers.iter().flat_map(|driver| driver.schemes())
    }

    /// The cargo features that would bring more drivers.
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// The driver that serves `scheme`.
    ///
    /// # Errors
    /// [`Error::Config`] that names those that are served, and the features that this build lacks.
    pub fn driver(&self, scheme: &str) -> Result<&dyn Driver, Error> {
        let serves = |driver: &&Arc<dyn Driver>| driver.schemes().iter().any(|known| known.is_called(scheme));
        self.drivers.iter().rev().find(serves).map(AsRef::as_ref).ok_or_else(|| {
            let mut allowed = self
                .schemes()
                .flat_map(|known| [Some(known.name), known.with_tls])
                .flatten()
                .collect::<Vec<_>>()
                .join(", ");
            if !self.missing.is_empty() {
                allowed = format!("{allowed}; this build lacks the cargo features {}", self.missing.join(", "));
            }
            Error::config("backend", scheme, allowed)
        })
    }

    /// Connects to the service that `settings` name.
    ///
    /// # Errors
    /// Those of [`Registry::driver`] and of [`Driver::connect`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was connected is closed.
    pub async fn connect(&self, settings: Settings) -> Result<Arc<dyn Backend>, Error> {
        self.driver(&settings.scheme)?.connect(settings, Context::current()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDriver;

    #[test]
    fn a_scheme_that_nobody_serves_is_refused_with_those_that_are_served() {
        let registry = Registry::new().with(MemoryDriver).without("zk");
        assert_eq!(registry.driver("memory").unwrap().schemes()[0].name, "memory");
        let error = registry.driver("zk").unwrap_err().to_string();
        assert!(error.contains("\"zk\"") && error.contains("memory") && error.contains("features zk"), "{error}");
    }
}

//! Drivers: how a URL becomes a connection.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Backend, Context, Error, LockName, Scheme, Settings,
    diagnosis::{self, Diagnosis, Finding},
    outage,
    settings::SettingDoc,
};

/// How long ending the connection of a diagnosis may take.
const CLOSING: Duration = Duration::from_secs(1);

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

    /// Looks at the service that `settings` name, and says what it sees and what is wrong. A server that cannot be reached is
    /// a finding, so that the others are looked at all the same. Nothing is changed on the servers but what the driver says;
    /// each server has the limits of a connection, and all are looked at in parallel.
    ///
    /// By default it connects, looks at a name that nobody uses, says how long both took, and closes.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that are wrong whatever the servers say.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was connected is closed.
    async fn diagnose(&self, settings: Settings, context: Context) -> Result<Diagnosis, Error> {
        let (clock, servers, scheme) = (context.clock(), addresses(&settings), settings.scheme.clone());
        let name = format!("lock-doctor-{}", context.unique_id());
        let mut diagnosis = Diagnosis::new();
        let begin = clock.now();
        let backend = match self.connect(settings, context).await {
            Ok(backend) => backend,
            Err(error @ Error::Config { .. }) => return Err(error),
            Err(error) => {
                diagnosis.find(Finding::unreachable(servers, diagnosis::reason(&error)));
                return Ok(diagnosis);
            }
        };
        let connected_in = clock.now().saturating_since(begin);
        let sent = clock.now();
        let seen = backend.inspect(&LockName::new(name)?).await;
        let round_trip = seen.is_ok().then(|| clock.now().saturating_since(sent));
        diagnosis.answered(&servers, connected_in, round_trip);
        if let Err(error) = seen {
            let cure = format!("Look at the servers of {scheme}://, and at the rights of its user.");
            diagnosis.find(Finding::problem("no-look", servers, diagnosis::reason(&error), cure));
        }
        backend.close(CLOSING).await;
        Ok(diagnosis)
    }
}

/// The servers of these settings, for messages; the scheme where there are none.
fn addresses(settings: &Settings) -> String {
    let address = |(host, port): &(String, Option<u16>)| {
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    };
    match settings.hosts.as_slice() {
        [] => format!("{}://{}", settings.scheme, settings.path),
        hosts => hosts.iter().map(address).collect::<Vec<_>>().join(","),
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

    /// Connects to the service that `settings` name; while it cannot be reached, again and again until `limit` has passed. The
    /// first attempt may take as long as the backend lets it.
    ///
    /// # Errors
    /// Those of [`Registry::connect`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was connected is closed.
    pub async fn connect_within(&self, settings: Settings, limit: Duration) -> Result<Arc<dyn Backend>, Error> {
        let clock = Context::current().clock();
        let begin = clock.now();
        let mut failure = match self.connect(settings.clone()).await {
            Err(error @ Error::Unavailable { .. }) => error,
            connected => return connected,
        };
        let again = async {
            let mut pauses = outage::pauses();
            loop {
                tracing::debug!(error = %failure, "connecting again");
                clock.sleep(pauses.pause()).await;
                match self.connect(settings.clone()).await {
                    Err(error @ Error::Unavailable { .. }) => failure = error,
                    connected => return connected,
                }
            }
        };
        let connected = clock.timeout(limit.saturating_sub(clock.now().saturating_since(begin)), again).await;
        connected.unwrap_or(Err(failure))
    }

    /// Looks at the service that `settings` name, as its driver does it, and judges what every backend has in common: clear
    /// text over a network, and leases beside the round trips to the servers and the stalls of this host, which are measured
    /// for a second meanwhile. The findings come in the order of their severity.
    ///
    /// # Errors
    /// Those of [`Registry::driver`] and of [`Driver::diagnose`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was connected is closed.
    pub async fn diagnose(&self, settings: Settings) -> Result<Diagnosis, Error> {
        let context = Context::current();
        let stalls = diagnosis::longest_stall(context.clock());
        let driver = self.driver(&settings.scheme)?;
        let looking = driver.diagnose(settings.clone(), context);
        // Wrong settings are told at once.
        let looking = async { looking.await.map_err(Box::new) };
        let (mut diagnosis, stall) = match tokio::try_join!(looking, async { Ok(stalls.await) }) {
            Ok(seen) => seen,
            Err(error) => return Err(*error),
        };
        if let Some(scheme) = driver.schemes().iter().find(|scheme| scheme.is_called(&settings.scheme)) {
            diagnosis::judge(&mut diagnosis, scheme, &settings, stall);
        }
        diagnosis.findings.sort_by_key(|finding| finding.severity);
        Ok(diagnosis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDriver;

    #[tokio::test]
    async fn a_driver_that_says_nothing_else_connects_looks_and_closes() {
        let registry = Registry::new().with(MemoryDriver);
        let diagnosis = registry.diagnose(Settings::new("memory")).await.unwrap();
        assert!(diagnosis.is_reached(), "{diagnosis:?}");
        assert_eq!(diagnosis.findings, []);
        let mut settings = Settings::new("memory");
        settings.values.insert("tll".to_owned(), "1s".to_owned());
        assert!(matches!(registry.diagnose(settings).await, Err(Error::Config { .. })));
    }

    #[test]
    fn a_scheme_that_nobody_serves_is_refused_with_those_that_are_served() {
        let registry = Registry::new().with(MemoryDriver).without("zk");
        assert_eq!(registry.driver("memory").unwrap().schemes()[0].name, "memory");
        let error = registry.driver("zk").unwrap_err().to_string();
        assert!(error.contains("\"zk\"") && error.contains("memory") && error.contains("features zk"), "{error}");
    }
}

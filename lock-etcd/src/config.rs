//! What a connection needs to know.

use std::{fmt, time::Duration};

use lock_core::{Error, Password, Setting, SettingDoc, Settings};

use crate::wire::{Tls, address};

/// What the backend is called, as in its URL.
pub(crate) const NAME: &str = "etcd";
/// The scheme with TLS.
pub(crate) const WITH_TLS: &str = "etcds";

/// The port of a server for which none is given.
const PORT: u16 = 2379;

const SESSION_TTL: Setting<Duration> = Setting::duration(
    "session_ttl",
    Duration::from_secs(10),
    Duration::from_secs(1),
    Duration::from_secs(3600),
    "After how long without a renewal etcd ends the session, and all its locks with it; etcd counts whole seconds, so this is \
     rounded up.",
);
const CONNECT_TIMEOUT: Setting<Duration> = Setting::duration(
    "connect_timeout",
    Duration::from_secs(5),
    Duration::from_millis(10),
    Duration::from_secs(600),
    "How long one attempt to connect may take.",
);
const RESPONSE_TIMEOUT: Setting<Duration> = Setting::duration(
    "response_timeout",
    Duration::from_secs(2),
    Duration::from_millis(10),
    Duration::from_secs(60),
    "How long a request may take; a third of `session_ttl` or less leaves time for a second try at a renewal.",
);

/// Settings of an [`Etcd`](crate::Etcd) connection.
///
/// ```
/// # use std::time::Duration;
/// let mut config = lock_etcd::Config::new([("etcd1", 2379), ("etcd2", 2379), ("etcd3", 2379)]);
/// config.path = "/app".to_owned();
/// config.session_ttl = Duration::from_secs(20);
/// assert_eq!(config.url(), "etcd://etcd1:2379,etcd2:2379,etcd3:2379/app");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Host and port of each server that clients may ask.
    pub servers: Vec<(String, u16)>,
    /// User and password, where etcd wants them.
    pub user: Option<(String, Password)>,
    /// The prefix of all keys, with a slash before it and none behind it. It must not be another program's path with the name of a lock
    /// behind it: the keys would be contenders for that lock.
    pub path: String,
    /// How long etcd keeps the session without a renewal.
    pub session_ttl: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a request may take, and once more as long when that passed while the program stood still.
    pub response_timeout: Duration,
    /// How connections are secured, if they are.
    pub(crate) tls: Option<Tls>,
}

impl Config {
    /// The default of [`Config::path`].
    pub const PATH: &'static str = "/locks";

    /// Those servers, with the defaults for everything else: keys under `/locks`, a session of 10 s, 5 s to connect, 2 s to answer.
    pub fn new<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            servers: servers.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            user: None,
            path: Self::PATH.to_owned(),
            session_ttl: SESSION_TTL.default_value(),
            connect_timeout: CONNECT_TIMEOUT.default_value(),
            response_timeout: RESPONSE_TIMEOUT.default_value(),
            tls: None,
        }
    }

    /// Reads the settings of a URL such as `etcd://10.0.0.1,10.0.0.2/app?session_ttl=10s`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown key or a value that is not allowed.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        let mut config = Self::new(settings.hosts.iter().map(|(host, port)| (host.clone(), port.unwrap_or(PORT))));
        config.tls = match settings.scheme.as_str() {
            WITH_TLS => Some(Tls::take(&mut settings)?),
            NAME => Tls::refuse(&settings).map(|()| None)?,
            other => return Err(Error::config("scheme", other, "etcd, or etcds with TLS")),
        };
        config.user = match settings.take_credentials()? {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (user, _) => {
                return Err(Error::config("user", user.unwrap_or_default(), "a user with a password, or neither"));
            }
        };
        if !settings.path.is_empty() {
            config.path = std::mem::take(&mut settings.path);
        }
        config.session_ttl = SESSION_TTL.read(&mut settings)?;
        config.connect_timeout = CONNECT_TIMEOUT.read(&mut settings)?;
        config.response_timeout = RESPONSE_TIMEOUT.read(&mut settings)?;
        settings.finish()?;
        config.checked()
    }

    /// These settings, if they can work.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        if self.servers.is_empty() || self.servers.iter().any(|(host, port)| host.is_empty() || *port == 0) {
            return Err(Error::config(
                "hosts",
                self.addresses().join(","),
                "at least one host, each with a port above 0",
            ));
        }
        if !self.path.starts_with('/') || self.path.ends_with('/') || self.path.contains('\0') {
            return Err(Error::config("path", self.path, "one with a slash before it and none behind it, as /app"));
        }
        if self.tls.is_some() {
            self.servers.iter().try_for_each(|(host, _)| Tls::check_host(host))?;
        }
        SESSION_TTL.check(self.session_ttl)?;
        CONNECT_TIMEOUT.check(self.connect_timeout)?;
        RESPONSE_TIMEOUT.check(self.response_timeout)?;
        Ok(self)
    }

    /// What the documentation says of the settings.
    pub(crate) fn docs(scheme: &str) -> Vec<SettingDoc> {
        let mut all = vec![SESSION_TTL.doc(), CONNECT_TIMEOUT.doc(), RESPONSE_TIMEOUT.doc(), Password::FILE.doc()];
        if scheme == WITH_TLS {
            all.extend(Tls::settings());
        }
        all
    }

    /// The servers, each as `HOST:PORT`.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(address).collect()
    }

    /// The settings in the form of their URL, without the user.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { WITH_TLS } else { NAME };
        format!("{scheme}://{}{}", self.addresses().join(","), self.path)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &self.url())
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("session_ttl", &self.session_ttl)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown_and_stands_with_a_user() {
        let mut settings = Settings::new(NAME);
        settings.hosts = vec![("e1".to_owned(), None), ("::1".to_owned(), Some(1))];
        settings.password = Some("secret".to_owned());
        let error = Config::from_settings(settings.clone()).unwrap_err().to_string();
        assert!(error.contains("user") && !error.contains("secret"), "{error}");
        settings.username = Some("anna".to_owned());
        let config = Config::from_settings(settings).unwrap();
        assert_eq!(config.url(), "etcd://e1:2379,[::1]:1/locks");
        let shown = format!("{config:?}");
        assert!(shown.contains("anna") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_path_that_could_meet_that_of_another_is_refused() {
        for path in ["app", "/app/", "/a\0b"] {
            let mut config = Config::new([("e1", 1)]);
            config.path = path.to_owned();
            assert!(config.checked().unwrap_err().to_string().contains("path"), "{path:?}");
        }
    }
}

//! A configuration, put together by a program.

use std::fmt;

use lock_core::{Error, Settings};

use super::Config;
use crate::address;

/// Puts a [`Config`] together, part by part.
///
/// ```
/// let config = lock::Config::builder("rediss")
///     .host("10.0.0.1", 6379)
///     .user("orders")
///     .set("password_file", "/run/secrets/lock")
///     .set("ttl", "10s")
///     .build()?;
/// assert_eq!(config.to_url(), "rediss://orders@10.0.0.1:6379?password_file=%2Frun%2Fsecrets%2Flock&ttl=10s");
/// # Ok::<(), lock::Error>(())
/// ```
#[derive(Debug)]
pub struct ConfigBuilder {
    settings: Settings,
    /// The first thing that was wrong.
    wrong: Option<Error>,
}

impl Config {
    /// Begins a configuration of the backend with that scheme.
    #[must_use]
    pub fn builder(scheme: impl Into<String>) -> ConfigBuilder {
        ConfigBuilder { settings: Settings::new(scheme), wrong: None }
    }
}

impl ConfigBuilder {
    /// Adds a server.
    #[must_use]
    pub fn host(mut self, host: &str, port: impl Into<Option<u16>>) -> Self {
        let bracketed =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        match address::host(&self.settings.scheme, &bracketed) {
            Ok((host, None)) => self.settings.hosts.push((host, port.into())),
            Ok((_, Some(_))) => {
                self.wrong(Error::config("host", host, "a name or an address; the port stands beside it"));
            }
            Err(error) => self.wrong(error),
        }
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.settings.username = Some(name.into());
        self
    }

    /// Sets the password. One that may change while the program runs is better in a file: the setting `password_file`.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.settings.password = Some(password.into());
        self
    }

    /// Sets the path: the root of all locks, the number of a database, the directory.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        let path = path.trim_start_matches('/');
        self.settings.path = if path.is_empty() { String::new() } else { format!("/{path}") };
        self
    }

    /// Sets a key of the backend, as docs/configuration.md lists them.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl fmt::Display) -> Self {
        if let Err(error) = address::insert(&mut self.settings, key.into(), value.to_string()) {
            self.wrong(error);
        }
        self
    }

    /// The configuration. The keys of the backend are checked when it connects.
    ///
    /// # Errors
    /// [`Error::Config`] about the first part that was wrong.
    pub fn build(self) -> Result<Config, Error> {
        match self.wrong {
            Some(error) => Err(error),
            None => Ok(Config::new(self.settings)),
        }
    }

    fn wrong(&mut self, error: Error) {
        self.wrong.get_or_insert(error);
    }
}

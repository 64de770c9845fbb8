//! The configuration: from a URL, a TOML file or the environment.

use std::{env, ffi::OsString, fmt, path::Path, sync::Arc};

use lock_core::{Error, Locks, LocksOptions, Registry, Setting, SettingDoc, Settings};
use toml::{Table, Value};

use crate::{address, identity, registry};

/// The environment variable that holds a URL.
pub const LOCK_URL: &str = "LOCK_URL";
/// The environment variable that names a TOML file; looked at only when [`LOCK_URL`] is not set.
pub const LOCK_CONFIG: &str = "LOCK_CONFIG";

/// Which backend to connect to and how: read and checked as far as it can be without the backend, which checks its own
/// keys in [`Config::connect`].
///
/// # URL
/// `scheme://[user[:password]@]host[:port][,host[:port]...][/path][?key=value&...]`, with the schemes of
/// [`registry`]. Everything but the hosts is percent-decoded.
///
/// # TOML
/// One table, `[lock]`, with either a `url` or the same spelled out; keys of the backend stand beside them:
/// ```toml
/// [lock]
/// backend = "zk"
/// hosts = ["10.0.0.1:2181", "10.0.0.2:2181"]
/// path = "/app"
/// username = "orders"
/// password = "..."
/// session_timeout = "10s"
/// era = 1
/// ```
/// Beside a `url` may stand `username`, `password` and keys that the URL does not set itself, so that the URL need not
/// hold a secret.
///
/// # Environment
/// [`LOCK_URL`] if it is set, else the file that [`LOCK_CONFIG`] names; they are not merged. An empty variable is one that
/// is not set.
///
/// # Keys of all backends
/// `era`: the era of the fencing tokens, a whole number, 0 if not set. Raise it when you move to another backend or
/// restore a backup, so that tokens go on rising.
#[derive(Clone)]
pub struct Config {
    settings: Settings,
    payload: Option<Arc<[u8]>>,
}

impl Config {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`Error::Config`] that names what is wrong and what is allowed, without secrets.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        Ok(Self::new(address::parse(url)?))
    }

    /// Reads a TOML text.
    ///
    /// # Errors
    /// [`Error::Config`] that names what is wrong and what is allowed, without secrets.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let mut file: Table = text.parse().map_err(|error| syntax(text, &error))?;
        let lock = match file.remove("lock") {
            Some(Value::Table(lock)) => lock,
            Some(other) => return Err(Error::config("lock", kind(&other), "a table, [lock]")),
            None => return Err(Error::config("lock", "nothing", "a table, [lock], with `url` or `backend`")),
        };
        match file.keys().next() {
            Some(key) => Err(Error::config(key, "...", "only one table, [lock]")),
            None => Ok(Self::new(from_table(lock)?)),
        }
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`Error::Config`] when it cannot be read, and as [`Config::from_toml`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::config("configuration file", path.display().to_string(), format!("a readable file ({error})"))
        })?;
        Self::from_toml(&text)
    }

    /// Reads the environment; `None` when neither variable is set.
    ///
    /// # Errors
    /// As [`Config::from_url`] or [`Config::from_file`].
    pub fn from_env() -> Result<Option<Self>, Error> {
        Self::from_variables(env::var_os(LOCK_URL), env::var_os(LOCK_CONFIG))
    }

    fn from_variables(url: Option<OsString>, file: Option<OsString>) -> Result<Option<Self>, Error> {
        let set = |variable: Option<OsString>| variable.filter(|value| !value.is_empty());
        if let Some(url) = set(url) {
            let url = url.to_str().ok_or_else(|| Error::config(LOCK_URL, "***", "a URL in UTF-8"))?;
            return Self::from_url(url).map(Some);
        }
        set(file).map(Self::from_file).transpose()
    }

    fn new(settings: Settings) -> Self {
        Self { settings, payload: None }
    }

    /// The settings that every backend has.
    #[must_use]
    pub fn common_settings() -> Vec<SettingDoc> {
        vec![ERA.doc()]
    }

    /// Shows `payload` to those who look at a lock, instead of this program's name, process id and host.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Arc<[u8]>>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// The scheme of the backend.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.settings.scheme
    }

    /// The URL that reads back as this configuration, *with* its password; for one to show, format it with `{}`.
    #[must_use]
    pub fn to_url(&self) -> String {
        address::render(&self.settings, true)
    }

    /// The same without users, passwords and whatever else looks like a secret: its URL may be given to anybody, and connects
    /// where the service asks for none.
    ///
    /// ```
    /// let config = lock::Config::from_url("redis://me:secret@10.0.0.1/3?ttl=10s")?;
    /// assert_eq!(config.without_credentials().to_url(), "redis://10.0.0.1/3?ttl=10s");
    /// # Ok::<(), lock::Error>(())
    /// ```
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let mut public = self.clone();
        (public.settings.username, public.settings.password) = (None, None);
        public.settings.values.retain(|key, _| !address::is_credential(key));
        public
    }

    /// Makes servers a deployment, once in its life and before any client connects. Only Redlock needs it: it writes the
    /// members and the limits on each server, and clients with others are refused. Called again with the same settings it
    /// makes members again of servers that have lost their data, and changes nothing else.
    ///
    /// Returns for how long the servers grant nothing yet: see [`InitOptions`](crate::InitOptions).
    ///
    /// # Errors
    /// [`Error::Config`] for another backend, for servers that are a deployment with other members or limits, and as
    /// [`Config::connect`]; [`Error::Unavailable`] when a server does not answer.
    ///
    /// # Cancel safety
    /// When the future is dropped, some servers may be marked and others not; calling it again completes it.
    #[cfg(feature = "redlock")]
    pub async fn initialize(self, options: crate::InitOptions) -> Result<std::time::Duration, Error> {
        let mut settings = self.settings;
        era(&mut settings)?;
        let deployment = crate::drivers::redlock(settings).map_err(address::mask)?;
        lock_redlock::init(&deployment, options).await
    }

    /// Puts the server `new` in the place of the member `old` of a Redlock deployment, each given as `HOST` or `HOST:PORT`.
    /// Clients that are connected go on with it and keep what they hold; `old` need not answer. Called again with the same
    /// servers, it completes what was begun.
    ///
    /// # Errors
    /// [`Error::Config`] for another backend, when `old` is no member or `new` is one or belongs to another deployment;
    /// [`Error::Unavailable`] when `new` does not answer, or too few of the other members vote.
    ///
    /// # Cancel safety
    /// When the future is dropped, some servers may know of the change and others not; calling it again completes it.
    #[cfg(feature = "redlock")]
    pub async fn replace(self, old: &str, new: &str) -> Result<crate::Replaced, Error> {
        let mut settings = self.settings;
        era(&mut settings)?;
        let old = address::host(&settings.scheme, old)?;
        let new = address::host(&settings.scheme, new)?;
        let deployment = crate::drivers::redlock(settings).map_err(address::mask)?;
        let [old, new] = [&old, &new].map(|(host, port)| (host.as_str(), port.unwrap_or(lock_redlock::Config::PORT)));
        lock_redlock::replace(&deployment, old, new).await
    }

    /// Asks the nodes of a Redlock deployment how they are: whether they vote, and why they do not. Nothing is changed on them.
    ///
    /// # Errors
    /// [`Error::Config`] for another backend, and for settings that are not allowed. Nodes that do not answer are in the answer.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    #[cfg(feature = "redlock")]
    pub async fn deployment_status(self) -> Result<crate::DeploymentStatus, Error> {
        let mut settings = self.settings;
        era(&mut settings)?;
        let deployment = crate::drivers::redlock(settings).map_err(address::mask)?;
        lock_redlock::deployment_status(&deployment).await
    }

    /// Looks at the service and at this host, and says what is seen and what is wrong with the servers, with the settings or
    /// with both: `docs/doctor.md` lists the findings. A server that cannot be reached is a finding, and the others are looked
    /// at all the same. Nothing stays on the servers of what is done to look at them.
    ///
    /// # Errors
    /// [`Error::Config`] for a scheme, a key or a value that is not known or that cannot work whatever the servers say.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was connected is closed.
    pub async fn diagnose(self) -> Result<lock_core::Diagnosis, Error> {
        let mut settings = self.settings;
        era(&mut settings)?;
        Box::pin(registry().diagnose(settings)).await.map_err(address::mask)
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Config`] for a scheme, a key or a value that is not known, [`Error::Unavailable`] when the service cannot
    /// be reached within its connect limit.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was connected is closed.
    pub async fn connect(self) -> Result<Locks, Error> {
        self.connect_with(&registry()).await
    }

    /// Connects through the drivers of `registry`: for a program that adds one of its own.
    ///
    /// # Errors
    /// Those of [`Config::connect`].
    ///
    /// # Cancel safety
    /// As that of [`Config::connect`].
    pub async fn connect_with(self, registry: &Registry) -> Result<Locks, Error> {
        let mut settings = self.settings;
        let era = era(&mut settings)?;
        let payload = self.payload.unwrap_or_else(|| identity::payload().into());
        // In a box: it is as large as that of the largest backend, and so would be every future around it.
        let backend = Box::pin(registry.connect(settings)).await.map_err(address::mask)?;
        let options = LocksOptions::default().with_era(era).with_payload(payload);
        Ok(Locks::with_options(backend, options))
    }
}

/// Without the password.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&address::render(&self.settings, false))
    }
}

/// Without the password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.to_string()).finish()
    }
}

/// The key that all backends share.
const ERA: Setting<u32> = Setting::number(
    "era",
    0,
    0,
    u32::MAX,
    "The era of the fencing tokens: raised by whoever moves to another backend or restores a backup, so that tokens go \
     on rising.",
);

fn era(settings: &mut Settings) -> Result<u32, Error> {
    ERA.read(settings)
}

fn from_table(mut table: Table) -> Result<Settings, Error> {
    let mut settings = match take_text(&mut table, "url")? {
        Some(url) => {
            let rest = ["backend", "hosts", "path"];
            if let Some(key) = rest.into_iter().find(|key| table.contains_key(*key)) {
                return Err(Error::config(key, "...", "either `url`, or `backend`, `hosts` and `path`"));
            }
            address::parse(&url)?
        }
        None => spelled_out(&mut table)?,
    };
    for (key, place) in [("username", &mut settings.username), ("password", &mut settings.password)] {
        if let Some(value) = take_text(&mut table, key)? {
            if place.is_some() {
                return Err(Error::config(key, "***", "once only; the URL has one already"));
            }
            *place = Some(value);
        }
    }
    for (key, value) in table {
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            other => return Err(Error::config(key, kind(&other), "a string, a whole number, true or false")),
        };
        address::insert(&mut settings, key, text)?;
    }
    Ok(settings)
}

fn spelled_out(table: &mut Table) -> Result<Settings, Error> {
    let Some(scheme) = take_text(table, "backend")? else {
        return Err(Error::config("lock", "neither `url` nor `backend`", "a table with `url` or `backend`"));
    };
    let mut settings = Settings::new(scheme);
    match table.remove("hosts") {
        None => {}
        Some(Value::Array(hosts)) => {
            for host in hosts {
                let Value::String(host) = host else { return Err(hosts_refused(&host)) };
                settings.hosts.push(address::host(&settings.scheme, &host)?);
            }
        }
        Some(other) => return Err(hosts_refused(&other)),
    }
    if let Some(path) = take_text(table, "path")? {
        let path = path.trim_start_matches('/');
        settings.path = if path.is_empty() { String::new() } else { format!("/{path}") };
    }
    Ok(settings)
}

fn hosts_refused(value: &Value) -> Error {
    Error::config("hosts", kind(value), "a list of strings, as [\"10.0.0.1:6379\"]")
}

fn take_text(table: &mut Table, key: &str) -> Result<Option<String>, Error> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        // Its kind only: it may be a password written without quotes.
        Some(other) => Err(Error::config(key, kind(&other), "a string, in quotes")),
    }
}

fn kind(value: &Value) -> String {
    format!("a value of type {}", value.type_str())
}

/// What is wrong and in which line; not the line itself, which may hold a password.
fn syntax(text: &str, error: &toml::de::Error) -> Error {
    let end = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(end).filter(|byte| *byte == b'\n').count() + 1;
    Error::config("configuration file", format!("line {line}"), format!("TOML ({})", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(url: Option<&str>, file: Option<&str>) -> Result<Option<Config>, Error> {
        Config::from_variables(url.map(Into::into), file.map(Into::into))
    }

    #[test]
    fn the_url_of_the_environment_comes_before_the_file() {
        let config = variables(Some("memory://?era=3"), Some("/nowhere/at/all.toml")).unwrap().unwrap();
        assert_eq!(config.to_string(), "memory://?era=3");
    }

    #[test]
    fn an_empty_variable_is_one_that_is_not_set() {
        assert!(variables(Some(""), Some("")).unwrap().is_none());
        assert!(variables(None, None).unwrap().is_none());
        let error = variables(Some(""), Some("/nowhere/at/all.toml")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all.toml"), "{error}");
    }
}

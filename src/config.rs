//! The configuration: from a URL, a TOML file or the environment.

mod builder;
mod environment;
mod table;

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use lock_core::{Error, Locks, LocksOptions, Registry, Setting, SettingDoc, Settings};

pub use self::{
    builder::ConfigBuilder,
    environment::{LOCK_CONFIG, LOCK_PASSWORD, LOCK_URL, SYSTEM_FILE},
};
use crate::{address, identity, registry};

/// Which backend to connect to and how: read and checked as far as it can be without the backend, which checks its own
/// keys in [`Config::connect`].
///
/// # URL
/// `scheme://[user[:password]@]host[:port][,host[:port]...][/path][?key=value&...]`, with the schemes of
/// [`registry`]. Everything but the hosts is percent-decoded.
///
/// # TOML
/// The table `[lock]`, with either a `url` or the same spelled out; keys of the backend stand beside them. Other tables are the
/// application's own. A field of this type in an application's own configuration reads the same by `serde`:
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
/// [`LOCK_URL`] if it is set, else the file that [`LOCK_CONFIG`] names, else [`SYSTEM_FILE`] if it is there; they are not merged.
/// [`LOCK_PASSWORD`] is the password,
/// where what is connected to has hosts, and neither a password nor a file with one. An empty variable is one that is not set.
///
/// # Keys of all backends
/// `era`: the era of the fencing tokens, a whole number, 0 if not set. Raise it when you move to another backend or
/// restore a backup, so that tokens go on rising.
///
/// `outage_timeout`: for how long an outage of the service is bridged, 30 s if not set: by connecting, and by an acquisition that
/// waits without a limit. One with a limit ([`Mutex::timeout`](crate::Mutex::timeout)) bridges outages until that. `connect_timeout`
/// is for one attempt to connect.
#[derive(Clone)]
pub struct Config {
    settings: Settings,
    payload: Option<Arc<[u8]>>,
    /// The file that it was read from.
    file: Option<PathBuf>,
    /// What goes before the setting of that name.
    outage_timeout: Option<Duration>,
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
        Ok(Self::new(table::read(table::of_file(text)?)?))
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
        Self::from_toml(&text).map(|config| Self { file: Some(path.to_owned()), ..config })
    }

    /// The file that it was read from, if it was.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn new(settings: Settings) -> Self {
        Self { settings, payload: None, file: None, outage_timeout: None }
    }

    /// The settings that every backend has.
    #[must_use]
    pub fn common_settings() -> Vec<SettingDoc> {
        vec![ERA.doc(), OUTAGE_TIMEOUT.doc()]
    }

    /// Shows `payload` to those who look at a lock, instead of this program's name, process id, host, user and unit.
    #[must_use]
    pub fn with_payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.payload = Some(payload.as_ref().into());
        self
    }

    /// With another `outage_timeout` than the settings say: for how long connecting, and an acquisition without a limit, bridge an
    /// outage of the service. With zero both fail at once.
    #[must_use]
    pub const fn with_outage_timeout(mut self, limit: Duration) -> Self {
        self.outage_timeout = Some(limit);
        self
    }

    /// Shows to those who look at a lock also the name of the program that runs under it: for a program that takes locks for
    /// another one. Its directory and its arguments are not shown.
    #[must_use]
    pub fn with_command(self, program: impl AsRef<OsStr>) -> Self {
        self.with_payload(identity::payload(Some(program.as_ref())))
    }

    /// With a key of the backend, as docs/configuration.md lists them, where that key is not set.
    #[must_use]
    pub fn with_default(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.settings.values.entry(key.to_owned()).or_insert_with(|| value.to_string());
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

    /// The same without passwords and whatever else looks like a secret, and without their users: its URL may be given to
    /// anybody, and connects where the service asks for none. A user whose password is in a file stays, with the path of that.
    ///
    /// ```
    /// let config = lock::Config::from_url("redis://me:secret@10.0.0.1/3?ttl=10s")?;
    /// assert_eq!(config.without_credentials().to_url(), "redis://10.0.0.1/3?ttl=10s");
    /// # Ok::<(), lock::Error>(())
    /// ```
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let mut public = self.clone();
        address::take_credentials(&mut public.settings);
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
    pub async fn initialize(self, options: crate::InitOptions) -> Result<Duration, Error> {
        let mut settings = self.settings;
        take_common(&mut settings)?;
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
        take_common(&mut settings)?;
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
        take_common(&mut settings)?;
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
        take_common(&mut settings)?;
        Box::pin(registry().diagnose(settings)).await.map_err(address::mask)
    }

    /// Connects. While the service cannot be reached, that is tried again until `outage_timeout` has passed.
    ///
    /// # Errors
    /// [`Error::Config`] for a scheme, a key or a value that is not known; [`Error::Refused`] when the service refuses this program,
    /// and [`Error::Unavailable`] when it cannot be reached for as long as an outage is bridged.
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
        let era = ERA.read(&mut settings)?;
        let set = OUTAGE_TIMEOUT.read(&mut settings)?;
        let outage_timeout = self.outage_timeout.unwrap_or(set);
        let payload = self.payload.unwrap_or_else(|| identity::payload(None).into());
        // In a box: it is as large as that of the largest backend, and so would be every future around it.
        let backend = Box::pin(registry.connect_within(settings, outage_timeout)).await.map_err(address::mask)?;
        let options = LocksOptions::default().with_era(era).with_payload(payload).with_outage_timeout(outage_timeout);
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

/// A setting that all backends share.
const ERA: Setting<u32> = Setting::number(
    "era",
    0,
    0,
    u32::MAX,
    "The era of the fencing tokens: raised by whoever moves to another backend or restores a backup, so that tokens go \
     on rising.",
);

/// A setting that all backends share.
const OUTAGE_TIMEOUT: Setting<Duration> = Setting::duration(
    "outage_timeout",
    LocksOptions::OUTAGE_TIMEOUT,
    Duration::ZERO,
    Duration::from_secs(24 * 60 * 60),
    "For how long an outage of the service is bridged, by connecting and by an acquisition without a limit of its own; with 0s both fail at once.",
);

/// Checks and takes out what no driver knows.
fn take_common(settings: &mut Settings) -> Result<(), Error> {
    ERA.read(settings)?;
    OUTAGE_TIMEOUT.read(settings).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_a_password_file_is_public_and_one_with_a_password_is_not() {
        let public = |url: &str| Config::from_url(url).unwrap().without_credentials().to_url();
        assert_eq!(public("redis://anna:secret@h"), "redis://h");
        assert_eq!(public("redis://anna@h?password_file=%2Ff"), "redis://anna@h?password_file=%2Ff");
        let sentinels = "redis+sentinel://h/s?sentinel_password=secret&sentinel_username=u";
        assert_eq!(public(sentinels), "redis+sentinel://h/s");
        let sentinels = "redis+sentinel://h/s?sentinel_password_file=%2Ff&sentinel_username=u";
        assert_eq!(public(sentinels), sentinels);
    }
}

//! What a connection needs to know.

use std::{
    fs::{DirBuilder, symlink_metadata},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::PathBuf,
};

use lock_core::{Error, Settings};

/// Settings of a [`Local`](crate::Local) connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The directory that the locks are in; made when it is missing. Programs compete when they name the same one.
    pub directory: PathBuf,
    /// Whether processes that this one starts share its locks: one that dies, while they go on, has not given its locks back
    /// before they have ended, too. Once it is given back in order, a lock is nobody's.
    pub inherit: bool,
}

impl Config {
    /// Locks in `directory`, an absolute path on a file system of this machine.
    ///
    /// # Errors
    /// [`Error::Config`] for a relative path.
    pub fn new(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = directory.into();
        if directory.is_absolute() {
            return Ok(Self { directory, inherit: false });
        }
        Err(Error::config("path", directory.display().to_string(), "an absolute path, as local:///var/lib/app/locks"))
    }

    /// Locks in a directory of this user, which nobody else may enter: `/tmp/lock-UID`.
    ///
    /// It is the same whatever the environment says. A job that a daemon starts has other variables than the same user's
    /// shell, and the two must find each other.
    ///
    /// # Errors
    /// [`Error::Config`] when something else is in its place: another user's directory, one that others may enter, a link.
    pub fn of_this_user() -> Result<Self, Error> {
        let user = rustix::process::geteuid().as_raw();
        let config = Self::new(format!("/tmp/lock-{user}"))?;
        let _ = DirBuilder::new().mode(0o700).create(&config.directory);
        // Not following a link: /tmp is everybody's.
        let there = symlink_metadata(&config.directory);
        if there.is_ok_and(|is| is.is_dir() && is.uid() == user && is.mode() & 0o077 == 0) {
            return Ok(config);
        }
        let shown = config.directory.display().to_string();
        Err(Error::config("path", shown, "a directory of this user alone (mode 0700), or another one as local:///PATH"))
    }

    /// Reads `local:///PATH?inherit=no`, or `local://` for [`Config::of_this_user`].
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown key, a host or a user, and as [`Config::of_this_user`].
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        settings.without_user()?;
        if let Some((host, _)) = settings.hosts.first() {
            let allowed = "none: the path follows three slashes, as local:///var/lib/app/locks";
            return Err(Error::config("host", host, allowed));
        }
        let inherit = settings.choice("inherit", &[("no", false), ("yes", true)])?;
        let path = std::mem::take(&mut settings.path);
        settings.finish()?;
        let config = if path.is_empty() { Self::of_this_user()? } else { Self::new(path)? };
        Ok(Self { inherit, ..config })
    }

    /// The settings in the form of their URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("local://{}", self.directory.display())
    }
}

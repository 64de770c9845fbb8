//! What a connection needs to know.

use std::{env, path::PathBuf};

use lock_core::{Error, Setting, Settings};

use crate::trust;

/// The variable of the XDG base directories for what a user's programs keep.
const STATE: &str = "XDG_STATE_HOME";
const WAY_OUT: &str = "set XDG_STATE_HOME, or name a directory as local:///PATH";

pub(crate) const INHERIT: Setting<bool> = Setting::choice(
    "inherit",
    &[("no", false), ("yes", true)],
    "Whether processes that this one starts share its locks until they have ended, too.",
);

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

    /// Locks in a directory of this user: `$XDG_STATE_HOME/lock`, which is `~/.local/state/lock` where that variable is not set.
    ///
    /// Programs of one user must find each other, whoever starts them. So it is the home of the user, which the system knows
    /// where `HOME` does not say it: a job that a daemon starts has neither the variables nor the runtime directory of the same
    /// user's session, and may have a `/tmp` of its own.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no home, or the directory cannot be made.
    pub fn of_this_user() -> Result<Self, Error> {
        let state = env::var_os(STATE).filter(|state| !state.is_empty()).map(PathBuf::from);
        let config = Self::in_state(state, env::home_dir())?;
        let refused = |error| {
            let shown = config.directory.display().to_string();
            Error::config("path", shown, format!("a directory that can be made ({error}); {WAY_OUT}"))
        };
        trust::make(&config.directory).map_err(|error| error.downcast::<Error>().unwrap_or_else(refused))?;
        Ok(config)
    }

    fn in_state(state: Option<PathBuf>, home: Option<PathBuf>) -> Result<Self, Error> {
        let state = match (state, home.filter(|home| home.is_absolute())) {
            (Some(state), _) if state.is_absolute() => state,
            (Some(state), _) => return Err(Error::config(STATE, state.display().to_string(), "an absolute path")),
            // Safeguard: the default directory is one place, whoever starts the program (local)
            (None, Some(home)) => home.join(".local/state"),
            (None, None) => return Err(Error::config("HOME", "", format!("the home of this user; {WAY_OUT}"))),
        };
        Self::new(state.join("lock"))
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
        let inherit = INHERIT.read(&mut settings)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_user_is_in_its_state_or_its_home_or_it_is_said_what_to_set() {
        let chosen = |state: Option<&str>, home: Option<&str>| {
            let config = Config::in_state(state.map(PathBuf::from), home.map(PathBuf::from));
            config.map(|config| config.directory.display().to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(Some("/s"), Some("/h")).unwrap(), "/s/lock");
        assert_eq!(chosen(None, Some("/h")).unwrap(), "/h/.local/state/lock");
        assert!(chosen(Some("s"), Some("/h")).unwrap_err().contains("XDG_STATE_HOME = \"s\""));
        for home in [None, Some("h")] {
            assert!(chosen(None, home).unwrap_err().contains("set XDG_STATE_HOME"));
        }
    }
}

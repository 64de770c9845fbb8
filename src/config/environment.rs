//! The configuration that the environment names.

use std::{env, ffi::OsString, path::Path};

use lock_core::Error;

use super::Config;

/// The environment variable that holds a URL.
pub const LOCK_URL: &str = "LOCK_URL";
/// The environment variable that names a TOML file; looked at only when [`LOCK_URL`] is not set.
pub const LOCK_CONFIG: &str = "LOCK_CONFIG";
/// The environment variable that holds the password, where neither the URL nor the file has one.
pub const LOCK_PASSWORD: &str = "LOCK_PASSWORD";
/// The TOML file of this machine; looked at only when neither [`LOCK_URL`] nor [`LOCK_CONFIG`] is set.
pub const SYSTEM_FILE: &str = "/etc/lock.toml";

/// The variables by which a service is named.
const NAMING: [&str; 2] = [LOCK_URL, LOCK_CONFIG];

impl Config {
    /// Reads the environment, or [`SYSTEM_FILE`]; `None` when there is nothing to read.
    ///
    /// # Errors
    /// As [`Config::from_url`] or [`Config::from_file`]; [`Error::Config`] when there is nothing to read, but a variable whose name
    /// is nearly that of one of these: a service was meant.
    pub fn from_env() -> Result<Option<Self>, Error> {
        let named = Self::from_variables(env::var_os(LOCK_URL), env::var_os(LOCK_CONFIG), Path::new(SYSTEM_FILE))?;
        match named {
            Some(named) => named.with_password_of_env().map(Some),
            None => misspelt(env::vars_os().map(|(name, _)| name)).map_or(Ok(None), Err),
        }
    }

    /// With the password of [`LOCK_PASSWORD`], if that is set, and this has hosts and neither a password nor a file with one.
    ///
    /// # Errors
    /// [`Error::Config`] when the variable is not UTF-8.
    pub fn with_password_of_env(self) -> Result<Self, Error> {
        self.with_password_of(env::var_os(LOCK_PASSWORD))
    }

    fn with_password_of(mut self, variable: Option<OsString>) -> Result<Self, Error> {
        let settings = &mut self.settings;
        let has_one = settings.password.is_some() || settings.values.contains_key("password_file");
        if let Some(password) = variable.filter(|value| !value.is_empty() && !has_one && !settings.hosts.is_empty()) {
            let refused = |_| Error::config(LOCK_PASSWORD, "***", "a password in UTF-8");
            settings.password = Some(password.into_string().map_err(refused)?);
        }
        Ok(self)
    }

    fn from_variables(
        url: Option<OsString>,
        file: Option<OsString>,
        system_file: &Path,
    ) -> Result<Option<Self>, Error> {
        let set = |variable: Option<OsString>| variable.filter(|value| !value.is_empty());
        if let Some(url) = set(url) {
            let url = url.to_str().ok_or_else(|| Error::config(LOCK_URL, "***", "a URL in UTF-8"))?;
            return Self::from_url(url).map(Some);
        }
        let there = || system_file.try_exists().unwrap_or(true).then(|| system_file.into());
        set(file).or_else(there).map(Self::from_file).transpose()
    }
}

/// The error about a variable that was probably meant to name a service, and does not.
fn misspelt(names: impl Iterator<Item = OsString>) -> Option<Error> {
    let near = |name: &OsString| {
        let name = name.to_str()?.to_ascii_uppercase();
        NAMING.into_iter().find(|known| strsim::osa_distance(&name, known) <= 1)
    };
    let mut found = names.filter(|name| !NAMING.iter().any(|known| name == known));
    let (name, meant) = found.find_map(|name| near(&name).map(|meant| (name, meant)))?;
    Some(Error::config(name.to_string_lossy(), "***", format!("no variable of that name; `{meant}` is one")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(url: Option<&str>, file: Option<&str>) -> Result<Option<Config>, Error> {
        Config::from_variables(url.map(Into::into), file.map(Into::into), Path::new("/nowhere/at/all/either.toml"))
    }

    #[test]
    fn the_url_of_the_environment_comes_before_the_file() {
        let config = variables(Some("memory://?era=3"), Some("/nowhere/at/all.toml")).unwrap().unwrap();
        assert_eq!(config.to_string(), "memory://?era=3");
    }

    #[test]
    fn the_password_of_the_environment_is_for_hosts_that_have_none() {
        let with = |url: &str| Config::from_url(url).unwrap().with_password_of(Some("env".into())).unwrap().to_url();
        assert_eq!(with("redis://anna@h"), "redis://anna:env@h");
        assert_eq!(with("redis://anna:own@h"), "redis://anna:own@h");
        assert_eq!(with("redis://anna@h?password_file=%2Ff"), "redis://anna@h?password_file=%2Ff");
        assert_eq!(with("local:///d"), "local:///d");
        let empty = Config::from_url("redis://h").unwrap().with_password_of(Some("".into())).unwrap();
        assert_eq!(empty.to_url(), "redis://h");
    }

    #[test]
    fn an_empty_variable_is_one_that_is_not_set() {
        assert!(variables(Some(""), Some("")).unwrap().is_none());
        assert!(variables(None, None).unwrap().is_none());
        let error = variables(Some(""), Some("/nowhere/at/all.toml")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all.toml"), "{error}");
    }

    #[test]
    fn the_file_of_the_machine_comes_last_and_one_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lock.toml");
        let read = |url: Option<&str>| Config::from_variables(url.map(Into::into), None, &file);
        assert!(read(None).unwrap().is_none());
        std::fs::write(&file, "[lock]\nurl = 'memory://of-the-machine'\n").unwrap();
        let config = read(None).unwrap().unwrap();
        assert_eq!((config.to_string().as_str(), config.file()), ("memory://of-the-machine", Some(file.as_path())));
        assert_eq!(read(Some("memory://url")).unwrap().unwrap().to_string(), "memory://url");
        std::fs::write(&file, "[lock\n").unwrap();
        assert!(read(None).is_err());
    }

    #[test]
    fn a_variable_that_is_nearly_ours_is_named() {
        let found = |name: &str| misspelt(["PATH".into(), name.into()].into_iter()).map(|error| error.to_string());
        for (name, meant) in
            [("LOCK_ULR", "LOCK_URL"), ("LOCKURL", "LOCK_URL"), ("lock_url", "LOCK_URL"), ("LOCK_CONFG", "LOCK_CONFIG")]
        {
            let error = found(name).unwrap();
            assert!(error.contains(name) && error.contains(meant), "{error}");
        }
        for name in ["LOCK_NAME", "LOCK_TOKEN", "LOCK_TOKEN_INT", "LOCK_PASSWORD", "LOCK_URL", "LOCALE", "LOCK_UID"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}

//! Settings of a backend, read once and checked once: from a URL, a TOML file or a program.

mod password;
mod setting;

use std::{collections::BTreeMap, fmt};

pub use self::{
    password::Password,
    setting::{Setting, SettingDoc},
};
use crate::Error;

/// The raw settings of one connection. A backend takes what it knows, each with its check, then calls
/// [`Settings::finish`], which refuses whatever is left.
#[derive(Clone, Default)]
pub struct Settings {
    /// The URL's scheme, which chose the backend.
    pub scheme: String,
    /// Host and port of each server, in the order given; the port is the backend's default where none was given.
    pub hosts: Vec<(String, Option<u16>)>,
    /// User name, if any.
    pub username: Option<String>,
    /// Password, if any. Never shown.
    pub password: Option<String>,
    /// The URL's path, decoded, with its leading slash; empty if none.
    pub path: String,
    /// Everything else by key.
    pub values: BTreeMap<String, String>,
    /// The keys that were asked for, to name them in the error about one that nobody asked for.
    known: Vec<&'static str>,
}

impl Settings {
    /// Settings of `scheme` with nothing set.
    #[must_use]
    pub fn new(scheme: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), ..Self::default() }
    }

    /// Takes the text of `key`, if it is set.
    fn take(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// Refuses a user and a password, for a backend that has none.
    ///
    /// # Errors
    /// [`Error::Config`] that names the user.
    pub fn without_user(&self) -> Result<(), Error> {
        if self.username.is_none() && self.password.is_none() {
            return Ok(());
        }
        let allowed = format!("none: {}:// takes no user and no password", self.scheme);
        Err(Error::config("user", self.username.clone().unwrap_or_default(), allowed))
    }

    /// Refuses what no backend asked for.
    ///
    /// # Errors
    /// [`Error::Config`] that names the first unknown key, its value, and the keys that are known.
    pub fn finish(mut self) -> Result<(), Error> {
        let Some((key, value)) = self.values.pop_first() else { return Ok(()) };
        self.known.sort_unstable();
        let near = self.known.iter().map(|known| (strsim::osa_distance(&key, known), known)).min();
        let meant = match near.filter(|(distance, _)| *distance <= NEAR) {
            Some((_, known)) => format!("`{known}`, probably; "),
            None => String::new(),
        };
        Err(Error::config(key, value, format!("{meant}with {}:// these keys: {}", self.scheme, self.known.join(", "))))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("scheme", &self.scheme)
            .field("hosts", &self.hosts)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("path", &self.path)
            .field("values", &self.values.iter().map(shown).collect::<BTreeMap<_, _>>())
            .finish_non_exhaustive()
    }
}

/// By how many letters a key may differ from the one that was probably meant.
const NEAR: usize = 2;

/// A value as it may be shown: some backends have further passwords beside the one of the URL. The path of a file is none.
fn shown<'a>((key, value): (&'a String, &'a String)) -> (&'a str, &'a str) {
    (key, if key.contains("password") && !key.ends_with("_file") { "***" } else { value })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn settings(values: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new("redis");
        settings.values = values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        settings
    }

    #[test]
    fn an_unknown_key_is_named_with_its_value_and_the_known_keys() {
        const TTL: Setting<Duration> =
            Setting::duration("ttl", Duration::from_secs(1), Duration::ZERO, Duration::from_secs(9), "The ttl.");
        let mut settings = settings(&[("tll", "3s")]);
        assert_eq!(TTL.read(&mut settings).unwrap(), Duration::from_secs(1));
        let error = settings.finish().unwrap_err().to_string();
        assert!(error.contains("tll") && error.contains("3s") && error.contains("`ttl`, probably"), "{error}");
    }

    #[test]
    fn a_user_or_a_password_is_refused_where_there_are_none_and_no_password_is_shown() {
        let mut settings = settings(&[]);
        settings.without_user().unwrap();
        settings.password = Some("secret".to_owned());
        let error = settings.without_user().unwrap_err().to_string();
        assert!(error.contains("redis://") && !error.contains("secret"), "{error}");
        settings.username = Some("anna".to_owned());
        assert!(settings.without_user().unwrap_err().to_string().contains("anna"));
    }

    #[test]
    fn no_password_is_shown_whatever_its_key() {
        let shown = format!("{:?}", settings(&[("sentinel_password", "geheim"), ("ttl", "3s")]));
        assert!(!shown.contains("geheim") && shown.contains("3s"), "{shown}");
    }
}

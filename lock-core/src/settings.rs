//! Settings of a backend, read once and checked once: from a URL, a TOML file or a program.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, time::Duration};

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

    /// The text of `key`, if it is set.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// The duration of `key` (as `250ms`, `10s`, `1m 30s`), or `default`.
    ///
    /// # Errors
    /// [`Error::Config`] when it is no duration or outside of `allowed`.
    pub fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        allowed: RangeInclusive<Duration>,
    ) -> Result<Duration, Error> {
        let Some(text) = self.text(key) else { return Ok(default) };
        match humantime::parse_duration(&text) {
            Ok(duration) if allowed.contains(&duration) => Ok(duration),
            _ => {
                let (from, to) =
                    (humantime::format_duration(*allowed.start()), humantime::format_duration(*allowed.end()));
                Err(Error::config(key, text, format!("a duration from {from} to {to}, as 250ms or 10s")))
            }
        }
    }

    /// The whole number of `key`, or `default`.
    ///
    /// # Errors
    /// [`Error::Config`] when it is no number or outside of `allowed`.
    pub fn number(&mut self, key: &'static str, default: u32, allowed: RangeInclusive<u32>) -> Result<u32, Error> {
        let Some(text) = self.text(key) else { return Ok(default) };
        match text.parse() {
            Ok(number) if allowed.contains(&number) => Ok(number),
            _ => {
                let allowed = format!("a whole number from {} to {}", allowed.start(), allowed.end());
                Err(Error::config(key, text, allowed))
            }
        }
    }

    /// Which of `choices` the value of `key` names; the first one if it is not set.
    ///
    /// # Errors
    /// [`Error::Config`] when it names none of them.
    ///
    /// # Panics
    /// Without choices.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Result<T, Error> {
        let Some(text) = self.text(key) else { return Ok(choices[0].1) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => Ok(*choice),
            None => {
                let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
                Err(Error::config(key, text, names.join(" or ")))
            }
        }
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
        Err(Error::config(key, value, format!("with {}:// these keys: {}", self.scheme, self.known.join(", "))))
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

/// A value as it may be shown: some backends have further passwords beside the one of the URL.
fn shown<'a>((key, value): (&'a String, &'a String)) -> (&'a str, &'a str) {
    (key, if key.contains("password") { "***" } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new("redis");
        settings.values = values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        settings
    }

    #[test]
    fn an_unknown_key_is_named_with_its_value_and_the_known_keys() {
        let mut settings = settings(&[("tll", "3s")]);
        let second = Duration::from_secs(1);
        settings.duration("ttl", second, second..=second).unwrap();
        let error = settings.finish().unwrap_err().to_string();
        assert!(error.contains("tll") && error.contains("3s") && error.contains("ttl"), "{error}");
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

    #[test]
    fn a_value_out_of_range_is_named_with_what_is_allowed() {
        let mut settings = settings(&[("ttl", "1ms")]);
        let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
        let error = settings.duration("ttl", Duration::from_secs(30), allowed).unwrap_err().to_string();
        assert!(error.contains("ttl") && error.contains("1ms") && error.contains("100ms"), "{error}");
    }
}

//! One setting: what reads it, what checks it, and what documents it.

use std::{ops::RangeInclusive, time::Duration};

use super::Settings;
use crate::Error;

/// A setting of a backend, made once as a constant. It reads its value from [`Settings`], checks what a program has set by
/// itself, and describes itself for the documentation.
#[derive(Debug, Clone, Copy)]
pub struct Setting<T: 'static> {
    key: &'static str,
    about: &'static str,
    /// `None` when there is no value unless one is set.
    default: Option<T>,
    allowed: AllowedValues<T>,
}

/// The values that a setting of a backend accepts: a range, a list of names, or a described text.
#[derive(Debug, Clone, Copy)]
enum AllowedValues<T: 'static> {
    Range {
        least: T,
        most: T,
        kind: &'static RangedType<T>,
    },
    Names(&'static [(&'static str, T)]),
    /// In words; whatever takes the text checks it.
    Text {
        allowed: &'static str,
        show: fn(T) -> String,
    },
}

/// How settings with a range parse, show and compare values of one type, such as durations.
#[derive(Debug)]
struct RangedType<T> {
    /// What a value is called in errors.
    what: &'static str,
    /// Examples for errors, if any help.
    examples: &'static str,
    parse: fn(&str) -> Option<T>,
    /// Writes a value as `parse` reads it.
    show: fn(T) -> String,
    /// Whether the first is from the second to the third.
    is_within: fn(T, T, T) -> bool,
}

const DURATION: RangedType<Duration> = RangedType {
    what: "a duration",
    examples: ", as 250ms or 10s",
    parse: |text| humantime::parse_duration(text).ok(),
    show: |value| humantime::format_duration(value).to_string(),
    is_within: |value, least, most| (least..=most).contains(&value),
};

const NUMBER: RangedType<u32> = RangedType {
    what: "a whole number",
    examples: "",
    parse: |text| text.parse().ok(),
    show: |value| value.to_string(),
    is_within: |value, least, most| (least..=most).contains(&value),
};

/// What the documentation says of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingDoc {
    /// Its key in a URL's query or a TOML table.
    pub key: &'static str,
    /// What it is for, in a sentence.
    pub about: &'static str,
    /// The value when none is set; `None` when there is none.
    pub default: Option<String>,
    /// Which values are allowed.
    pub allowed: String,
}

impl Setting<Duration> {
    /// A duration from `least` to `most`.
    #[must_use]
    pub const fn duration(
        key: &'static str,
        default: Duration,
        least: Duration,
        most: Duration,
        about: &'static str,
    ) -> Self {
        Self { key, about, default: Some(default), allowed: AllowedValues::Range { least, most, kind: &DURATION } }
    }
}

impl Setting<u32> {
    /// A whole number from `least` to `most`.
    #[must_use]
    pub const fn number(key: &'static str, default: u32, least: u32, most: u32, about: &'static str) -> Self {
        Self { key, about, default: Some(default), allowed: AllowedValues::Range { least, most, kind: &NUMBER } }
    }
}

impl Setting<&'static str> {
    /// A text; `allowed` says in words what it may be, and whatever takes it checks it.
    #[must_use]
    pub const fn text(
        key: &'static str,
        default: Option<&'static str>,
        allowed: &'static str,
        about: &'static str,
    ) -> Self {
        Self { key, about, default, allowed: AllowedValues::Text { allowed, show: str::to_owned } }
    }

    /// The text, if it is set.
    pub fn take(&self, settings: &mut Settings) -> Option<String> {
        settings.take(self.key)
    }
}

impl<T: Copy> Setting<T> {
    /// Its key in a URL's query or a TOML table.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// A choice between `names`, of which the first is the default.
    ///
    /// # Panics
    /// Without names.
    #[must_use]
    pub const fn choice(key: &'static str, names: &'static [(&'static str, T)], about: &'static str) -> Self {
        Self { key, about, default: Some(names[0].1), allowed: AllowedValues::Names(names) }
    }

    /// The same without a default, for what is decided elsewhere when it is not set.
    #[must_use]
    pub const fn without_default(mut self) -> Self {
        self.default = None;
        self
    }

    /// The same with another upper end of its range, where another setting narrows it.
    #[must_use]
    pub const fn up_to(mut self, end: T) -> Self {
        if let AllowedValues::Range { most, .. } = &mut self.allowed {
            *most = end;
        }
        self
    }

    /// The value, or the default.
    ///
    /// # Errors
    /// [`Error::Config`] when it is not allowed.
    ///
    /// # Panics
    /// Without a default.
    pub fn read(&self, settings: &mut Settings) -> Result<T, Error> {
        Ok(self.read_if_set(settings)?.unwrap_or(self.default_value()))
    }

    /// The value, if it is set.
    ///
    /// # Errors
    /// As those of [`Setting::read`].
    pub fn read_if_set(&self, settings: &mut Settings) -> Result<Option<T>, Error> {
        let Some(text) = settings.take(self.key) else { return Ok(None) };
        let value = match self.allowed {
            AllowedValues::Range { least, most, kind } => {
                (kind.parse)(&text).filter(|value| (kind.is_within)(*value, least, most))
            }
            AllowedValues::Names(names) => names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value),
            AllowedValues::Text { .. } => None,
        };
        value.map(Some).ok_or_else(|| self.refused(text))
    }

    /// The value when none is set.
    ///
    /// # Panics
    /// Without a default.
    #[must_use]
    pub const fn default_value(&self) -> T {
        self.default.expect("the setting has a default")
    }

    /// The values from the least to the most; for a setting that has a range.
    ///
    /// # Panics
    /// Without a range.
    #[must_use]
    pub const fn range(&self) -> RangeInclusive<T> {
        match self.allowed {
            AllowedValues::Range { least, most, .. } => RangeInclusive::new(least, most),
            _ => panic!("the setting has no range"),
        }
    }

    /// Refuses a value that a program has set by itself and that is outside of the range.
    ///
    /// # Errors
    /// [`Error::Config`]
    pub fn check(&self, value: T) -> Result<(), Error> {
        match self.allowed {
            AllowedValues::Range { least, most, kind } if !(kind.is_within)(value, least, most) => {
                Err(self.refused((kind.show)(value)))
            }
            _ => Ok(()),
        }
    }

    /// The error about a value that is not allowed.
    #[must_use]
    pub fn refused(&self, value: impl Into<String>) -> Error {
        Error::config(self.key, value, self.allowed())
    }

    fn allowed(&self) -> String {
        match self.allowed {
            AllowedValues::Range { least, most, kind } => {
                let (least, most) = ((kind.show)(least), (kind.show)(most));
                format!("{} from {least} to {most}{}", kind.what, kind.examples)
            }
            AllowedValues::Names(names) => names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or "),
            AllowedValues::Text { allowed, .. } => allowed.to_owned(),
        }
    }

    /// What the documentation says of it.
    #[must_use]
    pub fn doc(&self) -> SettingDoc {
        let default = self.default.map(|default| match self.allowed {
            AllowedValues::Range { kind, .. } => (kind.show)(default),
            AllowedValues::Names(names) => names[0].0.to_owned(),
            AllowedValues::Text { show, .. } => show(default),
        });
        SettingDoc { key: self.key, about: self.about, default, allowed: self.allowed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Setting<Duration> =
        Setting::duration("ttl", Duration::from_secs(30), Duration::from_millis(100), Duration::from_secs(60), "T.");
    const MODE: Setting<bool> = Setting::choice("mode", &[("on", true), ("off", false)], "M.");

    fn settings(key: &str, value: &str) -> Settings {
        let mut settings = Settings::new("redis");
        settings.values.insert(key.to_owned(), value.to_owned());
        settings
    }

    #[test]
    fn a_value_out_of_range_is_named_with_what_is_allowed() {
        let error = TTL.read(&mut settings("ttl", "1ms")).unwrap_err().to_string();
        assert!(error.contains("ttl") && error.contains("1ms") && error.contains("100ms"), "{error}");
        let error = TTL.check(Duration::from_secs(61)).unwrap_err().to_string();
        assert!(error.contains("1m 1s") && error.contains("to 1m"), "{error}");
    }

    #[test]
    fn a_choice_is_one_of_its_names() {
        assert!(!MODE.read(&mut settings("mode", "off")).unwrap() && MODE.read(&mut settings("a", "b")).unwrap());
        let error = MODE.read(&mut settings("mode", "maybe")).unwrap_err().to_string();
        assert!(error.contains("maybe") && error.contains("on or off"), "{error}");
    }

    #[test]
    fn a_setting_describes_itself() {
        let doc = TTL.doc();
        assert_eq!(
            (doc.default.as_deref(), doc.allowed.as_str()),
            (Some("30s"), "a duration from 100ms to 1m, as 250ms or 10s")
        );
        assert_eq!(MODE.doc().allowed, "on or off");
    }
}

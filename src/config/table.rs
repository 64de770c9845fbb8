//! The table of a configuration, in TOML or whatever an application's own file is.

use lock_core::{Error, Settings};
use serde::{Deserialize, Deserializer, de};
use toml::{Table, Value};

use super::Config;
use crate::address;

/// What people write for the parts of an address, and what these are called.
const MISNAMED: [(&str, &str); 8] = [
    ("host", "hosts"),
    ("address", "hosts"),
    ("servers", "hosts"),
    ("nodes", "hosts"),
    ("port", "hosts"),
    ("scheme", "backend"),
    ("user", "username"),
    ("database", "path"),
];

/// The table `[lock]` of a file, whose other tables are the application's own.
pub(super) fn of_file(text: &str) -> Result<Table, Error> {
    let mut file: Table = text.parse().map_err(|error| syntax(text, &error))?;
    match file.remove("lock") {
        Some(Value::Table(lock)) => Ok(lock),
        Some(other) => Err(Error::config("lock", kind(&other), "a table, [lock]")),
        None => Err(Error::config("lock", "nothing", "a table, [lock], with `url` or `backend`")),
    }
}

/// Reads the table itself, as a field of an application's own configuration: `url`, or `backend` and `hosts`, with the keys of
/// the backend beside them. Checked as [`Config::from_toml`] does.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(Table::deserialize(deserializer)?).map(Self::new).map_err(de::Error::custom)
    }
}

/// Reads the table.
pub(super) fn read(mut table: Table) -> Result<Settings, Error> {
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
    if let Some((key, name)) = MISNAMED.iter().find(|(key, _)| table.contains_key(*key)) {
        return Err(Error::config(*key, "...", format!("no such key; it is called `{name}`")));
    }
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

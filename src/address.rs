//! Lock URLs: `scheme://[user[:password]@]host[:port][,host[:port]...][/path][?key=value&...]`.
//!
//! The `url` crate knows one host, so the authority is split at its commas and each host is given to it apart.

use std::fmt::Write as _;

use lock_core::{Error, Settings};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::{Host, Url};

const FORM: &str = "SCHEME://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PATH][?KEY=VALUE&...]";

/// Reads a URL of any scheme.
pub(crate) fn parse(text: &str) -> Result<Settings, Error> {
    let text = text.trim();
    let refuse = |problem: &str| refused(text, problem);
    let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse("it has no `://`"))?;
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    if user.is_some_and(|user| user.contains('@')) {
        return Err(refuse("user and password stand once, before the first host; an @ in them is written %40"));
    }
    // The first host goes with everything else; user and password are checked with it.
    let first = hosts.split(',').next().unwrap_or_default();
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let url = Url::parse(&format!("{scheme}://{user}{first}{tail}")).map_err(|e| refuse(&e.to_string()))?;
    if url.fragment().is_some() {
        return Err(refuse("nothing may follow a #; in a password it is written %23"));
    }

    let mut settings = Settings::new(url.scheme());
    if !hosts.is_empty() {
        settings.hosts = hosts.split(',').map(|one| host(url.scheme(), one)).collect::<Result<_, _>>()?;
    }
    let decoded = |text: &str, what: &str| {
        let decoded = percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        decoded.map_err(|_| refuse(&format!("its {what} is not UTF-8")))
    };
    if !url.username().is_empty() {
        settings.username = Some(decoded(url.username(), "user name")?);
    }
    settings.password = url.password().map(|password| decoded(password, "password")).transpose()?;
    settings.path = decoded(url.path(), "path")?;
    if settings.path == "/" {
        settings.path.clear();
    }
    for (key, value) in url.query_pairs() {
        insert(&mut settings, key.into_owned(), value.into_owned())?;
    }
    Ok(settings)
}

/// Adds a key that is no part of the address.
pub(crate) fn insert(settings: &mut Settings, key: String, value: String) -> Result<(), Error> {
    if matches!(key.as_str(), "username" | "password" | "hosts" | "path" | "backend" | "url") {
        return Err(Error::config(key, "***", format!("not as a key of its own here, but in the URL: {FORM}")));
    }
    if let Some(first) = settings.values.get(&key) {
        let allowed = format!("once only; it is {first:?} already");
        return Err(mask(Error::config(key, value, allowed)));
    }
    settings.values.insert(key, value);
    Ok(())
}

/// Reads `host`, `host:port`, or an IPv6 address in brackets with or without a port; the brackets are taken off.
pub(crate) fn host(scheme: &str, text: &str) -> Result<(String, Option<u16>), Error> {
    const ALLOWED: &str = "HOST or HOST:PORT, an IPv6 address in brackets, ports from 1 to 65535";
    // With an @ it is a password in the wrong place.
    let refused = || Error::config("host", if text.contains('@') { "***" } else { text }, ALLOWED);
    if text.is_empty() || text.contains(['/', '?', '#', '@']) {
        return Err(refused());
    }
    let url = Url::parse(&format!("{scheme}://{text}")).map_err(|_| refused())?;
    let host = match url.host() {
        Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        _ => return Err(refused()),
    };
    if url.port() == Some(0) { Err(refused()) } else { Ok((host, url.port())) }
}

/// What must be escaped in a user name, a password or a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const ESCAPED_IN_PATH: &AsciiSet = &ESCAPED.remove(b'/');

/// The URL that reads back as `settings`. With `secrets`, it holds the password.
pub(crate) fn render(settings: &Settings, secrets: bool) -> String {
    let mut text = format!("{}://", settings.scheme);
    if settings.username.is_some() || settings.password.is_some() {
        let user = settings.username.as_deref().unwrap_or_default();
        let _ = write!(text, "{}", utf8_percent_encode(user, ESCAPED));
        match &settings.password {
            Some(password) if secrets => {
                let _ = write!(text, ":{}", utf8_percent_encode(password, ESCAPED));
            }
            Some(_) => text.push_str(":***"),
            None => {}
        }
        text.push('@');
    }
    for (place, (host, port)) in settings.hosts.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let _ = if host.contains(':') { write!(text, "{comma}[{host}]") } else { write!(text, "{comma}{host}") };
        if let Some(port) = port {
            let _ = write!(text, ":{port}");
        }
    }
    let _ = write!(text, "{}", utf8_percent_encode(&settings.path, ESCAPED_IN_PATH));
    if !settings.values.is_empty() {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (key, value) in &settings.values {
            query.append_pair(key, if !secrets && is_secret(key) { "***" } else { value });
        }
        let _ = write!(text, "?{}", query.finish());
    }
    text
}

fn refused(url: &str, problem: &str) -> Error {
    Error::config("url", without_secrets(url), format!("{FORM}; {problem}"))
}

/// A URL that could not be read, for an error. A password with a slash in it breaks the parts apart, so everything before
/// the *last* `@` goes, and the query, which may hold one by mistake.
fn without_secrets(url: &str) -> String {
    let (start, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or_else(|| rest.to_owned(), |(_, rest)| format!("***@{rest}"));
    let rest = rest.split_once(['?', '#']).map_or(rest.as_str(), |(rest, _)| rest);
    if start.is_empty() { rest.to_owned() } else { format!("{start}://{rest}") }
}

/// Takes the value out of an error about a key that looks like a misspelt password.
pub(crate) fn mask(error: Error) -> Error {
    match error {
        Error::Config { key, .. } if is_secret(&key) => {
            Error::config(key, "***", "only known keys; user and password are `username` and `password`")
        }
        other => other,
    }
}

/// Takes out who connects, and leaves what is connected to. A user whose password is in a file stays, with the path of that.
pub(crate) fn take_credentials(settings: &mut Settings) {
    let has_file = |key: &str| settings.values.contains_key(key);
    if !has_file("password_file") {
        settings.username = None;
    }
    settings.password = None;
    let taken = |key: &str| {
        let is_user = key.to_ascii_lowercase().contains("username");
        is_secret(key) || is_user && !has_file(&key.replace("username", "password_file"))
    };
    let taken: Vec<String> = settings.values.keys().filter(|key| taken(key)).cloned().collect();
    settings.values.retain(|key, _| !taken.contains(key));
}

/// Whether the value of that key is not to be shown. The path of a file is no secret; what is in it may be.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    !key.ends_with("_file") && ["pass", "pwd", "secret", "auth", "credential"].iter().any(|part| key.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_share_user_path_and_query() {
        let s = parse("zk://me:a%40b@h1:2181,[::1]:2182,h3/app/locks%20x?session_timeout=10s&era=3").unwrap();
        assert_eq!(s.scheme, "zk");
        assert_eq!(s.hosts, [("h1".into(), Some(2181)), ("::1".into(), Some(2182)), ("h3".into(), None)]);
        assert_eq!((s.username.as_deref(), s.password.as_deref()), (Some("me"), Some("a@b")));
        assert_eq!(s.path, "/app/locks x");
        assert_eq!(s.values["session_timeout"], "10s");
    }

    #[test]
    fn a_url_may_have_no_host_and_no_path() {
        let s = parse("memory://").unwrap();
        assert!(s.hosts.is_empty() && s.path.is_empty() && s.values.is_empty());
        assert!(parse("redis://h/").unwrap().path.is_empty());
    }

    #[test]
    fn a_password_without_a_user_is_read() {
        let s = parse("redis://:p%2Fw@h").unwrap();
        assert_eq!((s.username, s.password.as_deref()), (None, Some("p/w")));
    }

    #[test]
    fn what_is_no_lock_url_is_refused_without_its_password() {
        for text in [
            "redis:secret@h",
            "redis://u:secret@",
            "redis://u:secret@h1,u:secret@h2",
            "redis://u:secret@h:99999",
            "redis://u:secret@h:0",
            "redis://u:secret@h1,,h2",
            "redis://u:secret@h1,h2:x",
            "redis://u:secret@[::1",
            "redis://u:sec/secret@h:x",
            "redis://u:pw#secret@h",
            "redis://h?password=secret",
            "redis://h?a=1&a=2",
            "redis://h?passwd=1&passwd=secret",
            "redis://u:secret%FF@h",
        ] {
            let error = parse(text).map(|s| render(&s, false)).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("allowed"), "{text}: {error}");
        }
    }

    #[test]
    fn a_rendered_url_reads_back() {
        let text = "redis://me:a%40b%2F@h1:1,[::1]:2/x%20y/z?a=b+c%26&era=3";
        let settings = parse(text).unwrap();
        let again = parse(&render(&settings, true)).unwrap();
        assert_eq!(again.password, settings.password);
        assert_eq!(format!("{again:?}"), format!("{settings:?}"));
        assert!(!render(&settings, false).contains("a%40b"));
    }
}

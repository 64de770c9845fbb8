//! Where a server is.

use std::{fmt, str::FromStr};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Address {
    /// Its name or IP address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Address {
    /// The server at `host` and `port`.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Reads `host:port`. An IPv6 address may stand in brackets or, as servers write it, without.
impl FromStr for Address {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| ())?;
        if host.is_empty() || port == 0 { Err(()) } else { Ok(Self::new(host, port)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_and_servers_write_them() {
        for (text, host, port) in
            [("h:1", "h", 1), ("[::1]:2", "::1", 2), ("::1:3", "::1", 3), ("10.0.0.1:4", "10.0.0.1", 4)]
        {
            assert_eq!(text.parse(), Ok(Address::new(host, port)), "{text}");
        }
        for text in ["", "h", ":1", "h:", "h:0", "h:x", "h:70000"] {
            assert_eq!(text.parse::<Address>(), Err(()), "{text}");
        }
        assert_eq!(Address::new("::1", 2).to_string().parse(), Ok(Address::new("::1", 2)));
    }
}

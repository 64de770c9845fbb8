//! The schemes by which URLs name a kind of lock service.

/// A scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// What stands before `://`.
    pub name: &'static str,
    /// What it connects to, in one line.
    pub summary: &'static str,
    /// The form of the address, without settings.
    pub form: &'static str,
    /// The least that connects to it.
    pub example: &'static str,
    /// What stands before `://` where each connection is encrypted (TLS); `None` where nothing crosses a network.
    pub with_tls: Option<&'static str>,
}

impl Scheme {
    /// Whether a URL of this scheme, with or without TLS, begins so.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.with_tls == Some(name)
    }
}

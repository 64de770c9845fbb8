//! What a failed handshake says, in words that name the setting to look at.

use std::{error::Error, fmt, io, sync::Arc};

use rustls::{AlertDescription, CertificateError, Error as Rustls};

/// One side did not accept what the other one showed, or does not speak TLS.
///
/// Its text names the setting to look at; the error of rustls is its source.
#[derive(Debug)]
pub struct TlsFailure {
    what: String,
    source: Rustls,
}

impl TlsFailure {
    /// `error`, with a failure of TLS in it put in words. `shows`: whether this program has a certificate to show.
    pub(crate) fn explain(error: io::Error, shows: bool) -> io::Error {
        let Some(source) = error.get_ref().and_then(|inner| inner.downcast_ref::<Rustls>()).cloned() else {
            return error;
        };
        io::Error::new(error.kind(), Self { what: words(&source, shows), source })
    }

    /// The same, of an error that ended the handshake.
    pub(crate) fn explain_handshake(error: io::Error, shows: bool) -> io::Error {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match error.kind() {
            // Where a server in clear text gets a greeting that it does not understand, it hangs up.
            kind @ (UnexpectedEof | ConnectionReset | BrokenPipe)
                if error.get_ref().is_none_or(|inner| !inner.is::<Rustls>()) =>
            {
                io::Error::new(kind, "the server ended the connection during the TLS handshake")
            }
            _ => Self::explain(error, shows),
        }
    }

    /// The failure of TLS that `error` came from, if it came from one.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            // The source of an I/O error, and of a shared one, is that of the error in it, which itself would be left out.
            next = if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
                // Safeguard: a failure of TLS is found in an error that shares it (Redis)
                Some(&**shared)
            } else if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inner)
            } else {
                error.source()
            };
        }
        None
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for TlsFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

fn words(error: &Rustls, shows: bool) -> String {
    match error {
        Rustls::InvalidCertificate(problem) => of_the_server(problem),
        Rustls::AlertReceived(alert) => of_the_client(*alert, shows),
        Rustls::InvalidMessage(_)
        | Rustls::InappropriateMessage { .. }
        | Rustls::InappropriateHandshakeMessage { .. } => "the server does not speak TLS on that port".to_owned(),
        Rustls::PeerIncompatible(why) => format!("the server's TLS is too old or too different: {why:?}"),
        other => format!("TLS failed: {other}"),
    }
}

/// What is wrong with what the server shows.
fn of_the_server(problem: &CertificateError) -> String {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext, Revoked,
        UnknownIssuer,
    };
    match problem {
        UnknownIssuer => "the server's certificate is from an authority that is not trusted: see `ca_file`".to_owned(),
        Expired | ExpiredContext { .. } => "the server's certificate has expired".to_owned(),
        NotValidYet | NotValidYetContext { .. } => {
            "the server's certificate is not valid yet by this machine's clock".to_owned()
        }
        NotValidForNameContext { expected, presented } => format!(
            "the server's certificate is not for {:?} but for {}: see `server_name`",
            expected.to_str(),
            if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") }
        ),
        NotValidForName => "the server's certificate is for another name: see `server_name`".to_owned(),
        Revoked => "the server's certificate was revoked".to_owned(),
        other => format!("the server's certificate is of no use: {other}"),
    }
}

/// What the server says is wrong with what this program shows, which is nothing where it has no certificate.
fn of_the_client(alert: AlertDescription, shows: bool) -> String {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateUnknown, HandshakeFailure,
        ProtocolVersion, UnknownCA, UnsupportedCertificate,
    };
    match alert {
        CertificateRequired => "the server asks for a client certificate: set `cert_file` and `key_file`".to_owned(),
        BadCertificate | CertificateUnknown | HandshakeFailure | AccessDenied if !shows => {
            format!(
                "the server refused ({alert:?}), probably for want of a client certificate: set `cert_file` and `key_file`"
            )
        }
        UnknownCA => "the server does not trust the authority of this program's certificate (`cert_file`)".to_owned(),
        CertificateExpired => "this program's certificate (`cert_file`) has expired".to_owned(),
        BadCertificate | CertificateUnknown | UnsupportedCertificate | AccessDenied => {
            format!("the server refuses this program's certificate (`cert_file`): {alert:?}")
        }
        ProtocolVersion => "the server speaks no version of TLS that is still allowed (1.2, 1.3)".to_owned(),
        other => format!("the server refused the TLS handshake: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that shares another one, as that of the crate `redis` does.
    #[derive(Debug)]
    struct Shared(Arc<dyn Error + Send + Sync>);

    impl fmt::Display for Shared {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("shared")
        }
    }

    impl Error for Shared {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_failure_is_found_in_whatever_error_it_was_wrapped() {
        let cause = io::Error::other(Rustls::InvalidCertificate(CertificateError::Expired));
        let shared = Shared(Arc::new(TlsFailure::explain(cause, false)));
        let found = TlsFailure::of(&shared).expect("the failure is in there");
        assert_eq!(found.to_string(), "the server's certificate has expired");
        assert!(TlsFailure::of(&Shared(Arc::new(io::Error::other("no route")))).is_none());
    }
}

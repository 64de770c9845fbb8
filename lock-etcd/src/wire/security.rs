//! The channel of gRPC to a server: in clear text, or by TLS.

use std::{error, fmt};

use tonic::transport::{Channel, Endpoint};

#[cfg(feature = "_tls")]
pub(crate) use self::by_rustls::Tls;
#[cfg(not(feature = "_tls"))]
pub(crate) use self::missing::Tls;

/// A server: its host, without the brackets of an IPv6 address, and its port.
pub(super) type Server = (String, u16);

/// A server as the authority of a URL.
pub(crate) fn address((host, port): &Server) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A channel to a server, which connects when it is used, and anew when a connection has ended.
pub(super) fn channel(
    server: &Server,
    tls: Option<&Tls>,
    options: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<Channel, tonic::transport::Error> {
    let endpoint = options(Endpoint::from_shared(format!("http://{}", address(server)))?);
    match tls {
        None => Ok(endpoint.connect_lazy()),
        Some(tls) => tls.channel(server, endpoint),
    }
}

/// Why a server and this program do not accept what the other one shows.
#[derive(Debug)]
pub(crate) struct Distrust(String);

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Distrust {}

/// A server that was asked in clear text, and has never answered, ended the connection.
#[derive(Debug)]
pub(super) struct HungUp(pub(super) etcd_client::Error);

impl fmt::Display for HungUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server hung up, as a port for TLS does with whom comes without it (etcds://)")
    }
}

impl error::Error for HungUp {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(feature = "_tls")]
mod by_rustls {
    use std::{error::Error as StdError, io, time::Duration};

    use hyper_util::rt::TokioIo;
    use lock_core::{Clock, Error, SettingDoc, Settings};
    use lock_tls::{TlsFailure, TlsStream};
    use tokio::net::TcpStream;
    use tonic::transport::{Channel, Endpoint, Uri};

    use super::{Distrust, Server, address};

    /// What etcd speaks over TLS: its servers tell gRPC from JSON by that.
    const PROTOCOL: &[u8] = b"h2";
    /// How long it may take to connect once more, to a server that has just hung up.
    const REDIAL_LIMIT: Duration = Duration::from_millis(500);

    /// How connections are secured.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Tls(lock_tls::Tls);

    impl Tls {
        pub(crate) fn take(settings: &mut Settings) -> Result<Self, Error> {
            Ok(Self(lock_tls::Tls::take(settings)?.with_protocol(PROTOCOL)))
        }

        /// Refuses the settings of TLS, for a URL whose scheme is one without.
        pub(crate) fn refuse(settings: &Settings) -> Result<(), Error> {
            // Safeguard: nobody takes a connection in clear text for an encrypted one (etcd)
            lock_tls::Tls::refuse(settings)
        }

        pub(crate) fn settings() -> Vec<SettingDoc> {
            lock_tls::Tls::settings()
        }

        pub(crate) fn check_host(host: &str) -> Result<(), Error> {
            lock_tls::Tls::check_host(host)
        }

        /// A channel by TLS. That of the client library would read the certificates once, and not again when they are renewed.
        pub(super) fn channel(&self, server: &Server, endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
            let (tls, server) = (self.clone(), server.clone());
            // The scheme of HTTP/2 over TLS. Go's server shows a handler the certificate of a client only with it.
            let origin = Endpoint::from_shared(format!("https://{}", address(&server)))?;
            let connect = tower::service_fn(move |_: Uri| {
                let (tls, server) = (tls.clone(), server.clone());
                async move { tls.dial(&server).await.map(TokioIo::new) }
            });
            Ok(endpoint.origin(origin.uri().clone()).connect_with_connector_lazy(connect))
        }

        async fn dial(&self, server: &Server) -> io::Result<TlsStream<TcpStream>> {
            self.0.secure(&server.0, open(server).await?).await
        }

        /// What a request failed by, if it came of what one side shows.
        pub(in super::super) fn distrust_in(&self, error: &(dyn StdError + 'static)) -> Option<Distrust> {
            TlsFailure::of(error).map(|failure| Distrust(failure.to_string()))
        }

        /// Asks a server that has hung up what it has against this program. It does not accept a client's certificate when the
        /// handshake has ended for the client, and of what it says then the libraries between keep nothing.
        pub(in super::super) async fn ask(&self, server: &Server) -> Option<Distrust> {
            let stream = Clock::boot().timeout(REDIAL_LIMIT, open(server)).await?.ok()?;
            self.0.refusal(&server.0, stream).await.map(|refusal| Distrust(refusal.to_string()))
        }
    }

    async fn open((host, port): &Server) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

#[cfg(not(feature = "_tls"))]
mod missing {
    use std::error::Error as StdError;

    use lock_core::{Error, SettingDoc, Settings};
    use tonic::transport::{Channel, Endpoint};

    use super::{Distrust, Server};

    /// TLS, which this build does not have.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) enum Tls {}

    impl Tls {
        pub(crate) fn take(settings: &mut Settings) -> Result<Self, Error> {
            let allowed = "etcd; this build lacks the cargo feature tls-aws-lc-rs or tls-ring";
            Err(Error::config("scheme", &settings.scheme, allowed))
        }

        /// There is nothing to refuse: the settings of TLS are unknown here.
        #[expect(clippy::unnecessary_wraps, reason = "as where there is TLS")]
        pub(crate) const fn refuse(_settings: &Settings) -> Result<(), Error> {
            Ok(())
        }

        pub(crate) const fn settings() -> Vec<SettingDoc> {
            Vec::new()
        }

        #[expect(clippy::unnecessary_wraps, reason = "as where there is TLS")]
        pub(crate) const fn check_host(_host: &str) -> Result<(), Error> {
            Ok(())
        }

        pub(super) fn channel(&self, _: &Server, _: Endpoint) -> Result<Channel, tonic::transport::Error> {
            match *self {}
        }

        pub(in super::super) const fn distrust_in(&self, _: &(dyn StdError + 'static)) -> Option<Distrust> {
            match *self {}
        }

        #[expect(clippy::unused_async, reason = "as where there is TLS")]
        pub(in super::super) async fn ask(&self, _: &Server) -> Option<Distrust> {
            match *self {}
        }
    }
}

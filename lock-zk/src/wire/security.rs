//! Whether connections are encrypted, and with which certificates.

use std::io;

use lock_core::{Error, SettingDoc, Settings};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use zookeeper_client::{Client, Connector};

use super::{RequestError, Server, connect_string};

/// How connections are secured: not at all, or by TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Security(#[cfg(feature = "_tls")] Option<lock_tls::Tls>);

/// The certificates of a client that connects again by itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates(#[cfg(feature = "_tls")] Option<(lock_tls::Tls, zookeeper_client::TlsDynamicCerts)>);

#[cfg(feature = "_tls")]
mod by_rustls {
    use std::{fmt, io, sync::Arc};

    use lock_tls::Tls;
    use zookeeper_client::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};

    use super::{
        ByteStream, Certificates, Client, Connector, Error, RequestError, Security, Server, SettingDoc, Settings,
        connect_string,
    };

    impl Security {
        /// Takes the settings of TLS, if `with_tls` says that it is asked for.
        pub(crate) fn take(settings: &mut Settings, with_tls: bool) -> Result<Self, Error> {
            if with_tls {
                return Ok(Self(Some(Tls::take_without_name(settings)?)));
            }
            Tls::refuse(settings)?;
            Ok(Self(None))
        }

        pub(crate) fn settings(with_tls: bool) -> Vec<SettingDoc> {
            if with_tls { Tls::settings_without_name() } else { Vec::new() }
        }

        pub(crate) const fn is_encrypted(&self) -> bool {
            self.0.is_some()
        }

        pub(crate) fn check_hosts(&self, servers: &[Server]) -> Result<(), Error> {
            servers.iter().filter(|_| self.is_encrypted()).try_for_each(|(host, _)| Tls::check_host(host))
        }

        /// A connection to a server, for what is asked outside of a session.
        pub(crate) async fn dial(&self, server: &Server) -> io::Result<Box<dyn ByteStream>> {
            let (host, stream) = super::open(server).await?;
            Ok(match &self.0 {
                Some(tls) => Box::new(tls.secure(&host, stream).await?),
                None => Box::new(stream),
            })
        }

        /// Opens a session.
        pub(in super::super) async fn connect(
            &self,
            connector: Connector,
            servers: &[Server],
        ) -> Result<(Client, Certificates), RequestError> {
            let Some(tls) = &self.0 else {
                return Ok((connector.connect(&connect_string(servers)).await?, Certificates(None)));
            };
            // The client library asks the process for it.
            lock_tls::install_default_provider();
            let certificates = TlsDynamicCerts::new(certificates(tls).map_err(refused)?);
            let options = TlsOptions::new().with_certs(certificates.clone());
            match connector.with_tls(options).secure_connect(&connect_string(servers)).await {
                Ok(client) => Ok((client, Certificates(Some((tls.clone(), certificates))))),
                // It does not say why no connection was made.
                Err(error) => Err(explain(tls, servers).await.unwrap_or_else(|| error.into())),
            }
        }
    }

    impl Certificates {
        /// Lets the next connection be made with what is in the files now. What cannot be read is left as it was.
        pub(in super::super) fn renew(&self) {
            let Some((tls, kept)) = &self.0 else { return };
            match certificates(tls) {
                Ok(now) => kept.update(now),
                Err(error) => tracing::warn!(%error, "the certificates could not be read again"),
            }
        }
    }

    /// The certificates, as the client library takes them.
    fn certificates(tls: &Tls) -> Result<TlsCerts, Error> {
        let texts = tls.pem()?;
        let refused =
            |what: &str, error: &dyn fmt::Display| Error::config(what, "", format!("what rustls takes ({error})"));
        let ca = TlsCa::from_pem(&texts.authorities).map_err(|error| refused("ca_file", &error))?;
        let mut certificates = TlsCerts::builder().with_ca(ca);
        if let Some((certificate, key)) = texts.identity {
            let identity = TlsIdentity::from_pem(&certificate, &key).map_err(|error| refused("cert_file", &error))?;
            certificates = certificates.with_identity(identity);
        }
        certificates.build().map_err(|error| refused("ca_file", &error))
    }

    fn refused(error: Error) -> RequestError {
        RequestError::Refused(Arc::new(error))
    }

    /// Why TLS fails with `servers`, if it does with one of them. The runtime of a session has no sockets of its own, so this has
    /// another one.
    async fn explain(tls: &Tls, servers: &[Server]) -> Option<RequestError> {
        let (tls, servers) = (tls.clone(), servers.to_vec());
        let asking = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(ask(&tls, &servers))
        });
        asking.await.ok().flatten()
    }

    async fn ask(tls: &Tls, servers: &[Server]) -> Option<RequestError> {
        let mut refusals = Vec::new();
        for server in servers {
            let Ok((host, stream)) = super::open(server).await else { continue };
            refusals.extend(tls.refusal(&host, stream).await);
        }
        let is_final = refusals.len() == servers.len();
        let refusal = Arc::new(refusals.pop()?);
        // Another server, which is down now, may have a better certificate.
        Some(if is_final { RequestError::Refused(refusal) } else { RequestError::Unknown(refusal) })
    }
}

/// An open connection to a server, in clear text or by TLS: bytes in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects to a server in clear text. Gives its host without the brackets of a URL, too.
async fn open((host, port): &Server) -> io::Result<(String, TcpStream)> {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    Ok((host, stream))
}

#[cfg(not(feature = "_tls"))]
impl Security {
    /// Refuses TLS, which this build does not have.
    pub(crate) fn take(settings: &mut Settings, with_tls: bool) -> Result<Self, Error> {
        if with_tls {
            let allowed = "zk; this build lacks the cargo feature tls-aws-lc-rs or tls-ring";
            return Err(Error::config("scheme", &settings.scheme, allowed));
        }
        Ok(Self())
    }

    pub(crate) const fn settings(_with_tls: bool) -> Vec<SettingDoc> {
        Vec::new()
    }

    pub(crate) const fn is_encrypted(&self) -> bool {
        false
    }

    pub(crate) const fn check_hosts(&self, _servers: &[Server]) -> Result<(), Error> {
        Ok(())
    }

    /// A connection to a server, for what is asked outside of a session.
    pub(crate) async fn dial(&self, server: &Server) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(open(server).await?.1))
    }

    /// Opens a session.
    pub(super) async fn connect(
        &self,
        connector: Connector,
        servers: &[Server],
    ) -> Result<(Client, Certificates), RequestError> {
        Ok((connector.connect(&connect_string(servers)).await?, Certificates()))
    }
}

#[cfg(not(feature = "_tls"))]
impl Certificates {
    /// There are none.
    pub(super) const fn renew(&self) {}
}

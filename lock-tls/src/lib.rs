//! TLS for the lock backends, by rustls.
//!
//! A backend whose URL asks for TLS takes a [`Tls`] from its settings, and has it secure each connection that it opens. What
//! the server shows is always verified, for the server's name and against authorities: those of `ca_file`, or else those of
//! the system. There is no setting that turns this off.
//!
//! The files are read again at each connect, so certificates are renewed without a restart.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod failure;
mod files;
mod provider;
mod stream;

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::{Clock, Error, Setting, SettingDoc, Settings};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

pub use self::{
    failure::TlsFailure,
    files::{Identity, TlsFiles},
    provider::install_default as install_default_provider,
    stream::TlsStream,
};

const CA_FILE: Setting<&str> = Setting::text(
    "ca_file",
    None,
    "a PEM file with one certificate or several",
    "Only with TLS: the authorities that servers have their certificates from; those of the system when it is not set.",
);

const CERT_FILE: Setting<&str> = Setting::text(
    "cert_file",
    None,
    "a PEM file with the certificate, then those between it and its authority; only together with `key_file`",
    "Only with TLS: the certificate that this program shows to servers which ask for one.",
);

const KEY_FILE: Setting<&str> = Setting::text(
    "key_file",
    None,
    "a PEM file with a private key (PKCS #8, PKCS #1 or SEC 1), without a passphrase; only together with `cert_file`",
    "Only with TLS: the private key of `cert_file`.",
);

const SERVER_NAME: Setting<&str> = Setting::text(
    "server_name",
    None,
    "a DNS name or an IP address",
    "Only with TLS: the name that the servers' certificates are for, where it is not the one that the URL reaches them by.",
);

/// The client's side of TLS, as settings ask for it. Clones share what was read.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    /// The name that certificates are for, where it is not that of the host.
    server_name: Option<ServerName<'static>>,
    /// What is spoken over it, where servers ask for that (ALPN).
    protocol: Option<&'static [u8]>,
    /// What was made of the files, as they were read the last time.
    made: Arc<Mutex<Option<Made>>>,
}

/// Certificates and a key, as PEM.
pub struct PemTexts {
    /// The authorities.
    pub authorities: String,
    /// The certificate of this program, and its key.
    pub identity: Option<(String, String)>,
}

/// Without the key.
impl fmt::Debug for PemTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemTexts").finish_non_exhaustive()
    }
}

/// A configuration of rustls, and the texts of the files that it was made of.
struct Made {
    of: files::Texts,
    config: Arc<ClientConfig>,
}

impl Tls {
    /// Takes `ca_file`, `cert_file`, `key_file` and `server_name`, and reads the files.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting, its value, and what is allowed.
    pub fn take(settings: &mut Settings) -> Result<Self, Error> {
        let server_name = SERVER_NAME.take(settings);
        let server_name = server_name.map(|name| name_of(&name).map_err(|()| SERVER_NAME.refused(name))).transpose()?;
        Self::new(Self::take_files(settings)?, server_name)
    }

    /// As [`Tls::take`], for a client that verifies each server under the name by which it is reached, and no other.
    ///
    /// # Errors
    /// As those of [`Tls::take`].
    pub fn take_without_name(settings: &mut Settings) -> Result<Self, Error> {
        Self::new(Self::take_files(settings)?, None)
    }

    /// The same, for servers that speak several protocols and are told which one is meant (ALPN, RFC 7301), as `h2`.
    #[must_use]
    pub fn with_protocol(self, protocol: &'static [u8]) -> Self {
        Self { protocol: Some(protocol), made: Arc::default(), ..self }
    }

    /// Refuses the settings of TLS, for a URL whose scheme is one without.
    ///
    /// # Errors
    /// [`Error::Config`] that names the first that is set.
    pub fn refuse(settings: &Settings) -> Result<(), Error> {
        for key in [&CA_FILE, &CERT_FILE, &KEY_FILE, &SERVER_NAME].map(Setting::key) {
            if let Some(value) = settings.values.get(key) {
                let allowed = format!("nothing with {}://, which does not encrypt", settings.scheme);
                return Err(Error::config(key, value, allowed));
            }
        }
        Ok(())
    }

    fn take_files(settings: &mut Settings) -> Result<TlsFiles, Error> {
        TlsFiles::new(CA_FILE.take(settings), CERT_FILE.take(settings), KEY_FILE.take(settings))
    }

    fn new(files: TlsFiles, server_name: Option<ServerName<'static>>) -> Result<Self, Error> {
        let tls = Self { files, server_name, protocol: None, made: Arc::default() };
        tls.config()?;
        Ok(tls)
    }

    /// The settings that [`Tls::take`] takes.
    #[must_use]
    pub fn settings() -> Vec<SettingDoc> {
        vec![CA_FILE.doc(), CERT_FILE.doc(), KEY_FILE.doc(), SERVER_NAME.doc()]
    }

    /// The settings that [`Tls::take_without_name`] takes.
    #[must_use]
    pub fn settings_without_name() -> Vec<SettingDoc> {
        vec![CA_FILE.doc(), CERT_FILE.doc(), KEY_FILE.doc()]
    }

    /// The files.
    #[must_use]
    pub const fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// What is in the files, or the authorities of the system, as PEM: for a client library that takes texts.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file that cannot be read.
    pub fn pem(&self) -> Result<PemTexts, Error> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let files::Texts { ca, identity } = self.files.read()?;
        Ok(PemTexts {
            authorities: ca.map_or_else(files::system_pem, text),
            identity: identity.map(|(certificate, key)| (text(certificate), text(key))),
        })
    }

    /// What rustls is to do, by what is in the files now. While these do not change, it is the same one, whose sessions are
    /// resumed.
    fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let texts = self.files.read()?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Made { of, config }) = made.as_ref()
            && *of == texts
        {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(&texts)?);
        *made = Some(Made { of: texts, config: Arc::clone(&config) });
        Ok(config)
    }

    fn make(&self, texts: &files::Texts) -> Result<ClientConfig, Error> {
        let builder =
            ClientConfig::builder_with_provider(provider::chosen()).with_safe_default_protocol_versions().map_err(
                |error| Error::config("scheme", "TLS", format!("what the provider of cryptography has: {error}")),
            )?;
        let builder = builder.with_root_certificates(match self.files.authorities(texts)? {
            Some(authorities) => authorities,
            None => of_the_system()?,
        });
        let mut config = match self.files.identity(texts)? {
            None => builder.with_no_client_auth(),
            Some(Identity { certificates, key }) => builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| self.files.key_refused(&format!("the key of cert_file ({error})")))?,
        };
        config.alpn_protocols.extend(self.protocol.map(<[u8]>::to_vec));
        Ok(config)
    }

    /// Whether a server can be verified under that name; a name without it cannot be connected to.
    ///
    /// # Errors
    /// [`Error::Config`] when `host` is neither a DNS name nor an IP address.
    pub fn check_host(host: &str) -> Result<(), Error> {
        name_of(host).map(drop).map_err(|()| Error::config("host", host, "with TLS a DNS name or an IP address"))
    }

    /// Secures a connection to the server that is reached by the name `host`.
    ///
    /// # Errors
    /// With a [`TlsFailure`] inside, when one side does not accept what the other one shows. A server may refuse a client's
    /// certificate after this has succeeded: then it is the first read that fails so.
    ///
    /// # Cancel safety
    /// The connection is closed when the future is dropped.
    pub async fn secure<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name_of(host).map_err(|()| io::Error::new(io::ErrorKind::InvalidInput, "no name to verify"))?,
        };
        let config = self.config().map_err(io::Error::other)?;
        let shows = self.files.has_identity();
        let secured = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
        secured.map(|inner| TlsStream::new(inner, shows)).map_err(|error| TlsFailure::explain_handshake(error, shows))
    }
}

impl Tls {
    /// Why a server that hangs up on secured connections does so, if that is because of what one side shows. It is to be asked
    /// on a connection of its own: where something was sent already, the server's reason may be lost with it.
    ///
    /// # Cancel safety
    /// The connection is closed when the future is dropped.
    pub async fn refusal<S>(&self, host: &str, stream: S) -> Option<io::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let said = async {
            let mut stream = self.secure(host, stream).await?;
            stream.read(&mut [0]).await.map(drop)
        };
        // A server that has nothing against this program waits for it to speak.
        let error = Clock::boot().timeout(REFUSAL_LIMIT, said).await?.err()?;
        TlsFailure::of(&error).is_some().then_some(error)
    }
}

/// How long a server may take to say what it has against this program.
const REFUSAL_LIMIT: Duration = Duration::from_millis(500);

/// A name or an IP address, without the brackets in which an IPv6 address stands in a URL.
fn name_of(host: &str) -> Result<ServerName<'static>, ()> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(drop)
}

/// The authorities that this system trusts.
fn of_the_system() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let allowed = format!("a PEM file with certificates, since this system trusts no authority{why}");
        return Err(Error::config(CA_FILE.key(), "", allowed));
    }
    Ok(roots)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files && self.server_name == other.server_name
    }
}

impl Eq for Tls {}

//! The files of certificates and of a key.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use lock_core::{Error, Setting};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{CA_FILE, CERT_FILE, KEY_FILE};

/// Which files hold the authorities, and the certificate of this program with its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    ca: Option<PathBuf>,
    identity: Option<IdentityFiles>,
}

/// The files of the certificate that this program shows, and of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IdentityFiles {
    certificate: PathBuf,
    key: PathBuf,
}

/// A certificate with those between it and its authority, and its key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, then those between it and its authority.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Its private key, which `Debug` does not show.
    pub key: PrivateKeyDer<'static>,
}

/// What is in the files.
#[derive(Clone, PartialEq, Eq)]
pub struct Texts {
    /// The authorities, in PEM; `None` for those of the system.
    pub ca: Option<Vec<u8>>,
    /// The certificate and the key, in PEM; `None` when this program shows none.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Without what is in them.
impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").finish_non_exhaustive()
    }
}

impl TlsFiles {
    pub(crate) fn new(ca: Option<String>, certificate: Option<String>, key: Option<String>) -> Result<Self, Error> {
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(IdentityFiles { certificate: certificate.into(), key: key.into() }),
            (Some(certificate), None) => {
                return Err(Error::config(CERT_FILE.key(), certificate, "only together with `key_file`"));
            }
            (None, Some(key)) => return Err(Error::config(KEY_FILE.key(), key, "only together with `cert_file`")),
        };
        Ok(Self { ca: ca.map(PathBuf::from), identity })
    }

    /// Whether this program has a certificate to show.
    #[must_use]
    pub const fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`Error::Config`] that names the one that cannot be read.
    pub fn read(&self) -> Result<Texts, Error> {
        let identity = match &self.identity {
            None => None,
            Some(files) => Some((read(&CERT_FILE, &files.certificate)?, read(&KEY_FILE, &files.key)?)),
        };
        Ok(Texts { ca: self.ca.as_ref().map(|path| read(&CA_FILE, path)).transpose()?, identity })
    }

    /// The authorities in `texts`; `None` for those of the system.
    pub(crate) fn authorities(&self, texts: &Texts) -> Result<Option<RootCertStore>, Error> {
        let Some((path, text)) = self.ca.as_ref().zip(texts.ca.as_ref()) else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&CA_FILE, path, text)? {
            roots.add(certificate).map_err(|error| refused(&CA_FILE, path, &error.to_string()))?;
        }
        Ok(Some(roots))
    }

    /// The certificate of this program in `texts`.
    pub(crate) fn identity(&self, texts: &Texts) -> Result<Option<Identity>, Error> {
        let Some((files, (certificate, key))) = self.identity.as_ref().zip(texts.identity.as_ref()) else {
            return Ok(None);
        };
        let certificates = certificates(&CERT_FILE, &files.certificate, certificate)?;
        // The error is not told: it might say what stands in the file.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| refused(&KEY_FILE, &files.key, "it holds no private key in PEM"))?;
        Ok(Some(Identity { certificates, key }))
    }

    /// The error about a key that is of no use.
    pub(crate) fn key_refused(&self, allowed: &str) -> Error {
        let path = self.identity.as_ref().map(|files| files.key.display().to_string());
        Error::config(KEY_FILE.key(), path.unwrap_or_default(), allowed)
    }
}

/// The authorities that this system trusts, as PEM.
pub(crate) fn system_pem() -> String {
    let certificates = rustls_native_certs::load_native_certs().certs;
    let pem = |certificate: &CertificateDer<'_>| {
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate))
    };
    certificates.iter().map(pem).collect()
}

fn read(setting: &Setting<&str>, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| refused(setting, path, &error.to_string()))
}

fn certificates(setting: &Setting<&str>, path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(refused(setting, path, "it holds no certificate in PEM")),
        Err(error) => Err(refused(setting, path, &error.to_string())),
    }
}

fn refused(setting: &Setting<&str>, path: &Path, why: &str) -> Error {
    let Error::Config { key, value, allowed } = setting.refused(path.display().to_string()) else {
        return setting.refused(path.display().to_string());
    };
    Error::config(key, value, format!("{allowed} ({why})"))
}

//! Certificates of the laboratory: an authority, and what servers and clients show, good and bad.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

use super::directory;
use crate::LabError;

/// The names of the servers: all are on this machine.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What a server shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerCertificate {
    /// A certificate for this machine, from the authority that clients trust.
    Good,
    /// It was good until some years ago.
    Expired,
    /// It is for another machine.
    OfAnotherName,
    /// It is from an authority that clients do not trust.
    OfAnotherAuthority,
}

/// Whom a client is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCertificate {
    /// One with a certificate from the authority that servers trust.
    Good,
    /// One with a certificate from another authority.
    OfAnotherAuthority,
    /// One without a certificate.
    Missing,
}

/// The files of all certificates, made once for the process.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Those of this process. They are made when they are first asked for, and removed after its end.
    ///
    /// # Errors
    /// [`LabError::Io`] when they could not be written.
    pub fn shared() -> Result<&'static Self, LabError> {
        static SHARED: OnceLock<Certificates> = OnceLock::new();
        if let Some(made) = SHARED.get() {
            return Ok(made);
        }
        let made = Self::make()?;
        Ok(SHARED.get_or_init(|| made))
    }

    fn make() -> Result<Self, LabError> {
        let made = Self { dir: directory()? };
        let issuer = made.authority("ca", "the laboratory")?;
        made.issue("server", &server(&NAMES)?, &issuer)?;
        made.issue("client", &client()?, &issuer)?;
        let mut expired = server(&NAMES)?;
        (expired.not_before, expired.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        made.issue("expired-server", &expired, &issuer)?;
        made.issue("named-server", &server(&["db.example.com"])?, &issuer)?;
        let other = made.authority("other-ca", "somebody else")?;
        made.issue("other-server", &server(&NAMES)?, &other)?;
        made.issue("other-client", &client()?, &other)?;
        Ok(made)
    }

    /// The authority that all trust, as a PEM file.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The files of a server's certificate and its key.
    #[must_use]
    pub fn server(&self, which: ServerCertificate) -> (PathBuf, PathBuf) {
        self.pair(match which {
            ServerCertificate::Good => "server",
            ServerCertificate::Expired => "expired-server",
            ServerCertificate::OfAnotherName => "named-server",
            ServerCertificate::OfAnotherAuthority => "other-server",
        })
    }

    /// The files of a client's certificate and its key; `None` for one without.
    #[must_use]
    pub fn client(&self, which: ClientCertificate) -> Option<(PathBuf, PathBuf)> {
        match which {
            ClientCertificate::Good => Some(self.pair("client")),
            ClientCertificate::OfAnotherAuthority => Some(self.pair("other-client")),
            ClientCertificate::Missing => None,
        }
    }

    /// What a URL says of TLS for such a client, as `key=value&key=value`.
    #[must_use]
    pub fn settings(&self, which: ClientCertificate) -> String {
        let mut text = format!("ca_file={}", self.ca_file().display());
        if let Some((certificate, key)) = self.client(which) {
            text = format!("{text}&cert_file={}&key_file={}", certificate.display(), key.display());
        }
        text
    }

    /// Certificate and key of a server in one file, as ZooKeeper takes them.
    pub(super) fn server_in_one(&self, which: ServerCertificate) -> PathBuf {
        self.server(which).0.with_extension("both.pem")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")))
    }

    fn authority(&self, file: &str, name: &str) -> Result<Issuer<'static, KeyPair>, LabError> {
        let mut params = named(&[], name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        write(&self.path(&format!("{file}.pem")), &params.self_signed(&key).map_err(|error| failed(&error))?.pem())?;
        Ok(Issuer::new(params, key))
    }

    fn issue(&self, file: &str, params: &CertificateParams, issuer: &Issuer<'static, KeyPair>) -> Result<(), LabError> {
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let certificate = params.signed_by(&key, issuer).map_err(|error| failed(&error))?.pem();
        let (certificate_file, key_file) = self.pair(file);
        write(&certificate_file, &certificate)?;
        write(&key_file, &key.serialize_pem())?;
        write(&certificate_file.with_extension("both.pem"), &(certificate + &key.serialize_pem()))
    }
}

fn failed(error: &rcgen::Error) -> LabError {
    LabError::run(format!("making certificates: {error}"))
}

fn named(names: &[&str], name: &str) -> Result<CertificateParams, LabError> {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).map_err(|error| failed(&error))?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Members of a deployment are clients of each other, too.
fn server(names: &[&str]) -> Result<CertificateParams, LabError> {
    let mut params = named(names, "a server")?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn client() -> Result<CertificateParams, LabError> {
    // The common name is that of a user on docs/rights.md.
    let mut params = named(&[], "program")?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(|source| LabError::io(format!("writing {}", path.display()), source))
}

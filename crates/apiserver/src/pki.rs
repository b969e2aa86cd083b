//! The cluster's own certificate authority and what it signs.
//!
//! Only the authority is kept, in one file that only its owner can read; the server's and
//! the administrator's certificates are made afresh at each start. A client is trusted if
//! and only if the authority signed its certificate. Private keys must never be logged.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// The names under which a server is always reached.
const LOCAL_NAMES: [&str; 6] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];
const AUTHORITY_YEARS: i16 = 10;
const LEAF_YEARS: i16 = 1;

/// Why there is no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file can't be read or written.
    #[error("could not access {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The authority's file holds something else.
    #[error("{} is not a certificate authority; remove it to have a new one made", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate can't be made.
    #[error("could not make a certificate")]
    Sign(#[source] rcgen::Error),
    /// The certificates can't be used for TLS.
    #[error("could not set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The certificate authority.
pub struct Pki {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    now: Timestamp,
}

/// What a server needs to speak TLS and to know its clients.
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<rustls::ServerConfig>,
}

impl Pki {
    /// Reads the authority in this folder, or makes a new one.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, PkiError> {
        let path = directory.join("ca.pem");
        let failed = |source| PkiError::File {
            path: path.clone(),
            source,
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = new_authority(now).map_err(PkiError::Sign)?;
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory)
                    .map_err(failed)?;
                write_private(&path, text.as_bytes()).map_err(failed)?;
                text
            }
            Err(error) => return Err(failed(error)),
        };
        let wrong = |source| PkiError::Authority {
            path: path.clone(),
            source,
        };
        let begin = text
            .find("-----BEGIN CERTIFICATE-----")
            .ok_or_else(|| wrong("there is no certificate in it".into()))?;
        let certificate = text[begin..].to_owned();
        let key = KeyPair::from_pem(&text[..begin]).map_err(|error| wrong(error.into()))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key);
        let issuer = issuer.map_err(|error| wrong(error.into()))?;
        Ok(Self {
            issuer,
            certificate,
            now,
        })
    }

    /// The authority's certificate as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// TLS for a server that is reached under these names besides the local ones.
    pub fn tls(&self, names: &[String]) -> Result<Tls, PkiError> {
        let mut all: Vec<String> = LOCAL_NAMES.iter().map(ToString::to_string).collect();
        all.extend(
            names
                .iter()
                .filter(|name| !LOCAL_NAMES.contains(&name.as_str()))
                .cloned(),
        );
        let mut params = CertificateParams::new(all).map_err(PkiError::Sign)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (chain, key) = self.sign(params, &[(DnType::CommonName, "orlop-apiserver")])?;
        let tls = |error: Box<dyn std::error::Error + Send + Sync>| PkiError::Tls(error);
        let chain = CertificateDer::from_pem_slice(chain.as_bytes());
        let chain = chain.map_err(|error| tls(error.into()))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|error| tls(error.into()))?;
        let authority = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let mut roots = RootCertStore::empty();
        roots
            .add(authority.map_err(|error| tls(error.into()))?)
            .map_err(|error| tls(error.into()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Health checks come without a certificate; everything else is turned away later,
        // with an answer that says why.
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|error| tls(error.into()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| tls(error.into()))?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![chain], key)
            .map_err(|error| tls(error.into()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls {
            config: Arc::new(config),
        })
    }

    /// The text of a kubeconfig with a new administrator's certificate.
    pub fn kubeconfig(&self, server: &str) -> Result<String, PkiError> {
        let mut params = CertificateParams::new(Vec::new()).map_err(PkiError::Sign)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let name = [
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "admin"),
        ];
        let (certificate, key) = self.sign(params, &name)?;
        let encode = |pem: &str| STANDARD.encode(pem);
        Ok(format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: orlop\n\
             \x20 cluster:\n\
             \x20   server: {server}\n\
             \x20   certificate-authority-data: {}\n\
             users:\n\
             - name: admin\n\
             \x20 user:\n\
             \x20   client-certificate-data: {}\n\
             \x20   client-key-data: {}\n\
             contexts:\n\
             - name: orlop\n\
             \x20 context:\n\
             \x20   cluster: orlop\n\
             \x20   user: admin\n\
             current-context: orlop\n",
            encode(&self.certificate),
            encode(&certificate),
            encode(&key),
        ))
    }

    /// Writes a kubeconfig that only its owner can read, all of it or nothing; on a full disk,
    /// over the old one.
    pub fn write_kubeconfig(&self, path: &Path, server: &str) -> Result<(), PkiError> {
        let text = self.kubeconfig(server)?;
        let written = match write_private(path, text.as_bytes()) {
            Err(full) if full.kind() == io::ErrorKind::StorageFull => {
                // It is made anew at every start, also at one after a crash halfway.
                overwrite(path, text.as_bytes()).map_err(|_| full)
            }
            written => written,
        };
        written.map_err(|source| PkiError::File {
            path: path.to_owned(),
            source,
        })
    }

    /// Signs a certificate for a new key; returns both as PEM.
    fn sign(
        &self,
        mut params: CertificateParams,
        name: &[(DnType, &str)],
    ) -> Result<(String, String), PkiError> {
        params.distinguished_name = DistinguishedName::new();
        for (part, value) in name {
            params.distinguished_name.push(part.clone(), *value);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, self.now, LEAF_YEARS);
        let key = KeyPair::generate().map_err(PkiError::Sign)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(PkiError::Sign)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pki")
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// A new authority: its key and its certificate as PEM.
fn new_authority(now: Timestamp) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "orlop-ca");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, now, AUTHORITY_YEARS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

/// Valid from yesterday, since clocks differ.
fn valid_for(params: &mut CertificateParams, now: Timestamp, years: i16) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let date = |date: jiff::civil::Date| {
        let month = u8::try_from(date.month()).unwrap_or(1);
        let day = u8::try_from(date.day()).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    params.not_before = date(today.saturating_sub(1.day()));
    params.not_after = date(today.saturating_add(i64::from(years).years()));
}

/// Replaces a file as a whole, readable by its owner only and durable.
pub(crate) fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    // What a crash left behind may have another mode.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    let written = file.write_all(contents).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&fresh, path)) {
        // Its room may be what is missing.
        drop(fs::remove_file(&fresh));
        return Err(error);
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::File::open(directory)?.sync_all()
}

/// Writes over a file in the room that it has.
fn overwrite(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(contents)?;
    file.set_len(contents.len() as u64)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_authority_outlives_a_restart_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("pki");
        let first = Pki::open(&folder, Timestamp::now()).unwrap();
        let second = Pki::open(&folder, Timestamp::now()).unwrap();
        assert_eq!(first.certificate(), second.certificate());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("ca.pem")), 0o600);
        let kubeconfig = directory.path().join("kubeconfig");
        fs::write(&kubeconfig, "old").unwrap();
        second
            .write_kubeconfig(&kubeconfig, "https://127.0.0.1:1")
            .unwrap();
        assert_eq!(mode(&kubeconfig), 0o600);
        assert!(
            fs::read_to_string(&kubeconfig)
                .unwrap()
                .contains("https://127.0.0.1:1")
        );
    }

    #[test]
    fn a_file_that_is_no_authority_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), "something else").unwrap();
        let error = Pki::open(directory.path(), Timestamp::now()).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("remove it to have a new one made"),
            "{error}"
        );
    }
}

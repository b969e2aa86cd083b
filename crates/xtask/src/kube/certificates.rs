//! The cluster's certificate authority, and what it signs.
//!
//! One authority signs everything: servers, components, and the identities that scenarios give
//! to the programs they start. Keys lie in the cluster's folder, readable by its owner, and go
//! with it.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{ADDRESS, SERVER};

/// The authority of one cluster.
pub(crate) struct Authority {
    folder: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new one, and the pair of keys that service account tokens are signed with.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params
            .distinguished_name
            .push(DnType::CommonName, "orlop-kube");
        let certificate = params.self_signed(&key)?.pem();
        write_private(&folder.join("ca.crt"), &certificate)?;
        write_private(&folder.join("ca.key"), &key.serialize_pem())?;
        let tokens = KeyPair::generate()?;
        write_private(&folder.join("tokens.key"), &tokens.serialize_pem())?;
        write_private(&folder.join("tokens.pub"), &tokens.public_key_pem())?;
        Self::open(folder)
    }

    /// Reads the one in this folder.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path)
                .with_context(|| format!("could not read {}", path.display()))
        };
        let certificate = read("ca.crt")?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&read("ca.key")?)?)?;
        Ok(Self {
            folder: folder.to_owned(),
            certificate,
            issuer,
        })
    }

    /// Makes `name.crt` and `name.key` for a server on the cluster's addresses, which may be used
    /// as a client as well (etcd's server calls itself).
    pub(crate) fn server(&self, name: &str, subject: &[(DnType, &str)]) -> Result<()> {
        let names = [ADDRESS, "127.0.0.1", "localhost", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let (certificate, key) = self.sign(params, subject)?;
        write_private(&self.folder.join(format!("{name}.crt")), &certificate)?;
        write_private(&self.folder.join(format!("{name}.key")), &key)
    }

    /// Writes a kubeconfig for this user of the cluster, with a certificate made for it.
    pub(crate) fn kubeconfig(&self, path: &Path, user: &str, group: Option<&str>) -> Result<()> {
        self.kubeconfig_of(SERVER, path, user, group)
    }

    /// The same for a server at this address.
    pub(crate) fn kubeconfig_of(
        &self,
        server: &str,
        path: &Path,
        user: &str,
        group: Option<&str>,
    ) -> Result<()> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let mut subject = vec![(DnType::CommonName, user)];
        subject.extend(group.map(|group| (DnType::OrganizationName, group)));
        let (certificate, key) = self.sign(params, &subject)?;
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kube", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&self.certificate),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(&certificate),
                "client-key-data": STANDARD.encode(&key),
            }}],
            "contexts": [{"name": "kube", "context": {"cluster": "kube", "user": user}}],
            "current-context": "kube",
        });
        write_private(path, &config.to_string())
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        subject: &[(DnType, &str)],
    ) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("could not write {}", path.display()))
}

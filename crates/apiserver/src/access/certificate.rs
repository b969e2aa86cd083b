//! The user that a client certificate names: its common name, with its organizations as
//! groups.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::User;

/// Reads the subject of a certificate whose signature the handshake has checked already.
/// None without a common name: a nameless user could be granted nothing.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups = subject
        .iter_organization()
        .filter_map(|organization| organization.as_str().ok().map(str::to_owned));
    (!name.is_empty()).then(|| User::new(name, groups))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn signed(parts: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (part, value) in parts {
            params.distinguished_name.push(part.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organization_a_group() {
        let certificate = signed(&[
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "admin"),
        ]);
        let user = subject(&certificate).unwrap();
        assert_eq!(user.name, "admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
    }

    #[test]
    fn a_certificate_without_a_name_names_nobody() {
        let nameless = signed(&[(DnType::OrganizationName, "system:masters")]);
        assert_eq!(subject(&nameless), None);
        assert_eq!(subject(&CertificateDer::from(b"no".as_slice())), None);
    }
}

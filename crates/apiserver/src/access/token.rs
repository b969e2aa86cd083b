//! Bound service-account tokens: JSON web tokens that the server signs and knows again.
//!
//! A token is good while its account, and the pod, secret or node it is bound to, exist
//! under the same uid. The key must never be printed, nor a token.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::user::User;
use crate::pki::write_private;
use crate::registry::{Registry, text};
use crate::store::Key;

/// Who issues the tokens, and whom they are for unless something else is asked.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Why tokens can't be signed.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    /// The key's file can't be read or written.
    #[error("could not access {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} holds no signing key; remove it to have a new one made (tokens signed before are refused then)", path.display())]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// The system gave no randomness.
    #[error("could not make a signing key")]
    Random,
}

/// Signs tokens and knows its own.
pub struct Signer {
    key: EcdsaKeyPair,
    /// Which key it is, as tokens name it.
    id: String,
}

/// What a token is bound to besides its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    /// `Pod`, `Secret` or `Node`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What a new token is to say.
#[derive(Debug, Clone)]
pub(crate) struct Grant<'g> {
    pub(crate) namespace: &'g str,
    pub(crate) account: &'g str,
    pub(crate) account_uid: &'g str,
    pub(crate) audiences: &'g [String],
    pub(crate) bound: Option<&'g Bound>,
    /// The node of the pod that the token is bound to.
    pub(crate) node: Option<(&'g str, &'g str)>,
    pub(crate) issued: Timestamp,
    pub(crate) expires: Timestamp,
    pub(crate) id: String,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Signer {
    /// A key that is gone with the process.
    pub fn ephemeral() -> Result<Self, TokenKeyError> {
        Self::of(&new_key()?).ok_or(TokenKeyError::Random)
    }

    /// Reads the key in this folder, or makes a new one.
    pub fn open(directory: &Path) -> Result<Self, TokenKeyError> {
        let path = directory.join("service-account.key");
        let failed = |source| TokenKeyError::File {
            path: path.clone(),
            source,
        };
        let key = match fs::read(&path) {
            Ok(key) => key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = new_key()?;
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory)
                    .map_err(failed)?;
                write_private(&path, &key).map_err(failed)?;
                key
            }
            Err(error) => return Err(failed(error)),
        };
        Self::of(&key).ok_or(TokenKeyError::Key { path })
    }

    fn of(pkcs8: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).ok()?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key().as_ref()));
        Some(Self { key, id })
    }

    /// How others find the key, as OpenID Connect has it.
    pub(crate) fn discovery(&self) -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The public half of the key, for whoever checks tokens without asking.
    pub(crate) fn keys(&self) -> Value {
        // A point on the curve: a byte that says so, and its two coordinates.
        let point = self.key.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        json!({ "keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }] })
    }

    /// A token that says so.
    pub(crate) fn sign(&self, grant: &Grant<'_>) -> Result<String, TokenKeyError> {
        let mut own = json!({
            "namespace": grant.namespace,
            "serviceaccount": { "name": grant.account, "uid": grant.account_uid },
        });
        if let Some(bound) = grant.bound {
            own[bound.kind.to_ascii_lowercase()] = json!({ "name": bound.name, "uid": bound.uid });
        }
        if let Some((name, uid)) = grant.node {
            own["node"] = json!({ "name": name, "uid": uid });
        }
        let claims = json!({
            "iss": ISSUER,
            "sub": User::service_account(grant.namespace, grant.account).name,
            "aud": grant.audiences,
            "iat": grant.issued.as_second(),
            "nbf": grant.issued.as_second(),
            "exp": grant.expires.as_second(),
            "jti": grant.id,
            "kubernetes.io": own,
        });
        let header = json!({ "alg": "ES256", "kid": self.id });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self
            .key
            .sign(&SystemRandom::new(), message.as_bytes())
            .map_err(|_| TokenKeyError::Random)?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token of ours; none if it isn't.
    fn claims(&self, token: &str) -> Option<Value> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header["alg"] != "ES256" || header["kid"] != self.id.as_str() {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key())
            .verify(message.as_bytes(), &signature)
            .ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// Who a token stands for, and for which of the wanted audiences. The text of a refusal
    /// is for reviews and logs; it tells nothing of the token.
    pub(crate) fn verify(
        &self,
        registry: &Registry,
        token: &str,
        wanted: &[String],
    ) -> Result<(User, Vec<String>), &'static str> {
        let claims = self.claims(token).ok_or("invalid bearer token")?;
        if claims["iss"] != ISSUER {
            return Err("invalid bearer token");
        }
        let now = registry.clock.now().as_second();
        if claims["exp"].as_i64().is_none_or(|end| end <= now) {
            return Err("service account token has expired");
        }
        if claims["nbf"].as_i64().is_some_and(|start| start > now) {
            return Err("service account token is not valid yet");
        }
        let meant = claims["aud"].as_array().into_iter().flatten();
        let meant: Vec<String> = meant
            .filter_map(Value::as_str)
            .filter(|audience| wanted.iter().any(|own| own == audience))
            .map(str::to_owned)
            .collect();
        if meant.is_empty() {
            return Err("token audiences is invalid for the target audiences");
        }
        let own = &claims["kubernetes.io"];
        let namespace = text(own, "/namespace");
        let lives = |resource: &str, namespace: &str, field: &str| {
            let name = text(own, &format!("/{field}/name"));
            let object = registry.store.get(&Key::new(resource, namespace, name));
            object.is_some_and(|object| object.meta.uid() == text(own, &format!("/{field}/uid")))
        };
        if !lives("serviceaccounts", namespace, "serviceaccount") {
            return Err("service account token has been invalidated");
        }
        for (field, resource, namespace) in
            [("pod", "pods", namespace), ("secret", "secrets", namespace)]
        {
            if own.get(field).is_some() && !lives(resource, namespace, field) {
                return Err("service account token has been invalidated");
            }
        }
        // A pod's token names its node for information; only one bound to the node itself
        // goes with it.
        if own.get("pod").is_none() && own.get("node").is_some() && !lives("nodes", "", "node") {
            return Err("service account token has been invalidated");
        }
        let account = text(own, "/serviceaccount/name");
        let mut user = User::service_account(namespace, account);
        user.uid = text(own, "/serviceaccount/uid").to_owned();
        let mut extra = |key: &str, value: &str| {
            if !value.is_empty() {
                let key = format!("authentication.kubernetes.io/{key}");
                user.extra.insert(key, vec![value.to_owned()]);
            }
        };
        extra("credential-id", &format!("JTI={}", text(&claims, "/jti")));
        extra("pod-name", text(own, "/pod/name"));
        extra("pod-uid", text(own, "/pod/uid"));
        extra("node-name", text(own, "/node/name"));
        extra("node-uid", text(own, "/node/uid"));
        Ok((user, meant))
    }
}

fn new_key() -> Result<Vec<u8>, TokenKeyError> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
        .map_err(|_| TokenKeyError::Random)?;
    Ok(key.as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(audiences: &[String]) -> Grant<'_> {
        let now = Timestamp::from_second(1_000_000).unwrap();
        Grant {
            namespace: "default",
            account: "a",
            account_uid: "u",
            audiences,
            bound: None,
            node: None,
            issued: now,
            expires: now,
            id: "1".to_owned(),
        }
    }

    #[test]
    fn a_token_is_known_by_its_key_only() {
        let (ours, other) = (Signer::ephemeral().unwrap(), Signer::ephemeral().unwrap());
        let token = ours.sign(&grant(&["x".to_owned()])).unwrap();
        let claims = ours.claims(&token).unwrap();
        assert_eq!(claims["sub"], "system:serviceaccount:default:a");
        assert_eq!(other.claims(&token), None);
    }

    #[test]
    fn whoever_has_the_published_key_knows_a_token_of_it() {
        let signer = Signer::ephemeral().unwrap();
        let token = signer.sign(&grant(&[])).unwrap();
        let published = signer.keys();
        let half = |name: &str| {
            let text = published["keys"][0][name].as_str().unwrap();
            URL_SAFE_NO_PAD.decode(text).unwrap()
        };
        let point = [vec![4], half("x"), half("y")].concat();
        let (message, signature) = token.rsplit_once('.').unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(
                message.as_bytes(),
                &URL_SAFE_NO_PAD.decode(signature).unwrap(),
            )
            .unwrap();
    }

    #[test]
    fn a_changed_token_is_refused() {
        let signer = Signer::ephemeral().unwrap();
        let token = signer.sign(&grant(&[])).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(r#"{"iss":"x","sub":"root"}"#);
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        for wrong in [
            format!("{}.{forged}.{}", parts[0], parts[2]),
            format!("{unsigned}.{}.", parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(signer.claims(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_key_outlives_a_restart_and_a_spoilt_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let token = Signer::open(folder.path())
            .unwrap()
            .sign(&grant(&[]))
            .unwrap();
        assert!(
            Signer::open(folder.path())
                .unwrap()
                .claims(&token)
                .is_some()
        );
        fs::write(folder.path().join("service-account.key"), "spoilt").unwrap();
        let error = Signer::open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("service-account.key holds no signing key"),
            "{error}"
        );
    }
}

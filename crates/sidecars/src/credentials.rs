//! From a Kubernetes Secret to what a driver is given. Reads one secret by its name, never
//! a list of them, and keeps nothing.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_csi::Secrets;
use orlop_model::{Key, Secret, volume::SecretRef};
use orlop_runtime::{ApiError, Cluster};

/// Why a driver's credentials can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error("secret {0} does not exist; create it or correct the reference to it")]
    Missing(Key),
    #[error("secret {secret}: the value of {key:?} is not base64 of UTF-8 text")]
    NotText { secret: Key, key: String },
    #[error("the secret could not be read")]
    Read(#[source] ApiError),
}

/// The secret of that name, as credentials.
pub(crate) async fn fetch(cluster: &Cluster, key: &Key) -> Result<Secrets, CredentialsError> {
    let secret = cluster
        .get::<Secret>(key)
        .await
        .map_err(CredentialsError::Read)?
        .ok_or_else(|| CredentialsError::Missing(key.clone()))?;
    decode(&secret)
}

/// The secret that a reference names; without a reference there are no credentials.
pub(crate) async fn referenced(
    cluster: &Cluster,
    reference: Option<&SecretRef>,
) -> Result<Secrets, CredentialsError> {
    match reference {
        None => Ok(Secrets::none()),
        Some(SecretRef { name, namespace }) => {
            fetch(cluster, &Key::namespaced(namespace, name)).await
        }
    }
}

fn decode(secret: &Secret) -> Result<Secrets, CredentialsError> {
    let text = |encoded: &str| {
        let bytes = STANDARD.decode(encoded).ok()?;
        String::from_utf8(bytes).ok()
    };
    let mut values = BTreeMap::new();
    for (key, encoded) in &secret.data {
        let value = text(encoded).ok_or_else(|| CredentialsError::NotText {
            secret: secret.metadata.key(),
            key: key.clone(),
        })?;
        values.insert(key.clone(), value);
    }
    Ok(values.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(value: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = "s".into();
        secret.data.insert("password".into(), value.into());
        secret
    }

    #[test]
    fn values_are_decoded_and_never_shown() {
        let secrets = decode(&secret("aHVudGVyMg==")).expect("it is base64");
        assert!(!format!("{secrets:?}").contains("hunter2"));
        assert_eq!(secrets.into_request()["password"], "hunter2");
    }

    #[test]
    fn a_value_that_is_no_text_is_named_by_its_key_alone() {
        let error = decode(&secret("%%%hunter2")).expect_err("it is not base64");
        let text = error.to_string();
        assert!(
            text.contains("password") && !text.contains("hunter2"),
            "{text}"
        );
    }
}

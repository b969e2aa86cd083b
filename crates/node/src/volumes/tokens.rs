//! Tokens of a pod's service account for the drivers that ask for them.
//!
//! They end with their pod and are for one audience each. A token is used again while most of its
//! life is left, so that publishing anew every minute does not ask for a new one every minute.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use orlop_csi::SERVICE_ACCOUNT_TOKENS;
use orlop_model::driver::TokenAudience;
use orlop_model::{CsiDriver, Key, Pod};
use orlop_runtime::{ApiError, Clock, Cluster, TokenRequest};
use serde::Serialize;

use crate::layout::PodUid;
use crate::plugins::renew_at;

/// How long a token is good unless the driver says otherwise.
const USUAL_SECONDS: i64 = 3600;

/// Where a driver finds its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    InContext,
    InSecrets,
}

/// What a driver is given, under Kubernetes' key.
pub(super) struct ForDriver {
    pub(super) found: Found,
    pub(super) entry: (String, String),
}

/// The tokens that are in use.
#[derive(Default)]
pub(super) struct Tokens {
    held: Mutex<BTreeMap<(PodUid, String, i64), Held>>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    token: String,
    expiration_timestamp: Timestamp,
    #[serde(skip)]
    renew_at: Timestamp,
}

impl Tokens {
    fn held(&self) -> MutexGuard<'_, BTreeMap<(PodUid, String, i64), Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod's tokens are of no use without it.
    pub(super) fn forget(&self, pod: &PodUid) {
        self.held().retain(|(of, _, _), _| of != pod);
    }

    /// What a driver wants to have of a pod's account; none for most drivers.
    pub(super) async fn for_driver(
        &self,
        (cluster, clock): (&Cluster, Clock),
        (uid, pod): (&PodUid, &Pod),
        traits: Option<&CsiDriver>,
    ) -> Result<Option<ForDriver>, ApiError> {
        let Some(spec) = traits.map(|traits| &traits.spec) else {
            return Ok(None);
        };
        if spec.token_requests.is_empty() {
            return Ok(None);
        }
        let mut tokens = BTreeMap::new();
        for wanted in &spec.token_requests {
            let token = self.one((cluster, clock.now()), (uid, pod), wanted).await?;
            tokens.insert(wanted.audience.as_str(), token);
        }
        // Texts and times always become JSON.
        let text = serde_json::to_string(&tokens).unwrap_or_default();
        let found = match spec.service_account_token_in_secrets {
            Some(true) => Found::InSecrets,
            _ => Found::InContext,
        };
        let entry = (SERVICE_ACCOUNT_TOKENS.to_owned(), text);
        Ok(Some(ForDriver { found, entry }))
    }

    async fn one(
        &self,
        (cluster, now): (&Cluster, Timestamp),
        (uid, pod): (&PodUid, &Pod),
        wanted: &TokenAudience,
    ) -> Result<Held, ApiError> {
        let seconds = wanted.expiration_seconds.unwrap_or(USUAL_SECONDS);
        let key = (uid.clone(), wanted.audience.clone(), seconds);
        let held = self.held().get(&key).cloned();
        if let Some(held) = held.filter(|held| now < held.renew_at) {
            return Ok(held);
        }
        let account = match pod.spec.service_account_name.as_str() {
            "" => "default",
            name => name,
        };
        let account = Key::namespaced(&pod.metadata.namespace, account);
        let request = TokenRequest {
            audience: wanted.audience.clone(),
            seconds,
            pod: (pod.metadata.name.clone(), pod.metadata.uid.clone()),
        };
        let given = cluster.request_token(&account, &request).await?;
        let held = Held {
            renew_at: renew_at(now, given.expires),
            token: given.secret,
            expiration_timestamp: given.expires,
        };
        self.held().insert(key, held.clone());
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_as_drivers_read_them() {
        let time: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let held = Held {
            token: "t".into(),
            expiration_timestamp: time,
            renew_at: time,
        };
        let text = serde_json::to_string(&BTreeMap::from([("aud", held)])).expect("json");
        let wanted = r#"{"aud":{"token":"t","expirationTimestamp":"2026-01-02T03:04:05Z"}}"#;
        assert_eq!(text, wanted);
    }
}

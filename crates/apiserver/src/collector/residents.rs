//! What every namespace has: the account that its pods run as unless they say otherwise, and
//! the certificate that they know the server by. Both are put back when somebody takes them.

use serde_json::{Value, json};

use super::options;
use crate::kinds;
use crate::refusal::Refusal;
use crate::registry::{Part, Registry, Target};
use crate::store::{Event, Key};

const ACCOUNTS: &str = "serviceaccounts";
const DEFAULT_ACCOUNT: &str = "default";
const MAPS: &str = "configmaps";
const CERTIFICATE: &str = "kube-root-ca.crt";

/// Whether an event may have taken away what a namespace has.
pub(super) fn are_touched_by(event: &Event) -> bool {
    match (&*event.key.resource, &*event.key.name) {
        (ACCOUNTS, DEFAULT_ACCOUNT) => event.deleted,
        (MAPS, CERTIFICATE) => event.deleted || event.before.is_some(),
        _ => false,
    }
}

/// Makes what is missing.
pub(super) async fn settle(registry: &Registry, namespace: &str) -> Result<(), Refusal> {
    let account = json!({ "metadata": { "name": DEFAULT_ACCOUNT } });
    make(registry, namespace, (ACCOUNTS, DEFAULT_ACCOUNT), account).await?;
    let Some(certificate) = &registry.policy.root_certificate else {
        return Ok(());
    };
    let map = json!({
        "metadata": {
            "name": CERTIFICATE,
            "annotations": {
                "kubernetes.io/description": "The certificate that clients within the cluster \
                 know its API server by.",
            },
        },
        "data": { "ca.crt": certificate },
    });
    if let Some(found) = make(registry, namespace, (MAPS, CERTIFICATE), map.clone()).await?
        && found["data"] != map["data"]
    {
        let target = Target {
            kind: kinds::find("", "v1", MAPS).ok_or_else(Refusal::no_such_path)?,
            namespace: namespace.to_owned(),
            name: CERTIFICATE.to_owned(),
        };
        let edit = |current: &Value| {
            let mut mended = current.clone();
            mended["data"].clone_from(&map["data"]);
            Ok(mended)
        };
        registry
            .change(&target, Part::Main, &options(), edit)
            .await?;
    }
    Ok(())
}

/// Creates an object, or gives the one that is there.
async fn make(
    registry: &Registry,
    namespace: &str,
    (plural, name): (&str, &str),
    object: Value,
) -> Result<Option<Value>, Refusal> {
    if let Some(found) = registry.store.get(&Key::new(plural, namespace, name)) {
        return Ok(Some(found.value()));
    }
    let kind = kinds::find("", "v1", plural).ok_or_else(Refusal::no_such_path)?;
    match registry.create(kind, namespace, object, &options()).await {
        // The namespace is on its way out, or somebody else was faster.
        Err(refusal) if !matches!(refusal.reason, "AlreadyExists" | "Forbidden") => Err(refusal),
        _ => Ok(None),
    }
}

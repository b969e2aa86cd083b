//! ServiceAccount: a pod runs as an account that exists, and its containers find a token of it.

use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::registry::{Target, section, text};
use crate::store::{Key, State};

/// What the name of the volume that holds the token begins with.
pub(crate) const TOKEN_VOLUME: &str = "kube-api-access-";
/// Where containers look for it.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a bit: the bit tells the server's own choice from a user's.
const TOKEN_SECONDS: i64 = 3607;
/// A pod that a node runs from a file and only shows here: the node wants it as it is.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// Gives a new pod its account and the account's token, or refuses it. `volume` makes a name
/// for the volume.
pub(crate) fn admit(
    state: &State,
    target: &Target,
    pod: &mut Value,
    volume: impl FnOnce() -> String,
) -> Result<(), Refusal> {
    let forbidden = |why: &str| Err(Refusal::forbidden(target.kind, &target.name, why));
    let name = text(pod, "/spec/serviceAccountName").to_owned();
    if pod.pointer(MIRROR).is_some() {
        return match name.as_str() {
            "" => Ok(()),
            _ => forbidden("a mirror pod may not reference service accounts"),
        };
    }
    let name = match name.as_str() {
        "" => "default",
        name => name,
    };
    let namespace = target.namespace.as_str();
    let Some(account) = state.get(&Key::new("serviceaccounts", namespace, name)) else {
        return forbidden(&format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        ));
    };
    let account = account.value();
    let spec = section(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), name.into());
    spec.insert("serviceAccount".to_owned(), name.into());
    let secrets = &account["imagePullSecrets"];
    let own = spec.get("imagePullSecrets").and_then(Value::as_array);
    if own.is_none_or(Vec::is_empty) && secrets.as_array().is_some_and(|all| !all.is_empty()) {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    if wants_token(pod, &account) {
        mount_token(pod, volume);
    }
    Ok(())
}

/// The pod's word counts, then the account's.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let field = "automountServiceAccountToken";
    let said = |object: &Value| object[field].as_bool();
    said(&pod["spec"]).or_else(|| said(account)).unwrap_or(true)
}

/// Mounts the token in every container that has nothing else in that place.
fn mount_token(pod: &mut Value, volume: impl FnOnce() -> String) {
    let volumes = pod["spec"]["volumes"].as_array();
    let own = volumes.into_iter().flatten().find_map(|volume| {
        let name = text(volume, "/name");
        name.starts_with(TOKEN_VOLUME).then(|| name.to_owned())
    });
    let brings_own = own.is_some();
    let name = own.unwrap_or_else(volume);
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else {
                continue;
            };
            if mounts
                .iter()
                .any(|mount| text(mount, "/mountPath") == MOUNT_PATH)
            {
                continue;
            }
            mounts.push(json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH }));
            mounted = true;
        }
    }
    if mounted && !brings_own {
        let volumes = section(pod, "spec")
            .entry("volumes")
            .or_insert_with(|| json!([]));
        if let Some(all) = volumes.as_array_mut() {
            all.push(token_volume(&name));
        }
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
                { "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                } },
                { "downwardAPI": { "items": [{
                    "path": "namespace",
                    "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }] } },
            ],
            "defaultMode": 0o644,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(mut pod: Value, account: &Value) -> Value {
        if wants_token(&pod, account) {
            mount_token(&mut pod, || "kube-api-access-x".to_owned());
        }
        pod
    }

    #[test]
    fn the_pods_word_counts_before_the_accounts() {
        let says = |word: Option<bool>| match word {
            Some(word) => json!({ "automountServiceAccountToken": word }),
            None => json!({}),
        };
        for (pod, account, mounts) in [
            (None, None, true),
            (None, Some(false), false),
            (Some(true), Some(false), true),
            (Some(false), Some(true), false),
            (Some(false), None, false),
        ] {
            let spec = json!({ "spec": says(pod) });
            assert_eq!(
                wants_token(&spec, &says(account)),
                mounts,
                "{pod:?} {account:?}"
            );
        }
    }

    #[test]
    fn every_container_finds_the_token_unless_something_else_is_there() {
        let other = json!([{ "name": "mine", "mountPath": MOUNT_PATH }]);
        let pod = mounted(
            json!({ "spec": {
                "initContainers": [{ "name": "i" }],
                "containers": [{ "name": "a" }, { "name": "b", "volumeMounts": other }],
            } }),
            &json!({}),
        );
        let mount = json!([{
            "name": "kube-api-access-x", "readOnly": true, "mountPath": MOUNT_PATH,
        }]);
        assert_eq!(pod["spec"]["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], mount);
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"], other);
        assert_eq!(pod["spec"]["volumes"][0], token_volume("kube-api-access-x"));
    }

    #[test]
    fn a_pod_whose_containers_all_have_something_else_there_gets_no_volume() {
        let other = json!([{ "name": "mine", "mountPath": MOUNT_PATH }]);
        let pod = mounted(
            json!({ "spec": { "containers": [{ "name": "a", "volumeMounts": other }] } }),
            &json!({}),
        );
        assert_eq!(pod["spec"].get("volumes"), None);
    }

    #[test]
    fn a_pod_that_brings_the_volume_keeps_its_own() {
        let own = json!([{ "name": "kube-api-access-own", "emptyDir": {} }]);
        let pod = mounted(
            json!({ "spec": { "containers": [{ "name": "a" }], "volumes": own } }),
            &json!({}),
        );
        assert_eq!(pod["spec"]["volumes"], own);
        assert_eq!(
            pod["spec"]["containers"][0]["volumeMounts"][0]["name"],
            "kube-api-access-own"
        );
    }
}

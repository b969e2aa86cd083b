//! What a node may do because of the pods that are on it.
//!
//! As the original's Node authorizer has it: whoever is `system:node:NAME` of the group `system:nodes`
//! may follow a secret by its name if a pod on that node shows it in a volume. Nobody may list all
//! secrets for that. What else nodes may do is for roles to say.

use serde_json::Value;

use super::rbac::Act;
use super::user::User;
use crate::registry::text;
use crate::store::Store;

/// The group of all nodes.
const NODES: &str = "system:nodes";
/// What a node's user name begins with.
const NODE: &str = "system:node:";

/// The reason why a node may do it; none if it may not, or is no node.
pub(super) fn allows(store: &Store, user: &User, act: &Act<'_>) -> Option<String> {
    let node = user.name.strip_prefix(NODE)?;
    if node.is_empty() || !user.is_in(NODES) {
        return None;
    }
    let Act::Resource {
        verb: "list" | "watch",
        group: "",
        resource: "secrets",
        namespace,
        name,
    } = *act
    else {
        return None;
    };
    if namespace.is_empty() || name.is_empty() {
        return None;
    }
    let quoted = |text: &str| serde_json::to_vec(text).unwrap_or_default();
    let (by_name, by_node) = (quoted(name), quoted(node));
    let state = store.read();
    let mut pods = state.list("pods", Some(namespace));
    pods.any(|(_, _, pod)| {
        // Most pods are neither here nor of interest, and need not be read.
        let json = pod.json();
        holds(json, &by_name) && holds(json, &by_node) && shows(&pod.value(), node, name)
    })
    .then(|| format!("a pod on node {node:?} shows the secret"))
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len().max(1)).any(|window| window == part)
}

/// Whether a pod is on a node and has a volume of a secret.
fn shows(pod: &Value, node: &str, secret: &str) -> bool {
    if text(pod, "/spec/nodeName") != node {
        return false;
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.into_iter().any(|volume| {
        let projected = volume["projected"]["sources"].as_array();
        let mut projected = projected.into_iter().flatten();
        text(volume, "/secret/secretName") == secret
            || text(volume, "/csi/nodePublishSecretRef/name") == secret
            || projected.any(|source| text(source, "/secret/name") == secret)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_shows_the_secrets_of_its_volumes_on_its_node() {
        let pod = json!({"spec": {"nodeName": "a", "volumes": [
            {"name": "s", "secret": {"secretName": "one"}},
            {"name": "p", "projected": {"sources": [
                {"configMap": {"name": "three"}}, {"secret": {"name": "two"}}]}},
            {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "four"}}},
        ]}});
        for (node, secret, wanted) in [
            ("a", "one", true),
            ("a", "two", true),
            ("a", "four", true),
            ("a", "three", false),
            ("a", "s", false),
            ("b", "one", false),
            ("", "one", false),
        ] {
            assert_eq!(shows(&pod, node, secret), wanted, "{node} {secret}");
        }
    }
}

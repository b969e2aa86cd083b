//! The roles that every cluster has. They are put back at each start: a server whose
//! administrator's role was edited away could not be mended through itself.

use serde_json::{Value, json};

const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// Resources of the core group that people of a namespace work with.
const CORE: &[&str] = &[
    "configmaps",
    "endpoints",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "pods",
    "pods/log",
    "pods/status",
    "serviceaccounts",
    "services",
    "services/status",
];
/// Resources that make pods, of the groups `apps` and `batch`.
const WORKLOADS: &[&str] = &[
    "controllerrevisions",
    "daemonsets",
    "daemonsets/status",
    "deployments",
    "deployments/scale",
    "deployments/status",
    "jobs",
    "jobs/status",
    "replicasets",
    "replicasets/scale",
    "replicasets/status",
    "statefulsets",
    "statefulsets/scale",
    "statefulsets/status",
];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

/// The roles and bindings, as plural and object.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    vec![
        role(
            "cluster-admin",
            &json!([
                { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
                { "verbs": ["*"], "nonResourceURLs": ["*"] },
            ]),
        ),
        role(
            "admin",
            &json!([read(), secrets(), write(), workloads(true), roles()]),
        ),
        role(
            "edit",
            &json!([read(), secrets(), write(), workloads(true)]),
        ),
        role("view", &json!([read(), workloads(false)])),
        role(
            "system:basic-user",
            &json!([
                {
                    "verbs": ["create"],
                    "apiGroups": ["authorization.k8s.io"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                },
                {
                    "verbs": ["create"],
                    "apiGroups": ["authentication.k8s.io"],
                    "resources": ["selfsubjectreviews"],
                },
            ]),
        ),
        role(
            "system:discovery",
            &json!([{
                "verbs": ["get"],
                "nonResourceURLs": [
                    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi",
                    "/openapi/*", "/readyz", "/version", "/version/",
                ],
            }]),
        ),
        role(
            "system:auth-delegator",
            &json!([
                {
                    "verbs": ["create"],
                    "apiGroups": ["authentication.k8s.io"],
                    "resources": ["tokenreviews"],
                },
                {
                    "verbs": ["create"],
                    "apiGroups": ["authorization.k8s.io"],
                    "resources": ["subjectaccessreviews"],
                },
            ]),
        ),
        binding("cluster-admin", "system:masters"),
        binding("system:basic-user", "system:authenticated"),
        binding("system:discovery", "system:authenticated"),
    ]
}

fn read() -> Value {
    json!({ "verbs": READ, "apiGroups": ["", "events.k8s.io"], "resources": with(CORE, &["events"]) })
}

fn workloads(write: bool) -> Value {
    let verbs = with(READ, if write { WRITE } else { &[] });
    json!({ "verbs": verbs, "apiGroups": ["apps", "batch"], "resources": WORKLOADS })
}

fn secrets() -> Value {
    json!({ "verbs": with(READ, WRITE), "apiGroups": [""], "resources": ["secrets"] })
}

fn write() -> Value {
    let resources = with(CORE, &["events", "pods/eviction", "serviceaccounts/token"]);
    json!({ "verbs": WRITE, "apiGroups": [""], "resources": resources })
}

fn roles() -> Value {
    json!({
        "verbs": with(READ, WRITE),
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
    })
}

fn with(some: &[&'static str], more: &[&'static str]) -> Vec<&'static str> {
    some.iter().chain(more).copied().collect()
}

fn role(name: &str, rules: &Value) -> (&'static str, Value) {
    let role = json!({ "metadata": metadata(name), "rules": rules });
    ("clusterroles", role)
}

fn binding(role: &str, group: &str) -> (&'static str, Value) {
    let api = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": metadata(role),
        "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": api, "kind": "Group", "name": group }],
    });
    ("clusterrolebindings", binding)
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": { LABEL.0: LABEL.1 },
        "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "true" },
    })
}

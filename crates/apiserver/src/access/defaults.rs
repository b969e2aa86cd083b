//! The roles that every cluster has, with the rules that people know from any other. They are
//! put back at each start: a server whose administrator's role was edited away could not be
//! mended through itself.

use serde_json::{Map, Value, json};

use super::aggregate::gathered;

const GROUP: &str = "rbac.authorization.k8s.io";
const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// Whoever sets this to something else keeps a role as it is.
const UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const BOTH: &str = "create delete deletecollection get list patch update watch";

/// Verbs, groups (`core` for the one without a name) and resources.
type Lines = &'static [(&'static str, &'static str, &'static str)];

const VIEW: Lines = &[
    (
        READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods \
         replicationcontrollers replicationcontrollers/scale serviceaccounts services \
         services/status",
    ),
    (
        READ,
        "core",
        "bindings limitranges namespaces/status pods/log pods/status \
         replicationcontrollers/status resourcequotas resourcequotas/status",
    ),
    // In a namespace: that namespace.
    (READ, "core", "namespaces"),
    (READ, "core events.k8s.io", "events"),
    (READ, "discovery.k8s.io", "endpointslices"),
    (
        READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale \
         deployments/status replicasets replicasets/scale replicasets/status statefulsets \
         statefulsets/scale statefulsets/status",
    ),
    (
        READ,
        "autoscaling",
        "horizontalpodautoscalers horizontalpodautoscalers/status",
    ),
    (READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (
        READ,
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses \
         ingresses/status networkpolicies replicasets replicasets/scale replicasets/status \
         replicationcontrollers/scale",
    ),
    (
        READ,
        "policy",
        "poddisruptionbudgets poddisruptionbudgets/status",
    ),
    (
        READ,
        "networking.k8s.io",
        "ingresses ingresses/status networkpolicies",
    ),
    (
        READ,
        "resource.k8s.io",
        "resourceclaims resourceclaims/status resourceclaimtemplates",
    ),
];

const EDIT: Lines = &[
    // Whoever reads these may do more than read.
    (
        READ,
        "core",
        "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
    ),
    ("impersonate", "core", "serviceaccounts"),
    (
        WRITE,
        "core",
        "pods pods/attach pods/exec pods/portforward pods/proxy",
    ),
    ("create", "core", "pods/eviction"),
    (
        WRITE,
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale \
         secrets serviceaccounts services services/proxy",
    ),
    ("create", "core", "serviceaccounts/token"),
    (WRITE, "core events.k8s.io", "events"),
    (
        WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets \
         replicasets/scale statefulsets statefulsets/scale",
    ),
    (WRITE, "autoscaling", "horizontalpodautoscalers"),
    (WRITE, "batch", "cronjobs jobs"),
    (
        WRITE,
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies \
         replicasets replicasets/scale replicationcontrollers/scale",
    ),
    (WRITE, "policy", "poddisruptionbudgets"),
    (WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    (BOTH, "coordination.k8s.io", "leases"),
    (
        WRITE,
        "resource.k8s.io",
        "resourceclaims resourceclaimtemplates",
    ),
];

const ADMIN: Lines = &[
    (
        "create",
        "authorization.k8s.io",
        "localsubjectaccessreviews",
    ),
    (BOTH, GROUP, "rolebindings roles"),
];

/// Roles that say what they allow.
const PLAIN: &[(&str, Lines)] = &[
    (
        "system:basic-user",
        &[
            (
                "create",
                "authorization.k8s.io",
                "selfsubjectaccessreviews selfsubjectrulesreviews",
            ),
            ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    (
        "system:auth-delegator",
        &[
            ("create", "authentication.k8s.io", "tokenreviews"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            ("create delete get list watch", "core", "persistentvolumes"),
            ("get list update watch", "core", "persistentvolumeclaims"),
            (READ, "storage.k8s.io", "storageclasses"),
            ("watch", "core", "events"),
            ("create patch update", "core events.k8s.io", "events"),
        ],
    ),
    (
        "system:volume-scheduler",
        &[
            ("get list patch update watch", "core", "persistentvolumes"),
            (READ, "storage.k8s.io", "storageclasses"),
            (
                "get list patch update watch",
                "core",
                "persistentvolumeclaims",
            ),
        ],
    ),
];

/// Roles that allow paths.
const PATHS: &[(&str, &str)] = &[
    (
        "system:discovery",
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    ),
    (
        "system:public-info-viewer",
        "/healthz /livez /readyz /version /version/",
    ),
    (
        "system:monitoring",
        "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* \
         /statusz",
    ),
    (
        "system:service-account-issuer-discovery",
        "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks \
         /openid/v1/jwks/",
    ),
];

/// Roles that gather those with the label of their name, and the label that they have
/// themselves.
const GATHERING: [(&str, &str); 3] = [("admin", ""), ("edit", "admin"), ("view", "edit")];

/// Which groups hold which roles.
const HOLDERS: &[(&str, &[&str])] = &[
    ("cluster-admin", &["system:masters"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:monitoring", &["system:monitoring"]),
    (
        "system:public-info-viewer",
        &["system:authenticated", "system:unauthenticated"],
    ),
    (
        "system:service-account-issuer-discovery",
        &["system:serviceaccounts"],
    ),
];

/// The roles and bindings, as plural and object.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let mut roles = vec![role(
        "cluster-admin",
        "",
        &json!([
            { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
            { "verbs": ["*"], "nonResourceURLs": ["*"] },
        ]),
    )];
    roles.extend(
        PLAIN
            .iter()
            .map(|(name, lines)| role(name, "", &rules(lines))),
    );
    roles.extend(PATHS.iter().map(|(name, paths)| {
        let mut rules = vec![json!({ "verbs": ["get"], "nonResourceURLs": words(paths) })];
        if *name == "system:monitoring" {
            let metrics = json!({
                "verbs": ["get"], "apiGroups": [""], "resources": ["nodes/metrics"],
            });
            rules.push(metrics);
        }
        role(name, "", &rules.into())
    }));
    for (to, lines) in [("view", VIEW), ("edit", EDIT), ("admin", ADMIN)] {
        let name = format!("system:aggregate-to-{to}");
        roles.push(role(&name, to, &rules(lines)));
    }
    // From the last, which the one before it gathers.
    for (name, to) in GATHERING.iter().rev() {
        let mut gathering = role(name, to, &json!([]));
        let wanted = json!({ "matchLabels": { aggregate(name): "true" } });
        gathering["aggregationRule"] = json!({ "clusterRoleSelectors": [wanted] });
        gathering["rules"] = gathered(&gathering, &roles).into();
        roles.push(gathering);
    }
    let roles = roles.into_iter().map(|role| ("clusterroles", role));
    let bindings = HOLDERS.iter().map(|(role, groups)| binding(role, groups));
    roles.chain(bindings).collect()
}

/// A role or binding with what it lacks of the default one; as it is if its administrator
/// wants it so.
pub(crate) fn mended(current: &Value, wanted: &Value) -> Value {
    let mut mended = current.clone();
    if current["metadata"]["annotations"][UPDATE] != "true" {
        return mended;
    }
    for (key, value) in wanted["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        if mended["metadata"]["labels"].get(key).is_none() {
            mended["metadata"]["labels"][key] = value.clone();
        }
    }
    if let Some(rule) = wanted.get("aggregationRule") {
        mended["aggregationRule"] = rule.clone();
        // The rest is the collector's to gather.
        return mended;
    }
    for list in ["rules", "subjects"] {
        let Some(all) = wanted[list].as_array() else {
            continue;
        };
        let mut own = current[list].as_array().cloned().unwrap_or_default();
        let missing = all.iter().filter(|one| !own.contains(one)).cloned();
        let missing: Vec<Value> = missing.collect();
        own.extend(missing);
        mended[list] = own.into();
    }
    mended
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn rules(lines: Lines) -> Value {
    let rule = |(verbs, groups, resources): &(&str, &str, &str)| {
        let groups = words(groups).into_iter();
        let groups: Vec<&str> = groups
            .map(|group| if group == "core" { "" } else { group })
            .collect();
        json!({ "verbs": words(verbs), "apiGroups": groups, "resources": words(resources) })
    };
    lines.iter().map(rule).collect()
}

/// The label of roles that another gathers.
fn aggregate(to: &str) -> String {
    format!("{GROUP}/aggregate-to-{to}")
}

fn role(name: &str, to: &str, rules: &Value) -> Value {
    let mut labels = Map::new();
    labels.insert(LABEL.0.to_owned(), LABEL.1.into());
    if !to.is_empty() {
        labels.insert(aggregate(to), "true".into());
    }
    let mut role = json!({ "metadata": metadata(name), "rules": rules });
    role["metadata"]["labels"] = labels.into();
    role
}

fn binding(role: &str, groups: &[&str]) -> (&'static str, Value) {
    let groups = groups.iter();
    let subjects: Vec<Value> = groups
        .map(|group| json!({ "apiGroup": GROUP, "kind": "Group", "name": group }))
        .collect();
    let binding = json!({
        "metadata": metadata(role),
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    });
    ("clusterrolebindings", binding)
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "labels": { LABEL.0: LABEL.1 }, "annotations": { UPDATE: "true" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_viewer_may_read_an_administrator_may_too() {
        let objects = objects();
        let rules = |name: &str| {
            let mut all = objects.iter().map(|(_, object)| object);
            let role = all.find(|role| role["metadata"]["name"] == name).unwrap();
            role["rules"].as_array().unwrap().clone()
        };
        let (admin, edit, view) = (rules("admin"), rules("edit"), rules("view"));
        assert!(view.iter().all(|rule| edit.contains(rule)));
        assert!(edit.iter().all(|rule| admin.contains(rule)));
        assert!(
            rules("system:aggregate-to-admin")
                .iter()
                .all(|rule| admin.contains(rule))
        );
        assert!(view.len() < edit.len() && edit.len() < admin.len());
    }

    #[test]
    fn a_default_role_is_mended_unless_its_administrator_says_no() {
        let (_, wanted) = objects().remove(0);
        let mut cut = wanted.clone();
        cut["rules"].as_array_mut().unwrap().remove(0);
        cut["rules"].as_array_mut().unwrap().push(json!("own"));
        let mended = super::mended(&cut, &wanted);
        assert_eq!(mended["rules"].as_array().unwrap().len(), 3);
        cut["metadata"]["annotations"][UPDATE] = json!("false");
        assert_eq!(super::mended(&cut, &wanted), cut);
    }
}

//! What kubectl asks about access and health.

use crate::served::*;

const GATHERED: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: nodes
  labels: {rbac.authorization.k8s.io/aggregate-to-view: 'true'}
rules:
- {apiGroups: [storage.k8s.io], resources: [csinodes], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: jane}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: jane}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_reconciled_gathered_and_listed() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    let made = cluster.feed("auth reconcile -f -", GATHERED).await;
    assert_eq!(made.matches(" reconciled\n").count(), 2, "{made}");
    let again = cluster.feed("auth reconcile -f -", GATHERED).await;
    assert_eq!(again.matches("reconciled").count(), 2, "{again}");
    // From the role to view, to edit, to admin, which jane holds.
    let wait = "wait --for=jsonpath={.rules[?(@.apiGroups[0]==\"storage.k8s.io\")].verbs[0]}=get \
        clusterrole/admin --timeout=60s";
    cluster.kubectl(wait).await;
    let list = cluster.kubectl("auth can-i --list --as=jane").await;
    for line in ["csinodes.storage.k8s.io", "rolebindings.rbac", "/openapi/*"] {
        assert!(list.contains(line), "{line}: {list}");
    }
    let may = "auth can-i list csinodes.storage.k8s.io --as=jane";
    assert_eq!(cluster.kubectl(may).await, "yes\n");
    let info = cluster.kubectl("cluster-info").await;
    assert!(info.contains("Kubernetes control plane"), "{info}");
    let ready = cluster.kubectl("get --raw /readyz?verbose").await;
    assert_eq!(ready, "[+]ping ok\n[+]storage ok\nreadyz check passed\n");
    let keys = cluster.kubectl("get --raw /openid/v1/jwks").await;
    assert!(keys.contains("\"crv\":\"P-256\""), "{keys}");
    cluster.stop().await;
}

//! Who each role is: a service account with the rules of its manifest, and nothing more.
//!
//! `up` applies the same manifests that a cluster's administrator would, and hands each role
//! a client that speaks as its account: what a role does beyond its manifest is refused here
//! as it would be there.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use orlop_apiserver::{ApiServer, User};
use orlop_runtime::{Clock, Library, Process};
use serde_json::Value;

/// Where all accounts of the roles are.
const NAMESPACE: &str = "kube-system";
/// Who the API server records as the author of the manifests.
const MANAGER: &str = "orlop-up";

/// The nodes here are known by their names, as kubelets are by their certificates: what a node may
/// follow depends on the pods that are on it. The rest is what its account may do.
const NODES: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: orlop-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: orlop-node}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:nodes'}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: orlop-nodes, namespace: kube-node-lease}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: orlop-node}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:nodes'}]
";

/// The parts of the stack that are somebody to the API server.
#[derive(Debug, Clone, Copy)]
enum Role {
    Control,
    Controller,
    Node,
    Scheduler,
    Workloads,
    SnapshotController,
}

impl Role {
    const ALL: [Self; 6] = [
        Self::Control,
        Self::Controller,
        Self::Node,
        Self::Scheduler,
        Self::Workloads,
        Self::SnapshotController,
    ];

    fn account(self) -> &'static str {
        match self {
            Self::Control => "orlop-control",
            Self::Controller => "orlop-controller",
            Self::Node => "orlop-node",
            Self::Scheduler => "orlop-scheduler",
            Self::Workloads => "orlop-workloads",
            Self::SnapshotController => "orlop-snapshot-controller",
        }
    }

    fn manifest(self) -> &'static str {
        match self {
            Self::Control => include_str!("../../../../deploy/rbac/control.yaml"),
            Self::Controller => include_str!("../../../../deploy/rbac/controller.yaml"),
            Self::Node => include_str!("../../../../deploy/rbac/node.yaml"),
            Self::Scheduler => include_str!("../../../../deploy/rbac/scheduler.yaml"),
            Self::Workloads => include_str!("../../../../deploy/rbac/workloads.yaml"),
            Self::SnapshotController => {
                include_str!("../../../../deploy/rbac/snapshot-controller.yaml")
            }
        }
    }
}

/// One process for each role, as on a cluster: its own identity, and caches of what that
/// identity may see.
pub(crate) struct Roles {
    pub(crate) control: Process,
    pub(crate) controller: Process,
    /// By name.
    pub(crate) nodes: BTreeMap<String, Process>,
    pub(crate) scheduler: Process,
    pub(crate) workloads: Process,
    pub(crate) snapshot_controller: Process,
}

impl Roles {
    pub(crate) fn of(server: &ApiServer, nodes: &[String]) -> Self {
        let library = Library::default();
        let process_of = |user: User| {
            let client = kube::Client::new(server.service_as(user), "default");
            Process::beside(client, Clock::system(), library.clone())
        };
        let process = |role: Role| process_of(User::service_account(NAMESPACE, role.account()));
        let node = |name: &String| {
            let group = "system:nodes".to_owned();
            let user = User::new(format!("system:node:{name}"), [group]);
            (name.clone(), process_of(user))
        };
        Self {
            control: process(Role::Control),
            controller: process(Role::Controller),
            nodes: nodes.iter().map(node).collect(),
            scheduler: process(Role::Scheduler),
            workloads: process(Role::Workloads),
            snapshot_controller: process(Role::SnapshotController),
        }
    }

    /// Ends every role at once.
    pub(crate) fn kill(&self) {
        let Self {
            control,
            controller,
            nodes,
            scheduler,
            workloads,
            snapshot_controller,
        } = self;
        let others = [
            control,
            controller,
            scheduler,
            workloads,
            snapshot_controller,
        ];
        for process in others.into_iter().chain(nodes.values()) {
            process.kill();
        }
    }
}

/// Makes the accounts and their rules what the manifests say. What is so already is not
/// written again; all that is, is written together, so that it is made durable at once.
pub(crate) async fn grant(administrator: &kube::Client) -> Result<()> {
    let mut objects = Vec::new();
    for role in Role::ALL {
        let parsed: Vec<Value> = serde_saphyr::from_multiple(role.manifest())
            .with_context(|| format!("the manifest of {} is not YAML", role.account()))?;
        objects.extend(parsed);
    }
    let nodes: Vec<Value> =
        serde_saphyr::from_multiple(NODES).context("the bindings of the nodes are not YAML")?;
    objects.extend(nodes);
    try_join_all(objects.iter().map(|object| apply(administrator, object))).await?;
    Ok(())
}

async fn apply(administrator: &kube::Client, object: &Value) -> Result<()> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
    let context = || format!("could not write {kind} {name}, which a role needs");
    let version = match text("/apiVersion").unwrap_or_default() {
        "v1" => "/api/v1".to_owned(),
        grouped => format!("/apis/{grouped}"),
    };
    let place = match text("/metadata/namespace") {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let plural = format!("{}s", kind.to_ascii_lowercase());
    let request = http::Request::patch(format!(
        "{version}{place}/{plural}/{name}?fieldManager={MANAGER}&force=true"
    ))
    .header("content-type", "application/apply-patch+yaml")
    .body(object.to_string().into_bytes())
    .with_context(context)?;
    administrator
        .request_text(request)
        .await
        .with_context(context)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use orlop_apiserver::{Config, Storage};
    use orlop_model::{Claim, Key, Pod, Secret, Volume};
    use orlop_runtime::{Cluster, Preconditions};

    use super::*;

    async fn granted() -> (ApiServer, kube::Client) {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        let administrator = kube::Client::new(server.service(), "default");
        grant(&administrator).await.unwrap();
        (server, administrator)
    }

    #[tokio::test]
    async fn a_role_may_do_what_its_manifest_says_and_nothing_else() {
        let (server, _administrator) = granted().await;
        let roles = Roles::of(&server, &["a".to_owned()]);
        let cluster = |process: &Process| process.cluster.clone();
        let key = Key::cluster("v");
        let delete = async |cluster: Cluster| {
            let any = Preconditions::default();
            cluster.delete::<Volume>(&key, &any).await
        };
        assert!(delete(cluster(&roles.controller)).await.is_ok());
        for other in [
            &roles.control,
            &roles.nodes["a"],
            &roles.scheduler,
            &roles.workloads,
        ] {
            let error = delete(cluster(other)).await.unwrap_err();
            assert!(format!("{error:?}").contains("403"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_role_whose_rule_was_removed_is_refused() {
        let (server, administrator) = granted().await;
        let roles = Roles::of(&server, &[]);
        let read = async || roles.scheduler.cluster.list::<Claim>(None).await;
        assert!(read().await.is_ok());
        let without = serde_json::json!({ "rules": [] });
        let request =
            http::Request::patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/orlop-scheduler")
                .header("content-type", "application/merge-patch+json")
                .body(without.to_string().into_bytes())
                .unwrap();
        administrator.request_text(request).await.unwrap();
        let error = read().await.unwrap_err();
        let said = format!("{error:?}");
        assert!(
            said.contains(
                "User \\\"system:serviceaccount:kube-system:orlop-scheduler\\\" cannot list \
                 resource \\\"persistentvolumeclaims\\\""
            ),
            "{said}"
        );
        // The next start puts it back.
        grant(&administrator).await.unwrap();
        assert!(read().await.is_ok());
    }

    #[tokio::test]
    async fn a_node_follows_the_secrets_of_its_own_pods_and_no_others() {
        let (server, administrator) = granted().await;
        let administrator = Cluster::new(administrator);
        for name in ["shown", "projected", "other"] {
            let secret = serde_json::json!({"metadata": {"name": name, "namespace": "default"}});
            let made = administrator.create_json::<Secret>(&secret).await;
            made.unwrap();
        }
        let pod = serde_json::json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
            "nodeName": "a", "containers": [{"name": "main", "image": "host"}],
            "volumes": [
                {"name": "s", "secret": {"secretName": "shown"}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": "projected"}}]}}],
        }});
        administrator.create_json::<Pod>(&pod).await.unwrap();
        let roles = Roles::of(&server, &["a".to_owned(), "b".to_owned()]);
        let may = async |node: &str, namespace: Option<&str>, selector: &str| {
            let cluster = &roles.nodes[node].cluster;
            match cluster.list_where::<Secret>(namespace, selector).await {
                Ok(_) => true,
                Err(error) if error.is_forbidden() => false,
                Err(error) => panic!("{error:?}"),
            }
        };
        let here = Some("default");
        assert!(may("a", here, "metadata.name=shown").await);
        assert!(may("a", here, "metadata.name=projected").await);
        assert!(!may("a", here, "metadata.name=other").await);
        assert!(!may("b", here, "metadata.name=shown").await);
        assert!(!may("a", None, "metadata.name=shown").await);
        assert!(!may("a", Some("kube-system"), "metadata.name=shown").await);
        assert!(!may("a", here, "metadata.name!=x").await);
        assert!(!may("a", here, "type=Opaque").await);
    }

    #[tokio::test]
    async fn manifests_that_hold_already_are_not_written_again() {
        let (server, administrator) = granted().await;
        let revision = || server.store().read().revision();
        // The collector may still be giving namespaces their accounts.
        let roles = || {
            let state = server.store().read();
            [
                "serviceaccounts",
                "clusterroles.rbac.authorization.k8s.io",
                "clusterrolebindings.rbac.authorization.k8s.io",
                "roles.rbac.authorization.k8s.io",
                "rolebindings.rbac.authorization.k8s.io",
            ]
            .map(|resource| {
                let all = state.list(resource, None);
                all.filter(|(_, name, _)| name.starts_with("orlop-"))
                    .map(|(_, _, object)| object.revision)
                    .max()
            })
        };
        let before = roles();
        assert!(before.iter().all(Option::is_some), "{before:?}");
        grant(&administrator).await.unwrap();
        assert_eq!(roles(), before, "at revision {}", revision());
    }
}

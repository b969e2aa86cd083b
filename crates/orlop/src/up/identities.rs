//! Who each role is: a service account with the rules of its manifest, and nothing more.
//!
//! `up` applies the same manifests that a cluster's administrator would, and hands each role
//! a client that speaks as its account: what a role does beyond its manifest is refused here
//! as it would be there.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use orlop_apiserver::{ApiServer, User};
use orlop_runtime::{Clock, Library, Process};
use serde_json::Value;

/// Where all accounts of the roles are.
const NAMESPACE: &str = "kube-system";
/// Who the API server records as the author of the manifests.
const MANAGER: &str = "orlop-up";

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
    pub(crate) node: Process,
    pub(crate) scheduler: Process,
    pub(crate) workloads: Process,
    pub(crate) snapshot_controller: Process,
}

impl Roles {
    pub(crate) fn of(server: &ApiServer) -> Self {
        let library = Library::default();
        let process = |role: Role| {
            let user = User::service_account(NAMESPACE, role.account());
            let client = kube::Client::new(server.service_as(user), "default");
            Process::beside(client, Clock::system(), library.clone())
        };
        Self {
            control: process(Role::Control),
            controller: process(Role::Controller),
            node: process(Role::Node),
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
            node,
            scheduler,
            workloads,
            snapshot_controller,
        } = self;
        for process in [
            control,
            controller,
            node,
            scheduler,
            workloads,
            snapshot_controller,
        ] {
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
    use orlop_model::{Claim, Key, Volume};
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
        let roles = Roles::of(&server);
        let cluster = |process: &Process| process.cluster.clone();
        let key = Key::cluster("v");
        let delete = async |cluster: Cluster| {
            let any = Preconditions::default();
            cluster.delete::<Volume>(&key, &any).await
        };
        assert!(delete(cluster(&roles.controller)).await.is_ok());
        for other in [
            &roles.control,
            &roles.node,
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
        let roles = Roles::of(&server);
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

//! What a set consists of, and what it finds on the API server.

use anyhow::Result;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use super::{Bench, Set, work};
use crate::{
    bench::{
        client::Server,
        lives::DRIVER,
        objects,
        servers::{binary, free_port},
    },
    kube::Authority,
};

const MANAGER: &str = "system:kube-controller-manager";
/// What is measured; each side runs exactly these. The last also says since when no pod uses a claim.
const THEIRS: &str = "persistentvolume-binder-controller,\
                      persistentvolume-attach-detach-controller,\
                      persistentvolume-protection-controller,\
                      persistentvolumeclaim-protection-controller";
const OURS: &str = "binder,attach-detach,protection,unused";

impl Bench<'_> {
    /// Makes the driver's object and the nodes.
    pub(super) async fn furnish(&self, nodes: usize) -> Result<()> {
        let server = Server::of(&self.running.kubeconfig).await?;
        let mut connection = server.connect().await?;
        let storage = "/apis/storage.k8s.io/v1";
        let namespace = objects::namespace(objects::NAMESPACE);
        let post = Method::POST;
        connection
            .ask(post.clone(), "/api/v1/namespaces", namespace)
            .await?;
        let driver = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": true, "podInfoOnMount": false},
        });
        let path = format!("{storage}/csidrivers");
        connection
            .ask(post.clone(), &path, driver.to_string().into())
            .await?;
        // Pods are not taken without one, and nobody else here makes it.
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
        });
        let path = objects::collection("serviceaccounts", objects::NAMESPACE);
        // The embedded server makes it by itself.
        let made = connection
            .send(post.clone(), &path, account.to_string().into())
            .await?;
        made.into_body().collect().await?;
        for number in 0..nodes {
            let name = work::node(number);
            let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "annotations": managed},
            });
            connection
                .ask(post.clone(), "/api/v1/nodes", node.to_string().into())
                .await?;
            let drivers = json!([{"name": DRIVER, "nodeID": name, "topologyKeys": null}]);
            let csi_node = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                "spec": {"drivers": drivers},
            });
            let path = format!("{storage}/csinodes");
            connection
                .ask(post.clone(), &path, csi_node.to_string().into())
                .await?;
        }
        Ok(())
    }

    /// A kubeconfig for a user who may do everything: rights are not the question.
    fn kubeconfig(&self, user: &str) -> Result<String> {
        let path = self
            .folder
            .join(format!("{}.kubeconfig", user.replace(':', "-")));
        let authority = Authority::open(self.folder)?;
        let group = Some("system:masters");
        authority.kubeconfig_of(&self.running.server, &path, user, group)?;
        Ok(path.display().to_string())
    }

    pub(super) fn start_control(&mut self) -> Result<()> {
        match self.set {
            Set::Manager => {
                let config = self.kubeconfig(MANAGER)?;
                let file = |name: &str| self.folder.join(name).display().to_string();
                let arguments = [
                    format!("--kubeconfig={config}"),
                    format!("--authentication-kubeconfig={config}"),
                    format!("--authorization-kubeconfig={config}"),
                    "--bind-address=127.0.0.1".to_owned(),
                    format!("--secure-port={}", free_port()?),
                    "--leader-elect=false".to_owned(),
                    format!("--service-account-private-key-file={}", file("tokens.key")),
                    format!("--root-ca-file={}", file("ca.crt")),
                    format!("--controllers={THEIRS}"),
                    "--kube-api-qps=1000".to_owned(),
                    "--kube-api-burst=2000".to_owned(),
                ];
                let program = binary(self.binaries, "kube-controller-manager")?;
                self.running
                    .add("kube-controller-manager", program, &arguments)
            }
            Set::Ours | Set::Floor => {
                let config = self.kubeconfig(MANAGER)?;
                let controllers = match self.set {
                    Set::Floor => "binder",
                    _ => OURS,
                };
                let arguments = [
                    "control".to_owned(),
                    format!("--kubeconfig={config}"),
                    format!("--controllers={controllers}"),
                ];
                let program = self.programs.join("orlop");
                self.running.add("control", &program, &arguments)
            }
            // They are there.
            Set::Embedded => Ok(()),
        }
    }
}

//! What a set consists of, and what it finds on the API server.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{Bench, Set};
use crate::{
    bench::{
        Side,
        audit::SIDECAR,
        client::Server,
        lives::{CLASS, DRIVER, NODE, SNAPSHOTS},
        objects,
        servers::{binary, free_port},
    },
    kube::Authority,
};

/// How long whatever is to appear may take.
const PATIENCE: Duration = Duration::from_secs(30);
const MANAGER: &str = "system:kube-controller-manager";
const UNLIMITED: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

impl Bench<'_> {
    /// Makes what claims, attachments and snapshots need.
    pub(super) async fn furnish(&self) -> Result<()> {
        let server = Server::of(&self.running.kubeconfig).await?;
        let mut connection = server.connect().await?;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let yaml = include_str!("../../../../../deploy/crds/snapshots.yaml");
        let kinds: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
        for kind in kinds.into_iter().filter(|kind| !kind.is_null()) {
            let body = kind.to_string().into();
            connection.ask(Method::POST, definitions, body).await?;
        }
        let storage = "/apis/storage.k8s.io/v1";
        let made = [
            (
                "/api/v1/namespaces".to_owned(),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects::NAMESPACE}}),
            ),
            (
                format!("{storage}/csidrivers"),
                json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
                    "spec": {"attachRequired": true, "podInfoOnMount": false},
                }),
            ),
            (
                format!("{storage}/csinodes"),
                json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NODE},
                    "spec": {"drivers": [{"name": DRIVER, "nodeID": DRIVER, "topologyKeys": null}]},
                }),
            ),
            (
                format!("{storage}/storageclasses"),
                json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
                    "provisioner": DRIVER, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete",
                }),
            ),
            (
                format!("{SNAPSHOTS}/volumesnapshotclasses"),
                json!({
                    "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
                    "metadata": {"name": CLASS}, "driver": DRIVER, "deletionPolicy": "Delete",
                }),
            ),
        ];
        let begin = Instant::now();
        for (path, object) in made {
            // A kind that was just defined is not served at once.
            while let Err(error) = connection
                .ask(Method::POST, &path, object.to_string().into())
                .await
            {
                if begin.elapsed() > PATIENCE {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        for plural in ["volumesnapshots", "volumesnapshotcontents"] {
            let path = format!("{SNAPSHOTS}/{plural}");
            while connection
                .ask(Method::GET, &path, Bytes::new())
                .await
                .is_err()
            {
                if begin.elapsed() > PATIENCE {
                    bail!("{plural} are not served");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("csi.sock")
    }

    /// A driver that keeps everything in memory, so that it is not what is measured.
    pub(super) fn start_driver(&mut self) -> Result<()> {
        let arguments = [
            format!("--endpoint={}", self.socket().display()),
            format!("--name={DRIVER}"),
        ];
        let program = binary(self.binaries, "mock-driver")?;
        self.running.add("driver", program, &arguments)
    }

    /// A kubeconfig for a user who may do everything: rights are not the question.
    fn kubeconfig(&self, user: &str) -> Result<String> {
        let path = self
            .folder
            .join(format!("{}.kubeconfig", user.replace(':', "-")));
        let group = (user != MANAGER).then_some("system:masters");
        let authority = Authority::open(self.folder)?;
        authority.kubeconfig_of(&self.running.server, &path, user, group)?;
        Ok(path.display().to_string())
    }

    pub(super) fn start_control(&mut self) -> Result<()> {
        let config = self.kubeconfig(MANAGER)?;
        let file = |name: &str| self.folder.join(name).display().to_string();
        // No pod is there for attach-detach to look at; it would take our attachments away. Without the
        // binder the expander has nothing to do either: it grows no CSI volumes, and reads each volume once.
        let without = match self.set {
            Set::Ours => {
                "*,-persistentvolume-attach-detach-controller,\
                          -persistentvolume-binder-controller,\
                          -persistentvolumeclaim-protection-controller,\
                          -persistentvolume-protection-controller,-ephemeral-volume-controller,\
                          -persistentvolume-expander-controller"
            }
            _ => "*,-persistentvolume-attach-detach-controller",
        };
        let mut arguments = vec![
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", free_port()?),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials".to_owned(),
            format!("--service-account-private-key-file={}", file("tokens.key")),
            format!("--root-ca-file={}", file("ca.crt")),
            format!("--controllers={without}"),
        ];
        if self.set != Set::GoDefault {
            arguments.extend(UNLIMITED.map(str::to_owned));
        }
        let program = binary(self.binaries, "kube-controller-manager")?;
        self.running
            .add("kube-controller-manager", program, &arguments)?;
        if self.set == Set::Ours {
            let arguments = [
                "control".to_owned(),
                format!("--kubeconfig={}", self.kubeconfig("control")?),
                "--controllers=*,-attach-detach".to_owned(),
            ];
            self.running
                .add("control", &self.programs.join("orlop"), &arguments)?;
        }
        Ok(())
    }

    pub(super) fn start_sidecars(&mut self) -> Result<()> {
        let socket = self.socket().display().to_string();
        let address = format!("--csi-address={socket}");
        let registry = self.folder.join("registry");
        std::fs::create_dir_all(&registry)?;
        let registration = [
            address.clone(),
            format!("--kubelet-registration-path={socket}"),
            format!("--plugin-registration-path={}", registry.display()),
        ];
        if self.set.side() == Side::Ours {
            let orlop = self.programs.join("orlop");
            let arguments = [
                "controller".to_owned(),
                "--controllers=provisioner,attacher,resizer,snapshotter,snapshot-controller"
                    .to_owned(),
                format!(
                    "--kubeconfig={}",
                    self.kubeconfig(&format!("{SIDECAR}orlop"))?
                ),
                address,
            ];
            self.running.add("orlop controller", &orlop, &arguments)?;
            let words = ["node-registrar".to_owned()]
                .into_iter()
                .chain(registration);
            return self
                .running
                .add("orlop node-registrar", &orlop, &words.collect::<Vec<_>>());
        }
        for (name, workers) in [
            ("csi-provisioner", "--worker-threads=100"),
            ("csi-attacher", "--worker-threads=100"),
            ("csi-resizer", "--workers=100"),
            ("csi-snapshotter", "--worker-threads=100"),
            ("snapshot-controller", "--worker-threads=100"),
        ] {
            let user = format!("{SIDECAR}{name}");
            let mut arguments = vec![format!("--kubeconfig={}", self.kubeconfig(&user)?)];
            if name != "snapshot-controller" {
                arguments.push(address.clone());
            }
            if self.set == Set::GoTuned {
                arguments.extend(UNLIMITED.map(str::to_owned));
                arguments.push(workers.to_owned());
            }
            let program = binary(self.binaries, name).with_context(|| {
                format!(
                    "the Go set needs {name}; docs/development/real-kubernetes.md says where from"
                )
            })?;
            self.running.add(name, program, &arguments)?;
        }
        let registrar = "csi-node-driver-registrar";
        let program = binary(self.binaries, registrar)?;
        self.running.add(registrar, program, &registration)
    }
}

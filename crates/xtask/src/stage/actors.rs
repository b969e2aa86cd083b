//! Who usually acts in a scenario: our driver, our roles, and a user's claims and pods.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};

use super::{CSI_NODE, Program, Stage, objects::documents};
use crate::kube::{BUSYBOX, KUBELET_ROOT, NODE};

impl Stage {
    /// The socket of the scenario's driver, where a kubelet's plugin has it.
    pub(crate) fn driver_socket(&self) -> PathBuf {
        PathBuf::from(KUBELET_ROOT)
            .join("plugins")
            .join(self.driver_name())
            .join("csi.sock")
    }

    /// Starts `orlop driver local` with a pool of its own, and makes a class for it by the
    /// scenario's name.
    pub(crate) async fn local_driver(&self) -> Result<Arc<Program>> {
        self.local_driver_for(std::path::Path::new(KUBELET_ROOT))
            .await
    }

    /// The same for a node whose root is another folder than the kubelet's.
    pub(crate) async fn local_driver_for(&self, root: &std::path::Path) -> Result<Arc<Program>> {
        let program = self.local_program(root).await?;
        self.class(true, &json!({})).await?;
        Ok(program)
    }

    /// The driver alone, for whoever makes a class of his own.
    pub(crate) async fn local_program(&self, root: &std::path::Path) -> Result<Arc<Program>> {
        let pool = self.folder().join("pool");
        std::fs::create_dir_all(&pool)?;
        let endpoint = format!("unix://{}", self.driver_socket().display());
        let arguments = [
            "driver",
            "local",
            "--endpoint",
            &endpoint,
            "--nodeid",
            NODE,
            "--drivername",
            &self.driver_name(),
            "--pool",
            &pool.display().to_string(),
            // Tests' volumes are thin and short-lived, and may be on a disk that is nearly full.
            "--reserve=0%",
            "--overcommit=100",
            "--kubelet-dir",
            &root.display().to_string(),
        ];
        self.driver(&self.binary("orlop"), &arguments).await
    }

    /// Starts any driver, and waits for its socket.
    pub(crate) async fn driver(
        &self,
        program: &std::path::Path,
        arguments: &[&str],
    ) -> Result<Arc<Program>> {
        let socket = self.driver_socket();
        if let Some(folder) = socket.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let program = self.start("driver", program, arguments)?;
        self.bounded("the driver listens", async {
            while tokio::net::UnixStream::connect(&socket).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        })
        .await?;
        Ok(program)
    }

    /// Gives the images of our binary to the node, once for all scenarios.
    pub(crate) async fn our_images(&self) -> Result<()> {
        static GIVEN: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
        let give = || crate::kube::import_ours(&self.cluster);
        GIVEN.get_or_try_init(give).await?;
        Ok(())
    }

    /// Where containerd listens.
    pub(crate) fn containerd(&self) -> String {
        crate::kube::containerd_socket(&self.cluster)
    }

    /// Makes the kinds of snapshots known, single ones and groups. They stay: others may use them.
    pub(crate) async fn snapshot_kinds(&self) -> Result<()> {
        let established = |definition: &Value| {
            let conditions = definition["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Established" && one["status"] == "True")
            })
        };
        for yaml in [
            include_str!("../../../../deploy/crds/snapshots.yaml"),
            include_str!("../../../../deploy/crds/group-snapshots.yaml"),
        ] {
            for definition in documents(yaml)? {
                if let Some((kind, name)) = self.apply_shared(definition).await? {
                    self.until(kind, &name, "established", established).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes the scenario's class and its driver's object.
    pub(crate) async fn class(&self, attach: bool, more: &Value) -> Result<()> {
        let driver = self.driver_name();
        self.apply_value(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": driver},
            "spec": {"attachRequired": attach, "podInfoOnMount": false},
        }))
        .await?;
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": self.namespace()},
            "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
        });
        if let (Some(class), Some(more)) = (class.as_object_mut(), more.as_object()) {
            class.extend(more.clone());
        }
        self.apply_value(class).await
    }

    /// Starts our provisioner and attacher beside the scenario's driver, with the rights that we
    /// publish for them and no more.
    pub(crate) async fn our_controller(&self) -> Result<Arc<Program>> {
        let kubeconfig = self.role("controller").await?;
        self.start(
            "controller",
            &self.binary("orlop"),
            [
                "--log=info".as_ref(),
                "controller".as_ref(),
                "--kubeconfig".as_ref(),
                kubeconfig.as_os_str(),
                "--csi-address".as_ref(),
                self.driver_socket().as_os_str(),
            ],
        )
    }

    /// Starts our registrar, and waits until the kubelet has the driver.
    pub(crate) async fn our_registrar(&self) -> Result<Arc<Program>> {
        let socket = self.driver_socket();
        let registry = PathBuf::from(KUBELET_ROOT).join("plugins_registry");
        let program = self.start(
            "registrar",
            &self.binary("orlop"),
            [
                "--log=info".as_ref(),
                "node-registrar".as_ref(),
                "--csi-address".as_ref(),
                socket.as_os_str(),
                "--kubelet-registration-path".as_ref(),
                socket.as_os_str(),
                "--plugin-registration-path".as_ref(),
                registry.as_os_str(),
            ],
        )?;
        self.registered().await?;
        Ok(program)
    }

    /// Waits until the kubelet has the scenario's driver.
    pub(crate) async fn registered(&self) -> Result<()> {
        let driver = self.driver_name();
        let what = format!("one that has the driver {driver}");
        let has = |node: &Value| {
            node["spec"]["drivers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["name"] == *driver))
        };
        self.until(CSI_NODE, NODE, &what, has).await?;
        Ok(())
    }

    /// Waits until a claim is bound; answers with its volume's name.
    pub(crate) async fn bound(&self, claim: &str) -> Result<String> {
        let bound = self
            .until(super::CLAIM, claim, "bound", |claim| {
                claim["status"]["phase"] == "Bound"
            })
            .await?;
        Ok(bound["spec"]["volumeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Waits until a pod has run to its good end. One that failed is not waited for.
    pub(crate) async fn succeeded(&self, pod: &str) -> Result<()> {
        let over = |pod: &Value| {
            matches!(
                pod["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            )
        };
        let pod = self.until(super::POD, pod, "over", over).await?;
        anyhow::ensure!(
            pod["status"]["phase"] == "Succeeded",
            "the pod failed: {}",
            pod["status"]
        );
        Ok(())
    }

    /// Deletes objects of one kind and waits until they are gone.
    pub(crate) async fn remove(&self, kind: super::Kind, names: &[&str]) -> Result<()> {
        for name in names {
            self.delete(kind, name).await?;
        }
        for name in names {
            self.gone(kind, name).await?;
        }
        Ok(())
    }
}

/// A claim of a class.
pub(crate) fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}},
        },
    })
}

/// A pod that writes a word into a claim's volume, and ends.
pub(crate) fn writer(name: &str, claim: &str, word: &str) -> Value {
    pod(name, claim, &format!("echo {word} > /data/word && sync"))
}

/// A pod that ends well if the word is in the claim's volume.
pub(crate) fn reader(name: &str, claim: &str, word: &str) -> Value {
    pod(name, claim, &format!("grep -qx {word} /data/word"))
}

/// A pod that runs a shell script with a claim's volume at `/data`, once.
pub(crate) fn pod(name: &str, claim: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "hostNetwork": true, "restartPolicy": "Never", "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1, "enableServiceLinks": false,
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

//! What is created: objects of the size that they have in clusters.

use bytes::Bytes;
use clap::ValueEnum;
use serde_json::{Value, json};

/// Where everything happens.
pub(super) const NAMESPACE: &str = "bench";

/// What is created and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// A ConfigMap of some hundred bytes.
    Configmap,
    /// A claim.
    Claim,
    /// A volume of a CSI driver.
    Volume,
}

impl Kind {
    /// The name on the client's command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Configmap => "configmap",
            Self::Claim => "claim",
            Self::Volume => "volume",
        }
    }

    /// The path of all of them.
    pub(super) fn collection(self) -> String {
        match self {
            Self::Configmap => collection("configmaps", NAMESPACE),
            Self::Claim => collection("persistentvolumeclaims", NAMESPACE),
            Self::Volume => "/api/v1/persistentvolumes".to_owned(),
        }
    }

    /// A new one.
    pub(super) fn object(self, name: &str) -> Bytes {
        let labels =
            json!({ "app.kubernetes.io/name": "database", "app.kubernetes.io/instance": name });
        let object: Value = match self {
            Self::Configmap => json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": name, "labels": labels },
                "data": { "settings": "x".repeat(256) },
            }),
            Self::Claim => json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": name, "labels": labels, "annotations": {
                    "volume.kubernetes.io/storage-provisioner": "local.csi.orlop.dev",
                    "volume.kubernetes.io/selected-node": "node-1",
                } },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                    "resources": { "requests": { "storage": "10Gi" } },
                },
            }),
            Self::Volume => json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": { "name": name, "annotations": {
                    "pv.kubernetes.io/provisioned-by": "local.csi.orlop.dev",
                } },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                    "capacity": { "storage": "10Gi" },
                    "persistentVolumeReclaimPolicy": "Delete",
                    "csi": {
                        "driver": "local.csi.orlop.dev", "volumeHandle": name, "fsType": "ext4",
                        "volumeAttributes": { "pool": "default", "thin": "true" },
                    },
                    "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                        "key": "topology.local.csi.orlop.dev/node", "operator": "In",
                        "values": ["node-1"],
                    }] }] } },
                },
            }),
        };
        object.to_string().into()
    }
}

/// The path of a namespace's objects.
pub(super) fn collection(plural: &str, namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

/// A namespace.
pub(super) fn namespace(name: &str) -> Bytes {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    namespace.to_string().into()
}

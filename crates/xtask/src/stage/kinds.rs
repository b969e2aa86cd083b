//! The kinds of objects that scenarios look at.

use kube::api::{ApiResource, GroupVersionKind};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    group: &'static str,
    version: &'static str,
    pub(super) name: &'static str,
    plural: &'static str,
    pub(super) namespaced: bool,
}

const fn namespaced(group: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version: "v1",
        name,
        plural,
        namespaced: true,
    }
}

const fn cluster_wide(group: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version: "v1",
        name,
        plural,
        namespaced: false,
    }
}

const STORAGE: &str = "storage.k8s.io";
/// The group of snapshots' kinds.
pub(crate) const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// The group of group snapshots' kinds.
pub(crate) const GROUP_SNAPSHOTS: &str = "groupsnapshot.storage.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) const CLAIM: Kind = namespaced("", "PersistentVolumeClaim", "persistentvolumeclaims");
pub(crate) const EVENT: Kind = namespaced("", "Event", "events");
pub(crate) const POD: Kind = namespaced("", "Pod", "pods");
pub(crate) const SERVICE_ACCOUNT: Kind = namespaced("", "ServiceAccount", "serviceaccounts");
pub(crate) const NAMESPACE: Kind = cluster_wide("", "Namespace", "namespaces");
pub(crate) const NODE: Kind = cluster_wide("", "Node", "nodes");
pub(crate) const VOLUME: Kind = cluster_wide("", "PersistentVolume", "persistentvolumes");
pub(crate) const ATTACHMENT: Kind = cluster_wide(STORAGE, "VolumeAttachment", "volumeattachments");
pub(crate) const CLASS: Kind = cluster_wide(STORAGE, "StorageClass", "storageclasses");
pub(crate) const CSI_DRIVER: Kind = cluster_wide(STORAGE, "CSIDriver", "csidrivers");
pub(crate) const CSI_NODE: Kind = cluster_wide(STORAGE, "CSINode", "csinodes");
pub(crate) const ATTRIBUTES_CLASS: Kind =
    cluster_wide(STORAGE, "VolumeAttributesClass", "volumeattributesclasses");
pub(crate) const SNAPSHOT_CONTENT: Kind =
    cluster_wide(SNAPSHOTS, "VolumeSnapshotContent", "volumesnapshotcontents");
pub(crate) const VOLUME_SNAPSHOT: Kind = namespaced(SNAPSHOTS, "VolumeSnapshot", "volumesnapshots");
pub(crate) const SNAPSHOT_CLASS: Kind =
    cluster_wide(SNAPSHOTS, "VolumeSnapshotClass", "volumesnapshotclasses");

pub(crate) const GROUP_SNAPSHOT: Kind = namespaced(
    GROUP_SNAPSHOTS,
    "VolumeGroupSnapshot",
    "volumegroupsnapshots",
);
pub(crate) const GROUP_CONTENT: Kind = cluster_wide(
    GROUP_SNAPSHOTS,
    "VolumeGroupSnapshotContent",
    "volumegroupsnapshotcontents",
);
pub(crate) const GROUP_CLASS: Kind = cluster_wide(
    GROUP_SNAPSHOTS,
    "VolumeGroupSnapshotClass",
    "volumegroupsnapshotclasses",
);
pub(crate) const DEPLOYMENT: Kind = namespaced("apps", "Deployment", "deployments");
pub(crate) const DAEMON_SET: Kind = namespaced("apps", "DaemonSet", "daemonsets");
pub(crate) const SECRET: Kind = namespaced("", "Secret", "secrets");
pub(crate) const LEASE: Kind = namespaced("coordination.k8s.io", "Lease", "leases");
pub(crate) const CAPACITY: Kind = namespaced(STORAGE, "CSIStorageCapacity", "csistoragecapacities");

pub(crate) const DEFINITION: Kind = cluster_wide(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
);

/// All kinds that can be applied.
pub(super) const ALL: [Kind; 30] = [
    CLAIM,
    EVENT,
    POD,
    SERVICE_ACCOUNT,
    NAMESPACE,
    NODE,
    VOLUME,
    ATTACHMENT,
    CLASS,
    CSI_DRIVER,
    CSI_NODE,
    SNAPSHOT_CONTENT,
    VOLUME_SNAPSHOT,
    SNAPSHOT_CLASS,
    GROUP_SNAPSHOT,
    GROUP_CONTENT,
    GROUP_CLASS,
    CAPACITY,
    namespaced("", "ConfigMap", "configmaps"),
    SECRET,
    LEASE,
    DAEMON_SET,
    DEPLOYMENT,
    namespaced("apps", "StatefulSet", "statefulsets"),
    namespaced(RBAC, "Role", "roles"),
    namespaced(RBAC, "RoleBinding", "rolebindings"),
    cluster_wide(RBAC, "ClusterRole", "clusterroles"),
    cluster_wide(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    DEFINITION,
    ATTRIBUTES_CLASS,
];

impl Kind {
    pub(super) fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.name);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }

    /// The kind that an object says to be.
    pub(super) fn of(api_version: &str, name: &str) -> Option<Self> {
        ALL.into_iter().find(|kind| {
            kind.name == name
                && match kind.group {
                    "" => api_version == kind.version,
                    group => api_version == format!("{group}/{}", kind.version),
                }
        })
    }
}

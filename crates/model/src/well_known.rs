//! Every annotation, label, finalizer, taint and name that orlop shares with Kubernetes
//! or with itself. They stand here and nowhere else.

/// Claim: binding finished once; from then on a missing volume means `Lost`.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Volume or claim: the binder, not a person, made this binding.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Claim: the node that the scheduler chose for a late-binding claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Claim: which provisioner shall act.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Claim: whoever asks the provisioner gives way to one that takes claims without being asked.
pub const GIVES_WAY: &str = "binder.orlop.dev/gives-way";
/// Claim: the older name of [`STORAGE_PROVISIONER`]; both are written, the new one is read first.
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Volume: which provisioner made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Volume or claim: a CSI driver took over from an in-tree plugin.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// Volume or claim: the class, before there was a field for it; it wins over the field.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Volume: the claim's size before an expansion that the node must still finish.
pub const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// Claim: the expansion is over without a node's part.
pub const NODE_EXPANSION_NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// Volume: the secret that ControllerModifyVolume needs, by name.
pub const MODIFY_SECRET_NAME: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// Volume: the namespace of [`MODIFY_SECRET_NAME`].
pub const MODIFY_SECRET_NAMESPACE: &str = "volume.kubernetes.io/controller-modify-secret-namespace";
/// Class: marks the default class when it reads `true`.
pub const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Class: the older name of [`IS_DEFAULT_CLASS`].
pub const BETA_IS_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// Volume of Azure's plugin for files: the resource group of its share.
pub const AZURE_FILE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
/// Volume of Portworx' plugin: the secret that its calls need, by name.
pub const PORTWORX_SECRET_NAME: &str = "openstorage.io/auth-secret-name";
/// Volume of Portworx' plugin: the namespace of [`PORTWORX_SECRET_NAME`].
pub const PORTWORX_SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";
/// Volume: the secret that DeleteVolume needs, by name.
pub const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// Volume: the namespace of [`DELETION_SECRET_NAME`].
pub const DELETION_SECRET_NAMESPACE: &str =
    "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// Node: a JSON map from driver name to CSI node id.
pub const CSI_NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Node: attaching is left to the control plane; attach-detach passes by a node without it.
pub const CONTROLLER_MANAGED_ATTACH: &str =
    "volumes.kubernetes.io/controller-managed-attach-detach";
/// VolumeAttachment: the CSI node id at the time of attaching, for detaching when the node is gone.
pub const ATTACHMENT_NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// The attacher of FlexVolume's volumes in VolumeAttachments: attach-detach itself.
pub const FLEX_ATTACHER: &str = "flexvolume.attach-detach.orlop.dev";
/// VolumeAttachment of a FlexVolume: its unique name, `VENDOR/DRIVER/VOLUME`.
pub const FLEX_VOLUME: &str = "attach-detach.orlop.dev/flexvolume";
/// VolumeAttachment finalizer: the FlexVolume's driver may have it attached.
pub const FLEX_ATTACHED: &str = "attach-detach.orlop.dev/flexvolume-attached";
/// VolumeAttachment of a FlexVolume: where its device is, among the attachment's metadata.
pub const FLEX_DEVICE: &str = "devicePath";
/// Node: it attaches FlexVolumes itself, whoever attaches its other volumes.
pub const ATTACHES_FLEX: &str = "node.orlop.dev/attaches-flexvolumes";
/// Volume attribute: who provisioned, for the driver's information.
pub const PROVISIONER_IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// Volume: the uid of the pod that scrubs it. Nobody else's success counts. Also the gate that
/// keeps that pod from being placed before it stands there, and on the pod the name of its volume
/// if the pod's own has no room for it.
pub const RECYCLER: &str = "binder.orlop.dev/recycler";
/// Claim: which resizer shall act, where a CSI driver took over from an in-tree plugin.
pub const STORAGE_RESIZER: &str = "volume.kubernetes.io/storage-resizer";

/// Claim finalizer: in use by a pod.
pub const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Volume finalizer: bound to a claim.
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Attributes class finalizer: named by a claim or a volume.
pub const VAC_PROTECTION: &str = "kubernetes.io/vac-protection";
/// Volume finalizer: the volume of one of Kubernetes' own plugins still exists.
pub const IN_TREE_PROVISIONER: &str = "kubernetes.io/pv-controller";
/// Volume finalizer: the driver's volume still exists.
pub const EXTERNAL_PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Claim finalizer: a CreateVolume call may be under way or have made a volume that no
/// PersistentVolume records yet. It is what lets a restarted provisioner find and undo it.
pub const PROVISIONING: &str = "provisioner.orlop.dev/in-progress";
/// Claim: beside [`PROVISIONING`], the topology segment that CreateVolume was asked for, so that
/// the call can be repeated when the node is gone.
pub const PROVISIONING_PLACE: &str = "provisioner.orlop.dev/place";
/// Claim: beside [`PROVISIONING`], what the volume shall be filled with, so that the call can be
/// repeated when snapshot or source claim is gone.
pub const PROVISIONING_SOURCE: &str = "provisioner.orlop.dev/source";
/// Claim finalizer: volumes are being cloned from it.
pub const CLONE_PROTECTION: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// Snapshot finalizer: volumes are being made from it.
pub const SNAPSHOT_SOURCE_PROTECTION: &str =
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Prefix of the attacher's finalizer on attachments and volumes; the sanitised driver name follows.
pub const ATTACHER_PREFIX: &str = "external-attacher/";

/// Volume finalizer: the disk that it stands for may hold somebody's data still.
pub const LOCAL_UNCLEAN: &str = "static-provisioner.orlop.dev/unclean";
/// Volume: how far the cleaning of its disk has come.
pub const LOCAL_CLEANING: &str = "static-provisioner.orlop.dev/cleaning";
/// Volume: its local path is a mount point. If nothing is mounted there, its disk is missing.
pub const LOCAL_MOUNT_POINT: &str = "static-provisioner.orlop.dev/mount-point";
/// Node label: its uid, so that local volumes can be of this very node.
pub const LOCAL_NODE_UID: &str = "static-provisioner.orlop.dev/node-uid";

/// Snapshot class: marks its driver's default class when it reads `true`.
pub const IS_DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// Group snapshot class: marks its driver's default class when it reads `true`.
pub const IS_DEFAULT_GROUP_SNAPSHOT_CLASS: &str =
    "groupsnapshot.storage.kubernetes.io/is-default-class";
/// Snapshot content: a CreateSnapshot call may be under way, or have made a snapshot that the
/// status does not tell of yet.
pub const SNAPSHOT_BEING_CREATED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// Snapshot content: its snapshot is being deleted, so the driver's may go with the content.
pub const SNAPSHOT_BEING_DELETED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// Group snapshot content: as [`SNAPSHOT_BEING_CREATED`], for CreateVolumeGroupSnapshot.
pub const GROUP_SNAPSHOT_BEING_CREATED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// Group snapshot content: as [`SNAPSHOT_BEING_DELETED`].
pub const GROUP_SNAPSHOT_BEING_DELETED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
/// Group snapshot: the volumes that are cut together, so that a content that was taken away by force can be
/// made again.
pub const GROUP_SNAPSHOT_VOLUMES: &str = "snapshot-controller.orlop.dev/volumes";
/// Snapshot content: the secret that the snapshot's calls need, by name.
pub const SNAPSHOT_SECRET_NAME: &str = "snapshot.storage.kubernetes.io/deletion-secret-name";
/// Snapshot content: the namespace of [`SNAPSHOT_SECRET_NAME`].
pub const SNAPSHOT_SECRET_NAMESPACE: &str =
    "snapshot.storage.kubernetes.io/deletion-secret-namespace";
/// Group snapshot content: the secret that the group's calls need, by name.
pub const GROUP_SNAPSHOT_SECRET_NAME: &str =
    "groupsnapshot.storage.kubernetes.io/deletion-secret-name";
/// Group snapshot content: the namespace of [`GROUP_SNAPSHOT_SECRET_NAME`].
pub const GROUP_SNAPSHOT_SECRET_NAMESPACE: &str =
    "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace";
/// Snapshot content: the group that made it; the driver makes and deletes it with the group.
pub const GROUP_SNAPSHOT_HANDLE: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// Snapshot content label: the node whose snapshotter looks after it.
pub const SNAPSHOT_MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";
/// Snapshot finalizer: bound to a content that goes with it.
pub const SNAPSHOT_BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// Snapshot finalizer: volumes may be made from it.
pub const SNAPSHOT_AS_SOURCE: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Snapshot finalizer: a member of a group that still exists.
pub const SNAPSHOT_IN_GROUP: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";
/// Snapshot content finalizer: the driver's snapshot may exist.
pub const SNAPSHOT_CONTENT_BOUND: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Claim finalizer: a snapshot of it is being cut.
pub const CLAIM_AS_SNAPSHOT_SOURCE: &str =
    "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// Group snapshot finalizer: bound to a content.
pub const GROUP_SNAPSHOT_BOUND: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
/// Group snapshot content finalizer: the driver's group may exist.
pub const GROUP_SNAPSHOT_CONTENT_BOUND: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";

/// Class: provisioner name of classes whose volumes are made by hand.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Class parameter and context keys that belong to Kubernetes, not to the driver.
pub const CSI_PARAMETER_PREFIX: &str = "csi.storage.k8s.io/";
/// Snapshot content: volumes of the other mode may be made from it when it reads `true`.
pub const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";
/// Label of a CSIStorageCapacity: the driver that it is of.
pub const CAPACITY_DRIVER: &str = "csi.storage.k8s.io/drivername";
/// Label of a CSIStorageCapacity: who keeps it up to date.
pub const CAPACITY_MANAGER: &str = "csi.storage.k8s.io/managed-by";
/// Node taint: an administrator vouches that the node is off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Node label: the node's name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Node and volume label: the zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Node and volume label: the region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The older name of [`ZONE`].
pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// The older name of [`REGION`].
pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Namespace of the nodes' heartbeat leases.
pub const NODE_LEASES: &str = "kube-node-lease";

/// The attacher's finalizer for a driver.
pub fn attacher_finalizer(driver: &str) -> String {
    format!("{ATTACHER_PREFIX}{}", sanitise(driver))
}

/// A driver name as part of a finalizer or lease: everything but letters, digits and `-`
/// becomes `-`, and the end is never a `-`.
pub fn sanitise(name: &str) -> String {
    let mut out: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    if out.ends_with('-') {
        out.push('X');
    }
    out
}

/// The name by which attach-detach and the node talk of an attachable CSI volume.
pub fn unique_volume_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// Label: the name of the job that a pod runs for.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Label: the uid of the job that a pod runs for.
pub const JOB_UID: &str = "batch.kubernetes.io/controller-uid";
/// Label: tells apart the pods that were made from different templates.
pub const REVISION_HASH: &str = "controller-revision-hash";
/// Label: tells apart the ReplicaSets of one deployment, and their pods.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// Label: the name of a StatefulSet's pod, so that a service can select one.
pub const STATEFUL_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Label: the number of a StatefulSet's pod.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Annotation: which template of its deployment a ReplicaSet stands for.
pub const DEPLOYMENT_REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation: the revisions that a ReplicaSet stood for before.
pub const DEPLOYMENT_REVISIONS: &str = "deployment.kubernetes.io/revision-history";
/// Annotation: how many pods the deployment had been told to have when it scaled its ReplicaSet.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation: how many pods the deployment could have had then.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotation: what `kubectl apply` sent last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_names_become_safe_finalizers() {
        assert_eq!(
            attacher_finalizer("ebs.csi.aws.com"),
            "external-attacher/ebs-csi-aws-com"
        );
        assert_eq!(sanitise("odd."), "odd-X");
    }
}

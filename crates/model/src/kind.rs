//! What makes a type a Kubernetes kind: where its objects live on the API server.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::meta::{Key, Meta, ObjectRef};

/// Whether a kind's objects live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One set for the whole cluster.
    Cluster,
    /// One set per namespace.
    Namespaced,
}

/// A kind that the API server serves, as one of our projections.
///
/// Reading and writing JSON are methods here, not bounds: the code for them is large, and
/// is then made once, in this crate, rather than in every crate that reads an object.
pub trait Kind: Clone + Send + Sync + std::fmt::Debug + 'static {
    /// API group; empty for the core group.
    const GROUP: &'static str;
    /// Version within the group.
    const VERSION: &'static str;
    /// The kind's name.
    const KIND: &'static str;
    /// The resource name in URLs.
    const PLURAL: &'static str;
    /// Where the objects live.
    const SCOPE: Scope;

    /// Reads an object.
    ///
    /// # Errors
    /// If it isn't one of this kind.
    fn decode(json: &[u8]) -> Result<Self, serde_json::Error>;

    /// The object as the API server takes it, without its API version and kind.
    ///
    /// # Errors
    /// If a map in it has keys that JSON can't have.
    fn encode(&self) -> Result<Value, serde_json::Error>;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// The object's metadata, to be changed.
    fn meta_mut(&mut self) -> &mut Meta;

    /// `v1` or `storage.k8s.io/v1`.
    fn api_version() -> String {
        if Self::GROUP.is_empty() {
            Self::VERSION.to_owned()
        } else {
            format!("{}/{}", Self::GROUP, Self::VERSION)
        }
    }

    /// Namespace and name.
    fn key(&self) -> Key {
        self.meta().key()
    }

    /// A reference to this very object (uid and version included), for events and owners.
    fn reference(&self) -> ObjectRef {
        let meta = self.meta();
        ObjectRef {
            api_version: Self::api_version(),
            kind: Self::KIND.to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: String::new(),
        }
    }
}

/// Reads an object in which `null` may stand for whatever is empty, as Go writes a list or
/// map that was never made (`spec.drivers` of a CSINode without drivers).
pub(crate) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    // Almost no object has one, and most that do have it where we expect it.
    serde_json::from_slice(json).or_else(|error| {
        let mut value: Value = serde_json::from_slice(json)?;
        if drop_nulls(&mut value) {
            serde_json::from_value(value)
        } else {
            Err(error)
        }
    })
}

/// Takes the members that are `null` out of every object; tells whether there was any.
fn drop_nulls(value: &mut Value) -> bool {
    match value {
        Value::Object(members) => {
            let before = members.len();
            members.retain(|_, member| !member.is_null());
            let any = members.len() < before;
            members.values_mut().fold(any, |any, m| drop_nulls(m) | any)
        }
        Value::Array(items) => items.iter_mut().fold(false, |any, i| drop_nulls(i) | any),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Declares where a projection's objects live.
macro_rules! kind {
    ($type:ty, $group:literal, $version:literal, $kind:literal, $plural:literal, $scope:ident) => {
        impl $crate::kind::Kind for $type {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const SCOPE: $crate::kind::Scope = $crate::kind::Scope::$scope;

            fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
                $crate::kind::read(json)
            }

            fn encode(&self) -> Result<serde_json::Value, serde_json::Error> {
                serde_json::to_value(self)
            }

            fn meta(&self) -> &$crate::meta::Meta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::meta::Meta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use kind;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Claim, ConfigMap, CsiDriver, CsiNode, CsiStorageCapacity, Event, Lease, Namespace, Node,
        Pod, Secret, ServiceAccount, StorageClass, Volume, VolumeAttachment, VolumeGroupSnapshot,
        VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass,
        VolumeSnapshotContent,
    };

    /// All lists and maps that kinds have at their top or in their metadata, as `null`.
    fn hollow<K: Kind>() {
        let object = json!({
            "metadata": {"name": "a", "namespace": null, "labels": null, "annotations": null,
                         "finalizers": null, "ownerReferences": null, "creationTimestamp": null},
            "spec": null, "status": null, "data": null, "binaryData": null, "parameters": null,
            "mountOptions": null, "allowedTopologies": null, "source": null, "message": null,
        });
        let read = K::decode(object.to_string().as_bytes());
        let read = read.unwrap_or_else(|error| panic!("{}: {error}", K::KIND));
        assert_eq!(read.meta().name, "a");
    }

    #[test]
    fn null_reads_as_empty_in_every_kind() {
        hollow::<Claim>();
        hollow::<ConfigMap>();
        hollow::<CsiDriver>();
        hollow::<CsiNode>();
        hollow::<CsiStorageCapacity>();
        hollow::<Event>();
        hollow::<Lease>();
        hollow::<Namespace>();
        hollow::<Node>();
        hollow::<Pod>();
        hollow::<Secret>();
        hollow::<ServiceAccount>();
        hollow::<StorageClass>();
        hollow::<Volume>();
        hollow::<crate::ControllerRevision>();
        hollow::<crate::DaemonSet>();
        hollow::<crate::Deployment>();
        hollow::<crate::Job>();
        hollow::<crate::ReplicaSet>();
        hollow::<crate::StatefulSet>();
        hollow::<VolumeAttachment>();
        hollow::<VolumeGroupSnapshot>();
        hollow::<VolumeGroupSnapshotClass>();
        hollow::<VolumeGroupSnapshotContent>();
        hollow::<VolumeSnapshot>();
        hollow::<VolumeSnapshotClass>();
        hollow::<VolumeSnapshotContent>();
    }

    #[test]
    fn a_node_without_drivers_reads_as_the_kubelet_writes_it() {
        let node = CsiNode::decode(br#"{"metadata":{"name":"n"},"spec":{"drivers":null}}"#);
        assert_eq!(node.unwrap().spec.drivers, []);
    }

    #[test]
    fn null_deep_inside_and_in_lists_reads_as_empty() {
        let pod = json!({
            "metadata": {"name": "p", "labels": null, "ownerReferences": null},
            "spec": {"containers": [{"name": "c", "command": null, "resources": {"limits": null}}],
                     "volumes": [{"name": "v", "configMap": {"name": "m", "items": null}}]},
            "status": {"containerStatuses": null},
        });
        let pod = Pod::decode(pod.to_string().as_bytes()).unwrap();
        assert_eq!(pod.spec.containers[0].name, "c");
        assert!(pod.spec.containers[0].command.is_empty());
        assert!(
            pod.spec.volumes[0]
                .config_map
                .as_ref()
                .unwrap()
                .items
                .is_empty()
        );
    }

    #[test]
    fn what_is_wrong_for_another_reason_is_told() {
        let wrong = br#"{"metadata":{"name":"n"},"spec":{"drivers":7,"x":null}}"#;
        let error = CsiNode::decode(wrong).unwrap_err();
        assert!(error.to_string().contains("expected a sequence"), "{error}");
        assert!(CsiNode::decode(b"{").is_err());
    }
}

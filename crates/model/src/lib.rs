//! Kubernetes' storage objects as orlop sees them.
//!
//! The types here are *projections*: they hold the fields that some role reads or
//! writes, and nothing else. A cache of ten thousand claims then costs what those
//! fields cost, not what a whole `PersistentVolumeClaim` costs. Because a projection
//! forgets the rest of the object, a role never sends one back with PUT: it creates
//! objects, or patches the fields that it owns.
//!
//! Invariant: no I/O, no clock, no randomness in this crate.

pub mod access;
pub mod attachment;
pub mod claim;
pub mod class;
pub mod driver;
pub mod event;
pub mod flex;
pub mod grant;
pub mod group_snapshot;
pub mod kind;
pub mod lease;
pub mod matching;
pub mod meta;
pub mod migration;
pub mod namespaced_data;
pub mod network_disk;
pub mod node;
pub mod pod;
pub mod quantity;
pub mod resize;
pub mod selector;
pub mod snapshot;
pub mod volume;
pub mod well_known;
pub mod workload;

pub use access::{AccessMode, VolumeMode};
pub use attachment::VolumeAttachment;
pub use claim::{Claim, ClaimPhase, ModifyStatus, ResizeStatus};
pub use class::{BindingMode, ReclaimPolicy, StorageClass, VolumeAttributesClass};
pub use driver::{CsiDriver, CsiNode, CsiStorageCapacity};
pub use event::Event;
pub use grant::ReferenceGrant;
pub use group_snapshot::{
    VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
};
pub use kind::{Kind, Scope};
pub use lease::Lease;
pub use meta::{Key, Meta, ObjectRef, OwnerReference};
pub use namespaced_data::{ConfigMap, Namespace, Secret, ServiceAccount};
pub use node::Node;
pub use pod::{Pod, PodPhase};
pub use quantity::{Quantity, Resources};
pub use snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
pub use volume::{Volume, VolumePhase};
pub use workload::{ControllerRevision, DaemonSet, Deployment, Job, ReplicaSet, StatefulSet};

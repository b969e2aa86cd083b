//! What a case made at the driver, and its removal.
//!
//! Everything that may exist is on record before the call that may make it leaves, so that a
//! call that was cancelled, or a case that was stopped, leaves nothing behind unknown.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlop_csi::client::{Origin, Refusal};
use orlop_csi::proto;
use tonic::Code;

use crate::remains::Remain;
use crate::trial::Trial;

/// How often to try, for things that depend on each other or on something that ends soon.
const ROUNDS: u32 = 7;
const FIRST_WAIT: Duration = Duration::from_millis(30);

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Entries>);

#[derive(Debug, Default, Clone)]
struct Entries {
    volumes: BTreeSet<String>,
    snapshots: BTreeSet<String>,
    groups: BTreeMap<String, Vec<String>>,
    attached: BTreeSet<(String, String)>,
    staged: BTreeSet<(String, String)>,
    published: BTreeSet<(String, String)>,
    /// Calls whose outcome is unknown, by name.
    volumes_to_be: BTreeMap<String, proto::CreateVolumeRequest>,
    snapshots_to_be: BTreeMap<String, proto::CreateSnapshotRequest>,
    groups_to_be: BTreeMap<String, proto::CreateVolumeGroupSnapshotRequest>,
    /// Why the last try to remove something failed.
    reasons: BTreeMap<String, String>,
}

impl Entries {
    fn is_empty(&self) -> bool {
        self.volumes.is_empty()
            && self.snapshots.is_empty()
            && self.groups.is_empty()
            && self.attached.is_empty()
            && self.staged.is_empty()
            && self.published.is_empty()
            && self.volumes_to_be.is_empty()
            && self.snapshots_to_be.is_empty()
            && self.groups_to_be.is_empty()
    }
}

/// Whether the effect of a refused call may still be there or come.
fn is_uncertain(refusal: &Refusal) -> bool {
    refusal.origin != Origin::Driver
        || matches!(
            refusal.code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::Aborted
                | Code::Internal
                | Code::Unknown
        )
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is about to leave; whether its effect is new on record.
    pub(crate) fn before(&self, request: &dyn Any) -> bool {
        let mut on_record = self.entries();
        if let Some(request) = request.downcast_ref::<proto::CreateVolumeRequest>() {
            let earlier = on_record
                .volumes_to_be
                .insert(request.name.clone(), request.clone());
            earlier.is_none()
        } else if let Some(request) = request.downcast_ref::<proto::CreateSnapshotRequest>() {
            let earlier = on_record
                .snapshots_to_be
                .insert(request.name.clone(), request.clone());
            earlier.is_none()
        } else if let Some(request) =
            request.downcast_ref::<proto::CreateVolumeGroupSnapshotRequest>()
        {
            let earlier = on_record
                .groups_to_be
                .insert(request.name.clone(), request.clone());
            earlier.is_none()
        } else if let Some(request) =
            request.downcast_ref::<proto::ControllerPublishVolumeRequest>()
        {
            let key = (request.volume_id.clone(), request.node_id.clone());
            on_record.attached.insert(key)
        } else if let Some(request) = request.downcast_ref::<proto::NodeStageVolumeRequest>() {
            let key = (
                request.volume_id.clone(),
                request.staging_target_path.clone(),
            );
            on_record.staged.insert(key)
        } else if let Some(request) = request.downcast_ref::<proto::NodePublishVolumeRequest>() {
            let key = (request.volume_id.clone(), request.target_path.clone());
            on_record.published.insert(key)
        } else {
            false
        }
    }

    /// A call was answered; `new` is what [`Ledger::before`] said.
    pub(crate) fn after(&self, request: &dyn Any, new: bool, answer: Result<&dyn Any, &Refusal>) {
        let mut on_record = self.entries();
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return Self::after_refusal(&mut on_record, request, new, refusal),
        };
        if let Some(reply) = reply.downcast_ref::<proto::CreateVolumeResponse>() {
            if let Some(request) = request.downcast_ref::<proto::CreateVolumeRequest>() {
                on_record.volumes_to_be.remove(&request.name);
            }
            let id = reply.volume.as_ref().map(|volume| volume.volume_id.clone());
            on_record.volumes.extend(id.filter(|id| !id.is_empty()));
        } else if let Some(reply) = reply.downcast_ref::<proto::CreateSnapshotResponse>() {
            if let Some(request) = request.downcast_ref::<proto::CreateSnapshotRequest>() {
                on_record.snapshots_to_be.remove(&request.name);
            }
            let id = reply
                .snapshot
                .as_ref()
                .map(|snapshot| snapshot.snapshot_id.clone());
            on_record.snapshots.extend(id.filter(|id| !id.is_empty()));
        } else if let Some(reply) = reply.downcast_ref::<proto::CreateVolumeGroupSnapshotResponse>()
        {
            if let Some(request) = request.downcast_ref::<proto::CreateVolumeGroupSnapshotRequest>()
            {
                on_record.groups_to_be.remove(&request.name);
            }
            if let Some(group) = &reply.group_snapshot {
                let members = group
                    .snapshots
                    .iter()
                    .map(|member| member.snapshot_id.clone());
                on_record
                    .groups
                    .insert(group.group_snapshot_id.clone(), members.collect());
            }
        } else {
            Self::forget(&mut on_record, request);
        }
    }

    fn after_refusal(on_record: &mut Entries, request: &dyn Any, new: bool, refusal: &Refusal) {
        let gone = refusal.code == Code::NotFound && refusal.origin == Origin::Driver;
        if gone {
            Self::forget(on_record, request);
        }
        if is_uncertain(refusal) {
            return;
        }
        if let Some(request) = request.downcast_ref::<proto::CreateVolumeRequest>() {
            on_record.volumes_to_be.remove(&request.name);
        } else if let Some(request) = request.downcast_ref::<proto::CreateSnapshotRequest>() {
            on_record.snapshots_to_be.remove(&request.name);
        } else if let Some(request) =
            request.downcast_ref::<proto::CreateVolumeGroupSnapshotRequest>()
        {
            on_record.groups_to_be.remove(&request.name);
        }
        // A refused publish says nothing about an earlier one at the same path: that stays.
        if !new && !gone {
            return;
        }
        if let Some(request) = request.downcast_ref::<proto::ControllerPublishVolumeRequest>() {
            on_record
                .attached
                .remove(&(request.volume_id.clone(), request.node_id.clone()));
        } else if let Some(request) = request.downcast_ref::<proto::NodeStageVolumeRequest>() {
            let key = (
                request.volume_id.clone(),
                request.staging_target_path.clone(),
            );
            on_record.staged.remove(&key);
        } else if let Some(request) = request.downcast_ref::<proto::NodePublishVolumeRequest>() {
            let key = (request.volume_id.clone(), request.target_path.clone());
            on_record.published.remove(&key);
        }
    }

    /// An inverse call has succeeded, or its object is unknown.
    fn forget(on_record: &mut Entries, request: &dyn Any) {
        if let Some(request) = request.downcast_ref::<proto::DeleteVolumeRequest>() {
            on_record.volumes.remove(&request.volume_id);
        } else if let Some(request) = request.downcast_ref::<proto::DeleteSnapshotRequest>() {
            on_record.snapshots.remove(&request.snapshot_id);
        } else if let Some(request) =
            request.downcast_ref::<proto::DeleteVolumeGroupSnapshotRequest>()
        {
            on_record.groups.remove(&request.group_snapshot_id);
        } else if let Some(request) =
            request.downcast_ref::<proto::ControllerUnpublishVolumeRequest>()
        {
            on_record.attached.retain(|(volume, node)| {
                *volume != request.volume_id
                    || (!request.node_id.is_empty() && *node != request.node_id)
            });
        } else if let Some(request) = request.downcast_ref::<proto::NodeUnstageVolumeRequest>() {
            let key = (
                request.volume_id.clone(),
                request.staging_target_path.clone(),
            );
            on_record.staged.remove(&key);
        } else if let Some(request) = request.downcast_ref::<proto::NodeUnpublishVolumeRequest>() {
            let key = (request.volume_id.clone(), request.target_path.clone());
            on_record.published.remove(&key);
        }
    }

    /// Removes everything, dependents first; says what could not be removed.
    pub(crate) async fn clean(&self, trial: &Trial) -> Vec<Remain> {
        let mut wait = FIRST_WAIT;
        for round in 0..ROUNDS {
            self.clean_once(trial).await;
            if self.entries().is_empty() {
                return Vec::new();
            }
            // Two rounds settle what depends on each other; the rest needs time.
            if round > 0 {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
        }
        self.remains()
    }

    async fn clean_once(&self, trial: &Trial) {
        let on_record = self.entries().clone();
        for (volume_id, target_path) in on_record.published {
            let subject = format!("the publication of volume {volume_id} at {target_path}");
            let request = proto::NodeUnpublishVolumeRequest {
                volume_id,
                target_path,
            };
            self.note(subject, trial.call(request).await.words());
        }
        for (volume_id, staging_target_path) in on_record.staged {
            let subject = format!("the staging of volume {volume_id} at {staging_target_path}");
            let request = proto::NodeUnstageVolumeRequest {
                volume_id,
                staging_target_path,
            };
            self.note(subject, trial.call(request).await.words());
        }
        for (volume_id, node_id) in on_record.attached {
            let subject = format!("the publication of volume {volume_id} to node {node_id}");
            let request = proto::ControllerUnpublishVolumeRequest {
                volume_id,
                node_id,
                ..Default::default()
            };
            self.note(subject, trial.call(request).await.words());
        }
        for request in on_record.volumes_to_be.into_values() {
            trial.call(request).await;
        }
        for request in on_record.snapshots_to_be.into_values() {
            trial.call(request).await;
        }
        for request in on_record.groups_to_be.into_values() {
            trial.call(request).await;
        }
        let on_record = self.entries().clone();
        for (group_snapshot_id, snapshot_ids) in on_record.groups {
            let subject = format!("group snapshot {group_snapshot_id}");
            let request = proto::DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id,
                snapshot_ids,
                ..Default::default()
            };
            self.note(subject, trial.call(request).await.words());
        }
        for snapshot_id in on_record.snapshots {
            let subject = format!("snapshot {snapshot_id}");
            let request = proto::DeleteSnapshotRequest {
                snapshot_id,
                ..Default::default()
            };
            self.note(subject, trial.call(request).await.words());
        }
        for volume_id in on_record.volumes {
            let subject = format!("volume {volume_id}");
            let request = proto::DeleteVolumeRequest {
                volume_id,
                ..Default::default()
            };
            self.note(subject, trial.call(request).await.words());
        }
    }

    fn note(&self, subject: String, words: String) {
        self.entries().reasons.insert(subject, words);
    }

    /// What is still on record.
    pub(crate) fn remains(&self) -> Vec<Remain> {
        let on_record = self.entries().clone();
        let why = |subject: String| {
            let reason = on_record.reasons.get(&subject);
            let reason = reason.map_or("its removal was not tried", String::as_str);
            format!("{subject}: {reason}")
        };
        // A mount that is taken away, with its path, is a publication no more; a staged volume may
        // still have a device.
        let published = on_record.published.iter().map(|(volume, path)| {
            let words = why(format!("the publication of volume {volume} at {path}"));
            Remain::at_path(path, words)
        });
        let staged = on_record.staged.iter();
        let staged =
            staged.map(|(volume, path)| format!("the staging of volume {volume} at {path}"));
        let attached = on_record.attached.iter();
        let attached = attached
            .map(|(volume, node)| format!("the publication of volume {volume} to node {node}"));
        let groups = on_record
            .groups
            .keys()
            .map(|id| format!("group snapshot {id}"));
        let snapshots = on_record
            .snapshots
            .iter()
            .map(|id| format!("snapshot {id}"));
        let volumes = on_record.volumes.iter().map(|id| format!("volume {id}"));
        let known = staged
            .chain(attached)
            .chain(groups)
            .chain(snapshots)
            .chain(volumes)
            .map(why);
        let to_be = |kind: &'static str| {
            move |name: &String| {
                format!("perhaps {kind} of name {name:?}: its creation has no certain outcome")
            }
        };
        let unknown = on_record
            .volumes_to_be
            .keys()
            .map(to_be("a volume"))
            .chain(on_record.snapshots_to_be.keys().map(to_be("a snapshot")))
            .chain(on_record.groups_to_be.keys().map(to_be("a group snapshot")));
        let at_driver = known.chain(unknown).map(Remain::at_driver);
        published.chain(at_driver).collect()
    }
}

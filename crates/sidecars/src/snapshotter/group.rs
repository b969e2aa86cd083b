//! Groups: VolumeGroupSnapshotContent, CreateVolumeGroupSnapshot and its kin.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use orlop_csi::{CallError, Secrets, proto};
use orlop_model::{
    VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, group_snapshot::MemberInfo,
    volume::SecretRef, well_known as names,
};
use serde_json::{Map, Value, json};

use super::{
    Config,
    content::{Content, Failure, Handles, Names, Order, name, nanoseconds},
    decide::{Origin, View},
    desk::Desk,
};
use crate::{
    provisioner::ParameterError,
    snapshot_parameters::{Purpose, secret},
};

/// What a driver tells of a group.
#[derive(Debug)]
pub(super) struct Told {
    id: String,
    ready: bool,
    cut: Option<(i64, i32)>,
    members: Vec<proto::Snapshot>,
}

impl Told {
    fn of(group: Option<proto::VolumeGroupSnapshot>) -> Result<Self, Failure> {
        let group = group.ok_or(Failure::Garbled("tells of no group snapshot"))?;
        if group.group_snapshot_id.is_empty() {
            return Err(Failure::Garbled("names no group_snapshot_id"));
        }
        let nameless = |member: &proto::Snapshot| {
            member.snapshot_id.is_empty() || member.source_volume_id.is_empty()
        };
        if group.snapshots.iter().any(nameless) {
            return Err(Failure::Garbled("has a member without its ids"));
        }
        Ok(Self {
            id: group.group_snapshot_id,
            ready: group.ready_to_use,
            cut: group.creation_time.map(|time| (time.seconds, time.nanos)),
            members: group.snapshots,
        })
    }

    fn members(&self, now: Timestamp) -> Vec<MemberInfo> {
        let member = |snapshot: &proto::Snapshot| {
            let cut = snapshot.creation_time.as_ref();
            let cut = cut.map(|time| (time.seconds, time.nanos)).or(self.cut);
            MemberInfo {
                volume_handle: snapshot.source_volume_id.clone(),
                snapshot_handle: snapshot.snapshot_id.clone(),
                creation_time: Some(nanoseconds(cut, now)),
                ready_to_use: Some(snapshot.ready_to_use),
                restore_size: (snapshot.size_bytes > 0).then_some(snapshot.size_bytes),
            }
        };
        self.members.iter().map(member).collect()
    }
}

impl Content for VolumeGroupSnapshotContent {
    type Class = VolumeGroupSnapshotClass;
    type Told = Told;

    const NAMES: Names = Names {
        finalizer: names::GROUP_SNAPSHOT_CONTENT_BOUND,
        being_created: names::GROUP_SNAPSHOT_BEING_CREATED,
        secret_name: names::GROUP_SNAPSHOT_SECRET_NAME,
        secret_namespace: names::GROUP_SNAPSHOT_SECRET_NAMESPACE,
        word: "group snapshot",
        creation_failed: "GroupSnapshotCreationFailed",
        check_failed: "GroupSnapshotContentCheckandUpdateFailed",
        delete_error: "GroupSnapshotDeleteError",
        queue: "csi-snapshotter-groupsnapshotcontent",
        controller: "group-snapshotter",
    };

    fn view(&self) -> View {
        let (meta, source) = (&self.metadata, &self.spec.source);
        let found = source.group_snapshot_handles.is_some();
        let annotated = |name| meta.annotation(name).is_some();
        View {
            deleting: meta.is_deleting(),
            held: meta.has_finalizer(names::GROUP_SNAPSHOT_CONTENT_BOUND),
            being_created: annotated(names::GROUP_SNAPSHOT_BEING_CREATED),
            being_deleted: annotated(names::GROUP_SNAPSHOT_BEING_DELETED),
            unbound: found && self.spec.volume_group_snapshot_ref.uid.is_empty(),
            policy: self.spec.deletion_policy,
            origin: if found {
                Origin::Handle
            } else {
                Origin::Volume
            },
            handle: self.handle().is_some(),
            ready: VolumeGroupSnapshotContent::is_ready(self),
        }
    }

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_group_snapshot_class_name.as_deref()
    }

    fn parameters(class: &VolumeGroupSnapshotClass) -> &BTreeMap<String, String> {
        &class.parameters
    }

    fn error_message(&self) -> Option<&str> {
        VolumeGroupSnapshotContent::error_message(self)
    }

    fn has_status(&self) -> bool {
        self.status.is_some()
    }

    fn volumes(&self) -> String {
        self.spec.source.volume_handles.join(" ")
    }

    fn name(&self, config: &Config) -> Option<String> {
        let uid = &self.spec.volume_group_snapshot_ref.uid;
        name(&config.group_name_prefix, uid, config.group_name_uid_length)
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        let owner = &self.spec.volume_group_snapshot_ref;
        vec![
            (
                "csi.storage.k8s.io/volumegroupsnapshot/name",
                owner.name.clone(),
            ),
            (
                "csi.storage.k8s.io/volumegroupsnapshot/namespace",
                owner.namespace.clone(),
            ),
            (
                "csi.storage.k8s.io/volumegroupsnapshotcontent/name",
                self.metadata.name.clone(),
            ),
        ]
    }

    fn list_secret(
        &self,
        class: &VolumeGroupSnapshotClass,
    ) -> Result<Option<SecretRef>, ParameterError> {
        let content = &self.metadata.name;
        secret(&class.parameters, Purpose::GroupGet, content, None)
    }

    fn status(&self, told: &Told, now: Timestamp) -> Option<Value> {
        let old = self.status.clone().unwrap_or_default();
        let mut news = Map::new();
        if old.volume_group_snapshot_handle.is_none() {
            news.insert("volumeGroupSnapshotHandle".into(), json!(told.id));
        }
        if old.ready_to_use != Some(told.ready) {
            news.insert("readyToUse".into(), json!(told.ready));
        }
        if old.creation_time.is_none() {
            let cut = Timestamp::from_second(nanoseconds(told.cut, now) / 1_000_000_000);
            news.insert("creationTime".into(), json!(cut.unwrap_or(now)));
        }
        // Those of a group that was there before have objects of their own already.
        let found = self.spec.source.group_snapshot_handles.is_some();
        if old.volume_snapshot_info_list.is_empty() && !found && !told.members.is_empty() {
            news.insert("volumeSnapshotInfoList".into(), json!(told.members(now)));
        }
        if old.error.is_some() {
            news.insert("error".into(), Value::Null);
        }
        (!news.is_empty()).then_some(Value::Object(news))
    }

    fn is_ready(told: &Told) -> bool {
        told.ready
    }

    async fn cut(desk: &Desk<Self>, content: &Self, order: Order) -> Result<Told, Failure> {
        let request = proto::CreateVolumeGroupSnapshotRequest {
            name: order.name,
            source_volume_ids: content.spec.source.volume_handles.clone(),
            secrets: order.secrets.into_request(),
            parameters: order.parameters,
        };
        let reply = desk.driver.create_volume_group_snapshot(request).await?;
        let told = Told::of(reply.group_snapshot)?;
        // Half a group would be taken for the whole.
        let asked: BTreeSet<&String> = content.spec.source.volume_handles.iter().collect();
        let cut = told.members.iter().map(|member| &member.source_volume_id);
        if told.members.len() != asked.len() || cut.collect::<BTreeSet<_>>() != asked {
            return Err(Failure::Garbled(
                "does not have one member for every volume",
            ));
        }
        Ok(told)
    }

    async fn ask(desk: &Desk<Self>, content: &Self, secrets: Secrets) -> Result<Told, Failure> {
        let Handles { id, members } = content.handles();
        let asked = id.clone();
        let request = proto::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id,
            snapshot_ids: members,
            secrets: secrets.into_request(),
        };
        let reply = desk.driver.get_volume_group_snapshot(request).await?;
        let told = Told::of(reply.group_snapshot)?;
        if told.id != asked {
            return Err(Failure::Garbled("tells of another group snapshot"));
        }
        Ok(told)
    }

    fn handles(&self) -> Handles {
        let source = self.spec.source.group_snapshot_handles.as_ref();
        let told = self.handle();
        let id = told.or(source.map(|source| source.volume_group_snapshot_handle.as_str()));
        let members = match self.members() {
            [] => source.map_or_else(Vec::new, |source| source.volume_snapshot_handles.clone()),
            told => told.iter().map(|one| one.snapshot_handle.clone()).collect(),
        };
        Handles {
            id: id.unwrap_or_default().to_owned(),
            members,
        }
    }

    fn named(told: &Told) -> Handles {
        let members = told.members.iter();
        Handles {
            id: told.id.clone(),
            members: members.map(|one| one.snapshot_id.clone()).collect(),
        }
    }

    async fn delete(
        desk: &Desk<Self>,
        handles: Handles,
        secrets: Secrets,
    ) -> Result<(), CallError> {
        let request = proto::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: handles.id,
            snapshot_ids: handles.members,
            secrets: secrets.into_request(),
        };
        desk.driver
            .delete_volume_group_snapshot(request)
            .await
            .map(|_| ())
    }
}

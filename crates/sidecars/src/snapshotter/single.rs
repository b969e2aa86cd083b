//! Single snapshots: VolumeSnapshotContent, CreateSnapshot and its kin.

use std::collections::BTreeMap;

use jiff::Timestamp;
use orlop_csi::{CallError, Secrets, client::ControllerCapability, proto};
use orlop_model::{
    VolumeSnapshotClass, VolumeSnapshotContent, volume::SecretRef, well_known as names,
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

/// What a driver tells of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    id: String,
    ready: bool,
    cut: Option<(i64, i32)>,
    bytes: i64,
    group: String,
}

impl Told {
    fn of(snapshot: Option<proto::Snapshot>) -> Result<Self, Failure> {
        let snapshot = snapshot.ok_or(Failure::Garbled("tells of no snapshot"))?;
        if snapshot.snapshot_id.is_empty() {
            return Err(Failure::Garbled("names no snapshot_id"));
        }
        Ok(Self {
            id: snapshot.snapshot_id,
            ready: snapshot.ready_to_use,
            cut: snapshot
                .creation_time
                .map(|time| (time.seconds, time.nanos)),
            bytes: snapshot.size_bytes,
            group: snapshot.group_snapshot_id,
        })
    }

    /// The same, if it is about the snapshot that was asked for: what another is called must never be
    /// written down here, and deleted by that name.
    fn about(self, asked: &str) -> Result<Self, Failure> {
        match self.id == asked {
            true => Ok(self),
            false => Err(Failure::Garbled("tells of another snapshot")),
        }
    }
}

/// The driver's id, from wherever it is known.
fn handle(content: &VolumeSnapshotContent) -> String {
    let source = content.spec.source.snapshot_handle.as_deref();
    content.handle().or(source).unwrap_or_default().to_owned()
}

impl Content for VolumeSnapshotContent {
    type Class = VolumeSnapshotClass;
    type Told = Told;

    const NAMES: Names = Names {
        finalizer: names::SNAPSHOT_CONTENT_BOUND,
        being_created: names::SNAPSHOT_BEING_CREATED,
        secret_name: names::SNAPSHOT_SECRET_NAME,
        secret_namespace: names::SNAPSHOT_SECRET_NAMESPACE,
        word: "snapshot",
        creation_failed: "SnapshotCreationFailed",
        check_failed: "SnapshotContentCheckandUpdateFailed",
        delete_error: "SnapshotDeleteError",
        queue: "csi-snapshotter-content",
        controller: "snapshotter",
    };

    fn view(&self) -> View {
        let (meta, source) = (&self.metadata, &self.spec.source);
        let in_group = self.is_group_member() || self.group_handle().is_some();
        let origin = match (&source.snapshot_handle, in_group) {
            (_, true) => Origin::Member,
            (Some(_), false) => Origin::Handle,
            (None, false) => Origin::Volume,
        };
        View {
            deleting: meta.is_deleting(),
            held: meta.has_finalizer(names::SNAPSHOT_CONTENT_BOUND),
            being_created: meta.annotation(names::SNAPSHOT_BEING_CREATED).is_some(),
            being_deleted: meta.annotation(names::SNAPSHOT_BEING_DELETED).is_some(),
            unbound: source.snapshot_handle.is_some()
                && self.spec.volume_snapshot_ref.uid.is_empty(),
            policy: self.spec.deletion_policy,
            origin,
            handle: self.handle().is_some(),
            ready: VolumeSnapshotContent::is_ready(self),
        }
    }

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_snapshot_class_name.as_deref()
    }

    fn parameters(class: &VolumeSnapshotClass) -> &BTreeMap<String, String> {
        &class.parameters
    }

    fn error_message(&self) -> Option<&str> {
        VolumeSnapshotContent::error_message(self)
    }

    fn has_status(&self) -> bool {
        self.status.is_some()
    }

    fn volumes(&self) -> String {
        self.spec.source.volume_handle.clone().unwrap_or_default()
    }

    fn name(&self, config: &Config) -> Option<String> {
        let uid = &self.spec.volume_snapshot_ref.uid;
        name(&config.name_prefix, uid, config.name_uid_length)
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        let owner = &self.spec.volume_snapshot_ref;
        vec![
            ("csi.storage.k8s.io/volumesnapshot/name", owner.name.clone()),
            (
                "csi.storage.k8s.io/volumesnapshot/namespace",
                owner.namespace.clone(),
            ),
            (
                "csi.storage.k8s.io/volumesnapshotcontent/name",
                self.metadata.name.clone(),
            ),
        ]
    }

    fn list_secret(
        &self,
        class: &VolumeSnapshotClass,
    ) -> Result<Option<SecretRef>, ParameterError> {
        let content = &self.metadata.name;
        secret(&class.parameters, Purpose::SnapshotList, content, None)
    }

    fn status(&self, told: &Told, now: Timestamp) -> Option<Value> {
        let old = self.status.clone().unwrap_or_default();
        let mut news = Map::new();
        if old.snapshot_handle.is_none() {
            news.insert("snapshotHandle".into(), json!(told.id));
        }
        if old.ready_to_use != Some(told.ready) {
            news.insert("readyToUse".into(), json!(told.ready));
        }
        if old.creation_time.is_none() {
            news.insert("creationTime".into(), json!(nanoseconds(told.cut, now)));
        }
        if old.restore_size.is_none() && told.bytes > 0 {
            news.insert("restoreSize".into(), json!(told.bytes));
        }
        if old.volume_group_snapshot_handle.is_none() && !told.group.is_empty() {
            news.insert("volumeGroupSnapshotHandle".into(), json!(told.group));
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
        let request = proto::CreateSnapshotRequest {
            source_volume_id: content.volumes(),
            name: order.name,
            secrets: order.secrets.into_request(),
            parameters: order.parameters,
        };
        Told::of(desk.driver.create_snapshot(request).await?.snapshot)
    }

    async fn ask(desk: &Desk<Self>, content: &Self, secrets: Secrets) -> Result<Told, Failure> {
        let (id, secrets) = (handle(content), secrets.into_request());
        let asked = id.clone();
        if desk.info.can(ControllerCapability::GetSnapshot) {
            let request = proto::GetSnapshotRequest {
                snapshot_id: id,
                secrets,
            };
            return Told::of(desk.driver.get_snapshot(request).await?.snapshot)?.about(&asked);
        }
        if !desk.info.can(ControllerCapability::ListSnapshots) {
            // A driver that can't be asked is believed.
            return Ok(Told {
                id,
                ready: true,
                cut: None,
                bytes: 0,
                group: String::new(),
            });
        }
        let request = proto::ListSnapshotsRequest {
            snapshot_id: id,
            secrets,
            ..Default::default()
        };
        let listed = desk.driver.list_snapshots(request).await?.entries;
        match listed.into_iter().next() {
            Some(entry) => Told::of(entry.snapshot)?.about(&asked),
            None => Err(Failure::Unknown(asked)),
        }
    }

    fn handles(&self) -> Handles {
        Handles {
            id: handle(self),
            members: Vec::new(),
        }
    }

    fn named(told: &Told) -> Handles {
        Handles {
            id: told.id.clone(),
            members: Vec::new(),
        }
    }

    async fn delete(
        desk: &Desk<Self>,
        handles: Handles,
        secrets: Secrets,
    ) -> Result<(), CallError> {
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: handles.id,
            secrets: secrets.into_request(),
        };
        desk.driver.delete_snapshot(request).await.map(|_| ())
    }
}

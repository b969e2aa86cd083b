//! CreateVolume: a folder of a share, under a name.

use orlop_csi::proto::volume_content_source::Type as Source;
use orlop_csi::{limits, proto};
use tonic::Code;

use super::{Call, Capability, volume_and_folder};
use crate::nfs::failure::Failure;
use crate::nfs::ids::{self, SnapshotId, VolumeId};
use crate::nfs::node::table;
use crate::nfs::order::{Answer, Content, Create, Work};
use crate::nfs::parameters::Class;
use crate::nfs::record::{LARGEST, Record};
use crate::nfs::shown;
use crate::nfs::sub_dir::SubDir;

/// The size of a volume whose claim names none.
const DEFAULT: i64 = 1 << 30;

pub(super) async fn create(
    call: &Call<'_>,
    request: &proto::CreateVolumeRequest,
) -> Result<proto::CreateVolumeResponse, Failure> {
    let invalid = |error: limits::LimitError| Failure::invalid(&error);
    limits::name("name", &request.name).map_err(invalid)?;
    limits::map("parameters", &request.parameters).map_err(invalid)?;
    let Some(first) = request.volume_capabilities.first() else {
        return Err(Failure::missing("volume_capabilities"));
    };
    for capability in &request.volume_capabilities {
        Capability::parse(capability)?;
    }
    let plan = Capability::parse(first)?.plan;
    let (required, limit) = range(request.capacity_range.as_ref())?;
    let class = Class::parse(&request.parameters).map_err(|error| Failure::invalid(&error))?;
    let id = name(&class, &request.name, call.shared.config.on_delete)?;
    let content = match request.volume_content_source.as_ref() {
        None => None,
        Some(source) => Some(content(call, source, &request.secrets, &plan)?),
    };
    let source = content.as_ref().map(|(id, _)| id.clone());
    let mut volume_context = request.parameters.clone();
    let key = volume_context
        .keys()
        .find(|key| key.eq_ignore_ascii_case("subdir"));
    let key = key.cloned().unwrap_or_else(|| "subdir".to_owned());
    volume_context.insert(key, id.folder.as_str().to_owned());
    let on = call.mounting(&id.export, Some(plan), &request.secrets)?;
    let shown = match &content {
        None => Vec::new(),
        Some(_) => shown::all(&table()?, call.shared.config.hands.stand_in().is_some()),
    };
    let configured = Some(call.shared.config.mount_permissions).filter(|mode| *mode != 0);
    let order = Create {
        on,
        record: Record {
            key: id.key().to_owned(),
            folder: id.folder.clone(),
            capacity_bytes: match (required, limit) {
                (0, 0) => DEFAULT,
                (0, limit) => limit.min(DEFAULT),
                (required, _) => required,
            },
            source,
            placing: None,
            context: volume_context.clone(),
        },
        required,
        limit,
        permissions: class.permissions.or(configured).filter(|mode| *mode != 0),
        content: content.map(|(_, content)| content),
        shown,
    };
    let made = call
        .run(Work::Create(order), volume_and_folder(&id))
        .await?;
    let Answer::Volume { capacity_bytes, .. } = made else {
        return Err(Failure::new(
            Code::Internal,
            "the worker answered something else",
        ));
    };
    Ok(proto::CreateVolumeResponse {
        volume: Some(proto::Volume {
            volume_id: id.as_str().to_owned(),
            capacity_bytes,
            volume_context,
            content_source: request.volume_content_source.clone(),
            ..Default::default()
        }),
    })
}

/// The id of a volume: in the folder that the class chose, or in one that is named after it.
fn name(class: &Class, asked: &str, on_delete: crate::nfs::OnDelete) -> Result<VolumeId, Failure> {
    let on_delete = class.on_delete.unwrap_or(on_delete);
    let export = class.export.clone();
    let folder = class
        .folder
        .as_ref()
        .map_or(0, |folder| folder.as_str().len());
    let others = export.server.len() + export.share.len() + folder + 4 + on_delete.in_id().len();
    let name = ids::safe_name("pvc", asked, ids::room(others));
    let id = match &class.folder {
        Some(folder) => VolumeId::new(export, folder.clone(), Some(name), on_delete),
        None => {
            let folder = SubDir::parse(&name).map_err(|error| Failure::invalid(&error))?;
            VolumeId::new(export, folder, None, on_delete)
        }
    };
    id.map_err(|error| {
        let folder = class.folder.as_ref().map_or("", SubDir::as_str);
        let told = format!("subDir {folder:?} gives the volume no id that can be read: {error}");
        Failure::new(Code::InvalidArgument, told)
    })
}

/// Both bounds, 0 for none.
pub(super) fn range(range: Option<&proto::CapacityRange>) -> Result<(i64, i64), Failure> {
    let Some(range) = range else {
        return Ok((0, 0));
    };
    limits::capacity_range(range).map_err(|error| Failure::invalid(&error))?;
    if range.required_bytes > LARGEST {
        let told = format!(
            "no share has {} bytes; a volume has {LARGEST} at most",
            range.required_bytes
        );
        return Err(Failure::new(Code::OutOfRange, told));
    }
    Ok((range.required_bytes, range.limit_bytes))
}

/// What a volume is filled from, and its id.
fn content(
    call: &Call<'_>,
    source: &proto::VolumeContentSource,
    secrets: &std::collections::BTreeMap<String, String>,
    plan: &crate::nfs::options::MountPlan,
) -> Result<(String, Content), Failure> {
    match &source.r#type {
        None => Err(Failure::missing("volume_content_source.type")),
        Some(Source::Volume(source)) => {
            let id = super::known(&source.volume_id)?;
            let on = call.mounting(&id.export, Some(plan.clone()), secrets)?;
            let content = Content::Volume {
                on,
                key: id.key().to_owned(),
                folder: id.folder.clone(),
            };
            Ok((id.as_str().to_owned(), content))
        }
        Some(Source::Snapshot(source)) => {
            let text = &source.snapshot_id;
            if text.is_empty() {
                return Err(Failure::missing(
                    "volume_content_source.snapshot.snapshot_id",
                ));
            }
            let id = SnapshotId::parse(text).map_err(|error| {
                Failure::not_found(format!("there is no snapshot {text:?}: {error}"))
            })?;
            let on = call.mounting(&id.export, Some(plan.clone()), secrets)?;
            let content = Content::Snapshot {
                on,
                folder: id.folder.clone(),
                source: id.source.clone(),
            };
            Ok((id.as_str().to_owned(), content))
        }
    }
}

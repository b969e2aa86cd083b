//! Snapshots: archives of a volume's folder.
//!
//! They are not cut at one moment: files that change while they are packed are packed as they are
//! met. That is all that a share offers, and the original does the same.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orlop_csi::{limits, proto};
use tonic::Code;

use super::{Call, known, volume_turn};
use crate::local::in_flight::Subject;
use crate::nfs::failure::Failure;
use crate::nfs::ids::{self, SnapshotId};
use crate::nfs::node::table;
use crate::nfs::options::MountPlan;
use crate::nfs::order::{Answer, Work};
use crate::nfs::parameters::SnapshotClass;
use crate::nfs::shown;
use crate::nfs::sub_dir::SubDir;

/// Ends the folder of a snapshot whose name a volume has already. No other snapshot's name ends so: it
/// would have a digest for a folder.
const ASIDE: &str = "@snapshot";

fn turn(id: &SnapshotId) -> Subject {
    Subject::new("snapshot", format!("{}#{}", id.export, id.folder))
}

pub(super) async fn create(
    call: &Call<'_>,
    request: &proto::CreateSnapshotRequest,
) -> Result<proto::CreateSnapshotResponse, Failure> {
    let invalid = |error: limits::LimitError| Failure::invalid(&error);
    limits::name("name", &request.name).map_err(invalid)?;
    if request.source_volume_id.is_empty() {
        return Err(Failure::missing("source_volume_id"));
    }
    let volume = known(&request.source_volume_id)?;
    let class = SnapshotClass::parse(&request.parameters, &volume.export)
        .map_err(|error| Failure::invalid(&error))?;
    let others = class.export.server.len() + class.export.share.len() + volume.key().len() + 4;
    // It stands in the id twice, which shall have 128 bytes at most.
    let room = ids::room(others) / 2;
    let named = |name: &str| {
        let name = SubDir::parse(name).map_err(|error| Failure::invalid(&error))?;
        SnapshotId::new(class.export.clone(), name, &volume)
            .map_err(|error| Failure::invalid(&error))
    };
    let name = ids::safe_name("snap", &request.name, room);
    let aside = format!("{}{ASIDE}", request.name);
    let aside = match name == request.name && aside.len() <= room {
        true => aside,
        false => ids::safe_name("snap", &aside, room),
    };
    let (id, aside) = (named(&name)?, named(&aside)?);
    let plan = match &class.mount_options {
        None => None,
        Some(text) => {
            Some(MountPlan::parse([text.as_str()]).map_err(|error| Failure::invalid(&error))?)
        }
    };
    let work = Work::Pack {
        from: call.mounting(&volume.export, plan.clone(), &request.secrets)?,
        source: volume.folder.clone(),
        to: call.mounting(&id.export, plan, &request.secrets)?,
        folder: id.folder.clone(),
        aside: aside.folder.clone(),
        archive: id.source.clone(),
        compress: call.shared.config.compress,
    };
    let turns = vec![turn(&id), turn(&aside), volume_turn(&volume)];
    let Answer::Archive {
        bytes,
        made,
        is_aside,
    } = call.run(work, turns).await?
    else {
        return Err(Failure::new(
            Code::Internal,
            "the worker answered something else",
        ));
    };
    let id = if is_aside { aside } else { id };
    Ok(proto::CreateSnapshotResponse {
        snapshot: Some(proto::Snapshot {
            snapshot_id: id.as_str().to_owned(),
            source_volume_id: request.source_volume_id.clone(),
            size_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            creation_time: Some(time(made).into()),
            ready_to_use: true,
            ..Default::default()
        }),
    })
}

fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or_default(), nanoseconds)
}

pub(super) async fn delete(
    call: &Call<'_>,
    request: &proto::DeleteSnapshotRequest,
) -> Result<proto::DeleteSnapshotResponse, Failure> {
    let text = &request.snapshot_id;
    if text.is_empty() {
        return Err(Failure::missing("snapshot_id"));
    }
    let done = Ok(proto::DeleteSnapshotResponse {});
    let id = match SnapshotId::parse(text) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(id = text, %error, "nothing is deleted");
            return done;
        }
    };
    let work = Work::Discard {
        on: call.mounting(&id.export, None, &request.secrets)?,
        folder: id.folder.clone(),
        source: id.source.clone(),
        shown: shown::all(&table()?, call.shared.config.hands.stand_in().is_some()),
    };
    call.run(work, vec![turn(&id)]).await?;
    done
}

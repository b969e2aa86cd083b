//! CreateVolumeGroupSnapshot: several volumes at one moment, all of them or none.

use std::collections::BTreeMap;

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use super::to_wire;
use crate::local::controller::{UnknownParameter, no_parameters};
use crate::local::fields::FieldError;
use crate::local::making::{self, MakeError, Wanted};
use crate::local::pool::StoreError;
use crate::local::pools::{self, Pools};
use crate::local::snapshot::{Group, GroupId, GroupRecord, Membership, Snapshot, SnapshotId};
use crate::local::snapshots::FindError;
use crate::local::volume::VolumeId;

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum CreateGroupError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A class parameter is not known.
    #[error(transparent)]
    Parameter(#[from] UnknownParameter),
    /// A volume is named more than once.
    #[error("volume {id} is named more than once")]
    Twice {
        /// The volume.
        id: String,
    },
    /// The name is taken by a group of other volumes.
    #[error("group snapshot {name:?} exists already, of other volumes")]
    Differs {
        /// The name.
        name: String,
    },
    /// The group's record, or that of one of its snapshots, is damaged.
    #[error(transparent)]
    Broken(FindError),
    /// A volume is not there or damaged.
    #[error(transparent)]
    Volume(pools::FindError),
    /// The snapshots could not be made.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The pool's disk refused.
    #[error("could not make group snapshot {id}")]
    Store {
        /// The group.
        id: GroupId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for CreateGroupError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Parameter(_) | Self::Twice { .. } => Code::InvalidArgument,
            Self::Differs { .. } => Code::AlreadyExists,
            // The group is there, so it is not its absence that is told.
            Self::Broken(FindError::Unknown { .. } | FindError::Broken { .. }) => Code::DataLoss,
            Self::Broken(source @ FindError::Away { .. }) => source.code(),
            Self::Volume(source) => source.code(),
            Self::Make(source) => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

pub(super) fn create(
    pools: &Pools,
    request: &proto::CreateVolumeGroupSnapshotRequest,
) -> Result<proto::CreateVolumeGroupSnapshotResponse, CreateGroupError> {
    let volumes = check(request)?;
    let id = GroupId::of_name(&request.name);
    let (group, snapshots) = match pools.snapshots().find_group(id.as_str()) {
        Ok(group) => same(pools, group, &volumes, &request.name)?,
        Err(FindError::Unknown { .. }) => make(pools, &id, request, &volumes)?,
        Err(other) => return Err(CreateGroupError::Broken(other)),
    };
    Ok(proto::CreateVolumeGroupSnapshotResponse {
        group_snapshot: Some(to_wire(&group, &snapshots)),
    })
}

/// The volumes asked for, sorted, each once.
fn check(request: &proto::CreateVolumeGroupSnapshotRequest) -> Result<Vec<&str>, CreateGroupError> {
    limits::name("name", &request.name).map_err(FieldError::from)?;
    limits::map("parameters", &request.parameters).map_err(FieldError::from)?;
    if request.source_volume_ids.is_empty() {
        return Err(FieldError::missing("source_volume_ids").into());
    }
    for id in &request.source_volume_ids {
        limits::required("source_volume_ids", id).map_err(FieldError::from)?;
    }
    no_parameters(&request.parameters)?;
    let mut volumes: Vec<_> = request
        .source_volume_ids
        .iter()
        .map(String::as_str)
        .collect();
    volumes.sort_unstable();
    match volumes.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CreateGroupError::Twice {
            id: pair[0].to_owned(),
        }),
        None => Ok(volumes),
    }
}

/// The group of this name, if it is the one that is asked for.
fn same(
    pools: &Pools,
    group: Group,
    volumes: &[&str],
    name: &str,
) -> Result<(Group, Vec<Snapshot>), CreateGroupError> {
    let members = &group.record.members;
    if !members
        .keys()
        .map(VolumeId::as_str)
        .eq(volumes.iter().copied())
    {
        return Err(CreateGroupError::Differs {
            name: name.to_owned(),
        });
    }
    let snapshots: Result<Vec<_>, _> = members
        .values()
        .map(|id| pools.snapshots().find(id.as_str()))
        .collect();
    let snapshots = snapshots.map_err(CreateGroupError::Broken)?;
    Ok((group, snapshots))
}

fn make(
    pools: &Pools,
    id: &GroupId,
    request: &proto::CreateVolumeGroupSnapshotRequest,
    volumes: &[&str],
) -> Result<(Group, Vec<Snapshot>), CreateGroupError> {
    let found: Result<Vec<_>, _> = volumes.iter().map(|volume| pools.find(volume)).collect();
    let found = found.map_err(CreateGroupError::Volume)?;
    let home = found[0].home.clone();
    let id = &id.in_pool(pools.pool(&home).tag().as_ref());
    let membership = Membership {
        group: id.clone(),
        node: home.node.clone(),
        pool: home.pool.clone(),
    };
    let store = |source| CreateGroupError::Store {
        id: id.clone(),
        source,
    };
    let mut wanted = Vec::with_capacity(found.len());
    for volume in found {
        let member = SnapshotId::of_member(id, &volume.record.id);
        // What an attempt before this one may have left, and could not remove.
        pools
            .pool_of(&volume)
            .remove_snapshot(&member)
            .map_err(store)?;
        pools.snapshots().forget(&member);
        let name = request.name.clone();
        wanted.push(Wanted {
            id: member,
            name,
            volume,
        });
    }
    let made = making::make(pools, &wanted, Some(&membership))?;
    let members: BTreeMap<_, _> = made
        .snapshots
        .iter()
        .map(|it| (it.record.source.clone(), it.record.id.clone()))
        .collect();
    let record = GroupRecord {
        id: id.clone(),
        name: request.name.clone(),
        created: made.snapshots[0].record.created,
        members,
    };
    if let Err(source) = pools.pool(&home).write_group(&record) {
        // It may be there, if only its name could not be put on disk.
        let _ = pools.pool(&home).remove_group(id);
        making::unmake(pools, &made.snapshots);
        return Err(store(source));
    }
    let group = Group { home, record };
    let snapshots = made.snapshots;
    pools
        .snapshots()
        .learn_group(group.clone(), snapshots.clone());
    Ok((group, snapshots))
}

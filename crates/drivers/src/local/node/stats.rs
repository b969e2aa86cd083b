//! NodeGetVolumeStats: how full a volume is.

use std::io;
use std::path::PathBuf;

use orlop_csi::proto;
use orlop_csi::proto::volume_usage::Unit;
use orlop_csi::server::CsiError;
use orlop_host::filesystem;
use tonic::Code;

use super::Here;
use super::observe::{ObserveError, Shown, Use};
use crate::local::capability::Access;
use crate::local::condition;
use crate::local::fields::{self, FieldError};
use crate::local::pools::FindError;
use crate::local::volume::{NodeRecord, VolumeId};

/// Why a volume could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// It is not there.
    #[error("volume {id} is not at {}", path.display())]
    NotThere {
        /// The volume.
        id: VolumeId,
        /// The path.
        path: PathBuf,
    },
    /// Its state could not be seen.
    #[error("could not see the state of volume {id}")]
    Observe {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: ObserveError,
    },
    /// The file system did not tell.
    #[error("could not measure volume {id}")]
    Measure {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl CsiError for StatsError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::NotThere { .. } => Code::NotFound,
            Self::Observe { source, .. } => source.code(),
            Self::Measure { .. } => Code::Internal,
        }
    }
}

/// In which form a volume is at a path, by the record.
pub(super) fn form_at(record: &NodeRecord, path: &std::path::Path) -> Option<Access> {
    let staged = record.staged.as_ref().filter(|staged| staged.path == path);
    let publication = staged
        .map(|staged| &staged.publication)
        .or_else(|| record.targets.get(path))?;
    Some(publication.capability.access)
}

pub(super) fn stats(
    here: Here<'_>,
    request: &proto::NodeGetVolumeStatsRequest,
) -> Result<proto::NodeGetVolumeStatsResponse, StatsError> {
    let id = fields::volume_id(&request.volume_id)?;
    fields::path("volume_path", &request.volume_path)?;
    let volume = here.find(id)?;
    let id = volume.record.id.clone();
    // A volume is at no path that we would not have followed.
    let path = fields::absolute("volume_path", &request.volume_path).map_err(|_| {
        StatsError::NotThere {
            id: id.clone(),
            path: (&request.volume_path).into(),
        }
    })?;
    let observe = |source| StatsError::Observe {
        id: id.clone(),
        source,
    };
    let condition = condition::of(here.pools, &volume);
    let found = match Use::observe(here.pools, &volume) {
        // What is wrong with it is what was asked for.
        Err(_) if condition.abnormal => {
            return Ok(proto::NodeGetVolumeStatsResponse {
                usage: Vec::new(),
                volume_condition: Some(condition),
            });
        }
        other => other.map_err(observe)?,
    };
    let measure = |source| StatsError::Measure {
        id: id.clone(),
        source,
    };
    let shown = found.shown_at(&path).map_err(observe)?;
    let usage = match form_at(&found.record, &path) {
        Some(Access::Mount(_)) if shown == Shown::Volume => files(here, &path).map_err(measure)?,
        // The record was lost, or is in a pool that cannot be read.
        None if found.record.is_unused() && shown == Shown::Volume => {
            match volume.record.content.file_system() {
                Some(_) => files(here, &path).map_err(measure)?,
                None => Vec::new(),
            }
        }
        Some(Access::Block) if found.writable().is_some() => {
            let bytes = proto::VolumeUsage {
                total: signed(volume.record.capacity_bytes),
                unit: Unit::Bytes.into(),
                ..Default::default()
            };
            vec![bytes]
        }
        Some(_) | None => {
            let readable = here.pools.pool_of(&volume).check();
            readable.map_err(|source| observe(ObserveError::Store(source)))?;
            return Err(StatsError::NotThere { id, path });
        }
    };
    Ok(proto::NodeGetVolumeStatsResponse {
        usage,
        volume_condition: Some(if found.is_shut_down() {
            condition::abnormal(
                "the file system found an error and is read-only; stage the volume again to repair it",
            )
        } else {
            condition
        }),
    })
}

fn files(here: Here<'_>, path: &std::path::Path) -> io::Result<Vec<proto::VolumeUsage>> {
    let usage = filesystem::usage_of(here.place(path)?.open()?)?;
    let bytes = proto::VolumeUsage {
        available: signed(usage.available_bytes),
        total: signed(usage.total_bytes),
        used: signed(usage.used_bytes),
        unit: Unit::Bytes.into(),
    };
    let inodes = proto::VolumeUsage {
        available: signed(usage.free_inodes),
        total: signed(usage.total_inodes),
        used: signed(usage.total_inodes.saturating_sub(usage.free_inodes)),
        unit: Unit::Inodes.into(),
    };
    Ok(vec![bytes, inodes])
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

//! CreateVolume: a promise of space on one node, under a name.
//!
//! The image is blank, and its file system comes when the volume is first staged; or it is a copy of
//! a snapshot or of another volume.

use std::collections::BTreeMap;
use std::path::Path;

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use orlop_host::FsKind;
use orlop_host::program::ProgramError;
use tonic::Code;

use super::source::{self, Origin, SourceError};
use super::to_wire;
use crate::local::capability::{Access, Capability, CapabilityError};
use crate::local::fields::FieldError;
use crate::local::home::{Home, PoolName};
use crate::local::parameters::{self, Mutable, ParameterError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools, ReserveError, Volume};
use crate::local::room::Allocation;
use crate::local::size::{self, SizeError, SizeRange};
use crate::local::topology::Wanted;
use crate::local::volume::{NodeName, Source, VolumeId, VolumeRecord};

mod mkfs;

/// Why a volume was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A capability cannot be had.
    #[error("a volume capability cannot be had")]
    Capability(#[source] CapabilityError),
    /// A class parameter is not known.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// mkfs does not take the class' options for such a volume.
    #[error("parameter \"mkfsOptions\" cannot be used for an {kind} of {size} bytes")]
    Mkfs {
        /// The file system.
        kind: FsKind,
        /// How large it would be.
        size: u64,
        /// What mkfs says.
        #[source]
        source: ProgramError,
    },
    /// It cannot be a copy of that.
    #[error("the volume cannot be copied from its source")]
    Source(#[from] SourceError),
    /// No node has a pool of that name.
    #[error("there is no pool {0} on any node of this driver")]
    NoSuchPool(PoolName),
    /// The sizes make no sense, or are out of range.
    #[error("the capacity range cannot be met")]
    Size(#[source] SizeError),
    /// The name is taken by another volume.
    #[error("volume {name:?} exists already with another {what}")]
    Differs {
        /// The name.
        name: String,
        /// In what the two differ.
        what: &'static str,
    },
    /// Its record is damaged.
    #[error(transparent)]
    Broken(FindError),
    /// A pool that it may be in already is not here.
    #[error(
        "the volume may have been made already, in the {home}, which cannot be read; mend that \
         pool, name another in the class, or start the driver without it"
    )]
    Unread {
        /// The pool.
        home: Home,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// No node with a pool is among those asked for.
    #[error("none of the nodes asked for has a pool of this driver")]
    NoSuchPlace,
    /// No pool has room.
    #[error("{}", no_room(*pools))]
    Space {
        /// How many were tried.
        pools: usize,
        /// What is wrong with the one that has the most.
        #[source]
        source: ReserveError,
    },
    /// The pool's disk refused.
    #[error("could not make volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

fn no_room(pools: usize) -> String {
    match pools {
        1 => "the pool has no room for the volume".to_owned(),
        pools => format!("none of {pools} pools has room for the volume; of the roomiest"),
    }
}

impl CreateError {
    /// The refusal of the pool with the most room: the one that is easiest to mend.
    fn or_roomier(self, source: ReserveError, pools: usize) -> Self {
        match &self {
            Self::Space { source: before, .. } if before.available() > source.available() => self,
            _ => Self::Space { pools, source },
        }
    }
}

impl CsiError for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_)
            | Self::Capability(_)
            | Self::Parameter(_)
            | Self::Mkfs { .. }
            | Self::NoSuchPool(_)
            | Self::Size(
                SizeError::Negative | SizeError::Empty | SizeError::Contradiction { .. },
            ) => Code::InvalidArgument,
            Self::Size(SizeError::OutOfRange { .. }) => Code::OutOfRange,
            Self::Differs { .. } => Code::AlreadyExists,
            Self::Broken(_) => Code::DataLoss,
            Self::Source(source) => source.code(),
            Self::NoSuchPlace => Code::ResourceExhausted,
            Self::Unread { .. } => Code::Unavailable,
            Self::Space { source, .. } => source.code(),
            Self::Store { source, .. } => source.code(),
        }
    }
}

/// A request, understood.
#[derive(Debug)]
struct Asked {
    id: VolumeId,
    name: String,
    size: Option<SizeRange>,
    smallest: u64,
    pool: Option<PoolName>,
    allocation: Allocation,
    mutable: Mutable,
    parameters: BTreeMap<String, String>,
    wanted: Wanted,
    source: Option<Source>,
    accesses: Vec<Access>,
}

impl Asked {
    /// `holds` is the file system that the volume has, or that its source has.
    fn parse(
        pools: &Pools,
        request: &proto::CreateVolumeRequest,
        source: Option<Source>,
        holds: Option<FsKind>,
    ) -> Result<Self, CreateError> {
        let name = request.name.clone();
        limits::map("mutable_parameters", &request.mutable_parameters).map_err(FieldError::from)?;
        let mutable = Mutable::parse(&request.mutable_parameters)?;
        let parameters = parameters::parse(&request.parameters)?;
        let pool = parameters::pool(&parameters);
        if let Some(unknown) = pool.as_ref().filter(|name| !pools.has_pool(name)) {
            return Err(CreateError::NoSuchPool(unknown.clone()));
        }
        let default_fs = parameters::file_system(&parameters).or(holds);
        let default_fs = default_fs.unwrap_or(pools.default_fs());
        let accesses: Result<Vec<_>, _> = request
            .volume_capabilities
            .iter()
            .map(|wire| Ok(Capability::parse_whole(wire, default_fs)?.access))
            .collect();
        let accesses = accesses.map_err(CreateError::Capability)?;
        mkfs::check(&accesses, &parameters, pools.default_fs())?;
        let smallest = smallest(&accesses);
        let size = request
            .capacity_range
            .as_ref()
            .map(SizeRange::parse)
            .transpose();
        Ok(Self {
            id: VolumeId::of_name(&name),
            name,
            size: size.map_err(CreateError::Size)?,
            smallest,
            pool,
            allocation: mutable
                .allocation
                .unwrap_or_else(|| parameters::allocation(&parameters)),
            mutable,
            parameters,
            wanted: Wanted::parse(
                request.accessibility_requirements.as_ref(),
                pools.driver_name(),
            ),
            source,
            accesses,
        })
    }
}

/// What must be there, before anything is looked up.
fn check(request: &proto::CreateVolumeRequest) -> Result<(), FieldError> {
    limits::name("name", &request.name)?;
    limits::map("parameters", &request.parameters)?;
    if request.volume_capabilities.is_empty() {
        return Err(FieldError::missing("volume_capabilities"));
    }
    Ok(())
}

/// The smallest volume that can be used in all these ways.
fn smallest(accesses: &[Access]) -> u64 {
    let smallest = accesses.iter().map(|access| match access {
        Access::Mount(kind) => kind.smallest(),
        Access::Block => size::SMALLEST,
    });
    smallest.fold(size::SMALLEST, u64::max)
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    AlreadyThere,
    Make { size: u64 },
}

fn plan(
    asked: &Asked,
    found: Option<&Volume>,
    origin: Option<&Origin>,
) -> Result<Step, CreateError> {
    let Some(found) = found else {
        let smallest = origin.map_or(asked.smallest, |it| it.size_bytes.max(asked.smallest));
        let size = match (asked.size, origin) {
            (Some(range), _) => range.choose(smallest).map_err(CreateError::Size)?,
            (None, Some(_)) => smallest,
            (None, None) => size::DEFAULT.max(smallest),
        };
        return Ok(Step::Make { size });
    };
    let record = &found.record;
    let fits = record.capacity_bytes >= asked.smallest
        && asked
            .size
            .is_none_or(|range| range.contains(record.capacity_bytes));
    let difference = if record.name != asked.name {
        Some("name of the same id")
    } else if !fits {
        Some("size")
    } else if record.source != asked.source {
        Some("source")
    } else if record.parameters != asked.parameters {
        Some("parameters")
    } else if !asked.mutable.holds_for(record) {
        Some("mutable parameters")
    } else if !asked.wanted.allows(&found.home.node) {
        Some("place")
    } else {
        None
    };
    match difference {
        None => Ok(Step::AlreadyThere),
        Some(what) => Err(CreateError::Differs {
            name: asked.name.clone(),
            what,
        }),
    }
}

pub(super) fn create(
    pools: &Pools,
    request: &proto::CreateVolumeRequest,
) -> Result<proto::CreateVolumeResponse, CreateError> {
    check(request)?;
    let found = match pools.find(VolumeId::of_name(&request.name).as_str()) {
        Ok(volume) => Some(volume),
        // If it may be in a pool that cannot be read, that is found out below.
        Err(FindError::Unknown { .. } | FindError::Away { .. }) => None,
        Err(broken @ FindError::Broken { .. }) => return Err(CreateError::Broken(broken)),
    };
    let source = request.volume_content_source.as_ref();
    let source = source.map(source::parse).transpose()?;
    // What is there already needs its source no more.
    let origin = match (&found, &source) {
        (None, Some(source)) => Some(Origin::find(pools, source)?),
        _ => None,
    };
    let holds = found
        .as_ref()
        .and_then(|volume| volume.record.content.file_system())
        .or_else(|| origin.as_ref().and_then(Origin::file_system));
    let asked = Asked::parse(pools, request, source, holds)?;
    if let Some(origin) = &origin {
        for access in &asked.accesses {
            origin.check(pools, *access)?;
        }
    }
    let step = plan(&asked, found.as_ref(), origin.as_ref())?;
    let volume = match (step, found) {
        (Step::AlreadyThere, Some(volume)) => volume,
        (Step::AlreadyThere, None) => unreachable!("nothing was found"),
        (Step::Make { size }, _) => {
            if origin.is_none() {
                mkfs::try_it(&asked.accesses, &asked.parameters, size)?;
            }
            make(pools, &asked, origin.as_ref(), size)?
        }
    };
    Ok(proto::CreateVolumeResponse {
        volume: Some(to_wire(pools, &volume)),
    })
}

fn make(
    pools: &Pools,
    asked: &Asked,
    origin: Option<&Origin>,
    size: u64,
) -> Result<Volume, CreateError> {
    let places = places(pools, asked, origin);
    // An earlier call, whose answer nobody got, may have made it in any of them: no second one.
    if let Some(home) = pools.first_unread(&places)
        && let Err(source) = pools.pool(home).check()
    {
        let home = home.clone();
        return Err(CreateError::Unread { home, source });
    }
    let (mut refusal, tried) = (CreateError::NoSuchPlace, places.len());
    for home in places {
        let space = match pools.reserve(&home, size, asked.allocation) {
            Ok(space) => space,
            Err(error) => {
                refusal = refusal.or_roomier(error, tried);
                continue;
            }
        };
        let record = VolumeRecord {
            id: asked.id.in_pool(pools.pool(&home).tag().as_ref()),
            parameters: asked.parameters.clone(),
            allocation: asked.allocation,
            read_ahead_kib: asked.mutable.read_ahead_kib,
            ..VolumeRecord::blank(&asked.name, pools.next_serial(), size)
        };
        let made = match origin {
            None => {
                let volume = Volume { home, record };
                let made = pools.create(&volume, space);
                made.map(|()| volume).map_err(|source| CreateError::Store {
                    id: asked.id.clone(),
                    source,
                })
            }
            Some(origin) => {
                let record = origin.describe(record);
                let volume = Volume { home, record };
                let fill = |path: &Path| origin.fill(pools, &volume.record, path);
                let made = pools.create_with(&volume, space, fill);
                made.map(|()| volume).map_err(CreateError::Source)
            }
        };
        match made {
            Ok(volume) => return Ok(volume),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// The pools to try, best first: in the order of the nodes asked for, and on a node, or anywhere,
/// those with the most room. On a node, or anywhere, the pool of the source comes before all: only
/// there can blocks be shared.
fn places(pools: &Pools, asked: &Asked, origin: Option<&Origin>) -> Vec<Home> {
    let on = |node: &NodeName| pools.candidates(node, asked.pool.as_ref());
    let roomiest_first = |mut homes: Vec<Home>| {
        let room = |home: &Home| pools.available(home, asked.allocation).unwrap_or_default();
        if homes.len() > 1 {
            homes.sort_by_cached_key(|home| {
                let elsewhere = origin.is_some_and(|origin| origin.home != *home);
                (elsewhere, std::cmp::Reverse(room(home)))
            });
        }
        homes
    };
    match &asked.wanted {
        Wanted::OneOf(nodes) => nodes
            .iter()
            .flat_map(|node| roomiest_first(on(node)))
            .collect(),
        Wanted::Anywhere => roomiest_first(pools.nodes().flat_map(on).collect()),
    }
}

#[cfg(test)]
mod tests;

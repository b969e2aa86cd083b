//! CreateVolume: a promise of space on one node, under a name.
//!
//! The image is sparse and blank; the file system comes when the volume is first staged.

use std::collections::BTreeMap;

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use orlop_host::FsKind;
use tonic::Code;

use super::to_wire;
use crate::local::capability::{Access, Capability, CapabilityError};
use crate::local::fields::FieldError;
use crate::local::in_flight::Busy;
use crate::local::parameters::{self, ParameterError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools, ReserveError, Volume};
use crate::local::size::{self, SizeError, SizeRange};
use crate::local::topology::Wanted;
use crate::local::volume::{Content, NodeName, VolumeId, VolumeRecord};

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
    /// There is nothing to copy from yet.
    #[error("volumes cannot be made from a snapshot or another volume by this driver")]
    Source,
    /// There is nothing mutable.
    #[error("this driver has no mutable parameters")]
    Mutable,
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
    /// Another call is at it.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Its record is damaged.
    #[error(transparent)]
    Broken(FindError),
    /// No node with a pool is among those asked for.
    #[error("none of the nodes asked for has a pool of this driver")]
    NoSuchPlace,
    /// No pool has room.
    #[error("no pool has room for the volume")]
    Space(#[source] ReserveError),
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

impl CsiError for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_)
            | Self::Capability(_)
            | Self::Parameter(_)
            | Self::Source
            | Self::Mutable
            | Self::Size(
                SizeError::Negative | SizeError::Empty | SizeError::Contradiction { .. },
            ) => Code::InvalidArgument,
            Self::Size(SizeError::OutOfRange { .. }) => Code::OutOfRange,
            Self::Differs { .. } => Code::AlreadyExists,
            Self::Busy(_) => Code::Aborted,
            Self::Broken(_) => Code::DataLoss,
            Self::NoSuchPlace
            | Self::Space(ReserveError::NoSpace { .. })
            | Self::Store {
                source: StoreError::Full(_),
                ..
            } => Code::ResourceExhausted,
            Self::Space(ReserveError::Measure { .. })
            | Self::Store {
                source: StoreError::Io { .. } | StoreError::Remove(_),
                ..
            } => Code::Internal,
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
    parameters: BTreeMap<String, String>,
    wanted: Wanted,
}

impl Asked {
    fn parse(pools: &Pools, request: &proto::CreateVolumeRequest) -> Result<Self, CreateError> {
        limits::name("name", &request.name).map_err(FieldError::from)?;
        limits::map("parameters", &request.parameters).map_err(FieldError::from)?;
        let name = request.name.clone();
        if request.volume_capabilities.is_empty() {
            return Err(FieldError::missing("volume_capabilities").into());
        }
        if request.volume_content_source.is_some() {
            return Err(CreateError::Source);
        }
        if !request.mutable_parameters.is_empty() {
            return Err(CreateError::Mutable);
        }
        let parameters = parameters::parse(&request.parameters)?;
        let default_fs = parameters::file_system(&parameters).unwrap_or(pools.default_fs());
        let smallest = smallest(&request.volume_capabilities, default_fs)?;
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
            parameters,
            wanted: Wanted::parse(
                request.accessibility_requirements.as_ref(),
                pools.driver_name(),
            ),
        })
    }
}

/// The smallest volume that can be used in all these ways.
fn smallest(wire: &[proto::VolumeCapability], default: FsKind) -> Result<u64, CreateError> {
    wire.iter().try_fold(size::SMALLEST, |smallest, wire| {
        let capability = Capability::parse(wire, default).map_err(CreateError::Capability)?;
        Ok(smallest.max(match capability.access {
            Access::Mount(kind) => kind.smallest(),
            Access::Block => size::SMALLEST,
        }))
    })
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    AlreadyThere,
    Make { size: u64 },
}

fn plan(asked: &Asked, found: Option<&Volume>) -> Result<Step, CreateError> {
    let Some(found) = found else {
        let size = match asked.size {
            Some(range) => range.choose(asked.smallest).map_err(CreateError::Size)?,
            None => size::DEFAULT.max(asked.smallest),
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
    } else if record.parameters != asked.parameters {
        Some("parameters")
    } else if !asked.wanted.allows(&found.node) {
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
    let asked = Asked::parse(pools, request)?;
    let _turn = pools.in_flight().begin(&asked.id)?;
    let found = match pools.find(asked.id.as_str()) {
        Ok(volume) => Some(volume),
        Err(FindError::Unknown { .. }) => None,
        Err(broken @ FindError::Broken { .. }) => return Err(CreateError::Broken(broken)),
    };
    let volume = match (plan(&asked, found.as_ref())?, found) {
        (Step::AlreadyThere, Some(volume)) => volume,
        (Step::AlreadyThere, None) => unreachable!("nothing was found"),
        (Step::Make { size }, _) => make(pools, asked, size)?,
    };
    Ok(proto::CreateVolumeResponse {
        volume: Some(to_wire(pools, &volume)),
    })
}

fn make(pools: &Pools, asked: Asked, size: u64) -> Result<Volume, CreateError> {
    let mut refusal = CreateError::NoSuchPlace;
    for node in places(pools, &asked.wanted) {
        match pools.reserve(&node, size) {
            Err(error) => refusal = CreateError::Space(error),
            Ok(space) => {
                let record = VolumeRecord {
                    id: asked.id.clone(),
                    name: asked.name,
                    serial: pools.next_serial(),
                    capacity_bytes: size,
                    parameters: asked.parameters,
                    content: Content::Blank,
                    publications: BTreeMap::new(),
                };
                let volume = Volume { node, record };
                return match pools.create(&volume, space) {
                    Ok(()) => Ok(volume),
                    Err(source) => Err(CreateError::Store {
                        id: asked.id,
                        source,
                    }),
                };
            }
        }
    }
    Err(refusal)
}

/// The nodes to try, best first: in the order asked for, else those with the most room.
fn places(pools: &Pools, wanted: &Wanted) -> Vec<NodeName> {
    match wanted {
        Wanted::OneOf(nodes) => nodes
            .iter()
            .filter(|node| pools.pool(node).is_some())
            .cloned()
            .collect(),
        Wanted::Anywhere => {
            let mut nodes: Vec<_> = pools.nodes().cloned().collect();
            nodes.sort_by_cached_key(|node| {
                std::cmp::Reverse(pools.available(node).unwrap_or_default())
            });
            nodes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        let range = proto::CapacityRange {
            required_bytes: 1 << 30,
            limit_bytes: 2 << 30,
        };
        Asked {
            id: VolumeId::of_name("a"),
            name: "a".to_owned(),
            size: Some(SizeRange::parse(&range).unwrap()),
            smallest: size::SMALLEST,
            parameters: BTreeMap::new(),
            wanted: Wanted::OneOf(vec![NodeName::from("n")]),
        }
    }

    fn volume(change: impl FnOnce(&mut Volume)) -> Volume {
        let record = VolumeRecord {
            id: VolumeId::of_name("a"),
            name: "a".to_owned(),
            serial: 1,
            capacity_bytes: 1 << 30,
            parameters: BTreeMap::new(),
            content: Content::Blank,
            publications: BTreeMap::new(),
        };
        let mut volume = Volume {
            node: NodeName::from("n"),
            record,
        };
        change(&mut volume);
        volume
    }

    #[test]
    fn a_new_volume_has_the_size_asked_for_or_the_default() {
        assert_eq!(plan(&asked(), None).unwrap(), Step::Make { size: 1 << 30 });
        let unsized_ = Asked {
            size: None,
            ..asked()
        };
        assert_eq!(
            plan(&unsized_, None).unwrap(),
            Step::Make {
                size: size::DEFAULT
            }
        );
    }

    #[test]
    fn a_compatible_volume_is_the_answer() {
        assert_eq!(
            plan(&asked(), Some(&volume(|_| {}))).unwrap(),
            Step::AlreadyThere
        );
        let larger = volume(|volume| volume.record.capacity_bytes = 2 << 30);
        assert_eq!(plan(&asked(), Some(&larger)).unwrap(), Step::AlreadyThere);
    }

    #[test]
    fn a_volume_that_differs_is_never_the_answer() {
        let cases: [(&str, Volume); 5] = [
            (
                "size",
                volume(|volume| volume.record.capacity_bytes = 3 << 30),
            ),
            (
                "size",
                volume(|volume| volume.record.capacity_bytes = 1 << 29),
            ),
            (
                "parameters",
                volume(|volume| {
                    volume
                        .record
                        .parameters
                        .insert("fstype".to_owned(), "xfs".to_owned());
                }),
            ),
            (
                "place",
                volume(|volume| volume.node = NodeName::from("other")),
            ),
            (
                "name of the same id",
                volume(|volume| volume.record.name = "b".to_owned()),
            ),
        ];
        for (expected, found) in cases {
            match plan(&asked(), Some(&found)) {
                Err(error @ CreateError::Differs { .. }) => {
                    assert_eq!(error.code(), Code::AlreadyExists);
                    assert!(error.to_string().ends_with(expected), "{error}");
                }
                other => panic!("{expected}: {other:?}"),
            }
        }
    }
}

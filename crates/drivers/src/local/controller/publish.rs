//! ControllerPublishVolume: the record that a node may use a volume.
//!
//! A local volume needs no attaching. The record is what keeps it from being deleted under a node,
//! and what makes it read-only there if that was asked for.

use orlop_csi::server::CsiError;
use orlop_csi::{limits, proto};
use tonic::Code;

use crate::local::capability::{Capability, CapabilityError};
use crate::local::fields::{self, FieldError};
use crate::local::parameters;
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, Pools, Volume};
use crate::local::volume::{NodeName, Publication, VolumeId};

/// Why a volume was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The volume is unknown or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The node is unknown.
    #[error("there is no node {node} with a pool of this driver")]
    UnknownNode {
        /// The node.
        node: NodeName,
    },
    /// The capability cannot be had.
    #[error("volume {id} cannot be used like this")]
    Capability {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: CapabilityError,
    },
    /// It cannot be reached from there.
    #[error("volume {id} is on node {home} and cannot be used on node {node}")]
    Elsewhere {
        /// The volume.
        id: VolumeId,
        /// Where it is.
        home: NodeName,
        /// Where it was wanted.
        node: NodeName,
    },
    /// The node uses as many as it may.
    #[error(
        "node {node} uses {limit} volumes, the most it may (--max-volumes); unpublish one first"
    )]
    NodeFull {
        /// The node.
        node: NodeName,
        /// The limit.
        limit: u32,
    },
    /// It is published there in another way.
    #[error("volume {id} is already published on node {node} in another way; unpublish it first")]
    Differs {
        /// The volume.
        id: VolumeId,
        /// The node.
        node: NodeName,
    },
    /// The pool's disk refused.
    #[error("could not record the publication of volume {id}")]
    Store {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for PublishError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Capability { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::UnknownNode { .. } => Code::NotFound,
            Self::Elsewhere { .. } => Code::FailedPrecondition,
            Self::Differs { .. } => Code::AlreadyExists,
            Self::NodeFull { .. } => Code::ResourceExhausted,
            Self::Store { source, .. } => source.code(),
        }
    }
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    AlreadyPublished,
    Record,
}

fn plan(volume: &Volume, node: &NodeName, wanted: Publication) -> Result<Step, PublishError> {
    let id = || volume.record.id.clone();
    if volume.home.node != *node {
        return Err(PublishError::Elsewhere {
            id: id(),
            home: volume.home.node.clone(),
            node: node.clone(),
        });
    }
    match volume.record.publications.get(node) {
        None => Ok(Step::Record),
        Some(found) if *found == wanted => Ok(Step::AlreadyPublished),
        Some(_) => Err(PublishError::Differs {
            id: id(),
            node: node.clone(),
        }),
    }
}

pub(super) fn publish(
    pools: &Pools,
    request: &proto::ControllerPublishVolumeRequest,
) -> Result<proto::ControllerPublishVolumeResponse, PublishError> {
    let id = fields::volume_id(&request.volume_id)?;
    limits::node_id("node_id", &request.node_id).map_err(FieldError::from)?;
    let node = NodeName::from(request.node_id.as_str());
    let wire = request
        .volume_capability
        .as_ref()
        .ok_or(FieldError::missing("volume_capability"))?;
    let mut volume = pools.find(id)?;
    let id = volume.record.id.clone();
    if !pools.has_node(&node) {
        return Err(PublishError::UnknownNode { node });
    }
    let default_fs =
        parameters::file_system(&volume.record.parameters).unwrap_or(pools.default_fs());
    let capability =
        Capability::parse(wire, default_fs).map_err(|source| PublishError::Capability {
            id: id.clone(),
            source,
        })?;
    let wanted = Publication {
        capability,
        read_only: request.readonly,
    };
    match plan(&volume, &node, wanted)? {
        Step::AlreadyPublished => {}
        Step::Record => {
            let limit = pools.max_volumes();
            if limit > 0 && pools.published_on(&node) >= limit as usize {
                return Err(PublishError::NodeFull { node, limit });
            }
            volume.record.publications.insert(node, wanted);
            pools
                .save(&volume)
                .map_err(|source| PublishError::Store { id, source })?;
        }
    }
    Ok(proto::ControllerPublishVolumeResponse::default())
}

#[cfg(test)]
mod tests {
    use orlop_host::FsKind;

    use super::*;
    use crate::local::capability::{Access, Mode};
    use crate::local::tests::home;
    use crate::local::volume::VolumeRecord;

    const WANTED: Publication = Publication {
        capability: Capability {
            access: Access::Mount(FsKind::Ext4),
            mode: Mode::SingleNodeWriter,
        },
        read_only: false,
    };

    fn volume(publications: &[(&str, Publication)]) -> Volume {
        let publications = publications
            .iter()
            .map(|(node, how)| (NodeName::from(*node), *how))
            .collect();
        let record = VolumeRecord {
            publications,
            ..VolumeRecord::blank("a", 1, 1 << 30)
        };
        Volume {
            home: home("home"),
            record,
        }
    }

    #[test]
    fn a_publication_is_recorded_once_and_then_found() {
        let home = NodeName::from("home");
        assert_eq!(plan(&volume(&[]), &home, WANTED).unwrap(), Step::Record);
        let published = volume(&[("home", WANTED)]);
        assert_eq!(
            plan(&published, &home, WANTED).unwrap(),
            Step::AlreadyPublished
        );
    }

    #[test]
    fn another_way_of_publishing_is_refused() {
        let home = NodeName::from("home");
        let published = volume(&[("home", WANTED)]);
        let block = Capability {
            access: Access::Block,
            ..WANTED.capability
        };
        for other in [
            Publication {
                read_only: true,
                ..WANTED
            },
            Publication {
                capability: block,
                ..WANTED
            },
        ] {
            let error = plan(&published, &home, other).unwrap_err();
            assert_eq!(error.code(), Code::AlreadyExists);
        }
    }

    #[test]
    fn another_node_is_refused_and_told_where_the_volume_is() {
        let error = plan(&volume(&[]), &NodeName::from("away"), WANTED).unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(error.to_string().contains("node home"), "{error}");
    }
}

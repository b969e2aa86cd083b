//! What a new volume is a copy of: a snapshot, or another volume as it is now.

use std::fs::File;
use std::path::Path;

use orlop_csi::limits;
use orlop_csi::proto;
use orlop_csi::proto::volume_content_source::Type;
use orlop_host::filesystem::{self, Signature};
use orlop_host::program::ProgramError;
use orlop_host::{FsKind, allocate, identity, image};
use tonic::Code;

use crate::local::capability::Access;
use crate::local::cut::{self, CutError, Piece, Sharing};
use crate::local::fields::FieldError;
use crate::local::home::Home;
use crate::local::pool::{self, StoreError};
use crate::local::pools::{self, Pools, Volume};
use crate::local::room::Allocation;
use crate::local::snapshots;
use crate::local::volume::{Content, Source, VolumeId, VolumeRecord};

/// Why a volume cannot be a copy.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The snapshot is not there, or damaged.
    #[error(transparent)]
    Snapshot(#[from] snapshots::FindError),
    /// The volume is not there, or damaged.
    #[error(transparent)]
    Volume(#[from] pools::FindError),
    /// A file system is asked for as a device.
    #[error("{from} holds an {kind} file system, and cannot become a block volume")]
    NotDevice {
        /// The source.
        from: String,
        /// What it holds.
        kind: FsKind,
    },
    /// It holds another file system than the one asked for.
    #[error(
        "{from} holds an {kind} file system, and {asked} is asked for; use a class with {kind}"
    )]
    OtherKind {
        /// The source.
        from: String,
        /// What it holds.
        kind: FsKind,
        /// What was asked for.
        asked: FsKind,
    },
    /// It was used as a device, and holds no such file system.
    #[error("{from} was written to as a block device, and holds no {asked} file system")]
    NotFiles {
        /// The source.
        from: String,
        /// What was asked for.
        asked: FsKind,
    },
    /// The source could not be cut.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The copy's file system could not be told apart from its source's.
    #[error("could not give the copy an identity of its own")]
    Identity(#[source] ProgramError),
    /// The copy could not be put in its place.
    #[error("could not put the copy in its place")]
    Place(#[from] StoreError),
    /// The pool's disk refused.
    #[error("could not copy {from}")]
    Store {
        /// The source.
        from: String,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl SourceError {
    /// How callers should take it.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Field(_)
            | Self::NotDevice { .. }
            | Self::OtherKind { .. }
            | Self::NotFiles { .. } => Code::InvalidArgument,
            Self::Snapshot(source) => source.code(),
            Self::Volume(source) => source.code(),
            Self::Cut(source) => source.code(),
            Self::Store { source, .. } | Self::Place(source) => source.code(),
            Self::Identity(_) => Code::Internal,
        }
    }
}

/// Understands what a volume shall be a copy of.
pub(super) fn parse(wire: &proto::VolumeContentSource) -> Result<Source, SourceError> {
    match &wire.r#type {
        None => Err(FieldError::missing("volume_content_source.type").into()),
        Some(Type::Snapshot(source)) => {
            let id = &source.snapshot_id;
            limits::required("volume_content_source.snapshot_id", id).map_err(FieldError::from)?;
            Ok(Source::Snapshot(id.clone()))
        }
        Some(Type::Volume(source)) => {
            let id = &source.volume_id;
            limits::required("volume_content_source.volume_id", id).map_err(FieldError::from)?;
            let known = VolumeId::parse(id);
            Ok(Source::Volume(known.ok_or_else(|| {
                pools::FindError::Unknown {
                    id: id.chars().take(64).collect(),
                }
            })?))
        }
    }
}

/// A source in the protocol's words.
pub(super) fn to_wire(source: &Source) -> proto::VolumeContentSource {
    use proto::volume_content_source::{SnapshotSource, VolumeSource};
    let wire = match source {
        Source::Snapshot(id) => Type::Snapshot(SnapshotSource {
            snapshot_id: id.clone(),
        }),
        Source::Volume(id) => Type::Volume(VolumeSource {
            volume_id: id.as_str().to_owned(),
        }),
    };
    proto::VolumeContentSource { r#type: Some(wire) }
}

/// A source that is there.
#[derive(Debug)]
pub(super) struct Origin {
    /// Where.
    pub home: Home,
    /// How large; the copy is no smaller.
    pub size_bytes: u64,
    content: Content,
    file_system_bytes: u64,
    source: Source,
    data: Data,
}

#[derive(Debug)]
enum Data {
    /// Held open: it may be deleted meanwhile.
    Snapshot(File),
    /// The caller has its turn.
    Volume(Box<Volume>),
}

impl Origin {
    pub(super) fn find(pools: &Pools, source: &Source) -> Result<Self, SourceError> {
        match source {
            Source::Snapshot(id) => {
                let snapshot = pools.find_snapshot(id)?;
                let opened = pools
                    .pool(&snapshot.home)
                    .open_snapshot(&snapshot.record.id);
                let opened = opened.map_err(|error| SourceError::Store {
                    from: name(source),
                    source: error,
                })?;
                let image =
                    opened.ok_or_else(|| snapshots::FindError::gone(&snapshot.record.id))?;
                Ok(Self {
                    home: snapshot.home,
                    size_bytes: snapshot.record.size_bytes,
                    content: snapshot.record.content,
                    file_system_bytes: snapshot.record.file_system_bytes,
                    source: source.clone(),
                    data: Data::Snapshot(image),
                })
            }
            Source::Volume(id) => {
                let volume = pools.find(id.as_str())?;
                Ok(Self {
                    home: volume.home.clone(),
                    size_bytes: volume.record.capacity_bytes,
                    content: volume.record.content,
                    file_system_bytes: volume.record.file_system_bytes,
                    source: source.clone(),
                    data: Data::Volume(Box::new(volume)),
                })
            }
        }
    }

    /// The file system that it holds, if we made one.
    pub(super) fn file_system(&self) -> Option<FsKind> {
        self.content.file_system()
    }

    /// Whether a copy can be used in this way.
    pub(super) fn check(&self, pools: &Pools, access: Access) -> Result<(), SourceError> {
        let from = || name(&self.source);
        match (self.content, access) {
            (Content::Blank, _) | (Content::Raw, Access::Block) => Ok(()),
            (Content::FileSystem(kind), Access::Mount(asked)) if kind == asked => Ok(()),
            (Content::FileSystem(kind), Access::Block) => {
                Err(SourceError::NotDevice { from: from(), kind })
            }
            (Content::FileSystem(kind), Access::Mount(asked)) => Err(SourceError::OtherKind {
                from: from(),
                kind,
                asked,
            }),
            (Content::Raw, Access::Mount(asked)) => match self.signature(pools)? {
                Signature::Hole => Ok(()),
                Signature::Known { kind, .. } if kind == asked => Ok(()),
                Signature::Known { .. } | Signature::Other => Err(SourceError::NotFiles {
                    from: from(),
                    asked,
                }),
            },
        }
    }

    fn signature(&self, pools: &Pools) -> Result<Signature, SourceError> {
        let probed = match &self.data {
            Data::Snapshot(image) => {
                filesystem::probe(image).map_err(StoreError::at("look at the image"))
            }
            Data::Volume(volume) => {
                let opened = pools.pool_of(volume).open_image(&volume.record);
                opened.and_then(|image| {
                    filesystem::probe(&image).map_err(StoreError::at("look at the image"))
                })
            }
        };
        probed.map_err(|source| SourceError::Store {
            from: name(&self.source),
            source,
        })
    }

    /// What the copy is on record as.
    pub(super) fn describe(&self, record: VolumeRecord) -> VolumeRecord {
        VolumeRecord {
            source: Some(self.source.clone()),
            content: self.content,
            file_system_bytes: self.file_system_bytes,
            ..record
        }
    }

    /// Makes the copy's image, at a path that nobody looks at yet. It is on disk when this returns.
    pub(super) fn fill(
        &self,
        pools: &Pools,
        record: &VolumeRecord,
        path: &Path,
    ) -> Result<(), SourceError> {
        let failed = |what| {
            move |error| SourceError::Store {
                from: name(&self.source),
                source: StoreError::at(what)(error),
            }
        };
        let copy = pool::new_file(path).map_err(failed("make the image"))?;
        let sharing = match record.allocation {
            Allocation::Thin => {
                allocate::in_large_pieces(&copy);
                Sharing::Allowed
            }
            Allocation::Thick => Sharing::Never,
        };
        match &self.data {
            Data::Volume(volume) => {
                let piece = Piece {
                    volume,
                    copy: &copy,
                };
                cut::cut(pools, &[piece], sharing)?;
            }
            Data::Snapshot(image) => {
                let shared = sharing == Sharing::Allowed
                    && image::reflink(image, &copy).map_err(failed("copy the image"))?;
                if !shared {
                    image::copy_sparse(image, &copy, None).map_err(failed("copy the image"))?;
                }
            }
        }
        pool::size_image(&copy, record.capacity_bytes, record.allocation)
            .map_err(failed("give the image its size"))?;
        if let Some(kind) = self.file_system() {
            identity::renew(kind, path).map_err(SourceError::Identity)?;
        }
        copy.sync_all().map_err(failed("write the image"))
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::Snapshot(id) => format!("snapshot {id}"),
        Source::Volume(id) => format!("volume {id}"),
    }
}

//! NodeStageVolume: a volume becomes a mounted file system, or a device.
//!
//! A blank volume is formatted here. Order, each step on disk before the next: the image with its
//! file system, the record that it has one, the record that it is staged, the mount. The loop
//! device belongs to the mount and vanishes with it, or with us if we die before mounting.

use std::fs::File;

use orlop_csi::{limits, proto};
use orlop_host::filesystem::{self, Signature};
use orlop_host::loopdev::{Access as DeviceAccess, Lifetime};
use orlop_host::mount::{self, NewMount};
use orlop_host::{FsKind, LoopDevice, filesystem_unit, identity};

use super::Here;
use super::observe::{ObserveError, Shown, Use};
use crate::local::capability::{Access, Capability, Mode, MountOptions};
use crate::local::fields::{self, FieldError};
use crate::local::parameters;
use crate::local::pool::StoreError;
use crate::local::pools::Volume;
use crate::local::room::Allocation;
use crate::local::volume::{Content, NodeRecord, Publication, Staged, VolumeId, VolumeRecord};

mod error;
mod growth;

pub use error::StageError;
use growth::Growth;

/// How a volume shall be staged.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) staged: Staged,
    pub(super) options: Option<MountOptions>,
}

impl Wanted {
    fn parse(
        here: Here<'_>,
        volume: &Volume,
        request: &proto::NodeStageVolumeRequest,
        wire: &proto::VolumeCapability,
    ) -> Result<Self, StageError> {
        let id = || volume.record.id.clone();
        let path = here
            .reach()
            .absolute("staging_target_path", &request.staging_target_path)?;
        let default = parameters::file_system(&volume.record.parameters)
            .or(volume.record.content.file_system())
            .unwrap_or(here.pools.default_fs());
        let capability = Capability::parse(wire, default)
            .map_err(|source| StageError::Capability { id: id(), source })?;
        let options = match (capability.access, &wire.access_type) {
            (Access::Mount(kind), Some(proto::volume_capability::AccessType::Mount(mount))) => {
                Some(
                    MountOptions::parse(&mount.mount_flags, kind)
                        .map_err(|source| StageError::Option { id: id(), source })?,
                )
            }
            _ => None,
        };
        let published = volume.record.publications.get(here.node);
        let read_only = capability.mode == Mode::SingleNodeReader
            || published.is_some_and(|publication| publication.read_only)
            || options
                .as_ref()
                .is_some_and(|options| options.restrictions.read_only);
        let staged = Staged {
            path,
            publication: Publication {
                capability,
                read_only,
            },
        };
        Ok(Self { staged, options })
    }
}

/// What is to be done with the image before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preparation {
    Nothing,
    Format(FsKind),
    Repair(FsKind),
    /// It will be written to by others than us: on record before they can.
    MarkRaw,
}

/// Whether the volume is staged already, may be staged now, or is in the way.
fn plan_staging(
    id: &VolumeId,
    wanted: &Staged,
    record: &NodeRecord,
    shown: &impl Fn(&Staged) -> Result<Shown, StageError>,
) -> Result<Staging, StageError> {
    let there = shown(wanted)?;
    match &record.staged {
        Some(staged) if staged.path == wanted.path => {
            let real = shown(staged)? == Shown::Volume;
            match (real, staged.publication == wanted.publication) {
                (true, true) => Ok(Staging::Done),
                (true, false) => Err(StageError::Differs { id: id.clone() }),
                // Meant, but killed before it was done.
                (false, _) => free(there, wanted),
            }
        }
        Some(staged) if shown(staged)? == Shown::Volume => Err(StageError::Elsewhere {
            id: id.clone(),
            at: staged.path.clone(),
        }),
        Some(_) | None => free(there, wanted),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staging {
    Done,
    Do,
}

fn free(there: Shown, wanted: &Staged) -> Result<Staging, StageError> {
    match (there, wanted.publication.capability.access) {
        // A device is not mounted at its staging path: whatever is there is the caller's.
        (_, Access::Block) | (Shown::Nothing | Shown::Plain(_), Access::Mount(_)) => {
            Ok(Staging::Do)
        }
        (Shown::Volume | Shown::Foreign | Shown::Unreachable, Access::Mount(_)) => {
            Err(StageError::Occupied {
                path: wanted.path.clone(),
            })
        }
    }
}

/// What the image needs. The record decides; the image's own words only confirm it.
fn plan_image(
    volume: &Volume,
    access: Access,
    signature: Signature,
) -> Result<Preparation, StageError> {
    let id = || volume.record.id.clone();
    let holds = |holds: String| StageError::Holds { id: id(), holds };
    let known = |wanted: FsKind| match signature {
        Signature::Known { kind, damaged } if kind == wanted => Some(if damaged {
            Preparation::Repair(kind)
        } else {
            Preparation::Nothing
        }),
        _ => None,
    };
    match (access, volume.record.content) {
        (Access::Block, Content::Blank) => Ok(Preparation::MarkRaw),
        (Access::Block, Content::Raw) => Ok(Preparation::Nothing),
        (Access::Block, Content::FileSystem(kind)) => Err(holds(format!("an {kind} file system"))),
        (Access::Mount(wanted), Content::FileSystem(kind)) if wanted != kind => {
            Err(holds(format!("an {kind} file system")))
        }
        (Access::Mount(wanted), Content::FileSystem(_)) => {
            known(wanted).ok_or(StageError::Corrupt {
                id: id(),
                kind: wanted,
            })
        }
        (Access::Mount(wanted), Content::Raw) if signature != Signature::Hole => {
            known(wanted).ok_or_else(|| holds("data that was written to it as a device".into()))
        }
        (Access::Mount(wanted), Content::Blank | Content::Raw) => {
            if volume.record.capacity_bytes < wanted.smallest() {
                return Err(StageError::TooSmall {
                    id: id(),
                    kind: wanted,
                });
            }
            Ok(Preparation::Format(wanted))
        }
    }
}

pub(super) fn stage(
    here: Here<'_>,
    request: &proto::NodeStageVolumeRequest,
) -> Result<proto::NodeStageVolumeResponse, StageError> {
    let id = fields::volume_id(&request.volume_id)?;
    fields::path("staging_target_path", &request.staging_target_path)?;
    let wire = request
        .volume_capability
        .as_ref()
        .ok_or(FieldError::missing("volume_capability"))?;
    limits::volume_capability(wire).map_err(FieldError::from)?;
    let mut volume = here.find(id)?;
    let wanted = Wanted::parse(here, &volume, request, wire)?;
    stage_at(here, &mut volume, &wanted)?;
    Ok(proto::NodeStageVolumeResponse {})
}

/// Brings a volume up at a path, unless it is there already.
pub(super) fn stage_at(
    here: Here<'_>,
    volume: &mut Volume,
    wanted: &Wanted,
) -> Result<(), StageError> {
    let id = volume.record.id.clone();
    let observe = |source| StageError::Observe {
        id: id.clone(),
        source,
    };
    let image = open_image(here, volume)?;
    let mut found = Use::observe(here.pools, volume).map_err(observe)?;
    if let Some(staged) = lost(volume, &wanted.staged, &found).map_err(observe)? {
        found.record.staged = Some(staged);
        here.pools
            .pool_of(volume)
            .write_node_record(&id, &found.record)
            .map_err(|source| StageError::Store {
                id: id.clone(),
                source,
            })?;
    }

    let shown = |staged: &Staged| match staged.publication.capability.access {
        Access::Mount(_) => found.shown_at(&staged.path).map_err(observe),
        Access::Block if found.writable().is_some() => Ok(Shown::Volume),
        Access::Block => Ok(Shown::Nothing),
    };
    match plan_staging(&id, &wanted.staged, &found.record, &shown)? {
        Staging::Done => Ok(()),
        Staging::Do => {
            let signature = filesystem::probe(&image).map_err(|source| StageError::Probe {
                id: id.clone(),
                source,
            })?;
            let access = wanted.staged.publication.capability.access;
            let preparation = plan_image(volume, access, signature)?;
            let found = prepare(here, volume, found, preparation)?;
            let growth = Growth::of(volume, &wanted.staged, &found);
            growth.before_mount(here, volume)?;
            bring_up(here, volume, wanted, found)?;
            growth.after_mount(here, volume, &wanted.staged)
        }
    }
}

/// How a volume is staged that is there though nothing is on record of it: the record was damaged.
fn lost(volume: &Volume, wanted: &Staged, found: &Use) -> Result<Option<Staged>, ObserveError> {
    let access = wanted.publication.capability.access;
    let same = match (access, volume.record.content.file_system()) {
        (Access::Mount(asked), Some(kind)) => asked == kind,
        _ => false,
    };
    if !same || !found.record.is_unused() || found.shown_at(&wanted.path)? != Shown::Volume {
        return Ok(None);
    }
    Ok(Some(Staged {
        path: wanted.path.clone(),
        publication: Publication {
            capability: wanted.publication.capability,
            read_only: found.is_read_only_at(&wanted.path),
        },
    }))
}

fn open_image(here: Here<'_>, volume: &Volume) -> Result<File, StageError> {
    let opened = here.pools.pool_of(volume).open_image(&volume.record);
    opened.map_err(|source| StageError::Observe {
        id: volume.record.id.clone(),
        source: ObserveError::Store(source),
    })
}

/// Makes the image ready, and sees anew what changed by that.
fn prepare(
    here: Here<'_>,
    volume: &mut Volume,
    found: Use,
    preparation: Preparation,
) -> Result<Use, StageError> {
    let id = volume.record.id.clone();
    let pool = here.pools.pool_of(volume);
    let content = match preparation {
        Preparation::Nothing => return Ok(found),
        Preparation::Repair(kind) => {
            // Mounted already, somewhere: then it is the kernel's, and not ours to repair.
            if found.devices.is_empty() {
                filesystem::repair(kind, &pool.image(&id))
                    .map_err(|source| StageError::Repair { id, source })?;
            }
            return Ok(found);
        }
        Preparation::MarkRaw => {
            // From now on an image that is smaller has lost data: its size must outlive a power cut.
            let synced = open_image(here, volume)?.sync_all();
            synced.map_err(|source| StageError::Store {
                id: id.clone(),
                source: StoreError::at("write the image")(source),
            })?;
            volume.record.file_system_bytes = volume.record.capacity_bytes;
            Content::Raw
        }
        Preparation::Format(kind) => {
            let options =
                parameters::mkfs_options(&volume.record.parameters, kind).map_err(|source| {
                    StageError::Mkfs {
                        id: id.clone(),
                        source,
                    }
                })?;
            pool.format(&volume.record, kind, &options)
                .map_err(|source| StageError::Format {
                    id: id.clone(),
                    source,
                })?;
            volume.record.file_system_bytes = volume.record.capacity_bytes;
            Content::FileSystem(kind)
        }
    };
    volume.record.content = content;
    here.pools
        .save(volume)
        .map_err(|source| StageError::Store {
            id: id.clone(),
            source,
        })?;
    Use::observe(here.pools, volume).map_err(|source| StageError::Observe { id, source })
}

/// Records what is meant and does it; takes the record back if it fails.
fn bring_up(
    here: Here<'_>,
    volume: &Volume,
    wanted: &Wanted,
    mut found: Use,
) -> Result<(), StageError> {
    let id = &volume.record.id;
    let pool = here.pools.pool_of(volume);
    let store = |source| StageError::Store {
        id: id.clone(),
        source,
    };
    found.record.staged = Some(wanted.staged.clone());
    pool.write_node_record(id, &found.record).map_err(store)?;
    let done = match &wanted.options {
        Some(options) => mount_volume(here, volume, wanted, options, &found),
        None => device(here, volume, &found, Lifetime::UntilDetached, |_| Ok(())),
    };
    if done.is_err() {
        found.record.staged = None;
        pool.reduce_node_record(id, &found.record).map_err(store)?;
    }
    done
}

fn mount_volume(
    here: Here<'_>,
    volume: &Volume,
    wanted: &Wanted,
    options: &MountOptions,
    found: &Use,
) -> Result<(), StageError> {
    let id = &volume.record.id;
    let Publication {
        capability,
        read_only,
    } = wanted.staged.publication;
    let Access::Mount(kind) = capability.access else {
        return Ok(());
    };
    let path = &wanted.staged.path;
    let place = |source| StageError::Place {
        path: path.clone(),
        source,
    };
    let target = here.place(path).map_err(place)?;
    target.make_directory(0o750).map_err(place)?;
    let target = target.open().map_err(place)?;
    let mut restrictions = options.restrictions;
    restrictions.read_only = read_only;
    let mut options = options.file_system.clone();
    // Copies of the volume, or what it is a copy of, may be mounted too.
    options.extend(identity::mount_options(kind));
    device(here, volume, found, Lifetime::LastClose, |device| {
        let source = device.path();
        let new = NewMount {
            fs_type: kind.name(),
            source: &source,
            restrictions,
            options: &options,
        };
        mount::mount(&new, target).map_err(|source| StageError::Mount {
            id: id.clone(),
            source,
        })
    })
}

/// Uses the volume's writable device: the one that it has, for an image must never have two.
fn device(
    here: Here<'_>,
    volume: &Volume,
    found: &Use,
    lifetime: Lifetime,
    with: impl FnOnce(&LoopDevice) -> Result<(), StageError>,
) -> Result<(), StageError> {
    if let Some(device) = found.writable() {
        return with(device);
    }
    // Anew: formatting put another in its place.
    let image = open_image(here, volume)?;
    let device =
        LoopDevice::attach(&image, DeviceAccess::ReadWrite, lifetime).map_err(|source| {
            StageError::Attach {
                id: volume.record.id.clone(),
                source,
            }
        })?;
    tune(&volume.record, &image, &device);
    with(&device)
}

/// A file system with pieces of this size does not mind a device with blocks of it.
const LARGE_UNIT: u32 = 4096;

/// What makes a volume better and is no reason to refuse it.
fn tune(record: &VolumeRecord, image: &File, device: &LoopDevice) {
    let told = |what: &str, error: std::io::Error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(volume_id = %record.id, error, "could not {what}");
    };
    // An image that shares blocks with a snapshot needs large blocks for direct I/O.
    if let Some(kind) = record.content.file_system()
        && let Ok(Some(LARGE_UNIT..)) = filesystem_unit::of(kind, image)
        && let Err(error) = device.insist_on_direct_io()
    {
        tracing::debug!(volume_id = %record.id, %error, "the volume goes through the page cache");
    }
    // Before the next: the kernel forgets how far to read ahead when a limit of the queue changes.
    if record.allocation == Allocation::Thick
        && let Err(error) = device.forbid_discards()
    {
        told("keep discards from making holes", error);
    }
    if let Some(kib) = record.read_ahead_kib
        && let Err(error) = device.set_read_ahead(kib)
    {
        told("set how far to read ahead", error);
    }
}

#[cfg(test)]
mod tests;

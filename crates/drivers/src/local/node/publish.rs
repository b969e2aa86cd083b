//! NodePublishVolume: a staged volume appears where a workload wants it.

use std::io;
use std::path::PathBuf;

use orlop_csi::{limits, proto};
use orlop_host::loopdev::{Access as DeviceAccess, Lifetime};
use orlop_host::mount::{self, Depth, Restrictions};
use orlop_host::{LoopDevice, Place};

use super::observe::{ObserveError, Shown, Use};
use super::{Here, inline};
use crate::local::capability::{Access, Capability, Mode, MountOptions};
use crate::local::fields::{self, FieldError};
use crate::local::parameters;
use crate::local::pools::Volume;
use crate::local::volume::{Publication, Staged, VolumeId};

mod error;

pub use error::PublishError;

/// How a volume shall be published.
#[derive(Debug)]
struct Wanted {
    staging: Option<PathBuf>,
    target: PathBuf,
    publication: Publication,
    restrictions: Restrictions,
}

impl Wanted {
    fn parse(
        here: Here<'_>,
        volume: &Volume,
        request: &proto::NodePublishVolumeRequest,
        wire: &proto::VolumeCapability,
    ) -> Result<Self, PublishError> {
        let id = || volume.record.id.clone();
        let target = here.reach().absolute("target_path", &request.target_path)?;
        let staging = match request.staging_target_path.as_str() {
            "" => None,
            path => Some(here.reach().absolute("staging_target_path", path)?),
        };
        let default =
            parameters::file_system(&volume.record.parameters).unwrap_or(here.pools.default_fs());
        let capability = Capability::parse(wire, default)
            .map_err(|source| PublishError::Capability { id: id(), source })?;
        let mut restrictions = match (capability.access, &wire.access_type) {
            (Access::Mount(kind), Some(proto::volume_capability::AccessType::Mount(mount))) => {
                MountOptions::parse(&mount.mount_flags, kind)
                    .map_err(|source| PublishError::Option { id: id(), source })?
                    .restrictions
            }
            _ => Restrictions::default(),
        };
        restrictions.read_only |= request.readonly || capability.mode == Mode::SingleNodeReader;
        let publication = Publication {
            capability,
            read_only: restrictions.read_only,
        };
        Ok(Self {
            staging,
            target,
            publication,
            restrictions,
        })
    }
}

/// What is seen, for [`plan`].
#[derive(Debug)]
struct Seen {
    /// Where and how it is staged, if it really is.
    staged: Option<Staged>,
    /// How it is published at the target, by the record.
    recorded: Option<Publication>,
    /// What the target shows.
    at_target: Shown,
    /// Where else it is really published, and how.
    others: Vec<(PathBuf, Publication)>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    AlreadyPublished,
    Publish,
}

fn plan(id: &VolumeId, wanted: &Wanted, seen: &Seen) -> Result<Step, PublishError> {
    use orlop_host::place::Kind;
    let id = || id.clone();
    let staged = match &seen.staged {
        Some(staged) if wanted.staging.as_ref() == Some(&staged.path) => staged,
        Some(_) | None => return Err(PublishError::NotStaged { id: id() }),
    };
    if staged.publication.capability.access != wanted.publication.capability.access {
        return Err(PublishError::OtherForm { id: id() });
    }
    if seen.at_target == Shown::Volume {
        return match seen.recorded {
            Some(recorded) if recorded == wanted.publication => Ok(Step::AlreadyPublished),
            Some(_) | None => Err(PublishError::Differs { id: id() }),
        };
    }
    let alone = !wanted.publication.capability.mode.allows_many_targets();
    let in_the_way = seen
        .others
        .iter()
        .find(|(_, other)| alone || !other.capability.mode.allows_many_targets());
    if let Some((at, _)) = in_the_way {
        return Err(PublishError::SecondTarget {
            id: id(),
            at: at.clone(),
        });
    }
    match (seen.at_target, wanted.publication.capability.access) {
        (Shown::Nothing, _)
        | (Shown::Plain(Kind::Directory), Access::Mount(_))
        | (Shown::Plain(Kind::File), Access::Block) => Ok(Step::Publish),
        (Shown::Plain(_) | Shown::Foreign | Shown::Unreachable | Shown::Volume, _) => {
            Err(PublishError::Occupied {
                path: wanted.target.clone(),
            })
        }
    }
}

pub(super) fn publish(
    here: Here<'_>,
    request: &proto::NodePublishVolumeRequest,
) -> Result<proto::NodePublishVolumeResponse, PublishError> {
    let id = fields::volume_id(&request.volume_id)?;
    fields::path("target_path", &request.target_path)?;
    let wire = request
        .volume_capability
        .as_ref()
        .ok_or(FieldError::missing("volume_capability"))?;
    limits::volume_capability(wire).map_err(FieldError::from)?;
    limits::map("volume_context", &request.volume_context).map_err(FieldError::from)?;
    if inline::is_asked_for(&request.volume_context) {
        inline::publish(here, request, wire)?;
        return Ok(proto::NodePublishVolumeResponse {});
    }
    let volume = here.find(id)?;
    let id = volume.record.id.clone();
    let wanted = Wanted::parse(here, &volume, request, wire)?;
    let observe = |source| PublishError::Observe {
        id: id.clone(),
        source,
    };
    let found = Use::observe(here.pools, &volume).map_err(observe)?;
    let seen = see(&found, &wanted).map_err(observe)?;
    match plan(&id, &wanted, &seen)? {
        Step::AlreadyPublished => {}
        Step::Publish => bring_up(here, &volume, &wanted, found)?,
    }
    Ok(proto::NodePublishVolumeResponse {})
}

fn see(found: &Use, wanted: &Wanted) -> Result<Seen, ObserveError> {
    let staged = match &found.record.staged {
        None => None,
        Some(staged) => {
            let real = match staged.publication.capability.access {
                Access::Mount(_) => found.shown_at(&staged.path)? == Shown::Volume,
                Access::Block => found.writable().is_some(),
            };
            real.then(|| staged.clone())
        }
    };
    let mut others = Vec::new();
    for (path, publication) in &found.record.targets {
        if *path != wanted.target && found.shown_at(path)? == Shown::Volume {
            others.push((path.clone(), *publication));
        }
    }
    Ok(Seen {
        staged,
        recorded: found.record.targets.get(&wanted.target).copied(),
        at_target: found.shown_at(&wanted.target)?,
        others,
    })
}

/// Records what is meant and does it; takes the record back if it fails.
fn bring_up(
    here: Here<'_>,
    volume: &Volume,
    wanted: &Wanted,
    mut found: Use,
) -> Result<(), PublishError> {
    let id = &volume.record.id;
    let pool = here.pools.pool_of(volume);
    let store = |source| PublishError::Store {
        id: id.clone(),
        source,
    };
    found
        .record
        .targets
        .insert(wanted.target.clone(), wanted.publication);
    pool.write_node_record(id, &found.record).map_err(store)?;
    let done = match wanted.publication.capability.access {
        Access::Mount(_) => bind_files(here, id, wanted),
        Access::Block => bind_device(here, volume, wanted, &found),
    };
    if done.is_err() {
        found.record.targets.remove(&wanted.target);
        pool.reduce_node_record(id, &found.record).map_err(store)?;
    }
    done
}

fn bind_files(here: Here<'_>, id: &VolumeId, wanted: &Wanted) -> Result<(), PublishError> {
    let bind = || {
        let staging = wanted.staging.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let source = here.place(staging)?.open()?;
        let target = here.place(&wanted.target)?;
        target.make_directory(0o750)?;
        mount::bind(source, target.open()?, Depth::One, wanted.restrictions)
    };
    bind().map_err(|source| failed(id, wanted, source))
}

/// Shows the device node itself. A read-only mount of a node does not keep anyone from writing to
/// the device, so read-only publications get a device of their own that cannot.
fn bind_device(
    here: Here<'_>,
    volume: &Volume,
    wanted: &Wanted,
    found: &Use,
) -> Result<(), PublishError> {
    let id = &volume.record.id;
    let own;
    let device = match (
        wanted.publication.read_only,
        found.read_only(),
        found.writable(),
    ) {
        (true, Some(device), _) | (false, _, Some(device)) => device,
        (true, None, _) => {
            let lifetime = Lifetime::UntilDetached;
            let image = here.pools.pool_of(volume).open_image(&volume.record);
            let image = image.map_err(|source| PublishError::Store {
                id: id.clone(),
                source,
            })?;
            own =
                LoopDevice::attach(&image, DeviceAccess::ReadOnly, lifetime).map_err(|source| {
                    PublishError::Attach {
                        id: id.clone(),
                        source,
                    }
                })?;
            &own
        }
        (false, _, None) => return Err(PublishError::NotStaged { id: id.clone() }),
    };
    let bind = || {
        let source = Place::at(&device.path())?.open()?;
        let target = here.place(&wanted.target)?;
        target.make_file(0o600)?;
        mount::bind(source, target.open()?, Depth::One, Restrictions::default())
    };
    bind().map_err(|source| failed(id, wanted, source))
}

fn failed(id: &VolumeId, wanted: &Wanted, source: io::Error) -> PublishError {
    PublishError::Bind {
        id: id.clone(),
        path: wanted.target.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;

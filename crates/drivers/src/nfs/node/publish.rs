//! NodePublishVolume.

use std::path::{Path, PathBuf};

use orlop_csi::{limits, proto};
use orlop_host::{Mount, MountTable};
use tonic::Code;

use super::{Published, unpublish};
use crate::local::Reach;
use crate::local::in_flight::Subject;
use crate::nfs::controller::{Call, Capability};
use crate::nfs::export::Export;
use crate::nfs::failure::Failure;
use crate::nfs::ids::VolumeId;
use crate::nfs::options::MountPlan;
use crate::nfs::order::{Answer, Mounting, Publish, Work};
use crate::nfs::parameters::Attributes;
use crate::nfs::shown::{Seen, is_nfs, shows};

pub(super) async fn publish(
    call: &Call<'_>,
    request: &proto::NodePublishVolumeRequest,
) -> Result<proto::NodePublishVolumeResponse, Failure> {
    if request.volume_id.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    if request.target_path.is_empty() {
        return Err(Failure::missing("target_path"));
    }
    let Some(capability) = &request.volume_capability else {
        return Err(Failure::missing("volume_capability"));
    };
    let capability = Capability::parse(capability)?;
    let (wanted, permissions) = understand(call, request, &capability)?;
    let reach = &call.shared.config.reach;
    let target = reach
        .absolute("target_path", &request.target_path)
        .map_err(|error| Failure::invalid(&error))?;
    let memory = &call.shared.memory;
    // From the look at the table on: of two calls for a path, or two paths of one writer, one has to see
    // what the other did.
    let mut turns = vec![turn(&target)];
    if wanted.alone {
        turns.push(Subject::new("volume on this node", wanted.volume.clone()));
    }
    let held = call.begin(turns)?;
    let step = step(call, &wanted, &target)?;
    let there = match step {
        Step::Publish => None,
        Step::AlreadyThere | Step::MayBeThere(_) => match look(call, &target).await? {
            Answer::Stale => {
                tracing::warn!(path = %target.display(), "a stale mount is replaced");
                unpublish::clear(call, &target).await?;
                None
            }
            _ => match step {
                Step::MayBeThere(seen) => Some(seen),
                _ => return Ok(proto::NodePublishVolumeResponse {}),
            },
        },
    };
    let work = Work::Publish(Publish {
        on: wanted.on.clone(),
        folder: wanted.folder.clone(),
        permissions,
        reach: folder_of(reach),
        target: target.clone(),
        there,
    });
    call.run_holding(work, call.patience(), held).await?;
    memory.published().insert(target, wanted);
    Ok(proto::NodePublishVolumeResponse {})
}

/// What shall be shown. The attributes say it; a volume without any is told by its id.
fn understand(
    call: &Call<'_>,
    request: &proto::NodePublishVolumeRequest,
    capability: &Capability,
) -> Result<(Published, Option<u32>), Failure> {
    limits::map("volume_context", &request.volume_context)
        .map_err(|error| Failure::invalid(&error))?;
    let attributes =
        Attributes::parse(&request.volume_context).map_err(|error| Failure::invalid(&error))?;
    let (export, folder) = match attributes.export {
        Some(export) => (export, attributes.folder),
        None => {
            let id = VolumeId::parse(&request.volume_id).map_err(|_| {
                let told = format!(
                    "volume {:?} names neither server nor share in its attributes",
                    request.volume_id
                );
                Failure::new(Code::InvalidArgument, told)
            })?;
            (id.export, Some(id.folder))
        }
    };
    let mut plan = capability.plan.clone();
    if let Some(options) = &attributes.mount_options {
        let more =
            MountPlan::parse([options.as_str()]).map_err(|error| Failure::invalid(&error))?;
        plan.options.extend(more.options);
        plan.flags.extend(more.flags);
        plan.version = more.version.or(plan.version);
    }
    // Not the mode: of several the kubelet tells the first, whichever that is, and it doesn't keep pods of
    // ReadOnlyMany from writing elsewhere either.
    if request.readonly {
        plan.flags.push("ro".to_owned());
    }
    let published = Published {
        volume: request.volume_id.clone(),
        on: Mounting { export, plan },
        folder,
        alone: !capability.allows_many_targets(),
    };
    let configured = Some(call.shared.config.mount_permissions);
    // Who may only read leaves the permissions to those who write.
    let read_only = published.on.plan.restrictions().read_only;
    let permissions = attributes.permissions.or(configured).filter(|_| !read_only);
    Ok((published, permissions))
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Publish,
    AlreadyThere,
    /// The kernel tells it by another name than the volume's, which it may have all the same.
    MayBeThere(Seen),
}

fn step(call: &Call<'_>, wanted: &Published, target: &Path) -> Result<Step, Failure> {
    let table = table()?;
    let mut published = call.shared.memory.published();
    published.retain(|path, _| table.at(path).is_some());
    if let Some(mount) = table.at(target) {
        let server = is_nfs(mount) || call.shared.config.hands.stand_in().is_some();
        let alike = mount.is_read_only() == wanted.on.plan.restrictions().read_only;
        let step = match published.get(target) {
            Some(known) => (known == wanted).then_some(Step::AlreadyThere),
            None if !alike => None,
            None if shows(mount, &wanted.on.export, wanted.folder.as_ref()) => {
                Some(Step::AlreadyThere)
            }
            None => server.then(|| Step::MayBeThere(Seen::of(mount))),
        };
        return step.ok_or_else(|| {
            let told = format!(
                "{} shows another volume already, or this one in another way",
                target.display()
            );
            Failure::new(Code::AlreadyExists, told)
        });
    }
    let same = |other: &&Published| other.volume == wanted.volume;
    let in_the_way = published
        .iter()
        .find(|(_, other)| same(other) && (wanted.alone || other.alone));
    match in_the_way {
        Some((at, _)) => {
            let told = format!(
                "volume {:?} is at {} already, and its access mode allows one path",
                wanted.volume,
                at.display()
            );
            Err(Failure::new(Code::FailedPrecondition, told))
        }
        None => Ok(Step::Publish),
    }
}

/// Looks at a path that shows something, to see whether its server still knows it.
pub(super) async fn look(call: &Call<'_>, path: &Path) -> Result<Answer, Failure> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
    let patience = call.caller.patience().unwrap_or(PATIENCE).min(PATIENCE);
    let known = call.shared.memory.published().get(path).cloned();
    let export = match known {
        Some(known) => Some(known.on.export),
        None => table()?.at(path).and_then(named),
    };
    let path = path.to_owned();
    call.run_within(Work::Stats { path, export }, Vec::new(), patience)
        .await
}

/// What the kernel calls a mount's source: the share, or the volume's folder in it.
fn named(mount: &Mount) -> Option<Export> {
    let (server, share) = mount.source.to_str()?.split_once(":/")?;
    Export::parse(server, share).ok()
}

pub(in crate::nfs) fn table() -> Result<MountTable, Failure> {
    MountTable::read().map_err(|error| {
        let told = format!("could not read this node's mounts: {error}");
        Failure::new(Code::Internal, told)
    })
}

pub(super) fn turn(target: &Path) -> Subject {
    Subject::new("path", target.display().to_string())
}

pub(super) fn folder_of(reach: &Reach) -> Option<PathBuf> {
    match reach {
        Reach::Anywhere => None,
        Reach::Below(folder) => Some(folder.clone()),
    }
}

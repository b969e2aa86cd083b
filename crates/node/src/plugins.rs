//! Volumes that the node makes by itself: emptyDir, files from objects, hostPath.
//!
//! Each is set up by a repeatable step and torn down without its sources. What a volume
//! is, is decided once, by [`Source::of`]; a new kind of volume is a new variant there.

use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use orlop_host::MountTable;
use orlop_host::mount::{FsOption, MountError, NewMount};
use orlop_host::place::{Occupant, Place};
use orlop_host::tree::RemoveTreeError;
use orlop_model::pod::{EmptyDirSource, InlineSource, PodVolume};
use orlop_model::volume::{FlexSource, HostPathSource, NfsSource};
use orlop_model::{Key, Pod, Quantity};
use orlop_runtime::{ApiError, Cluster};

use crate::checkpoint::make_folder;
use crate::layout::{Layout, PodUid};

mod atomic_files;
mod disk;
mod downward;
mod flex;
mod host_path;
pub(crate) mod mounted;
mod objects;
mod payload;
mod tokens;

pub(crate) use downward::{NodeFacts, field, resource};
pub(crate) use flex::{Doing, Flex, FlexError, FlexVolume, end_left as end_left_flex_drivers};
pub(crate) use host_path::host_path;
pub(crate) use objects::{Freshness, Objects, Shown};
pub(crate) use tokens::{Tokens, renew_at};

/// What a pod's volume is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A claim, by key; the claim's volume says the rest.
    Claim {
        read_only: bool,
    },
    /// A CSI driver's volume that the pod describes itself.
    Inline(&'a InlineSource),
    EmptyDir(&'a EmptyDirSource),
    /// Files from objects, under the plugin's folder name.
    Files(Files),
    HostPath(&'a HostPathSource),
    Nfs(&'a NfsSource),
    Flex(&'a FlexSource),
    /// What Kubernetes knows and this node refuses.
    Refused(&'static str),
    /// Nothing that this node knows.
    Unknown,
}

/// Kinds of volumes whose content comes from objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

impl Files {
    fn plugin(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::DownwardApi => "downward-api",
            Self::Projected => "projected",
        }
    }
}

impl<'a> Source<'a> {
    pub(crate) fn of(volume: &'a PodVolume) -> Self {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Self::Claim {
                read_only: claim.read_only,
            };
        }
        if volume.ephemeral.is_some() {
            return Self::Claim { read_only: false };
        }
        if let Some(source) = &volume.csi {
            return Self::Inline(source);
        }
        if let Some(source) = &volume.empty_dir {
            return Self::EmptyDir(source);
        }
        if let Some(source) = &volume.host_path {
            return Self::HostPath(source);
        }
        if let Some(source) = &volume.nfs {
            return Self::Nfs(source);
        }
        if let Some(source) = &volume.flex_volume {
            return Self::Flex(source);
        }
        if volume.config_map.is_some() {
            return Self::Files(Files::ConfigMap);
        }
        if volume.secret.is_some() {
            return Self::Files(Files::Secret);
        }
        if volume.downward_api.is_some() {
            return Self::Files(Files::DownwardApi);
        }
        if volume.projected.is_some() {
            return Self::Files(Files::Projected);
        }
        if volume.git_repo.is_some() {
            return Self::Refused(
                "gitRepo volumes are not supported: clone into an emptyDir with an init container",
            );
        }
        if volume.image.is_some() {
            return Self::Refused("image volumes are not supported");
        }
        Self::Unknown
    }

    /// Whether containers may read it and no more, however they mount it: files from objects
    /// are the node's to write, and other volumes may be asked for so.
    pub(crate) fn is_read_only(self) -> bool {
        match self {
            Self::Files(_) => true,
            Self::Claim { read_only } => read_only,
            Self::Inline(source) => source.read_only,
            Self::Nfs(source) => source.read_only,
            Self::Flex(source) => source.read_only,
            Self::EmptyDir(_) | Self::HostPath(_) | Self::Refused(_) | Self::Unknown => false,
        }
    }
}

/// Why a volume could not be set up or torn down.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not mount memory at {}", path.display())]
    Mount {
        path: PathBuf,
        #[source]
        source: MountError,
    },
    #[error(transparent)]
    Remove(#[from] RemoveTreeError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{kind} {key} not found")]
    NoObject { kind: &'static str, key: Key },
    #[error("{kind} {key} has no key {item:?}")]
    NoItem {
        kind: &'static str,
        key: Key,
        item: String,
    },
    #[error("{0:?} is not a path within a volume")]
    BadPath(String),
    #[error("{file:?} can't be a file and also the folder of {below:?}; change one of the paths")]
    SamePath { file: String, below: String },
    #[error("field {0:?} is not known")]
    UnknownField(String),
    #[error("the pod has no container {0:?}")]
    NoContainer(String),
    #[error("projected source {0} is not supported")]
    Projection(&'static str),
    #[error("a value of {0} is not base64")]
    NotBase64(Key),
    #[error("hostPath type check failed: {path} is not a {wanted}")]
    HostPath { path: String, wanted: &'static str },
    #[error("{0} is an invalid volume type")]
    HostPathType(String),
    #[error("path {0:?} must be absolute and must not contain '..'")]
    BadHostPath(String),
    #[error("{} is not a block device", .0.display())]
    NotADevice(PathBuf),
    #[error("{} is neither a folder nor a block device", .0.display())]
    NotFolderNorDisk(PathBuf),
    #[error(
        "nothing is mounted at {}: the volume's disk is missing, and the pod would write to the \
         node's own; mount it there", .0.display()
    )]
    NoDisk(PathBuf),
    #[error(transparent)]
    Disk(#[from] disk::DiskError),
    #[error("could not mount {remote}")]
    Nfs {
        remote: String,
        #[source]
        source: MountError,
    },
    #[error("the address of NFS server {server} is not known")]
    NoServer {
        server: String,
        #[source]
        source: io::Error,
    },
    #[error("NFS server {server} did not answer in {seconds} s")]
    NfsHangs { server: String, seconds: u64 },
    #[error("emptyDir medium {0:?} is not supported; use the disk or Memory")]
    Medium(String),
}

fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    move |source| VolumeError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// Where the content of volumes comes from.
pub(crate) struct Sources {
    pub(crate) cluster: Cluster,
    pub(crate) objects: Objects,
    pub(crate) tokens: Tokens,
    pub(crate) facts: NodeFacts,
    /// How soon a secret is asked for again.
    pub(crate) secrets_again: SignedDuration,
}

impl Sources {
    /// A pod shows nothing any more.
    pub(crate) fn release(&self, pod: &PodUid) {
        self.objects.release(pod);
        self.tokens.release(pod);
    }
}

/// Sets up the volumes of one pod.
pub(crate) struct Local<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) sources: &'a Sources,
    pub(crate) pod: &'a Pod,
    pub(crate) uid: &'a PodUid,
    pub(crate) now: Timestamp,
}

/// A volume of files that was written.
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    /// When it must be written again, since a token in it ends.
    pub(crate) renew_at: Option<Timestamp>,
}

impl Local<'_> {
    /// Makes an emptyDir; one that is there keeps its content.
    pub(crate) fn empty_dir(
        &self,
        name: &str,
        source: &EmptyDirSource,
    ) -> Result<PathBuf, VolumeError> {
        let path = self.layout.volume(self.uid, "empty-dir", name);
        // The kubelet's mark: what a pod does to its folder later is the pod's affair.
        let marks = self
            .layout
            .pod(self.uid)
            .join("plugins/kubernetes.io~empty-dir");
        let mark = marks.join(name).join("ready");
        let in_place = match source.medium.as_str() {
            "" if path.is_dir() && mark.exists() => return Ok(path),
            "" => {
                make_folder(&path).map_err(at("make", &path))?;
                false
            }
            // What a reboot left is the folder without the memory.
            "Memory" => in_memory(&path, self.memory(source))? == Memory::Before,
            other => return Err(VolumeError::Medium(other.to_owned())),
        };
        if !(in_place && mark.exists()) {
            open_to_all(&path)?;
            let context = self.pod.spec.security_context.as_ref();
            let group = context.and_then(|context| u32::try_from(context.fs_group?).ok());
            if let Some(group) = group {
                give(&path, group).map_err(at("give to the pod's group", &path))?;
            }
            make_folder(&marks.join(name)).map_err(at("make", &mark))?;
            std::fs::write(&mark, "").map_err(at("write", &mark))?;
        }
        Ok(path)
    }

    /// How large a folder of memory may be, as the kubelet counts: what is asked for, but no more
    /// than the pod may use, and that is no more than the node has.
    fn memory(&self, source: &EmptyDirSource) -> Option<i64> {
        let limit = |container: &orlop_model::pod::Container| {
            container
                .resources
                .limits
                .get("memory")
                .map(Quantity::value)
        };
        let pods: Option<i64> = self.pod.spec.containers.iter().map(limit).sum();
        let node = self.sources.facts.allocatable.get("memory");
        let node = node.map(Quantity::value);
        let asked = source.size_limit.as_ref().map(Quantity::value);
        [asked, pods, node]
            .into_iter()
            .flatten()
            .filter(|size| *size > 0)
            .min()
    }

    /// Writes a volume's files; nothing changes if they are as they should be.
    pub(crate) async fn files(
        &self,
        volume: &PodVolume,
        files: Files,
        freshness: Freshness,
    ) -> Result<Written, VolumeError> {
        let from = payload::From {
            sources: self.sources,
            pod: self.pod,
            uid: self.uid,
            freshness,
            now: self.now,
        };
        let gathered = payload::gather(&from, volume).await?;
        let payload::Gathered {
            payload,
            group,
            renew_at,
        } = gathered;
        let path = self.layout.volume(self.uid, files.plugin(), &volume.name);
        match files {
            // Never on a disk.
            Files::Secret | Files::Projected => {
                in_memory(&path, None)?;
            }
            Files::ConfigMap | Files::DownwardApi => {
                make_folder(&path).map_err(at("make", &path))?
            }
        }
        open_to_all(&path)?;
        // Names the generation of files.
        let stamp = self.now.strftime("%Y_%m_%d_%H_%M_%S").to_string();
        atomic_files::write(&path, &payload, &stamp, group).map_err(at("write files in", &path))?;
        Ok(Written { path, renew_at })
    }
}

fn give(path: &Path, group: u32) -> io::Result<()> {
    use orlop_host::group::{Access, Progress, Wanted, When, apply, usual_threads};
    let access = Access::ReadWrite;
    let wanted = (Wanted { group, access }, When::Always);
    apply(path, wanted, usual_threads(), &Progress::default()).map(drop)
}

const TORN_DOWN: [&str; 5] = [
    "empty-dir",
    "configmap",
    "secret",
    "downward-api",
    "projected",
];

/// Whether a pod has volumes that [`tear_down`] would remove.
pub(crate) fn any_set_up(layout: &Layout, pod: &PodUid) -> bool {
    TORN_DOWN
        .iter()
        .chain(&[mounted::LOCAL, mounted::NFS])
        .any(|plugin| layout.volume(pod, plugin, "").exists())
        || layout.local_devices(pod).exists()
}

/// Removes all of a pod's volumes but the CSI ones, which others take away: what is
/// mounted by us is unmounted, and nothing is ever removed across another mount.
pub(crate) fn tear_down(layout: &Layout, pod: &PodUid) -> Result<(), VolumeError> {
    for plugin in TORN_DOWN {
        let folder = layout.volume(pod, plugin, "");
        let Ok(volumes) = std::fs::read_dir(&folder) else {
            continue;
        };
        for volume in volumes {
            let path = volume.map_err(at("read", &folder))?.path();
            // Its own memory, and what a privileged pod has mounted in it, the topmost first: the
            // pod is over, and nobody else knows of it.
            let table = MountTable::read().map_err(at("look for mounts at", &path))?;
            for mount in table.beneath(&path).rev() {
                let point = &mount.point;
                let place = Place::at(point).map_err(at("look at", point))?;
                orlop_host::mount::unmount(&place).map_err(at("unmount", point))?;
            }
            orlop_host::remove_tree_one_fs(&path)?;
        }
    }
    mounted::tear_down(layout, pod)
}

/// Whether a folder of memory was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Before,
    New,
}

/// A folder of memory; one that is mounted already stays.
fn in_memory(path: &Path, size: Option<i64>) -> Result<Memory, VolumeError> {
    make_folder(path).map_err(at("make", path))?;
    let place = Place::at(path).map_err(at("look at", path))?;
    if let Occupant::Mounted { .. } = place.look().map_err(at("look at", path))? {
        return Ok(Memory::Before);
    }
    let options: Vec<FsOption> = size
        .map(|size| FsOption {
            key: "size".to_owned(),
            value: Some(size.to_string()),
        })
        .into_iter()
        .collect();
    let new = NewMount {
        fs_type: "tmpfs",
        source: Path::new("tmpfs"),
        options: &options,
        restrictions: orlop_host::Restrictions::default(),
    };
    let target = place.open().map_err(at("open", path))?;
    orlop_host::mount::mount(&new, target).map_err(|source| VolumeError::Mount {
        path: path.to_owned(),
        source,
    })?;
    Ok(Memory::New)
}

/// The kubelet's mode for such folders: any user of the pod may write.
fn open_to_all(path: &Path) -> Result<(), VolumeError> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).map_err(at("open", path))
}

//! Volumes that the node mounts by itself for a pod: `local` and `nfs`.
//!
//! ```text
//! <plugins>/kubernetes.io/local-volume/mounts/<volume>       a disk's file system
//! <pods>/<pod>/volumes/kubernetes.io~local-volume/<volume>   the pod's mount of it
//! <pods>/<pod>/volumes/kubernetes.io~nfs/<volume>            the pod's mount
//! <pods>/<pod>/volumeDevices/kubernetes.io~local-volume/<volume>
//!                                                            a device that the pod has, bound
//! ```

use std::collections::BTreeMap;
use std::net::ToSocketAddrs as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_host::mount::{Depth, FsOption, MountError, NewMount};
use orlop_host::{MountTable, Place, Restrictions};
use orlop_model::volume::{LocalSource, NfsSource};
use orlop_model::{Volume, well_known};

use super::disk::{self, Disk};
use super::{VolumeError, at};
use crate::checkpoint::{gone, make_folder};
use crate::layout::{Layout, PodUid};

pub(super) const LOCAL: &str = "local-volume";
pub(super) const NFS: &str = "nfs";

/// A disk is mounted for the first pod and unmounted after the last, and never both at once. One that
/// hangs keeps its own turn and nobody else's.
fn turn(layout: &Layout, volume: &str) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    turns.entry(layout.local_disk(volume)).or_default().clone()
}

/// A volume to mount.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The PersistentVolume's name, or the pod's.
    pub(crate) name: String,
    pub(crate) read_only: bool,
    pub(crate) options: Vec<String>,
}

/// What stands at the path of a `local` volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stands {
    /// A mounted disk. Without it, a pod would fill the node's own.
    Mounted,
    /// Whatever is there.
    Anything,
}

impl Stands {
    /// What was said when the volume was made.
    pub(crate) fn at(volume: &Volume) -> Self {
        match volume.metadata.annotation(well_known::LOCAL_MOUNT_POINT) {
            Some("true") => Self::Mounted,
            _ => Self::Anything,
        }
    }
}

/// Binds the device of a `local` volume for a pod. Its containers make nodes of their own; the mount
/// table tells others that the pod has it, also when the pod itself is deleted and its processes live.
pub(crate) fn local_device(
    layout: &Layout,
    pod: &PodUid,
    (source, name): (&LocalSource, &str),
) -> Result<PathBuf, VolumeError> {
    use std::os::unix::fs::FileTypeExt as _;
    let folder = layout.local_devices(pod);
    let target = folder.join(name);
    if is_mounted(&target)? {
        return Ok(target);
    }
    let path = local_path(source)?;
    // Whoever wrote the volume owns the links on the way.
    let from = std::fs::canonicalize(&path).map_err(at("look at", &path))?;
    let found = std::fs::metadata(&from).map_err(at("look at", &path))?;
    if !found.file_type().is_block_device() {
        return Err(VolumeError::NotADevice(path));
    }
    make_folder(&folder).map_err(at("make", &folder))?;
    let bind = || {
        let place = Place::at(&target)?;
        place.make_file(0o600)?;
        let from = Place::at(&from)?.open()?;
        orlop_host::mount::bind(from, place.open()?, Depth::One, Restrictions::default())
    };
    bind().map_err(at("bind the device at", &target))?;
    Ok(target)
}

fn local_path(source: &LocalSource) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(&source.path);
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(VolumeError::BadHostPath(source.path.clone()));
    }
    Ok(path)
}

/// Mounts a `local` volume for a pod: a folder as it is, a disk by its file system. Blocks.
pub(crate) fn local(
    layout: &Layout,
    pod: &PodUid,
    (source, stands): (&LocalSource, Stands),
    wanted: &Wanted,
) -> Result<PathBuf, VolumeError> {
    use std::os::unix::fs::FileTypeExt as _;
    let target = layout.volume(pod, LOCAL, &wanted.name);
    if is_mounted(&target)? {
        return Ok(target);
    }
    let path = local_path(source)?;
    let kind = std::fs::metadata(&path).map_err(at("look at", &path))?;
    let kind = kind.file_type();
    let turn = turn(layout, &wanted.name);
    let _one_at_a_time = turn.lock();
    // Announced before the disk is mounted: who is last is seen by these folders.
    make_folder(&target).map_err(at("make", &target))?;
    let from = if kind.is_dir() {
        // Whoever wrote the volume owns the links on the way.
        let from = std::fs::canonicalize(&path).map_err(at("look at", &path))?;
        if stands == Stands::Mounted && !is_mounted(&from)? {
            return Err(VolumeError::NoDisk(path));
        }
        from
    } else if kind.is_block_device() {
        let global = layout.local_disk(&wanted.name);
        if !is_mounted(&global)? {
            disk::mount(&Disk {
                device: path,
                target: global.clone(),
                fs_type: source.fs_type.clone().unwrap_or_default(),
                read_only: wanted.read_only,
                options: wanted.options.clone(),
            })?;
        }
        global
    } else {
        return Err(VolumeError::NotFolderNorDisk(path));
    };
    let open = |path: &Path| {
        let place = Place::at(path).and_then(|place| place.open());
        place.map_err(at("open", path))
    };
    let restrictions = Restrictions {
        read_only: wanted.read_only,
        ..Restrictions::default()
    };
    orlop_host::mount::bind(open(&from)?, open(&target)?, Depth::Recursive, restrictions)
        .map_err(at("mount at", &target))?;
    Ok(target)
}

/// Mounts a folder of a file server for a pod, by the kernel's client. Blocks, for as long as the
/// server does not answer.
pub(crate) fn nfs(
    layout: &Layout,
    pod: &PodUid,
    source: &NfsSource,
    wanted: &Wanted,
) -> Result<PathBuf, VolumeError> {
    let target = layout.volume(pod, NFS, &wanted.name);
    if is_mounted(&target)? {
        return Ok(target);
    }
    make_folder(&target).map_err(at("make", &target))?;
    let place = Place::at(&target).map_err(at("look at", &target))?;
    let remote = format!("{}:{}", source.server, source.path);
    let failed = |source: MountError| VolumeError::Nfs {
        remote: remote.clone(),
        source,
    };
    let host = source.server.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (host, 2049).to_socket_addrs().map_err(|source| {
        let server = host.to_owned();
        VolumeError::NoServer { server, source }
    })?;
    let Some(address) = addresses.next() else {
        let source = std::io::ErrorKind::NotFound.into();
        let server = host.to_owned();
        return Err(VolumeError::NoServer { server, source });
    };
    let (mut restrictions, mut options) = disk::parse(&wanted.options);
    restrictions.read_only |= wanted.read_only || source.read_only;
    let option = |key: &str, value: String| FsOption {
        key: key.to_owned(),
        value: Some(value),
    };
    if !options.iter().any(|option| option.key == "addr") {
        options.push(option("addr", address.ip().to_string()));
    }
    let chosen = |option: &FsOption| matches!(&*option.key, "vers" | "nfsvers" | "minorversion");
    let versions: &[&str] = if options.iter().any(chosen) {
        &[""]
    } else {
        &["4.2", "4.1", "4.0", "3"]
    };
    let mut last = None;
    for version in versions {
        let mut options = options.clone();
        if !version.is_empty() {
            options.push(option("vers", (*version).to_owned()));
        }
        let new = NewMount {
            fs_type: "nfs",
            source: Path::new(&remote),
            restrictions,
            options: &options,
        };
        let held = place.open().map_err(at("open", &target))?;
        match orlop_host::mount::mount(&new, held) {
            Ok(()) => return Ok(target),
            // A version that kernel or server lacks; the next may do.
            Err(error @ (MountError::Option { .. } | MountError::Open { .. })) => {
                last = Some(error);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    match last {
        Some(error) => Err(failed(error)),
        None => Ok(target),
    }
}

/// Takes away what was mounted for a pod, and a disk after its last pod. What stays mounted keeps
/// its folder: nothing but empty folders is ever removed.
pub(super) fn tear_down(layout: &Layout, pod: &PodUid) -> Result<(), VolumeError> {
    for plugin in [LOCAL, NFS] {
        let folder = layout.volume(pod, plugin, "");
        for (name, target) in Layout::entries(&folder) {
            let turn = turn(layout, &name);
            let _one_at_a_time = turn.lock();
            unmount(&target)?;
            if plugin == LOCAL && !used_by_another(layout, pod, &name) {
                let global = layout.local_disk(&name);
                if is_mounted(&global)? || global.exists() {
                    unmount(&global)?;
                    gone(std::fs::remove_dir(&global)).map_err(at("remove", &global))?;
                }
            }
            gone(std::fs::remove_dir(&target)).map_err(at("remove", &target))?;
        }
    }
    for (_, target) in Layout::entries(&layout.local_devices(pod)) {
        unmount(&target)?;
        gone(std::fs::remove_file(&target)).map_err(at("remove", &target))?;
    }
    Ok(())
}

fn used_by_another(layout: &Layout, pod: &PodUid, name: &str) -> bool {
    let mut pods = Layout::entries(&layout.pods()).into_iter();
    pods.any(|(uid, _)| {
        let other = PodUid::new(&*uid).filter(|other| other != pod);
        // By its name in the folder: whatever is mounted there may not answer.
        let volumes = |other: &PodUid| Layout::entries(&layout.volume(other, LOCAL, ""));
        other.is_some_and(|other| volumes(&other).iter().any(|(volume, _)| volume == name))
    })
}

fn unmount(path: &Path) -> Result<(), VolumeError> {
    let place = Place::at(path).map_err(at("look at", path))?;
    orlop_host::mount::unmount(&place).map_err(at("unmount", path))
}

fn is_mounted(path: &Path) -> Result<bool, VolumeError> {
    let table = MountTable::read().map_err(at("look for mounts at", path))?;
    Ok(table.at(path).is_some())
}

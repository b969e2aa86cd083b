//! A container's mount tree.
//!
//! Volumes are picked up as detached trees while the process still sees the
//! host's mounts; then the process takes a mount namespace of its own, builds the
//! overlay, makes it the root and lets go of everything else. In between the
//! namespace holds copies of all the host's mounts, as slaves, so that what the
//! host unmounts meanwhile goes away here too (where the host shares its mounts;
//! systemd does). That is kept as short as it can be: a handful of calls.
//!
//! Paths in the container are resolved after the switch of roots only, so no
//! symbolic link in them can lead to the host.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, mount_remount, move_mount, open_tree, unmount,
};
use rustix::thread::UnshareFlags;

use crate::mountinfo::{MountId, MountTable};
use crate::place::Root;

use super::devices::{self, Node};
use super::spec::{Below, ContainerSpec, Mount, Privilege, Propagation, Writable};
use super::state::StateDir;
use super::sys::{self, MountChange};

/// Program trees that are file systems of their own on some hosts. The overlay
/// covers the root's file system alone; these are added read-only.
const PROGRAM_TREES: [&str; 5] = ["/usr", "/usr/local", "/opt", "/nix", "/gnu"];

/// What of `/proc` could change the host.
const GUARDED_PROC: [&str; 5] = [
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
];

/// Why a container's tree could not be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum RootError {
    #[error("could not take volume {volume:?} from {}", source_path.display())]
    Volume {
        volume: String,
        source_path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not take subPath {:?} of volume {volume:?}", part.display())]
    Part {
        part: PathBuf,
        volume: String,
        #[source]
        source: io::Error,
    },
    #[error("could not mount a volume at {}", target.display())]
    MountVolume {
        target: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not take device {} of the host", device.display())]
    Device {
        device: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not make device {}", target.display())]
    MakeDevice {
        target: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not {step}")]
    Step {
        step: &'static str,
        #[source]
        source: io::Error,
    },
}

fn step<T, E: Into<io::Error>>(step: &'static str, result: Result<T, E>) -> Result<T, RootError> {
    result.map_err(|e| RootError::Step {
        step,
        source: e.into(),
    })
}

/// Moves this process into a root of its own. It must be the first of its pid
/// namespace, so that `/proc` shows the container's processes.
pub(super) fn enter(spec: &ContainerSpec, state: &StateDir) -> Result<(), RootError> {
    let mut volumes = pick_up_volumes(&spec.mounts)?;
    // Parents before children: `/data` must not hide `/data/cache`.
    volumes.sort_by_key(|volume| volume.mount.target.components().count());
    let devices = pick_up_devices(spec)?;
    let programs: Vec<_> = PROGRAM_TREES
        .iter()
        .copied()
        .filter_map(program_tree)
        .collect();
    let host_devices = match spec.privilege {
        Privilege::Full => Some(step(
            "take the host's /dev",
            clone_tree(Path::new("/dev"), Reach::Below),
        )?),
        Privilege::Restricted => None,
    };

    step(
        "take namespaces of its own",
        sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUTS),
    )?;
    become_root(&state.root())?;

    rustix::process::umask(rustix::fs::Mode::empty());
    if let Some(name) = &spec.hostname {
        step(
            "set the host name",
            rustix::system::sethostname(name.as_bytes()),
        )?;
    }
    for (path, tree) in programs {
        step(
            "bring the host's programs in",
            attach(&tree, Path::new(path)),
        )?;
    }
    mount_kernel_trees(spec.privilege)?;
    match host_devices {
        Some(tree) => step(
            "bring the host's devices in",
            attach(&tree, Path::new("/dev")),
        )?,
        None => mount_own_devices()?,
    }
    for hidden in spec.hidden.iter().filter(|path| path.is_dir()) {
        let empty = step(
            "make an empty folder",
            file_system(
                "tmpfs",
                &[("mode", "0555")],
                MountAttrFlags::MOUNT_ATTR_RDONLY,
            ),
        )?;
        step("hide a folder of the host", attach(&empty, hidden))?;
    }
    for volume in &volumes {
        volume.attach().map_err(|source| RootError::MountVolume {
            target: volume.mount.target.clone(),
            source,
        })?;
    }
    for device in &devices {
        device.make().map_err(|source| RootError::MakeDevice {
            target: device.target().to_owned(),
            source,
        })?;
    }
    if spec.root == Writable::ReadOnly {
        // Last, since the mount points had to be made first.
        step(
            "make the root read-only",
            mount_remount("/", MountFlags::BIND | MountFlags::RDONLY, ""),
        )?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

/// A volume's tree, detached from the host's.
struct Volume<'a> {
    mount: &'a Mount,
    tree: OwnedFd,
    is_dir: bool,
}

fn pick_up_volumes(mounts: &[Mount]) -> Result<Vec<Volume<'_>>, RootError> {
    mounts
        .iter()
        .map(|mount| {
            Volume::pick_up(mount).map_err(|source| match &mount.sub_path {
                Some(part) => RootError::Part {
                    part: part.clone(),
                    volume: mount.volume.clone(),
                    source,
                },
                None => RootError::Volume {
                    volume: mount.volume.clone(),
                    source_path: mount.source.clone(),
                    source,
                },
            })
        })
        .collect()
}

fn pick_up_devices(spec: &ContainerSpec) -> Result<Vec<Node>, RootError> {
    spec.devices
        .iter()
        .map(|device| {
            devices::look_up(device).map_err(|source| RootError::Device {
                device: device.source.clone(),
                source,
            })
        })
        .collect()
}

impl<'a> Volume<'a> {
    fn pick_up(mount: &'a Mount) -> io::Result<Self> {
        can_travel(&mount.source, mount.propagation)?;
        let (tree, is_dir) = match &mount.sub_path {
            None => {
                let is_dir = fs::metadata(&mount.source)?.is_dir();
                (clone_tree(&mount.source, Reach::Below)?, is_dir)
            }
            Some(part) => clone_part(&mount.source, part)?,
        };
        let propagation = match mount.propagation {
            Propagation::None => libc::MS_PRIVATE,
            Propagation::HostToContainer => libc::MS_SLAVE,
            Propagation::Bidirectional => libc::MS_SHARED,
        };
        let set = libc::MOUNT_ATTR_RDONLY;
        match (mount.access, mount.below) {
            (Writable::ReadWrite, _) => {}
            (Writable::ReadOnly, Below::AsItIs) => {
                let change = MountChange {
                    set,
                    propagation: 0,
                };
                sys::change_top_mount(&tree, &change)?;
            }
            (Writable::ReadOnly, Below::ReadOnly | Below::ReadOnlyIfPossible) => {
                sys::change_mounts(
                    &tree,
                    &MountChange {
                        set,
                        propagation: 0,
                    },
                )?;
            }
        }
        let change = MountChange {
            set: 0,
            propagation,
        };
        sys::change_mounts(&tree, &change)?;
        Ok(Self {
            mount,
            tree,
            is_dir,
        })
    }

    fn attach(&self) -> io::Result<()> {
        let target = &self.mount.target;
        if self.is_dir {
            fs::create_dir_all(target)?;
        } else if !target.exists() {
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::File::create(target)?;
        }
        attach(&self.tree, target)
    }
}

/// Mounts travel only where the host lets them: a container that was promised them and
/// never sees one would be worse than one that does not start.
fn can_travel(source: &Path, wanted: Propagation) -> io::Result<()> {
    let needed: &[&str] = match wanted {
        Propagation::None => return Ok(()),
        Propagation::HostToContainer => &["shared:", "master:"],
        Propagation::Bidirectional => &["shared:"],
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = rustix::fs::open(source, flags, Mode::empty())?;
    let found = rustix::fs::statx(&held, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let table = MountTable::read()?;
    let Some(mount) = table.get(MountId(found.stx_mnt_id)) else {
        return Ok(());
    };
    let travels = mount.propagation.iter().any(|tag| {
        let tag = tag.to_string_lossy();
        needed.iter().any(|prefix| tag.starts_with(prefix))
    });
    if travels {
        return Ok(());
    }
    let words = match wanted {
        Propagation::Bidirectional => "a shared",
        _ => "a shared or slave",
    };
    Err(io::Error::other(format!(
        "it is on the mount {}, which is not {words} mount; see mount --make-rshared",
        mount.point.display()
    )))
}

/// A program tree, if it is a file system apart from its parent's.
fn program_tree(path: &'static str) -> Option<(&'static str, OwnedFd)> {
    use std::os::unix::fs::MetadataExt as _;
    let tree = fs::symlink_metadata(path)
        .ok()
        .filter(fs::Metadata::is_dir)?;
    let parent = fs::metadata(Path::new(path).parent()?).ok()?;
    if tree.dev() == parent.dev() {
        return None;
    }
    let fd = clone_tree(Path::new(path), Reach::Itself).ok()?;
    let change = MountChange {
        set: libc::MOUNT_ATTR_RDONLY,
        propagation: libc::MS_PRIVATE,
    };
    sys::change_mounts(&fd, &change).ok()?;
    Some((path, fd))
}

/// Which mounts a clone holds.
#[derive(Clone, Copy)]
enum Reach {
    Itself,
    Below,
}

fn clone_tree(path: &Path, reach: Reach) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if let Reach::Below = reach {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, path, flags)?)
}

/// Clones a part of a volume by descriptor, so that nobody who writes to the
/// volume can exchange it between the look and the mount.
fn clone_part(volume: &Path, part: &Path) -> io::Result<(OwnedFd, bool)> {
    let found = Root::open(volume)?.part(part)?;
    let mode = rustix::fs::fstat(&found)?.st_mode;
    let is_dir = FileType::from_raw_mode(mode) == FileType::Directory;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok((open_tree(&found, "", flags)?, is_dir))
}

fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    // Symbolic links on the way are the container's own: the root is switched.
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    Ok(move_mount(tree, "", CWD, at, flags)?)
}

/// A new file system, mounted nowhere yet.
fn file_system(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&context, *key)?;
        } else {
            fsconfig_set_string(&context, *key, *value)?;
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Builds the overlay at `at` and makes it the root; the host's mounts are gone
/// from this namespace afterwards.
fn become_root(at: &Path) -> Result<(), RootError> {
    let none = MountAttrFlags::empty();
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    step("part from the host's mounts", mount_change("/", slave))?;
    // What the container writes lives in memory and ends with it: nothing to
    // clean up, and no upper layer inside its own lower one.
    let scratch = step(
        "make room for the container's writes",
        file_system("tmpfs", &[("mode", "0700")], none),
    )?;
    step("make room for the container's writes", attach(&scratch, at))?;
    let [upper, work, root] = ["upper", "work", "root"].map(|name| at.join(name));
    for folder in [&upper, &work, &root] {
        step(
            "make room for the container's writes",
            fs::create_dir(folder),
        )?;
    }
    let overlay = step("lay a root over the host's", overlay(&upper, &work))?;
    step("lay a root over the host's", attach(&overlay, &root))?;
    step("enter the root", std::env::set_current_dir(&root))?;
    // With both paths ".", the old root lies over the new one until the next
    // call takes it away; no folder for it is needed.
    step("switch roots", rustix::process::pivot_root(".", "."))?;
    step(
        "let go of the host's mounts",
        unmount(".", UnmountFlags::DETACH),
    )?;
    step("enter the root", std::env::set_current_dir("/"))?;
    Ok(())
}

fn overlay(upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the state folder's path is not UTF-8",
            )
        })
    };
    let (upper, work) = (text(upper)?, text(work)?);
    let options = [
        ("source", "overlay"),
        ("lowerdir", "/"),
        ("upperdir", &upper),
        ("workdir", &work),
    ];
    file_system("overlay", &options, MountAttrFlags::empty())
}

/// `/proc` of the container's own processes, and the host's `/sys` to look at.
fn mount_kernel_trees(privilege: Privilege) -> Result<(), RootError> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = step("make /proc", file_system("proc", &[], quiet))?;
    step("mount /proc", attach(&proc, Path::new("/proc")))?;
    let sys_attributes = match privilege {
        Privilege::Restricted => quiet | MountAttrFlags::MOUNT_ATTR_RDONLY,
        Privilege::Full => quiet,
    };
    let sys_tree = step("make /sys", file_system("sysfs", &[], sys_attributes))?;
    step("mount /sys", attach(&sys_tree, Path::new("/sys")))?;
    if privilege == Privilege::Full {
        return Ok(());
    }
    for path in GUARDED_PROC
        .map(Path::new)
        .into_iter()
        .filter(|path| path.exists())
    {
        let tree = step("guard /proc", clone_tree(path, Reach::Below))?;
        let change = MountChange {
            set: libc::MOUNT_ATTR_RDONLY,
            propagation: 0,
        };
        step("guard /proc", sys::change_mounts(&tree, &change))?;
        step("guard /proc", attach(&tree, path))?;
    }
    Ok(())
}

fn mount_own_devices() -> Result<(), RootError> {
    let nosuid = MountAttrFlags::MOUNT_ATTR_NOSUID;
    let quiet = nosuid | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let dev = step(
        "make /dev",
        file_system("tmpfs", &[("mode", "0755"), ("size", "65536k")], nosuid),
    )?;
    step("mount /dev", attach(&dev, Path::new("/dev")))?;
    step("fill /dev", devices::make_standard_nodes())?;
    for folder in ["/dev/pts", "/dev/shm"] {
        step("fill /dev", fs::create_dir(folder))?;
    }
    let terminals = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
    let pts = step(
        "make /dev/pts",
        file_system(
            "devpts",
            &terminals,
            nosuid | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        ),
    )?;
    step("mount /dev/pts", attach(&pts, Path::new("/dev/pts")))?;
    let shm = step(
        "make /dev/shm",
        file_system("tmpfs", &[("mode", "1777"), ("size", "65536k")], quiet),
    )?;
    step("mount /dev/shm", attach(&shm, Path::new("/dev/shm")))
}

//! Mounting and unmounting, on descriptors.
//!
//! A mount is made detached, given its flags, and only then moved to its place: nobody ever sees it
//! half configured (a read-only bind that is writable for a moment, say). Never touches a path by
//! name except where the kernel offers nothing else (`umount2`), and there through a held parent.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use crate::place::{Occupant, Place};

/// Per-mount restrictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Refuse writes.
    pub read_only: bool,
    /// Ignore set-user-id bits.
    pub no_suid: bool,
    /// Ignore device nodes.
    pub no_dev: bool,
    /// Refuse to run programs.
    pub no_exec: bool,
    /// When access times are written.
    pub access_times: AccessTimes,
}

/// When a read updates the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// The kernel's default: rarely.
    #[default]
    Relative,
    /// Never.
    Never,
    /// Rarely for files, never for directories.
    NeverForDirectories,
    /// On every read.
    Always,
}

impl Restrictions {
    fn attributes(self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::empty();
        flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.read_only);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, self.no_suid);
        flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, self.no_dev);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, self.no_exec);
        flags
            | match self.access_times {
                AccessTimes::Relative => MountAttrFlags::empty(),
                AccessTimes::Never => MountAttrFlags::MOUNT_ATTR_NOATIME,
                AccessTimes::NeverForDirectories => MountAttrFlags::MOUNT_ATTR_NODIRATIME,
                AccessTimes::Always => MountAttrFlags::MOUNT_ATTR_STRICTATIME,
            }
    }
}

/// One option of the file system itself: `discard`, or `errors` with `remount-ro`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FsOption {
    /// Its name.
    pub key: String,
    /// Its value, if it takes one.
    pub value: Option<String>,
}

/// A file system to mount.
#[derive(Clone, Debug)]
pub struct NewMount<'a> {
    /// The kernel's name for the type, such as `ext4`.
    pub fs_type: &'a str,
    /// The device, or whatever the type calls its source.
    pub source: &'a Path,
    /// Restrictions of this mount. Read-only also opens the file system read-only.
    pub restrictions: Restrictions,
    /// Options for the file system.
    pub options: &'a [FsOption],
}

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no such file system.
    #[error("this kernel cannot mount {fs_type}; load its module")]
    UnknownType {
        /// The type.
        fs_type: String,
    },
    /// The file system refused an option.
    #[error("{fs_type} refuses the mount option {option}")]
    Option {
        /// The type.
        fs_type: String,
        /// The option's name.
        option: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The file system could not be opened.
    #[error("the kernel could not open the {fs_type} file system{}", told(said))]
    Open {
        /// The type.
        fs_type: String,
        /// The kernel's own words, if it had any.
        said: String,
        /// Its error number.
        #[source]
        source: io::Error,
    },
    /// It was opened but could not be put in place.
    #[error("could not put the mount in its place")]
    Place(#[source] io::Error),
}

fn told(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(" ({said})")
    }
}

/// Mounts a file system on what `target` holds.
pub fn mount(new: &NewMount<'_>, target: impl AsFd) -> Result<(), MountError> {
    let fs_type = || new.fs_type.to_owned();
    let context = rustix::mount::fsopen(new.fs_type, FsOpenFlags::FSOPEN_CLOEXEC)
        .map_err(|_| MountError::UnknownType { fs_type: fs_type() })?;
    let refused = |option: &str, source: rustix::io::Errno| MountError::Option {
        fs_type: fs_type(),
        option: option.to_owned(),
        source: source.into(),
    };
    rustix::mount::fsconfig_set_string(&context, "source", new.source)
        .map_err(|error| refused("source", error))?;
    if new.restrictions.read_only {
        rustix::mount::fsconfig_set_flag(&context, "ro").map_err(|error| refused("ro", error))?;
    }
    for FsOption { key, value } in new.options {
        match value {
            None => rustix::mount::fsconfig_set_flag(&context, key.as_str()),
            Some(value) => {
                rustix::mount::fsconfig_set_string(&context, key.as_str(), value.as_str())
            }
        }
        .map_err(|error| refused(key, error))?;
    }
    let open = |source: rustix::io::Errno| MountError::Open {
        fs_type: fs_type(),
        said: kernel_words(&context),
        source: source.into(),
    };
    rustix::mount::fsconfig_create(&context).map_err(open)?;
    let attributes = new.restrictions.attributes();
    let detached = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(open)?;
    move_to(&detached, target.as_fd()).map_err(|error| MountError::Place(error.into()))
}

/// The messages that the kernel left in a file system context.
fn kernel_words(context: &OwnedFd) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut buffer = [0u8; 1024];
    // The kernel keeps eight messages at most.
    for _ in 0..8 {
        let Ok(length) = rustix::io::read(context, &mut buffer) else {
            break;
        };
        let line = String::from_utf8_lossy(&buffer[..length]).into_owned();
        // Lines begin with their level, as in `e loop0: Can't open blockdev`.
        let line = ["e ", "w ", "i "]
            .iter()
            .find_map(|level| line.strip_prefix(level));
        let Some(line) = line else { continue };
        said.push(line.trim().to_owned());
    }
    said.join("; ")
}

/// How much of a tree a bind mount shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The one mount that the source is on.
    One,
    /// Mounts below the source as well.
    Recursive,
}

/// Shows `source` (a directory or a file) a second time on `target`.
///
/// Restrictions are added to those that the source has; none is lifted.
pub fn bind(
    source: impl AsFd,
    target: impl AsFd,
    depth: Depth,
    restrictions: Restrictions,
) -> io::Result<()> {
    detach(source, depth, restrictions)?.put(target)
}

/// A mount that is nowhere yet.
#[derive(Debug)]
pub struct Detached(OwnedFd);

impl Detached {
    /// Puts it on what `target` holds, in the mount namespace of the calling thread.
    pub fn put(self, target: impl AsFd) -> io::Result<()> {
        Ok(move_to(&self.0, target.as_fd())?)
    }
}

/// The first half of [`bind`]: a copy of `source`'s mount that can be carried elsewhere.
pub fn detach(source: impl AsFd, depth: Depth, restrictions: Restrictions) -> io::Result<Detached> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if depth == Depth::Recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let detached = rustix::mount::open_tree(source, "", flags)?;
    if restrictions != Restrictions::default() {
        set_attributes(detached.as_fd(), depth, restrictions.attributes())?;
    }
    Ok(Detached(detached))
}

fn move_to(detached: &OwnedFd, target: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(detached, "", target, "", flags)
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

#[expect(unsafe_code, reason = "mount_setattr has no safe wrapper in rustix")]
fn set_attributes(mount: BorrowedFd<'_>, depth: Depth, set: MountAttrFlags) -> io::Result<()> {
    let atime = MountAttrFlags::MOUNT_ATTR__ATIME;
    let changes_atime = set.intersects(atime);
    let attr = MountAttr {
        attr_set: u64::from(set.bits()),
        // The kernel wants the whole access-time field cleared before a value is set.
        attr_clr: if changes_atime {
            u64::from(atime.bits())
        } else {
            0
        },
        propagation: 0,
        userns_fd: 0,
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if depth == Depth::Recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `attr` is a live, fully initialised `struct mount_attr` whose size is passed with it;
    // the path is a NUL-terminated literal; the descriptor is borrowed for the whole call. The
    // kernel only reads through the pointers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How long a mount may be busy for no reason that lasts: a child that some thread is just starting
/// has copies of our descriptors, also of those on mounts, until it executes its program.
const PASSING: Duration = Duration::from_millis(200);

/// How often to look whether it has passed; there is no event for it.
const LOOK: Duration = Duration::from_millis(2);

/// Takes away whatever is mounted at a place, however often something was mounted over it.
///
/// Fine if nothing is mounted there. Never lazy: a mount that stays busy is an error (`EBUSY`),
/// because a lazily detached file system lives on where nobody sees it.
pub fn unmount(place: &Place) -> io::Result<()> {
    // More layers than anyone stacks; a bound, so that a racing mounter cannot hold us here.
    const LAYERS: usize = 64;
    for _ in 0..LAYERS {
        match place.look()? {
            Occupant::Absent | Occupant::Plain(_) => return Ok(()),
            Occupant::Mounted { .. } | Occupant::Unreachable => {}
        }
        match unmount_top(place) {
            Ok(()) => {}
            // Not a mount point after all: something else that cannot be looked at.
            Err(rustix::io::Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(
        "something is mounted there again and again",
    ))
}

fn unmount_top(place: &Place) -> rustix::io::Result<()> {
    let mut patience = PASSING;
    loop {
        match rustix::mount::unmount(place.proc_path(), UnmountFlags::NOFOLLOW) {
            Err(rustix::io::Errno::BUSY) if !patience.is_zero() => {
                std::thread::sleep(LOOK);
                patience = patience.saturating_sub(LOOK);
            }
            other => return other,
        }
    }
}

/// Whether a network file system's pending requests are ended with an error first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// They are waited for.
    No,
    /// They are: those of other mounts of the same file system, too.
    Yes,
}

/// Takes away the uppermost mount at a place, without a look at what is mounted: a server that is
/// gone answers no looks.
pub fn unmount_unseen(place: &Place, force: Force) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::FORCE, force == Force::Yes);
    Ok(rustix::mount::unmount(place.proc_path(), flags)?)
}

/// Lets the mount at a path, and those below it, follow those they are copies of: mount events enter,
/// and none leaves.
pub fn make_downstream(path: impl AsRef<OsStr>) -> io::Result<()> {
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change(path.as_ref(), flags)?)
}

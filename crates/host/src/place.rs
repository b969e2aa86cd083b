//! Places in the file tree, held by descriptor.
//!
//! A path that came from outside is resolved once; afterwards everything happens relative to a
//! descriptor, so that nobody can swap a directory for a symlink between the check and the use.
//! A [`Place`] never follows a symlink in its last component; nothing ever leaves a [`Root`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};

use crate::mountinfo::{DeviceNumber, MountId};

/// Resolution that neither leaves the directory nor follows any link.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Resolution that does not leave the directory, though links within it are followed. The
/// kernel judges every link as it walks, so exchanging one meanwhile gains nothing.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// A name in a directory; the directory is held open, the name may or may not exist.
#[derive(Debug)]
pub struct Place {
    parent: OwnedFd,
    name: OsString,
    path: PathBuf,
}

/// What is found at a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nothing has this name.
    Absent,
    /// Something that is not a mount point.
    Plain(Kind),
    /// The root of a mount.
    Mounted {
        /// Which mount.
        mount: MountId,
        /// The mounted file system's device.
        device: DeviceNumber,
        /// What the mount shows here.
        kind: Kind,
    },
    /// Something that cannot be looked at, such as a mount whose server or device is gone.
    Unreachable,
}

/// The kinds of file that matter to mounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice(DeviceNumber),
    /// Anything else.
    Other,
}

impl Place {
    /// Holds the parent of an absolute path whose components are all plain names.
    ///
    /// The parent must exist. Links in the parent's path are followed: whoever names the path owns
    /// it up to there.
    pub fn at(path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(invalid("the path has no parent directory"));
        };
        if !is_plain_absolute(path) {
            return Err(invalid("the path is not absolute or contains `..`"));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty())?;
        Ok(Self {
            parent,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Holds the parent of a path that must be below `root`, and reached without a link on the way.
    ///
    /// Links in the root's own path are followed: whoever chose it owns it. A path elsewhere is
    /// [`io::ErrorKind::PermissionDenied`].
    pub fn beneath(root: &Path, path: &Path) -> io::Result<Self> {
        let outside = || io::Error::new(io::ErrorKind::PermissionDenied, "the path is outside");
        if !is_plain_absolute(path) {
            return Err(invalid("the path is not absolute or contains `..`"));
        }
        let relative = path.strip_prefix(root).map_err(|_| outside())?;
        let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(outside());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut held = rustix::fs::open(root, flags, Mode::empty())?;
        if !parent.as_os_str().is_empty() {
            held = openat2(held.as_fd(), parent, flags, BENEATH)?;
        }
        Ok(Self {
            parent: held,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// The path that this place was asked for by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at what is here, without following links or waking automounts.
    pub fn look(&self) -> io::Result<Occupant> {
        use rustix::io::Errno;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let found = match rustix::fs::statx(&self.parent, &self.name, flags, mask) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(Occupant::Absent),
            Err(Errno::STALE | Errno::IO | Errno::NOTCONN | Errno::NXIO | Errno::HOSTDOWN) => {
                return Ok(Occupant::Unreachable);
            }
            Err(error) => return Err(error.into()),
        };
        let kind = match FileType::from_raw_mode(u32::from(found.stx_mode)) {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Symlink,
            FileType::BlockDevice => Kind::BlockDevice(DeviceNumber {
                major: found.stx_rdev_major,
                minor: found.stx_rdev_minor,
            }),
            _ => Kind::Other,
        };
        if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            let device = DeviceNumber {
                major: found.stx_dev_major,
                minor: found.stx_dev_minor,
            };
            Ok(Occupant::Mounted {
                mount: MountId(found.stx_mnt_id),
                device,
                kind,
            })
        } else {
            Ok(Occupant::Plain(kind))
        }
    }

    /// A path-only descriptor of what is here; fails on a symlink.
    pub fn open(&self) -> io::Result<OwnedFd> {
        // Not O_NOFOLLOW: together with O_PATH it would open the link itself.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(openat2(
            self.parent.as_fd(),
            self.name.as_ref(),
            flags,
            BENEATH,
        )?)
    }

    /// Makes an empty directory here; fine if a directory is here already.
    pub fn make_directory(&self, mode: u32) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.parent, &self.name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => match self.look()? {
                Occupant::Plain(Kind::Directory)
                | Occupant::Mounted {
                    kind: Kind::Directory,
                    ..
                } => Ok(()),
                _ => Err(io::ErrorKind::NotADirectory.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an empty regular file here; fine if a regular file is here already.
    pub fn make_file(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        match rustix::fs::openat(&self.parent, &self.name, flags | OFlags::CLOEXEC, mode) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::EXIST) => match self.look()? {
                Occupant::Plain(Kind::File) | Occupant::Mounted { .. } => Ok(()),
                _ => Err(invalid("something other than a regular file is in the way")),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a regular file with something in it is here, and no mount.
    pub fn is_filled_file(&self) -> io::Result<bool> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statat(&self.parent, &self.name, flags) {
            Ok(found) => {
                let file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
                Ok(file && found.st_size > 0)
            }
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what is here: an empty directory, a file or a link. Fine if nothing is here.
    ///
    /// A mount point is refused by the kernel (`EBUSY`), a filled directory too (`ENOTEMPTY`).
    pub fn remove(&self) -> io::Result<()> {
        let flags = match self.look()? {
            Occupant::Absent => return Ok(()),
            Occupant::Plain(Kind::Directory) | Occupant::Mounted { .. } => AtFlags::REMOVEDIR,
            Occupant::Plain(_) | Occupant::Unreachable => AtFlags::empty(),
        };
        match rustix::fs::unlinkat(&self.parent, &self.name, flags) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A path for system calls that take no descriptor; valid while `self` lives.
    pub(crate) fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.parent.as_raw_fd())).join(&self.name)
    }
}

/// A directory that nothing resolved through it can leave.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
}

impl Root {
    /// Holds a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            fd: rustix::fs::open(path, flags, Mode::empty())?,
        })
    }

    /// A path-only descriptor of something below. Links that stay below are followed, as a
    /// volume of files is made of them; one that leads out, or is absolute, is refused.
    pub fn resolve(&self, relative: &Path) -> io::Result<OwnedFd> {
        // Not O_NOFOLLOW: together with O_PATH it would open the link itself.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(openat2(self.fd.as_fd(), relative, flags, WITHIN)?)
    }

    /// A path-only descriptor of something below, which is made as a directory if it is missing:
    /// with the mode that this one has, whatever the process masks.
    pub fn part(&self, relative: &Path) -> io::Result<OwnedFd> {
        let found = match self.resolve(relative) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mode = rustix::fs::fstat(&self.fd)?.st_mode;
                let made = self.make_directories(relative, mode & 0o7777);
                made.and_then(|_| self.resolve(relative))
            }
            other => other,
        };
        found.map_err(spoken)
    }

    /// Makes a directory and its missing parents below, one component at a time, and holds it.
    pub fn make_directories(&self, relative: &Path, mode: u32) -> io::Result<Root> {
        let mut at = self.fd.try_clone()?;
        for component in relative.components() {
            let Component::Normal(name) = component else {
                return Err(invalid("the path is not relative or contains `..`"));
            };
            let mode = Mode::from_raw_mode(mode);
            let made = match rustix::fs::mkdirat(&at, name, mode) {
                Ok(()) => true,
                Err(rustix::io::Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = openat2(at.as_fd(), name.as_ref(), flags, BENEATH)?;
            if made {
                rustix::fs::fchmod(&at, mode)?;
            }
        }
        Ok(Root { fd: at })
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An error about part of a volume, in words for whoever wrote its path, where we have any.
fn spoken(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    let words = match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => "it leads out of the volume",
        Some(Errno::LOOP) => "there are too many symbolic links on the way, or one leads to itself",
        Some(Errno::ROFS) => "it is not there and can't be made, since the volume is read-only",
        Some(Errno::NOSPC) => "it is not there and can't be made, since the volume is full",
        Some(Errno::NOTDIR) => "a file is where one of its folders should be",
        _ => return error,
    };
    io::Error::new(error.kind(), words)
}

/// `openat2`, repeated while the kernel says that a rename raced with it.
fn openat2(
    directory: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    const RACES: usize = 128;
    let mut result = Err(rustix::io::Errno::AGAIN);
    for _ in 0..RACES {
        result = rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve);
        if !matches!(result, Err(rustix::io::Errno::AGAIN)) {
            break;
        }
    }
    result
}

/// Whether a descriptor is of a directory.
pub fn is_directory(held: impl AsFd) -> io::Result<bool> {
    let mode = rustix::fs::fstat(held)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::Directory)
}

/// Whether a path is absolute and made of plain names only.
#[must_use]
pub fn is_plain_absolute(path: &Path) -> bool {
    // `components` hides `.` and doubled slashes; both are harmless, `..` and NUL are not.
    path.is_absolute()
        && !path.as_os_str().as_encoded_bytes().contains(&0)
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Whether a text can be one component of a path.
#[must_use]
pub fn is_plain_name(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') && !bytes.contains(&0)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_with_dots_or_without_a_root_is_no_place() {
        for path in ["relative/x", "/tmp/../etc", "/", "", "/tmp/x/.."] {
            assert!(Place::at(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_place_beneath_a_root_is_reached_without_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        symlink("a", root.join("in")).unwrap();
        for inside in ["x", "a/x", "a/b/x", "a/b"] {
            Place::beneath(&root, &root.join(inside)).unwrap();
        }
        for outside in [
            "",
            "..",
            "../outside/x",
            "out/x",
            "in/x",
            "a/../../outside/x",
        ] {
            assert!(
                Place::beneath(&root, &root.join(outside)).is_err(),
                "{outside}"
            );
        }
        let elsewhere = Place::beneath(&root, Path::new("/etc/x")).unwrap_err();
        assert_eq!(elsewhere.kind(), io::ErrorKind::PermissionDenied);
        // A name that only begins like the root's.
        assert!(Place::beneath(&root, &dir.path().join("root-too/x")).is_err());
    }

    #[test]
    fn a_link_in_the_last_component_is_seen_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/etc", dir.path().join("link")).unwrap();
        let place = Place::at(&dir.path().join("link")).unwrap();
        assert_eq!(place.look().unwrap(), Occupant::Plain(Kind::Symlink));
        assert!(place.open().is_err());
        assert!(place.make_directory(0o700).is_err());
        assert!(place.make_file(0o600).is_err());
        place.remove().unwrap();
        assert_eq!(place.look().unwrap(), Occupant::Absent);
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn making_and_removing_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(&dir.path().join("d")).unwrap();
        for _ in 0..2 {
            place.make_directory(0o750).unwrap();
        }
        assert_eq!(place.look().unwrap(), Occupant::Plain(Kind::Directory));
        for _ in 0..2 {
            place.remove().unwrap();
        }
        for _ in 0..2 {
            place.make_file(0o600).unwrap();
        }
        assert_eq!(place.look().unwrap(), Occupant::Plain(Kind::File));
    }

    #[test]
    fn a_filled_directory_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("d/inner")).unwrap();
        let place = Place::at(&dir.path().join("d")).unwrap();
        assert_eq!(
            place.remove().unwrap_err().kind(),
            io::ErrorKind::DirectoryNotEmpty
        );
    }

    #[test]
    fn nothing_resolves_out_of_a_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/a/b")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        symlink("../secret", dir.path().join("root/up")).unwrap();
        symlink("/etc", dir.path().join("root/abs")).unwrap();
        symlink("a/../../secret", dir.path().join("root/around")).unwrap();
        symlink("/proc/self/cwd", dir.path().join("root/magic")).unwrap();
        symlink("up", dir.path().join("root/chained")).unwrap();
        let root = Root::open(&dir.path().join("root")).unwrap();
        root.resolve(Path::new("a/b")).unwrap();
        for path in [
            "../secret",
            "up",
            "abs",
            "abs/passwd",
            "around",
            "magic",
            "chained",
            "/etc",
            "a/../../secret",
        ] {
            assert!(root.resolve(Path::new(path)).is_err(), "{path}");
        }
        root.make_directories(Path::new("x/y/z"), 0o755).unwrap();
        assert!(dir.path().join("root/x/y/z").is_dir());
        assert!(
            root.make_directories(Path::new("x/../../out"), 0o755)
                .is_err()
        );
        assert!(root.make_directories(Path::new("up/out"), 0o755).is_err());
    }

    #[test]
    fn links_that_stay_in_a_root_are_followed() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("..2026/sub")).unwrap();
        std::fs::write(dir.path().join("..2026/key"), "x").unwrap();
        symlink("..2026", dir.path().join("..data")).unwrap();
        symlink("..data/key", dir.path().join("key")).unwrap();
        symlink("..data/sub", dir.path().join("sub")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        for path in ["key", "sub"] {
            let found = rustix::fs::fstat(root.resolve(Path::new(path)).unwrap()).unwrap();
            let real = std::fs::metadata(dir.path().join("..2026").join(path)).unwrap();
            assert_eq!(
                (found.st_dev, found.st_ino),
                (real.dev(), real.ino()),
                "{path}"
            );
        }
    }

    #[test]
    fn names_that_are_more_than_a_name_are_refused() {
        for name in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert!(!is_plain_name(OsStr::new(name)), "{name:?}");
        }
        assert!(is_plain_name(OsStr::new("..a")));
    }
}

//! Gives a volume's files to a group: the kubelet's fsGroup, by many hands.
//!
//! Every file becomes the group's, readable and writable for it; folders hand the group on to what
//! is made in them. The masks and the order are the kubelet's: the root comes last, so that a root
//! that is right proves that all was done. What is right already is only looked at, so a walk that
//! was cut short costs little the second time.
//!
//! Nothing outside is ever touched, whoever works in the tree meanwhile: folders are entered by
//! descriptor beneath the root, links are changed and not followed, and what is mounted in the tree
//! is left alone. Of descriptors only a few are held, however deep or wide the tree is.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

mod kernel;

/// What a volume's files shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whose they are.
    pub group: u32,
    /// What the group may do.
    pub access: Access,
}

/// What the group may do with the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
}

/// When the tree is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In any case.
    Always,
    /// Only if the root isn't right.
    OnRootMismatch,
}

/// How far a walk is; shared with who watches it.
#[derive(Debug, Default)]
pub struct Progress {
    seen: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// How many files and folders were looked at.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Asks for an end before the tree's.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What became of it.
#[derive(Debug)]
pub enum Applied {
    /// The root was right, and that was enough.
    Before,
    /// The tree was walked.
    Walked(Walked),
    /// It was asked to end before it was done; the root is as it was.
    Stopped,
}

/// A walk through a whole tree.
#[derive(Debug)]
pub struct Walked {
    /// Files and folders.
    pub seen: u64,
    /// Those that were not right.
    pub changed: u64,
    /// Those that could not be changed; as to the kubelet, no reason to stop.
    pub refused: u64,
    /// One of them.
    pub example: Option<(PathBuf, io::Error)>,
}

impl Wanted {
    /// What a mode becomes; links have none.
    fn mode(self, kind: FileType, mode: u32) -> u32 {
        let mask = match self.access {
            Access::ReadWrite => 0o660,
            Access::ReadOnly => 0o440,
        };
        match kind {
            FileType::Symlink => mode,
            FileType::Directory => mode | mask | 0o2110,
            _ => mode | mask,
        }
    }

    fn is_met_by(self, found: &Statx) -> bool {
        let (kind, mode) = kind_and_mode(found);
        found.stx_gid == self.group && self.mode(kind, mode) == mode
    }
}

/// How many hands are worth their while on this machine; some of them wait for a disk.
pub fn usual_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * 2).clamp(4, 16)
}

/// Gives all of a tree to a group. Blocks until it is done, or asked to stop.
///
/// # Errors
/// If a folder can't be read. The root is then as it was.
pub fn apply(
    root: &Path,
    (wanted, when): (Wanted, When),
    threads: usize,
    progress: &Progress,
) -> io::Result<Applied> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(root, flags, Mode::empty())?;
    let found = look(&held, c"")?;
    if when == When::OnRootMismatch && wanted.is_met_by(&found) {
        return Ok(Applied::Before);
    }
    let walk = Walk {
        root: held,
        path: root,
        mount: found.stx_mnt_id,
        wanted,
        progress,
        jobs: Mutex::new(Jobs {
            waiting: vec![Job::Folder(CString::default())],
            working: 0,
            broken: None,
        }),
        more: Condvar::new(),
        changed: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        example: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| walk.work());
        }
        walk.work();
    });
    if let Some(error) = walk.jobs().broken.take() {
        return Err(error);
    }
    if progress.is_stopped() {
        return Ok(Applied::Stopped);
    }
    walk.set(&walk.root, c"", &walk.root_now()?);
    progress.seen.fetch_add(1, Ordering::Relaxed);
    Ok(Applied::Walked(Walked {
        seen: progress.seen(),
        changed: walk.changed.into_inner(),
        refused: walk.refused.into_inner(),
        example: walk
            .example
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
    }))
}

/// A larger folder is shared among all hands, in parts of so many names.
const PART: usize = 512;
/// What one path may be for the kernel, with room to spare.
const LONGEST: usize = 4000;
const BUFFER: usize = 64 << 10;

/// Something that one hand can do.
enum Job {
    /// A folder, by its path from the root.
    Folder(CString),
    /// Some entries of a large folder.
    Part(Arc<OwnedFd>, CString, Vec<CString>),
}

struct Jobs {
    /// Taken from the end, so that the deepest come first and few wait.
    waiting: Vec<Job>,
    working: usize,
    broken: Option<io::Error>,
}

struct Walk<'a> {
    root: OwnedFd,
    path: &'a Path,
    mount: u64,
    wanted: Wanted,
    progress: &'a Progress,
    jobs: Mutex<Jobs>,
    more: Condvar,
    changed: AtomicU64,
    refused: AtomicU64,
    example: Mutex<Option<(PathBuf, io::Error)>>,
}

impl Walk<'_> {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One hand: works until nothing is left for anybody.
    fn work(&self) {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        while let Some(job) = self.next() {
            let done = match job {
                Job::Folder(path) => self.folder(&path, &mut buffer),
                Job::Part(folder, path, names) => {
                    let below = self.entries(&folder, &path, &names);
                    self.add(below);
                    Ok(())
                }
            };
            let mut jobs = self.jobs();
            jobs.working -= 1;
            if let Err(error) = done {
                self.progress.stop();
                jobs.broken.get_or_insert(error);
            }
            if jobs.working == 0 && jobs.waiting.is_empty() {
                self.more.notify_all();
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        loop {
            if self.progress.is_stopped() {
                jobs.waiting.clear();
            }
            if let Some(job) = jobs.waiting.pop() {
                jobs.working += 1;
                return Some(job);
            }
            if jobs.working == 0 {
                return None;
            }
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn add(&self, mut more: Vec<Job>) {
        if more.is_empty() {
            return;
        }
        self.jobs().waiting.append(&mut more);
        self.more.notify_all();
    }

    /// What is in a folder. The folder's own traits were its parent's business.
    fn folder(&self, path: &CStr, buffer: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        let folder = match self.enter(path) {
            Ok(folder) => Arc::new(folder),
            // Moved, replaced or mounted over since it was seen: nothing of ours.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
            Err(error) => return Err(self.cannot("read", path, error)),
        };
        let mut names = Vec::new();
        let mut raw = RawDir::new(&*folder, buffer);
        while let Some(entry) = raw.next() {
            let entry = entry.map_err(|error| self.cannot("read", path, error))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            names.push(name.to_owned());
            if names.len() == PART * 2 {
                let part = names.split_off(PART);
                let part = Job::Part(folder.clone(), path.to_owned(), part);
                self.add(vec![part]);
            }
        }
        let below = self.entries(&folder, path, &names);
        self.add(below);
        Ok(())
    }

    /// Sets some entries of a folder; answers the folders among them.
    fn entries(&self, folder: &OwnedFd, path: &CStr, names: &[CString]) -> Vec<Job> {
        let mut below = Vec::new();
        for name in names {
            if self.progress.is_stopped() {
                break;
            }
            let found = match look(folder, name) {
                Ok(found) => found,
                Err(Errno::NOENT) => continue,
                Err(error) => {
                    self.refuse(path, name, error);
                    continue;
                }
            };
            if found.stx_mnt_id != self.mount {
                continue;
            }
            self.set_named(folder, path, name, &found);
            self.progress.seen.fetch_add(1, Ordering::Relaxed);
            if kind_and_mode(&found).0 == FileType::Directory {
                below.push(Job::Folder(join(path, name)));
            }
        }
        below
    }

    fn root_now(&self) -> io::Result<Statx> {
        Ok(look(&self.root, c"")?)
    }

    fn set_named(&self, folder: &OwnedFd, path: &CStr, name: &CStr, found: &Statx) {
        if let Err(error) = self.change(folder, name, found) {
            self.refuse(path, name, error);
        }
    }

    fn set(&self, folder: &OwnedFd, name: &CStr, found: &Statx) {
        self.set_named(folder, c"", name, found);
    }

    fn change(&self, folder: &OwnedFd, name: &CStr, found: &Statx) -> Result<(), Errno> {
        let (kind, mode) = kind_and_mode(found);
        let wanted = self.wanted.mode(kind, mode);
        let chowns = found.stx_gid != self.wanted.group;
        // A change of the group takes these bits away; they come back with the mode.
        let loses = chowns && kind != FileType::Symlink && mode & 0o6000 != 0;
        let chmods = wanted != mode || loses;
        if !chowns && !chmods {
            return Ok(());
        }
        let group = Gid::from_raw(self.wanted.group);
        let own = name.is_empty();
        let chowned = match (chowns, own) {
            (false, _) => Ok(()),
            (true, true) => rustix::fs::fchown(folder, None, Some(group)),
            (true, false) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(folder, name, None, Some(group), flags)
            }
        };
        let chmodded = match (chmods, own) {
            (false, _) => Ok(()),
            (true, true) => rustix::fs::fchmod(folder, Mode::from_raw_mode(wanted)),
            (true, false) => kernel::change_mode(folder, name, wanted),
        };
        match chowned.and(chmodded) {
            Ok(()) => {
                self.changed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn refuse(&self, path: &CStr, name: &CStr, error: Errno) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut example = self.example.lock().unwrap_or_else(PoisonError::into_inner);
        example.get_or_insert_with(|| (self.shown(&join(path, name)), error.into()));
    }

    fn cannot(&self, doing: &str, path: &CStr, error: Errno) -> io::Error {
        let error = io::Error::from(error);
        let path = self.shown(path);
        io::Error::new(
            error.kind(),
            format!("could not {doing} {}: {error}", path.display()),
        )
    }

    fn shown(&self, path: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(path.to_bytes()))
    }

    /// Opens a folder beneath the root, on the root's own mount, through no link. A path that is
    /// too long for one call is gone in stretches.
    fn enter(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        let mut rest = path.to_bytes();
        if rest.is_empty() {
            return open_beneath(&self.root, b".");
        }
        let mut held: Option<OwnedFd> = None;
        while !rest.is_empty() {
            let (stretch, then) = if rest.len() <= LONGEST {
                (rest, &rest[rest.len()..])
            } else {
                let end = rest[..LONGEST].iter().rposition(|byte| *byte == b'/');
                let end = end.ok_or(Errno::NAMETOOLONG)?;
                (&rest[..end], &rest[end + 1..])
            };
            held = Some(open_beneath(held.as_ref().unwrap_or(&self.root), stretch)?);
            rest = then;
        }
        held.ok_or(Errno::INVAL)
    }
}

fn open_beneath(from: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match rustix::fs::openat2(from.as_fd(), path, flags, Mode::empty(), resolve) {
            // Somebody renames things on the way.
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// Looks at an entry, or at the folder itself if the name is empty.
fn look(folder: &OwnedFd, name: &CStr) -> Result<Statx, Errno> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if name.is_empty() {
        flags |= AtFlags::EMPTY_PATH;
    }
    let mask = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::GID | StatxFlags::MNT_ID;
    rustix::fs::statx(folder, name, flags, mask)
}

fn kind_and_mode(found: &Statx) -> (FileType, u32) {
    let raw = u32::from(found.stx_mode);
    (FileType::from_raw_mode(raw), raw & 0o7777)
}

fn join(path: &CStr, name: &CStr) -> CString {
    let mut joined = path.to_bytes().to_vec();
    if !joined.is_empty() && !name.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name.to_bytes());
    // Both had none inside.
    CString::new(joined).unwrap_or_default()
}

#[cfg(test)]
mod tests;

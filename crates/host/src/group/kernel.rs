//! Changing a mode without following a link.
//!
//! JUSTIFICATION for `unsafe`: `fchmodat2` has no safe wrapper, and the older `fchmodat` follows
//! links whatever it is told: a file that is swapped for a link between the look and the change
//! would change the mode of what the link points to.

#![expect(unsafe_code, reason = "fchmodat2 has no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// The same number on every architecture; Linux 6.6.
const FCHMODAT2: libc::c_long = 452;

/// Changes the mode of what has this name in a directory, which must not be a link.
pub(super) fn change_mode(directory: &OwnedFd, name: &CStr, mode: u32) -> Result<(), Errno> {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the descriptor is open and the name ends with a zero; the kernel only reads it.
    let result =
        unsafe { libc::syscall(FCHMODAT2, directory.as_raw_fd(), name.as_ptr(), mode, flags) };
    if result == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&io::Error::last_os_error()) {
        Some(Errno::NOSYS) => through_descriptor(directory, name, mode),
        Some(error) => Err(error),
        None => Err(Errno::IO),
    }
}

/// For older kernels: the file is held first, and its mode changed through the name that the
/// process has for what it holds.
fn through_descriptor(directory: &OwnedFd, name: &CStr, mode: u32) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&held)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_mode_is_never_changed_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        symlink(&file, folder.path().join("link")).unwrap();
        let directory = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        for change in [change_mode, through_descriptor] {
            change(&directory, c"file", 0o640).unwrap();
            assert_eq!(mode(), 0o640);
            assert_eq!(change(&directory, c"link", 0o777), Err(Errno::OPNOTSUPP));
            assert_eq!(mode(), 0o640);
            change(&directory, c"file", 0o600).unwrap();
        }
    }
}

//! What a folder carries besides its files: owner, mode, and extended attributes, access lists
//! among them.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// The system's own, which it doesn't let go of, and labels anew for each pod.
const SELINUX: &[u8] = b"security.selinux";

/// Takes off what a folder carries. It is then of whoever does this, who is root but in tests.
pub(super) fn clear(folder: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    for name in names(folder)? {
        if name.to_bytes() == SELINUX {
            continue;
        }
        match rustix::fs::fremovexattr(folder, name.as_c_str()) {
            // What a file system makes up can't be removed, nor was it put there.
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::fs::fchown(folder, Some(geteuid()), Some(getegid()))?;
    // Last, since a change of owner takes bits off.
    rustix::fs::fchmod(folder, mode)
}

fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<std::ffi::CString>> {
    let mut list = Vec::new();
    loop {
        let needed = match rustix::fs::flistxattr_query(folder) {
            Ok(needed) => needed,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        list.resize(needed, 0);
        match rustix::fs::flistxattr(folder, &mut list[..]) {
            Ok(length) => {
                list.truncate(length);
                break;
            }
            // There are more by now.
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
    }
    let names = list.split_inclusive(|byte| *byte == 0);
    let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    Ok(names.map(CStr::to_owned).collect())
}

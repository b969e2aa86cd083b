//! The ioctls for a file's extended flags (`linux/fs.h`).
//!
//! JUSTIFICATION for `unsafe`: an ioctl is the only interface to a file's hint for the size of its
//! extents. Safe to call with any open descriptor: where there is no such thing, the kernel says so.

#![expect(unsafe_code, reason = "there is no other interface to these flags")]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801C_581F;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401C_5820;
const FS_XFLAG_EXTSIZE: u32 = 0x800;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const _: () = assert!(size_of::<Attributes>() == 28);

/// Asks for blocks in pieces of this many bytes from now on; the file must have none yet.
pub(super) fn set_extent_size(file: &File, bytes: u32) -> Result<(), Errno> {
    let mut attributes = Attributes::default();
    // SAFETY: FS_IOC_FSGETXATTR writes one `struct fsxattr` through the pointer, which is live and of
    // that size; every bit pattern is a valid value of it.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) })?;
    attributes.flags |= FS_XFLAG_EXTSIZE;
    attributes.extent_size = bytes;
    // SAFETY: FS_IOC_FSSETXATTR reads one `struct fsxattr` through the pointer, which is live and
    // fully initialised.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const attributes) })
}

fn checked(result: i32) -> Result<(), Errno> {
    match result {
        0.. => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

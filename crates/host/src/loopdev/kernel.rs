//! The loop driver's ioctls and structures (`linux/loop.h`).
//!
//! JUSTIFICATION for `unsafe`: an ioctl is the only interface that loop devices have, and no crate
//! of ours wraps these. Every function here is safe to call with any open descriptor: on one that
//! is not a loop device the kernel answers `ENOTTY` or `EINVAL`.

#![expect(unsafe_code, reason = "ioctl is the loop driver's only interface")]

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::Errno;

use super::{Access, Lifetime, LoopStatus};

const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4C07;
const LOOP_SET_DIRECT_IO: libc::c_ulong = 0x4C08;
const LOOP_SET_BLOCK_SIZE: libc::c_ulong = 0x4C09;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const BLKRASET: libc::c_ulong = 0x1262;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;

/// What users of the device see as its block size, always: left to itself, the kernel takes what
/// direct I/O on the image needs, and that grows when the image comes to share blocks. A file system
/// with smaller blocks could then not be mounted any more. Where direct I/O needs more, there is none.
const SECTOR: u32 = 512;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    lo_device: u64,
    lo_inode: u64,
    lo_rdevice: u64,
    lo_offset: u64,
    lo_sizelimit: u64,
    lo_number: u32,
    lo_encrypt_type: u32,
    lo_encrypt_key_size: u32,
    lo_flags: u32,
    lo_file_name: [u8; 64],
    lo_crypt_name: [u8; 64],
    lo_encrypt_key: [u8; 32],
    lo_init: [u64; 2],
}

const EMPTY_INFO: LoopInfo64 = LoopInfo64 {
    lo_device: 0,
    lo_inode: 0,
    lo_rdevice: 0,
    lo_offset: 0,
    lo_sizelimit: 0,
    lo_number: 0,
    lo_encrypt_type: 0,
    lo_encrypt_key_size: 0,
    lo_flags: 0,
    lo_file_name: [0; 64],
    lo_crypt_name: [0; 64],
    lo_encrypt_key: [0; 32],
    lo_init: [0; 2],
};

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

/// The number of a device that was free a moment ago.
pub(super) fn get_free(control: &File) -> Result<u32, Errno> {
    let number = plain(control.as_raw_fd(), LOOP_CTL_GET_FREE)?;
    u32::try_from(number).map_err(|_| Errno::INVAL)
}

/// Attaches the file and sets everything in one step; `EBUSY` if the device is taken.
pub(super) fn configure(
    device: &File,
    image: &File,
    access: Access,
    lifetime: Lifetime,
    direct_io: bool,
) -> Result<(), Errno> {
    let mut flags = 0;
    if access == Access::ReadOnly {
        flags |= LO_FLAGS_READ_ONLY;
    }
    if lifetime == Lifetime::LastClose {
        flags |= LO_FLAGS_AUTOCLEAR;
    }
    if direct_io {
        flags |= LO_FLAGS_DIRECT_IO;
    }
    let config = LoopConfig {
        fd: u32::try_from(image.as_raw_fd()).map_err(|_| Errno::BADF)?,
        block_size: SECTOR,
        info: LoopInfo64 {
            lo_flags: flags,
            ..EMPTY_INFO
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config` through the pointer, which is live and
    // fully initialised; both descriptors are open for the whole call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    checked(result).map(|_| ())
}

/// What is attached; `ENXIO` if nothing is.
pub(super) fn status(device: &File) -> Result<LoopStatus, Errno> {
    let mut info = EMPTY_INFO;
    // SAFETY: LOOP_GET_STATUS64 writes one `struct loop_info64` through the pointer, which is live
    // and of that size; every bit pattern is a valid value of it.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })?;
    let has = |flag| info.lo_flags & flag != 0;
    Ok(LoopStatus {
        backing_device: info.lo_device,
        backing_inode: info.lo_inode,
        access: if has(LO_FLAGS_READ_ONLY) {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        lifetime: if has(LO_FLAGS_AUTOCLEAR) {
            Lifetime::LastClose
        } else {
            Lifetime::UntilDetached
        },
        direct_io: has(LO_FLAGS_DIRECT_IO),
    })
}

/// Detaches, at once or with the last closer.
pub(super) fn clear(device: &File) -> Result<(), Errno> {
    plain(device.as_raw_fd(), LOOP_CLR_FD).map(|_| ())
}

/// Reads the file's size again.
pub(super) fn set_capacity(device: &File) -> Result<(), Errno> {
    plain(device.as_raw_fd(), LOOP_SET_CAPACITY).map(|_| ())
}

/// Sets what users of the device see as its block size.
pub(super) fn set_block_size(device: &File, bytes: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: LOOP_SET_BLOCK_SIZE takes its argument by value; the kernel touches no memory of ours.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_BLOCK_SIZE, bytes) }).map(|_| ())
}

/// Asks for direct I/O; `EINVAL` if it cannot be with this block size.
pub(super) fn set_direct_io(device: &File) -> Result<(), Errno> {
    let on: libc::c_ulong = 1;
    // SAFETY: LOOP_SET_DIRECT_IO takes its argument by value; the kernel touches no memory of ours.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_DIRECT_IO, on) }).map(|_| ())
}

/// How far the kernel reads ahead, in sectors of 512 bytes.
pub(super) fn set_read_ahead(device: &File, sectors: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: BLKRASET takes its argument by value; the kernel touches no memory of ours.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKRASET, sectors) }).map(|_| ())
}

fn plain(fd: RawFd, request: libc::c_ulong) -> Result<i32, Errno> {
    // SAFETY: the requests passed here take no argument; the kernel touches no memory of ours.
    checked(unsafe { libc::ioctl(fd, request, 0) })
}

fn checked(result: i32) -> Result<i32, Errno> {
    if result < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(result)
    }
}

//! The FIEMAP ioctl (`linux/fiemap.h`).

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::{Extent, Holds};

const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
const FLAG_SYNC: u32 = 1;

const EXTENT_LAST: u32 = 0x1;
const EXTENT_UNKNOWN: u32 = 0x2;
const EXTENT_DELALLOC: u32 = 0x4;
const EXTENT_ENCODED: u32 = 0x8;
const EXTENT_NOT_ALIGNED: u32 = 0x100;
const EXTENT_DATA_INLINE: u32 = 0x200;
const EXTENT_DATA_TAIL: u32 = 0x400;
const EXTENT_UNWRITTEN: u32 = 0x800;
const EXTENT_SHARED: u32 = 0x2000;

/// With any of these the physical place does not say which bytes are there.
const PLACELESS: u32 = EXTENT_UNKNOWN
    | EXTENT_DELALLOC
    | EXTENT_ENCODED
    | EXTENT_NOT_ALIGNED
    | EXTENT_DATA_INLINE
    | EXTENT_DATA_TAIL;

/// How many extents one call tells of: 14 KiB.
const BATCH: usize = 256;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for a batch.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<Request>() == 32 + 56 * BATCH);

/// The extents that end after `from`, up to a batch, and whether they are the last.
#[expect(unsafe_code, reason = "FIEMAP has no safe wrapper")]
pub(super) fn map(file: &File, from: u64, sync: bool) -> Result<(Vec<Extent>, bool), Errno> {
    const NONE: RawExtent = RawExtent {
        logical: 0,
        physical: 0,
        length: 0,
        reserved64: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let mut request = Box::new(Request {
        start: from,
        length: u64::MAX - from,
        flags: if sync { FLAG_SYNC } else { 0 },
        mapped_extents: 0,
        extent_count: BATCH as u32,
        reserved: 0,
        extents: [NONE; BATCH],
    });
    // SAFETY: `request` is a live `struct fiemap` followed by as many `struct fiemap_extent` as its
    // `extent_count` says; the kernel writes no further, and any bytes are valid for the fields.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *request) };
    if result != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let mapped = (request.mapped_extents as usize).min(BATCH);
    let raw = &request.extents[..mapped];
    let last = raw.last().is_none_or(|raw| raw.flags & EXTENT_LAST != 0);
    Ok((raw.iter().map(from_raw).collect(), last))
}

fn from_raw(raw: &RawExtent) -> Extent {
    Extent {
        logical: raw.logical,
        length: raw.length,
        holds: match raw.flags {
            flags if flags & EXTENT_UNWRITTEN != 0 => Holds::Unwritten,
            flags if flags & PLACELESS != 0 => Holds::Data,
            _ => Holds::DataAt(raw.physical),
        },
        shared: raw.flags & EXTENT_SHARED != 0,
    }
}

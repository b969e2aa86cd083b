//! The block layer's ioctls (`linux/fs.h`).
//!
//! JUSTIFICATION for `unsafe`: an ioctl is the only interface to these, and no crate of ours wraps
//! them all. Every function here is safe to call with any open descriptor: on one that is no block
//! device the kernel answers `ENOTTY`.

#![expect(unsafe_code, reason = "ioctl is the block layer's only interface")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKZEROOUT: libc::c_ulong = 0x127F;
const BLKGETDISKSEQ: libc::c_ulong = 0x8008_1280;

pub(super) fn size(device: BorrowedFd<'_>) -> Result<u64> {
    answer(device, BLKGETSIZE64)
}

/// Which disk it is, counted since the system started.
pub(super) fn sequence(device: BorrowedFd<'_>) -> Result<u64> {
    answer(device, BLKGETDISKSEQ)
}

pub(super) fn discard(device: BorrowedFd<'_>, from: u64, bytes: u64) -> Result<()> {
    on_range(device, BLKDISCARD, [from, bytes])
}

pub(super) fn zero(device: BorrowedFd<'_>, from: u64, bytes: u64) -> Result<()> {
    on_range(device, BLKZEROOUT, [from, bytes])
}

fn answer(device: BorrowedFd<'_>, question: libc::c_ulong) -> Result<u64> {
    let mut number = 0u64;
    // SAFETY: both questions write one u64 through the pointer, which is to a live one.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), question as _, &raw mut number) };
    outcome(result).map(|()| number)
}

fn on_range(device: BorrowedFd<'_>, command: libc::c_ulong, range: [u64; 2]) -> Result<()> {
    // SAFETY: both commands read two u64 through the pointer, which is to live ones.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), command as _, range.as_ptr()) };
    outcome(result)
}

fn outcome(result: libc::c_int) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

//! The freezing ioctls, and the keeper's whole life.
//!
//! JUSTIFICATION for `unsafe`: FIFREEZE and FITHAW have no safe wrapper. The keeper must be there
//! before the first file system is frozen, and must not depend on finding a program to execute: so
//! it is a fork of this process, in which only system calls are allowed.

#![expect(unsafe_code, reason = "ioctl and fork have no safe wrapper")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;

/// How often the keeper tries again once the time is up.
const AGAIN_MILLISECONDS: libc::c_int = 100;

/// Freezes the file system that a descriptor is on.
pub(super) fn freeze(file: &File) -> Result<(), Errno> {
    // SAFETY: the descriptor is open; the kernel ignores the argument.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FIFREEZE, 0) };
    outcome(result)
}

/// Thaws it; `EINVAL` if it is not frozen.
pub(super) fn thaw(file: &File) -> Result<(), Errno> {
    outcome(raw_thaw(file.as_raw_fd()))
}

fn raw_thaw(fd: RawFd) -> libc::c_int {
    // SAFETY: on whatever descriptor, the kernel either thaws what it is on or answers an error;
    // it ignores the argument.
    unsafe { libc::ioctl(fd, FITHAW, 0) }
}

fn outcome(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Starts a process that thaws `watched` when nothing can come through `pipe` any more, or when
/// `limit` has passed; a byte through the pipe ends it.
pub(super) fn fork_keeper(pipe: RawFd, watched: &[RawFd], limit: Duration) -> io::Result<Pid> {
    let mut kept = watched.to_vec();
    kept.push(pipe);
    kept.sort_unstable();
    let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // A signal that is sent to all of our group must not end the keeper, nor run our handlers in it.
    // SAFETY: sigfillset initialises the set that pthread_sigmask then reads, and pthread_sigmask
    // initialises `before` if it succeeds, which it does for a valid first argument.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    // SAFETY: the child calls nothing but `keep`, which makes system calls only: it takes no lock,
    // allocates nothing, and never returns.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        keep(pipe, watched, &kept, limit);
    }
    let error = io::Error::last_os_error();
    // SAFETY: `before` was initialised above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    Pid::from_raw(forked.max(0)).ok_or(error)
}

/// The keeper. Runs in a fork of a process with many threads: system calls only.
fn keep(pipe: RawFd, watched: &[RawFd], kept: &[RawFd], limit: libc::c_int) -> ! {
    close_all_but(kept);
    let mut patience = limit;
    loop {
        let mut ready = libc::pollfd {
            fd: pipe,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live pollfd, as the count says.
        match unsafe { libc::poll(&raw mut ready, 1, patience) } {
            0 => {
                for fd in watched {
                    raw_thaw(*fd);
                }
                patience = AGAIN_MILLISECONDS;
            }
            1 => {
                let mut byte = 0u8;
                // SAFETY: one byte is read into one live byte.
                let length = unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) };
                if length == 0 {
                    for fd in watched {
                        raw_thaw(*fd);
                    }
                }
                if length >= 0 {
                    // SAFETY: ends this process at once, which has nothing to clean up.
                    unsafe { libc::_exit(0) }
                }
            }
            // Signals are blocked; whatever it is, the next look will tell.
            _ => {}
        }
    }
}

/// Lets go of everything that the fork inherited: sockets, devices, mounts, and our own copy of the
/// pipe's other end.
fn close_all_but(kept: &[RawFd]) {
    let mut next: libc::c_uint = 0;
    for fd in kept {
        let fd = (*fd).max(0) as libc::c_uint;
        if fd > next {
            close_range(next, fd - 1);
        }
        next = fd + 1;
    }
    close_range(next, libc::c_uint::MAX);
}

fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: the process is a fork that uses none of these descriptors.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, last, 0);
    }
}

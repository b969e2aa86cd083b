//! The system calls that `rustix` does not wrap safely, one function each.
//!
//! The shim is a fresh, single-threaded process: what is said about `fork`
//! below holds because [`super::shim`] refuses to start otherwise.

#![expect(
    unsafe_code,
    reason = "fork, signals and mount attributes have no safe wrapper"
)]

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::process::{Pid, Signal};
use rustix::thread::UnshareFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Which side of a fork this is.
pub(super) enum Fork {
    Parent { child: Pid },
    Child,
}

/// Splits the process in two.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so no lock can be held by a thread
    // that does not exist in the child, and the child may allocate.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid)
            .map(|child| Fork::Parent { child })
            .ok_or_else(|| io::Error::other("fork returned a negative process number")),
    }
}

/// Moves this process (or, for process numbers, its next child) into namespaces
/// of its own.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags used here leave the descriptor table shared with nobody
    // as it is; the process has one thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Signals as something to read, instead of handlers that interrupt.
pub(super) struct Signals(File);

impl Signals {
    /// Blocks the signals and opens a queue of them. The mask survives fork and
    /// exec; see [`restore_signals`].
    pub(super) fn block(signals: &[Signal]) -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that sigaddset then changes;
        // both only write to the memory they are given.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            set.assume_init()
        };
        // SAFETY: the set is initialised and outlives the call.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// The next signal; waits for one.
    pub(super) fn next(&self) -> io::Result<c_int> {
        let mut raw = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match (&self.0).read_exact(&mut raw) {
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let number = [raw[0], raw[1], raw[2], raw[3]];
        c_int::try_from(u32::from_ne_bytes(number)).map_err(io::Error::other)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives a program the signals it expects at its start: none blocked, and
/// SIGPIPE, which Rust's own start-up ignores, at its default.
pub(super) fn restore_signals() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that sigprocmask then reads; the
    // default action involves no code of ours.
    let result = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the runtime wait for a descriptor to become readable.
pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open descriptor for as long as it lives,
    // and the AsyncFd takes it off the runtime's list before it drops it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

/// What to change on a mount and all mounts below it.
pub(super) struct MountChange {
    pub(super) set: u64,
    pub(super) propagation: u64,
}

/// `mount_setattr(2)` on the tree that a descriptor stands for.
pub(super) fn change_mounts(tree: impl AsFd, change: &MountChange) -> io::Result<()> {
    set_attributes(tree, change, libc::AT_RECURSIVE)
}

/// The same on the topmost mount of the tree alone.
pub(super) fn change_top_mount(tree: impl AsFd, change: &MountChange) -> io::Result<()> {
    set_attributes(tree, change, 0)
}

fn set_attributes(tree: impl AsFd, change: &MountChange, reach: i32) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: change.set,
        attr_clr: 0,
        propagation: change.propagation,
        userns_fd: 0,
    };
    // SAFETY: the path is an empty C string, the structure is initialised and
    // its true size is given; the kernel only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | reach,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

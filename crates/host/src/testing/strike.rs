//! A process that is watched whenever it is about to change files or mounts, and can be ended just
//! before a chosen change.
//!
//! The program itself is the one that users run: nothing in it knows of the watch. A filter on system
//! calls has the kernel ask before each change; who asks is let through, or killed.
//!
//! JUSTIFICATION for `unsafe`: a filter on system calls, and the descriptor at which the kernel asks,
//! have no safe wrapper.

#![expect(unsafe_code, reason = "a filter on system calls has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags};

/// What is known of a watched process's changes.
#[derive(Debug, Default)]
struct Seen {
    pid: Option<u32>,
    /// Changes so far.
    count: usize,
    /// The change before which it is ended.
    strike: Option<usize>,
    /// What it was about to do when it was.
    struck: Option<&'static str>,
}

/// A process that is asked about before each change. It is not ended with this.
#[derive(Debug)]
pub struct Struck {
    /// The process.
    pub child: Child,
    seen: Arc<Mutex<Seen>>,
}

impl Struck {
    /// Starts a program that is killed, as by `kill -9`, before its change number `strike`, from
    /// the moment [`begin`](Self::begin) is called. What it starts in its turn is never killed.
    ///
    /// # Errors
    /// If it can't be started, or the kernel has no such filters.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (give, take) = std::sync::mpsc::channel::<OwnedFd>();
        let watching = seen.clone();
        std::thread::spawn(move || {
            if let Ok(listener) = take.recv() {
                watch(&listener, &watching);
            }
        });
        // The filter is its thread's and that of whatever the thread starts: ours stays free.
        let spawning = std::thread::spawn(move || {
            let listener = install()?;
            let _the_watch_lives = give.send(listener);
            command.spawn()
        });
        let child = spawning
            .join()
            .map_err(|_| io::Error::other("could not start it"))??;
        lock(&seen).pid = Some(child.id());
        Ok(Self { child, seen })
    }

    /// Counts from here on, and ends the process before the change with this number, if any.
    pub fn begin(&self, strike: Option<usize>) {
        let mut seen = lock(&self.seen);
        seen.count = 0;
        seen.strike = strike;
    }

    /// How many changes it made since.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.seen).count
    }

    /// What it was about to do when it was ended.
    #[must_use]
    pub fn struck(&self) -> Option<&'static str> {
        lock(&self.seen).struck
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls that change files or mounts.
#[rustfmt::skip]
const CHANGES: &[(libc::c_long, &str)] = &[
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount2"),
    (libc::SYS_move_mount, "move_mount"),
    (libc::SYS_mount_setattr, "mount_setattr"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_mknodat, "mknodat"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_fchmodat, "fchmodat"),
    (libc::SYS_fchown, "fchown"),
    (libc::SYS_fchownat, "fchownat"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, "chmod"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, "lchown"),
];

/// From now on the kernel asks before each change of this thread and of what it starts.
fn install() -> io::Result<OwnedFd> {
    let step = |code: u32, yes: u8, no: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let bits = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    // Offsets in `struct seccomp_data`: the call's number, and the low half of its third argument.
    let (number, flags) = (
        0,
        if cfg!(target_endian = "little") {
            32
        } else {
            36
        },
    );
    let mut steps = vec![load(number)];
    for (call, _) in CHANGES {
        steps.push(step(equals, 0, 1, *call as u32));
        steps.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    }
    // A file that may be made.
    steps.push(step(equals, 0, 3, libc::SYS_openat as u32));
    steps.push(load(flags));
    steps.push(step(bits, 0, 1, libc::O_CREAT as u32));
    steps.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    steps.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel reads one `sock_fprog` and as many steps as it says, all of which live until
    // the call returns; it copies them. Only this thread is concerned.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Answers the kernel for as long as anybody lives who is watched.
fn watch(listener: &OwnedFd, seen: &Mutex<Seen>) {
    loop {
        let mut asked = [PollFd::new(listener, PollFlags::IN)];
        if rustix::event::poll(&mut asked, None).is_err() {
            continue;
        }
        let told = asked[0].revents();
        if !told.contains(PollFlags::IN) {
            return;
        }
        // SAFETY: all zero is a valid value of this structure of numbers, and the one that the kernel wants.
        let mut question: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure of this very type.
        let received = unsafe {
            libc::ioctl(
                listener.as_fd().as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV as _,
                &raw mut question,
            )
        };
        if received != 0 {
            // Who asked is gone.
            continue;
        }
        if judge(&question, seen) == Verdict::Killed {
            // Not answered: the call is never made.
            continue;
        }
        let mut answer = libc::seccomp_notif_resp {
            id: question.id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        };
        // SAFETY: the kernel reads one structure of this very type. That nobody is there any more to be
        // answered is no harm.
        let _who_asked_may_be_gone = unsafe {
            libc::ioctl(
                listener.as_fd().as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND as _,
                &raw mut answer,
            )
        };
    }
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Goes,
    Killed,
}

/// Counts a change of the process itself, and ends it if this is the one.
fn judge(question: &libc::seccomp_notif, seen: &Mutex<Seen>) -> Verdict {
    let mut seen = lock(seen);
    let Some(pid) = seen.pid else {
        return Verdict::Goes;
    };
    if !std::path::Path::new(&format!("/proc/{pid}/task/{}", question.pid)).exists() {
        return Verdict::Goes;
    }
    if seen.struck.is_some() {
        return Verdict::Killed;
    }
    if seen.strike == Some(seen.count) {
        let call = libc::c_long::from(question.data.nr);
        let known = CHANGES.iter().find(|(number, _)| *number == call);
        seen.struck = Some(known.map_or("openat", |(_, name)| name));
        if let Some(pid) = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            let _it_may_be_gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        return Verdict::Killed;
    }
    seen.count += 1;
    Verdict::Goes
}

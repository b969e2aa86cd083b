//! A kernel that has no more loop devices.
//!
//! JUSTIFICATION for `unsafe`: there are a million numbers, so that no test can take them all. A filter
//! on system calls makes the kernel answer as if they were taken, and installing one has no safe
//! wrapper.

#![expect(unsafe_code, reason = "a filter on system calls has no safe wrapper")]

use std::io;

const LOOP_CTL_GET_FREE: u32 = 0x4C82;

/// From now on the kernel gives no number of a free loop device to this thread, nor to those that it
/// starts: as when all are taken. The others notice nothing.
pub fn refuse_loop_numbers() -> io::Result<()> {
    // Offsets in `struct seccomp_data`: the call's number, and the low half of its second argument.
    let (number, request) = (
        0,
        if cfg!(target_endian = "little") {
            24
        } else {
            28
        },
    );
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let unless = |value, skip| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, value);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let refusal = libc::SECCOMP_RET_ERRNO | libc::ENOSPC.unsigned_abs();
    let mut steps = [
        load(number),
        unless(libc::SYS_ioctl as u32, 3),
        load(request),
        unless(LOOP_CTL_GET_FREE, 1),
        answer(refusal),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel reads one `sock_fprog` and as many steps as it says, all of which live until
    // the call returns; it copies them. Only this thread is concerned.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    }
}

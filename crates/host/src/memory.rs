//! How much memory this process keeps for itself.

use std::{fs, io, path::Path};

/// Lets all threads share two heaps instead of each taking its own.
///
/// For processes that do little on many threads: a heap per thread costs more memory than the
/// waiting for a shared one costs time. To be called before there are threads.
#[expect(unsafe_code, reason = "mallopt is the only interface to it")]
pub fn share_heaps() {
    // SAFETY: mallopt only changes a setting of the allocator; any value is allowed.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        // Give freed memory back early: a burst of calls must not be kept as idle memory.
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 10);
    }
}

/// Gives large pieces of memory back as soon as they are free.
///
/// For processes that now and then need megabytes at once: left to itself the allocator learns from
/// the first of them to keep such pieces. To be called before there are threads.
#[expect(unsafe_code, reason = "mallopt is the only interface to it")]
pub fn give_back_large() {
    // SAFETY: mallopt only changes a setting of the allocator; any value is allowed.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// Gives back what is free in the heaps, wherever in them it is: left to itself the allocator gives back
/// only what is free at a heap's end.
#[expect(unsafe_code, reason = "malloc_trim is the only interface to it")]
pub fn give_back_free() {
    // SAFETY: it takes the allocator's own locks, and touches nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the program's own pages: whatever of it is needed again is mapped again, from the file,
/// and what was needed for the start only is not.
///
/// For processes that wait most of the time: most of what they have in memory is code that ran once.
/// Answers with how many bytes were looked through.
///
/// # Errors
/// Where this process can't be looked at.
pub fn let_go_of_code() -> io::Result<usize> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/smaps")?;
    let mut bytes = 0;
    for (start, end) in clean_code(&maps, &program) {
        let_go(start, end - start)?;
        bytes += end - start;
    }
    Ok(bytes)
}

#[expect(unsafe_code, reason = "madvise is the only interface to it")]
fn let_go(start: usize, length: usize) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pages are mapped from a file, can't be written, and none of them differs from the
    // file: whoever reads or runs them next gets the same from there.
    let failed = unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The parts of the program that stand in memory as they do in its file, and can't change.
fn clean_code(smaps: &str, program: &Path) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let rights = words.next().unwrap_or_default();
            // offset, device, inode, and what is left is the path
            let path = words.nth(3).unwrap_or_default();
            let hex = |text| usize::from_str_radix(text, 16).ok();
            let ours = !rights.contains('w') && rights.ends_with('p') && Path::new(path) == program;
            mapping = hex(start).zip(hex(end)).filter(|_| ours);
        } else if first == "Anonymous:"
            && words.next() == Some("0")
            && let Some(clean) = mapping.take()
        {
            found.push(clean);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_in_the_file_and_cannot_change_is_let_go_of() {
        let smaps = "\
            1000-3000 r--p 00000000 fd:00 7 /bin/orlop\nRss: 8 kB\nAnonymous: 0 kB\nSwap: 0 kB\n\
            3000-9000 r-xp 00002000 fd:00 7 /bin/orlop\nAnonymous: 0 kB\n\
            9000-a000 r--p 00008000 fd:00 7 /bin/orlop\nAnonymous: 4 kB\n\
            a000-b000 rw-p 00009000 fd:00 7 /bin/orlop\nAnonymous: 0 kB\n\
            b000-c000 r-xs 0000a000 fd:00 7 /bin/orlop\nAnonymous: 0 kB\n\
            c000-d000 rw-p 00000000 00:00 0 \nAnonymous: 0 kB\n\
            d000-e000 r-xp 00000000 fd:00 8 /lib/libc.so\nAnonymous: 0 kB\n";
        let found = clean_code(smaps, Path::new("/bin/orlop"));
        assert_eq!(found, [(0x1000, 0x3000), (0x3000, 0x9000)]);
    }

    #[test]
    fn a_program_runs_on_without_its_pages() {
        let resident = || {
            let status = fs::read_to_string("/proc/self/statm").expect("it is there");
            let pages = status.split(' ').nth(2).expect("the shared ones");
            pages.parse::<usize>().expect("a number")
        };
        let before = resident();
        assert!(let_go_of_code().expect("it may") > 0);
        assert!(resident() < before, "{} of {before} pages", resident());
        let words: Vec<String> = (0..1000).map(|n| format!("{n:x}")).collect();
        assert_eq!(words.concat().len(), 16 + 240 * 2 + 744 * 3);
    }
}

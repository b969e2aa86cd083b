//! How much memory this process keeps for itself.

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

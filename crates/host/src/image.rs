//! Copies of images: shared blocks where the file system can, else the data and none of the holes.
//!
//! The target is a new file under a name that nobody looks at yet: putting it on disk and in its
//! place is the caller's, with whatever else belongs to it. The source's file offset is moved.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rustix::io::Errno;

/// Makes `to` a copy that shares all blocks with `from`: at once, and of one moment even if `from`
/// is being written to. False, and nothing done, if this pair of files cannot share blocks.
pub fn reflink(from: &File, to: &File) -> io::Result<bool> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => Ok(true),
        // Not this kind of file system, not with these files, not across two.
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::NOSYS) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Copies the data of `from` into the new file `to`, and leaves holes where `from` has them. No block
/// is shared.
///
/// Not of one moment: nobody may write to `from` meanwhile. Ends with [`io::ErrorKind::TimedOut`]
/// soon after `until`.
pub fn copy_sparse(from: &File, to: &File, until: Option<Instant>) -> io::Result<()> {
    /// At a time, and between two looks at the clock.
    const STEP: usize = 1 << 20;
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while let Some(data) = next_data(from, at, size)? {
        at = data.start;
        while at < data.end {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = usize::try_from(data.end - at).unwrap_or(STEP);
            let step = &mut buffer[..left.min(STEP)];
            // Not inside the kernel: it would share blocks where it can.
            from.read_exact_at(step, at)?;
            to.write_all_at(step, at)?;
            at += step.len() as u64;
        }
    }
    Ok(())
}

/// The first range of data at or after `at` in a file of this size.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if at >= size {
        return Ok(None);
    }
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(start) if start >= size => Ok(None),
        Ok(start) => {
            let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?;
            Ok(Some(start..end.min(size)))
        }
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::testing::ScratchFs;

    const MIB: u64 = 1 << 20;

    fn new(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(path).unwrap()
    }

    /// 64 MiB with data in three places, one of them the very end.
    fn sample(path: &Path) -> File {
        let file = new(path);
        file.set_len(64 * MIB).unwrap();
        for (place, byte) in [(0, 1u8), (40 * MIB, 2), (64 * MIB - 4096, 3)] {
            file.write_all_at(&[byte; 4096], place).unwrap();
        }
        file
    }

    fn assert_sample(file: &File) {
        assert_eq!(file.metadata().unwrap().len(), 64 * MIB);
        let mut block = [0u8; 4096];
        for (place, byte) in [
            (0, 1u8),
            (4096, 0),
            (40 * MIB, 2),
            (40 * MIB + 4096, 0),
            (64 * MIB - 4096, 3),
        ] {
            file.read_exact_at(&mut block, place).unwrap();
            assert_eq!(block, [byte; 4096], "at {place}");
        }
    }

    #[test]
    fn a_sparse_copy_has_all_data_and_no_more_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let from = sample(&directory.path().join("from"));
        let to = new(&directory.path().join("to"));
        copy_sparse(&from, &to, None).unwrap();
        assert_sample(&to);
        assert!(to.metadata().unwrap().blocks() * 512 < MIB);
    }

    #[test]
    fn a_copy_without_time_left_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let from = sample(&directory.path().join("from"));
        let to = new(&directory.path().join("to"));
        let error = copy_sparse(&from, &to, Some(Instant::now())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_reflink_shares_blocks_and_stays_apart() {
        for kind in ["xfs", "btrfs"] {
            let Some(pool) = ScratchFs::new(kind, 320 * MIB) else {
                return;
            };
            let from = sample(&pool.path().join("from"));
            let to = new(&pool.path().join("to"));
            assert!(reflink(&from, &to).unwrap(), "{kind}");
            assert_sample(&to);
            from.write_all_at(&[9; 4096], 0).unwrap();
            to.write_all_at(&[8; 4096], 40 * MIB + 4096).unwrap();
            let mut block = [0u8; 4096];
            to.read_exact_at(&mut block, 0).unwrap();
            assert_eq!(block, [1; 4096]);
            from.read_exact_at(&mut block, 40 * MIB + 4096).unwrap();
            assert_eq!(block, [0; 4096]);
        }
    }

    #[test]
    fn a_sparse_copy_shares_nothing_even_where_it_could() {
        let Some(pool) = ScratchFs::new("xfs", 320 * MIB) else {
            return;
        };
        let from = sample(&pool.path().join("from"));
        let to = new(&pool.path().join("to"));
        copy_sparse(&from, &to, None).unwrap();
        assert_sample(&to);
        let mut extents = crate::extents::Extents::of(&to, 0);
        assert!(extents.all(|extent| !extent.unwrap().shared));
    }

    #[test]
    fn files_that_cannot_share_are_told_apart_and_left_alone() {
        let Some(pool) = ScratchFs::new("ext4", 64 * MIB) else {
            return;
        };
        let from = sample(&pool.path().join("from"));
        let to = new(&pool.path().join("to"));
        assert!(!reflink(&from, &to).unwrap());
        assert_eq!(to.metadata().unwrap().len(), 0);
    }
}

//! Blocks of a file that are taken before they are written.

use std::fs::File;
use std::io;

use rustix::fs::FallocateFlags;

use crate::filesystem::copy_data;

/// Gives a file all its blocks and at least this size; what has data keeps it.
pub fn all(file: &File, bytes: u64) -> io::Result<()> {
    match bytes {
        0 => Ok(()),
        _ => Ok(rustix::fs::fallocate(
            file,
            FallocateFlags::empty(),
            0,
            bytes,
        )?),
    }
}

/// Asks a file system that never writes in place (btrfs) to do so with this new and empty file. Others
/// do anyway, and there is nothing to be done where it cannot be.
pub fn write_in_place(file: &File) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    if let Ok(flags) = ioctl_getflags(file) {
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Gives a file the content of another and no other, without giving up a block. On disk when this
/// returns; anything from old to new if it is cut short.
pub fn overwrite(file: &File, content: &File, bytes: u64) -> io::Result<()> {
    zero(file, bytes)?;
    copy_data(content, file, bytes)?;
    file.sync_all()
}

fn zero(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 0, bytes) {
        // A file system that cannot zero blocks can still give them up and take others.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, hole, 0, bytes)?;
            all(file, bytes)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn an_allocated_file_has_its_blocks_and_keeps_its_data() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"kept", 0).unwrap();
        all(&file, 1 << 20).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!(found.len(), 1 << 20);
        assert!(found.blocks() * 512 >= 1 << 20);
        let mut head = [0; 4];
        file.read_exact_at(&mut head, 0).unwrap();
        assert_eq!(&head, b"kept");
    }

    #[test]
    fn an_overwritten_file_has_the_new_content_only() {
        let (file, content) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        file.write_all_at(&[7; 65536], 4096).unwrap();
        all(&file, 1 << 20).unwrap();
        content.set_len(1 << 20).unwrap();
        content.write_all_at(&[9; 4096], 8192).unwrap();
        overwrite(&file, &content, 1 << 20).unwrap();
        let mut seen = vec![0; 1 << 20];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen[..8192].iter().all(|byte| *byte == 0));
        assert!(seen[8192..12288].iter().all(|byte| *byte == 9));
        assert!(seen[12288..].iter().all(|byte| *byte == 0));
        assert!(file.metadata().unwrap().blocks() * 512 >= 1 << 20);
    }
}

//! Blocks of a file that are taken before they are written.

use std::fs::File;
use std::io;

use rustix::fs::FallocateFlags;

use crate::filesystem::copy_data;

mod kernel;

/// What a file that is written here and there takes at once.
const PIECE: u32 = 1 << 20;

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

/// Has a new and empty file take its blocks by the mebibyte, where the file system can (xfs).
///
/// An image is written in the order in which its users write. With a block taken at a time, a volume
/// of some gibibytes comes to have a million extents, for ever; sharing them takes seconds, reading
/// ahead is in vain. Sharing and the rest go on as ever; the file takes more than it holds while it
/// is sparse.
pub fn in_large_pieces(file: &File) {
    // Others have no such hint, and are no worse than they were.
    let _ = kernel::set_extent_size(file, PIECE);
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
    use std::fs::OpenOptions;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use super::*;
    use crate::extents::Extents;
    use crate::testing::ScratchFs;

    /// How many extents a file of 2 MiB has that is written block by block, in no order.
    fn extents_after_scattered_writes(path: &Path, prepare: impl FnOnce(&File)) -> usize {
        const BLOCK: usize = 4096;
        const BLOCKS: u64 = 512;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .unwrap();
        prepare(&file);
        file.set_len(BLOCKS * BLOCK as u64).unwrap();
        let buffer = vec![7u8; 2 * BLOCK];
        let aligned = buffer.as_ptr().align_offset(BLOCK);
        for at in 0..BLOCKS {
            // Coprime to the number of blocks, so that each has its turn.
            let block = at * 203 % BLOCKS;
            let bytes = &buffer[aligned..aligned + BLOCK];
            file.write_all_at(bytes, block * BLOCK as u64).unwrap();
        }
        file.sync_all().unwrap();
        Extents::of(&file, 0).count()
    }

    #[test]
    fn a_file_that_is_written_here_and_there_has_large_pieces() {
        let Some(disk) = ScratchFs::new("xfs", 320 << 20) else {
            return;
        };
        let plain = extents_after_scattered_writes(&disk.path().join("plain"), |_| {});
        let large = extents_after_scattered_writes(&disk.path().join("large"), in_large_pieces);
        assert!(large <= 4 && large < plain, "{large} extents, else {plain}");
    }

    #[test]
    fn a_file_system_without_such_a_hint_is_no_obstacle() {
        for kind in ["ext4", "btrfs"] {
            let Some(disk) = ScratchFs::new(kind, 128 << 20) else {
                return;
            };
            let file = File::create(disk.path().join("file")).unwrap();
            in_large_pieces(&file);
            file.write_all_at(b"kept", 0).unwrap();
        }
    }

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

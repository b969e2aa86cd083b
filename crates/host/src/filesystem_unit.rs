//! The smallest piece of its device that a file system reads or writes.
//!
//! Its device must have blocks no larger than that. So it says whether a device may have large
//! blocks, which direct I/O may need.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::filesystem::FsKind;

/// The unit of the file system of this kind in an image; none if its superblock makes no sense.
pub fn of(kind: FsKind, image: &File) -> io::Result<Option<u32>> {
    let mut field = [0u8; 4];
    // Where the superblock says it.
    let at = match kind {
        FsKind::Ext4 => 1024 + 24,
        FsKind::Xfs => 102,
        FsKind::Btrfs => 65536 + 144,
    };
    image.read_exact_at(&mut field, at)?;
    let unit = match kind {
        // As a power of two, of kibibytes.
        FsKind::Ext4 => 1024u32.checked_shl(u32::from_le_bytes(field)),
        FsKind::Xfs => Some(u32::from(u16::from_be_bytes([field[0], field[1]]))),
        FsKind::Btrfs => Some(u32::from_le_bytes(field)),
    };
    Ok(unit.filter(|unit| unit.is_power_of_two() && (512..=65536).contains(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem;

    #[test]
    fn a_file_system_tells_its_unit() {
        let cases: [(FsKind, &[&str], u64, u32); 5] = [
            (FsKind::Ext4, &["-b", "1024"], 64 << 20, 1024),
            (FsKind::Ext4, &["-b", "4096"], 64 << 20, 4096),
            (FsKind::Xfs, &[], 320 << 20, 4096),
            (FsKind::Xfs, &["-b", "size=1024"], 320 << 20, 512),
            (FsKind::Btrfs, &[], 320 << 20, 4096),
        ];
        for (kind, options, size, unit) in cases {
            let image = tempfile::NamedTempFile::new().unwrap();
            image.as_file().set_len(size).unwrap();
            let options: Vec<_> = options.iter().map(|it| (*it).to_owned()).collect();
            filesystem::make_image(kind, image.path(), &options).unwrap();
            assert_eq!(of(kind, image.as_file()).unwrap(), Some(unit), "{kind}");
        }
        let blank = tempfile::NamedTempFile::new().unwrap();
        blank.as_file().set_len(1 << 20).unwrap();
        assert_eq!(of(FsKind::Xfs, blank.as_file()).unwrap(), None);
    }
}

//! A disk that can share blocks: xfs in a file, mounted until dropped.

use std::fs::File;
use std::path::{Path, PathBuf};

use orlop_host::loopdev::{Access, Lifetime};
use orlop_host::mount::{self, NewMount, Restrictions};
use orlop_host::{FsKind, LoopDevice, Place, filesystem};

/// The disk.
pub(crate) struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new(dir: &Path, bytes: u64) -> Self {
        let folder = tempfile::tempdir_in(dir).expect("a folder");
        let image = folder.path().join("disk.img");
        File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .expect("an image");
        filesystem::make(FsKind::Xfs, &image, &[]).expect("xfs");
        let file = File::options().read(true).write(true).open(&image);
        let file = file.expect("the image");
        let device = LoopDevice::attach(&file, Access::ReadWrite, Lifetime::LastClose);
        let device = device.expect("a loop device");
        let disk = Self { folder };
        std::fs::create_dir(disk.path()).expect("a mount point");
        let new = NewMount {
            fs_type: "xfs",
            source: &device.path(),
            restrictions: Restrictions::default(),
            options: &[],
        };
        let place = Place::at(&disk.path()).and_then(|place| place.open());
        mount::mount(&new, place.expect("a place")).expect("a mount");
        disk
    }

    pub(crate) fn path(&self) -> PathBuf {
        let folder = self.folder.path().canonicalize().expect("a path");
        folder.join("mnt")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = Place::at(&self.path()).and_then(|place| mount::unmount(&place)) {
            eprintln!("{} is still mounted: {error}", self.path().display());
        }
    }
}

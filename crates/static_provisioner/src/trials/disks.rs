//! Two real disks in folders: a mounted file system, and a device.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::PathBuf,
};

use orlop_host::{
    LoopDevice, Restrictions,
    loopdev::{Access, Lifetime},
    mount::{self, FsOption, NewMount},
};

/// Large enough to be wiped in several pieces.
const SIZE: u64 = 192 << 20;
const WORDS: [u64; 3] = [0, 65 << 20, SIZE - 512];
const SECRET: &[u8] = b"somebody's data";
/// Enough to be removed in several pieces.
const FILES: usize = 600;

/// The disks; gone when dropped.
pub(super) struct Disks {
    folder: tempfile::TempDir,
    device: LoopDevice,
}

impl Disks {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("files/disk")).unwrap();
        fs::create_dir(folder.path().join("raw")).unwrap();
        let image = folder.path().join("image");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(image)
            .unwrap();
        file.set_len(SIZE).unwrap();
        let device = LoopDevice::attach(&file, Access::ReadWrite, Lifetime::LastClose).unwrap();
        std::os::unix::fs::symlink(device.path(), folder.path().join("raw/disk")).unwrap();
        let disks = Self { folder, device };
        disks.mount();
        disks
    }

    /// Mounts the file system.
    pub(super) fn mount(&self) {
        let new = NewMount {
            fs_type: "tmpfs",
            source: "tmpfs".as_ref(),
            restrictions: Restrictions::default(),
            options: &[FsOption {
                key: "size".into(),
                value: Some("16m".into()),
            }],
        };
        let target = File::open(self.files()).unwrap();
        mount::mount(&new, target).unwrap();
    }

    /// Unmounts the file system, which leaves its folder.
    pub(super) fn unmount(&self) {
        rustix::mount::unmount(self.files(), rustix::mount::UnmountFlags::empty()).unwrap();
    }

    pub(super) fn folder(&self, class: &str) -> PathBuf {
        self.folder.path().join(class)
    }

    pub(super) fn files(&self) -> PathBuf {
        self.folder("files").join("disk")
    }

    /// As pods that have the volumes do.
    pub(super) fn fill(&self) {
        for number in 0..FILES {
            let folder = self.files().join((number % 3).to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(number.to_string()), SECRET).unwrap();
        }
        let device = File::options().write(true).open(self.device.path());
        let device = device.unwrap();
        for at in WORDS {
            device.write_all_at(SECRET, at).unwrap();
        }
        device.sync_all().unwrap();
    }

    /// Whether anything of what was written can be read, by class; and whether all of it can.
    pub(super) fn left(&self, class: &str) -> (bool, bool) {
        if class == "files" {
            let folders = (0..3).map(|folder| self.files().join(folder.to_string()));
            let count: usize = folders
                .filter_map(|folder| fs::read_dir(folder).ok())
                .map(Iterator::count)
                .sum();
            let any = fs::read_dir(self.files()).unwrap().next().is_some();
            return (any, count == FILES);
        }
        let device = File::open(self.device.path()).unwrap();
        let there = WORDS.map(|at| {
            let mut bytes = vec![0; SECRET.len()];
            device.read_exact_at(&mut bytes, at).unwrap();
            bytes == SECRET
        });
        (there.contains(&true), !there.contains(&false))
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        // A role that was killed may be looking at it still.
        let _ = rustix::mount::unmount(self.files(), rustix::mount::UnmountFlags::DETACH);
    }
}

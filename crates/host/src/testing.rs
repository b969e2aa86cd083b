//! Scratch file systems for the tests of this crate and of those above it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::loopdev::{Access, Lifetime};
use crate::mount::{self, NewMount};
use crate::{LoopDevice, Place, Restrictions};

mod loop_numbers;
mod strike;

pub use loop_numbers::refuse_loop_numbers;
pub use strike::Struck;

/// A file system of its own in an image under the temporary folder; gone when dropped.
#[derive(Debug)]
pub struct ScratchFs {
    directory: PathBuf,
}

impl ScratchFs {
    /// Makes and mounts one. None without root: then the test has nothing to run on.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(kind: &str, bytes: u64) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let name = format!(
            "scratch-{kind}-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let scratch = Self {
            directory: std::env::temp_dir().join(name),
        };
        std::fs::create_dir_all(scratch.path()).expect("a directory");
        let path = scratch.directory.join("image");
        let image = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("an image");
        image.set_len(bytes).expect("an image of this size");
        let made = Command::new(format!("/usr/sbin/mkfs.{kind}"))
            .arg("-q")
            .arg(&path)
            .output()
            .expect("mkfs");
        assert!(made.status.success(), "{made:?}");
        let device =
            LoopDevice::attach(&image, Access::ReadWrite, Lifetime::LastClose).expect("a device");
        let target = File::open(scratch.path()).expect("the directory");
        let new = NewMount {
            fs_type: kind,
            source: &device.path(),
            restrictions: Restrictions::default(),
            options: &[],
        };
        mount::mount(&new, target).expect("a mount");
        Some(scratch)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join("mounted")
    }

    /// A new empty file of this size on it.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn file(&self, name: impl AsRef<Path>, bytes: u64) -> File {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.path().join(name))
            .expect("a file");
        file.set_len(bytes).expect("a file of this size");
        file
    }
}

impl Drop for ScratchFs {
    fn drop(&mut self) {
        let unmounted = Place::at(&self.path()).and_then(|place| mount::unmount(&place));
        match unmounted {
            Ok(()) => drop(std::fs::remove_dir_all(&self.directory)),
            Err(error) => eprintln!("{} stays mounted: {error}", self.path().display()),
        }
    }
}

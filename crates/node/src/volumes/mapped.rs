//! A pod's device where the kubelet has it: `volumeDevices/<volume>/dev/<pod>`, bound to what the
//! driver published.
//!
//! The kubelet also takes a loop device of it, so that the device can't go away unseen; we don't, since
//! a driver that is asked to unpublish would find its device busy after a crash. One that a kubelet left
//! is given back.

use std::io;
use std::path::{Path, PathBuf};

use orlop_host::mount::Depth;
use orlop_host::{LoopDevice, Occupant, Place, Restrictions};

use super::csi::{Cause, Published, at};
use super::{Shape, Volumes};
use crate::checkpoint::{gone, make_folder};
use crate::workers::Errand;

impl Volumes {
    fn mapped(&self, published: &Published<'_>) -> Option<PathBuf> {
        let Shape::Block { volume } = published.shape else {
            return None;
        };
        Some(self.parts.layout.block_map(volume, published.pod))
    }

    fn errand(&self, published: &Published<'_>, doing: &'static str) -> Errand {
        Errand {
            volume: published.key.unique_name(),
            doing,
            patience: self.parts.patience,
            pulse: None,
            back: self.look_again(published.key),
        }
    }

    /// Binds a published device; files need nothing of the kind.
    pub(super) async fn map(&self, published: &Published<'_>) -> Result<(), Cause> {
        let Some(to) = self.mapped(published) else {
            return Ok(());
        };
        let (from, target) = (self.target(published), to.clone());
        let errand = self.errand(published, "bind the volume's device");
        let bound = self.parts.workers.run(errand, move || bind(&from, &target));
        bound.await?.map_err(at("bind the device at", &to))
    }

    /// The reverse, before the driver is asked to take the device away.
    pub(super) async fn unmap(&self, published: &Published<'_>) -> Result<(), Cause> {
        let Some(at_path) = self.mapped(published) else {
            return Ok(());
        };
        let target = at_path.clone();
        let errand = self.errand(published, "take the volume's device away");
        let gone = self.parts.workers.run(errand, move || release(&target));
        gone.await?.map_err(at("unmount the device at", &at_path))
    }
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    // Drivers may publish a link to the device.
    let from = std::fs::canonicalize(from)?;
    if !std::fs::metadata(&from)?.file_type().is_block_device() {
        return Err(io::Error::other(format!(
            "the driver has published no block device at {}",
            from.display()
        )));
    }
    to.parent().map_or(Ok(()), make_folder)?;
    let place = Place::at(to)?;
    if let Occupant::Mounted { .. } = place.look()? {
        return Ok(());
    }
    place.make_file(0o750)?;
    let from = Place::at(&from)?.open()?;
    orlop_host::mount::bind(from, place.open()?, Depth::One, Restrictions::default())
}

fn release(mapped: &Path) -> io::Result<()> {
    for listed in orlop_host::loopdev::list()? {
        if listed.backing_path == mapped
            && let Some(lock) = LoopDevice::open(listed.number)?
        {
            lock.detach()?;
        }
    }
    if !mapped.parent().is_some_and(Path::exists) {
        return Ok(());
    }
    let place = Place::at(mapped)?;
    orlop_host::mount::unmount(&place)?;
    gone(place.remove())
}

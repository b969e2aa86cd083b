//! Who could write to a volume while it is copied.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use orlop_host::{LoopDevice, Place};

use super::observe::{ObserveError, Shown, Use};
use crate::local::capability::Access;

/// How a volume can be held still.
#[derive(Debug)]
pub(in crate::local) enum Holding {
    /// Nobody has it.
    Idle,
    /// By freezing the file system that this directory is on.
    Mounted(File),
    /// Not at all: whoever has the device writes as they like. What they wrote so far can be put
    /// into the image by syncing it, and it can be seen whether they wrote since.
    Device {
        /// Open, for syncing.
        file: File,
        /// For looking.
        device: LoopDevice,
    },
}

impl Use {
    /// How the volume can be held still.
    pub(in crate::local) fn holding(&self) -> Result<Holding, ObserveError> {
        if let Some(staged) = &self.record.staged
            && let Access::Mount(_) = staged.publication.capability.access
            && self.shown_at(&staged.path)? == Shown::Volume
        {
            let opened = Place::at(&staged.path).and_then(|place| reopen(&place));
            return opened
                .map(Holding::Mounted)
                .map_err(|source| ObserveError::Look {
                    path: staged.path.clone(),
                    source,
                });
        }
        let Some(device) = self.devices.first() else {
            return Ok(Holding::Idle);
        };
        let path = device.device.path();
        let failed = |source| ObserveError::Look {
            path: path.clone(),
            source,
        };
        let file = File::open(&path).map_err(failed)?;
        let number = device.device.device_number().minor;
        match LoopDevice::open(number).map_err(failed)? {
            Some(device) => Ok(Holding::Device { file, device }),
            None => Ok(Holding::Idle),
        }
    }
}

/// A place's descriptor is only for looking; ioctls want one that is for reading.
fn reopen(place: &Place) -> io::Result<File> {
    let looked = place.open()?;
    File::open(format!("/proc/self/fd/{}", looked.as_raw_fd()))
}

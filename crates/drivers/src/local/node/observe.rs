//! What the kernel and the record say about a volume on its node.
//!
//! Looks, and gives back devices that nobody uses. Nothing else changes here. What is mounted can be
//! seen, and let go of, though the pool is not to be had or the image is lost.

use std::io;
use std::path::Path;

use orlop_host::loopdev::{Access, Lifetime, LoopStatus};
use orlop_host::place::{Kind, Occupant};
use orlop_host::{DeviceNumber, LoopDevice, Mount, MountTable, Place};
use tonic::Code;

use super::Here;
use crate::local::pool::StoreError;
use crate::local::pools::{Pools, Volume};
use crate::local::volume::{NodeRecord, Staged, VolumeId};

/// Why the state of a volume on its node could not be seen or tidied.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// Its files could not be read.
    #[error("could not read the volume's files")]
    Store(#[source] StoreError),
    /// The kernel did not tell about its loop devices.
    #[error("could not read the table of loop devices")]
    Devices(#[source] io::Error),
    /// The kernel did not tell about mounts.
    #[error("could not read the mount table")]
    Mounts(#[source] io::Error),
    /// A path could not be looked at.
    #[error("could not look at {}", path.display())]
    Look {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A device could not be given back.
    #[error("could not detach {}", device.display())]
    Detach {
        /// Which.
        device: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ObserveError {
    /// How callers should take it.
    pub(in crate::local) fn code(&self) -> Code {
        match self {
            Self::Store(source) => source.code(),
            Self::Devices(_) | Self::Mounts(_) | Self::Look { .. } | Self::Detach { .. } => {
                Code::Internal
            }
        }
    }
}

/// What the options of a file system that takes no more writes have: the kernel's word for one that
/// is read-only, and ext4's for one that became so by an error or was shut down.
const SHUT: [&str; 3] = ["ro", "emergency_ro", "shutdown"];

/// A volume on its node, as found.
#[derive(Debug)]
pub(in crate::local) struct Use {
    /// What was meant.
    pub(super) record: NodeRecord,
    /// The loop devices that have it.
    pub(super) devices: Vec<Device>,
    /// The mounts of those devices.
    mounts: Vec<Mount>,
    /// Where their nodes are shown.
    nodes: Vec<Mount>,
}

/// A loop device of the volume.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) device: LoopDevice,
    status: LoopStatus,
    mounted: bool,
}

impl Use {
    pub(in crate::local) fn observe(pools: &Pools, volume: &Volume) -> Result<Self, ObserveError> {
        let pool = pools.pool_of(volume);
        let id = &volume.record.id;
        let record = match pool.node_record(id) {
            Err(error) if error.code() == Code::Unavailable => pool.unused_node_record(),
            other => other.map_err(ObserveError::Store)?,
        };
        let found = match pool.find_image(id) {
            Ok(image) => LoopDevice::find(&image),
            // The kernel remembers by its name what is behind a device.
            Err(error)
                if error.code() == Code::Unavailable || matches!(error, StoreError::NoImage(_)) =>
            {
                LoopDevice::find_by_path(&pool.image(id))
            }
            Err(error) => return Err(ObserveError::Store(error)),
        };
        Self::of_devices(record, found.map_err(ObserveError::Devices)?)
    }

    /// What the kernel alone knows of a volume whose pool or record cannot be read: enough to let go
    /// of it.
    pub(super) fn by_name(here: Here<'_>, id: &VolumeId) -> Result<Option<Self>, ObserveError> {
        let pools = here.pools.pools().filter(|it| it.0.node == *here.node);
        let mut seen: Option<Self> = None;
        for (_, pool) in pools {
            let found = LoopDevice::find_by_path(&pool.image(id)).map_err(ObserveError::Devices)?;
            if seen.is_none() || !found.is_empty() {
                seen = Some(Self::of_devices(pool.unused_node_record(), found)?);
            }
        }
        Ok(seen)
    }

    fn of_devices(record: NodeRecord, found: Vec<LoopDevice>) -> Result<Self, ObserveError> {
        let mut devices = Vec::with_capacity(found.len());
        let (mut mounts, mut nodes) = (Vec::new(), Vec::new());
        if !found.is_empty() {
            let table = MountTable::read().map_err(ObserveError::Mounts)?;
            for device in found {
                let Some(status) = device.status().map_err(ObserveError::Devices)? else {
                    continue;
                };
                // A Btrfs has a device number of its own and tells its device by name only.
                let (number, path) = (device.device_number(), device.path());
                let of_it = table
                    .iter()
                    .filter(|it| it.device == number || it.source == path.as_os_str());
                let before = mounts.len();
                mounts.extend(of_it.cloned());
                let name = Path::new("/").join(path.file_name().unwrap_or_default());
                let shown = table
                    .iter()
                    .filter(|it| it.fs_type == "devtmpfs" && it.root == name);
                nodes.extend(shown.cloned());
                devices.push(Device {
                    device,
                    status,
                    mounted: mounts.len() > before,
                });
            }
        }
        Ok(Self {
            record,
            devices,
            mounts,
            nodes,
        })
    }

    /// Where else than at a path the volume is, if the record tells nothing though the kernel does: it
    /// was lost, or cannot be read.
    pub(super) fn unrecorded_besides(&self, path: &Path) -> Option<&Path> {
        let mut points = self.mounts.iter().chain(&self.nodes).map(|it| &*it.point);
        match self.record.is_unused() {
            true => points.find(|point| *point != path),
            false => None,
        }
    }

    /// Whether the volume is mounted at a path, and cannot be written to there.
    pub(super) fn is_read_only_at(&self, path: &Path) -> bool {
        let mut here = self.mounts.iter().filter(|mount| mount.point == path);
        here.any(Mount::is_read_only)
    }

    /// Whether taking the volume away would take it from somebody.
    pub(in crate::local) fn is_in_use(&self) -> bool {
        self.is_mounted() || (self.record.staged.is_some() && !self.devices.is_empty())
    }

    /// Whether it is mounted anywhere.
    pub(super) fn is_mounted(&self) -> bool {
        self.devices.iter().any(|device| device.mounted)
    }

    /// Gives back all devices. Those that somebody still has open go with the last closer.
    pub(in crate::local) fn release_devices(self) -> Result<(), ObserveError> {
        self.devices.into_iter().try_for_each(Device::release)
    }

    /// Sets how far the kernel reads ahead on the devices that the volume has.
    pub(in crate::local) fn set_read_ahead(&self, kib: u32) -> io::Result<()> {
        self.devices
            .iter()
            .try_for_each(|device| device.device.set_read_ahead(kib))
    }

    /// Whether the kernel has made a file system read-only that was mounted writable.
    pub(super) fn is_shut_down(&self) -> bool {
        let writable = |staged: &Staged| !staged.publication.read_only;
        self.record.staged.as_ref().is_some_and(writable)
            && self.mounts.iter().any(|mount| {
                mount
                    .super_options
                    .iter()
                    .any(|option| SHUT.iter().any(|it| option == it))
            })
    }

    /// The device that can be written to, if there is one.
    pub(super) fn writable(&self) -> Option<&LoopDevice> {
        self.with_access(Access::ReadWrite)
    }

    /// The device of read-only block publications, if there is one.
    pub(super) fn read_only(&self) -> Option<&LoopDevice> {
        self.with_access(Access::ReadOnly)
    }

    fn with_access(&self, access: Access) -> Option<&LoopDevice> {
        self.devices
            .iter()
            .find(|device| device.status.access == access)
            .map(|it| &it.device)
    }

    /// What a path shows.
    pub(super) fn shown_at(&self, path: &Path) -> Result<Shown, ObserveError> {
        let failed = |source| ObserveError::Look {
            path: path.to_owned(),
            source,
        };
        let place = match Place::at(path) {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Shown::Nothing),
            Err(error) => return Err(failed(error)),
        };
        Ok(match self.recognise(place.look().map_err(failed)?) {
            // It does not answer, but the table tells that it is ours.
            Shown::Unreachable if self.mounts.iter().any(|it| it.point == path) => Shown::Volume,
            shown => shown,
        })
    }

    fn recognise(&self, occupant: Occupant) -> Shown {
        let ours = |number: DeviceNumber| {
            self.devices
                .iter()
                .any(|device| device.device.device_number() == number)
        };
        match occupant {
            Occupant::Absent => Shown::Nothing,
            Occupant::Plain(kind) => Shown::Plain(kind),
            Occupant::Mounted {
                kind: Kind::BlockDevice(number),
                ..
            } if ours(number) => Shown::Volume,
            Occupant::Mounted { device, mount, .. }
                if ours(device) || self.mounts.iter().any(|it| it.id == mount) =>
            {
                Shown::Volume
            }
            Occupant::Mounted { .. } => Shown::Foreign,
            Occupant::Unreachable => Shown::Unreachable,
        }
    }
}

impl Device {
    /// Gives the device back, at once or with its last user.
    pub(super) fn release(self) -> Result<(), ObserveError> {
        // Such a device goes by itself; to detach it would change nothing.
        if self.status.lifetime == Lifetime::LastClose {
            return Ok(());
        }
        let path = self.device.path();
        self.device.detach().map_err(|source| ObserveError::Detach {
            device: path,
            source,
        })
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.status.access == Access::ReadOnly
    }
}

/// What a path shows, in this volume's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The path does not exist.
    Nothing,
    /// Something is there, but no mount.
    Plain(Kind),
    /// This volume.
    Volume,
    /// A mount of something else.
    Foreign,
    /// A mount that no longer answers.
    Unreachable,
}

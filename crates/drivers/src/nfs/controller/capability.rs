//! The forms in which an NFS volume can be used: as files, by any number of nodes.

use orlop_csi::proto;
use orlop_csi::proto::volume_capability::AccessType;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::nfs::failure::Failure;
use crate::nfs::options::MountPlan;

/// A capability, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) plan: MountPlan,
    pub(crate) mode: Mode,
}

impl Capability {
    pub(crate) fn parse(wire: &proto::VolumeCapability) -> Result<Self, Failure> {
        let mount = match &wire.access_type {
            None => return Err(Failure::missing("volume_capability.access_type")),
            Some(AccessType::Block(_)) => {
                let told = "an NFS volume has files, and is no block device";
                return Err(Failure::new(Code::InvalidArgument, told));
            }
            Some(AccessType::Mount(mount)) => mount,
        };
        let mode = wire.access_mode.map_or(0, |mode| mode.mode);
        let mode = match Mode::try_from(mode) {
            Ok(Mode::Unknown) => return Err(Failure::missing("volume_capability.access_mode")),
            Ok(mode) => mode,
            Err(_) => {
                let told = format!("access mode {mode} is not known");
                return Err(Failure::new(Code::InvalidArgument, told));
            }
        };
        if !matches!(mount.fs_type.as_str(), "" | "nfs" | "nfs4") {
            // The original takes any; a class that names one is told by nobody that it means nothing.
            tracing::debug!(
                fs_type = mount.fs_type,
                "an NFS volume has no file system of its own"
            );
        }
        let flags = mount.mount_flags.iter().map(String::as_str);
        Ok(Self {
            plan: MountPlan::parse(flags).map_err(|error| Failure::invalid(&error))?,
            mode,
        })
    }

    /// Whether it may be at several paths of a node at once.
    pub(crate) fn allows_many_targets(&self) -> bool {
        !matches!(
            self.mode,
            Mode::SingleNodeSingleWriter | Mode::SingleNodeWriter | Mode::SingleNodeReaderOnly
        )
    }
}

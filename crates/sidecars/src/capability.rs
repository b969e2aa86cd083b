//! Kubernetes' access modes in the driver's words.

use orlop_csi::proto::{
    VolumeCapability,
    volume_capability::{
        AccessMode as CsiMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
    },
};
use orlop_model::{AccessMode, VolumeMode};

/// Which single-node modes the driver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SingleNode {
    /// One writer, which may be several pods.
    Writer,
    /// One pod and many pods are told apart.
    SingleOrMultiWriter,
}

impl SingleNode {
    /// What a driver with these capabilities knows.
    pub(crate) fn of(info: &orlop_csi::DriverInfo) -> Self {
        if info.can(orlop_csi::client::ControllerCapability::SingleNodeMultiWriter) {
            Self::SingleOrMultiWriter
        } else {
            Self::Writer
        }
    }
}

/// Access modes that no one CSI mode stands for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("there are no access modes")]
    None,
    #[error("ReadWriteOncePod can not be combined with other access modes")]
    PodAndOthers,
    #[error("ReadOnlyMany and ReadWriteOnce can not be combined")]
    ReadOnlyManyAndWriteOnce,
}

/// The CSI mode that stands for all of these together.
pub(crate) fn mode(modes: &[AccessMode], single: SingleNode) -> Result<Mode, AccessError> {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
    let has = |mode| modes.contains(&mode);
    if has(ReadWriteOncePod) {
        return match (modes.iter().all(|m| *m == ReadWriteOncePod), single) {
            (false, _) => Err(AccessError::PodAndOthers),
            (true, SingleNode::Writer) => Ok(Mode::SingleNodeWriter),
            (true, SingleNode::SingleOrMultiWriter) => Ok(Mode::SingleNodeSingleWriter),
        };
    }
    match (has(ReadWriteMany), has(ReadOnlyMany), has(ReadWriteOnce)) {
        (true, _, _) => Ok(Mode::MultiNodeMultiWriter),
        (false, true, true) => Err(AccessError::ReadOnlyManyAndWriteOnce),
        (false, true, false) => Ok(Mode::MultiNodeReaderOnly),
        (false, false, true) => Ok(match single {
            SingleNode::Writer => Mode::SingleNodeWriter,
            SingleNode::SingleOrMultiWriter => Mode::SingleNodeMultiWriter,
        }),
        (false, false, false) => Err(AccessError::None),
    }
}

/// How a volume is seen by pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub(crate) mode: VolumeMode,
    pub(crate) fs_type: &'a str,
    pub(crate) mount_options: &'a [String],
}

impl Shape<'_> {
    /// The capability of that shape and access.
    pub(crate) fn with(&self, mode: Mode) -> VolumeCapability {
        let access_type = match self.mode {
            VolumeMode::Block => AccessType::Block(BlockVolume {}),
            VolumeMode::Filesystem => AccessType::Mount(MountVolume {
                fs_type: self.fs_type.to_owned(),
                mount_flags: self.mount_options.to_vec(),
                volume_mount_group: String::new(),
            }),
        };
        VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(CsiMode { mode: mode.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessMode::{
        ReadOnlyMany as Rox, ReadWriteMany as Rwx, ReadWriteOnce as Rwo, ReadWriteOncePod as Rwop,
    };

    #[test]
    fn access_modes_map_as_the_sidecars_map_them() {
        let old = SingleNode::Writer;
        let new = SingleNode::SingleOrMultiWriter;
        let cases: [(&[AccessMode], SingleNode, Result<Mode, AccessError>); 12] = [
            (&[Rwop], old, Ok(Mode::SingleNodeWriter)),
            (&[Rwop], new, Ok(Mode::SingleNodeSingleWriter)),
            (&[Rwop, Rwo], new, Err(AccessError::PodAndOthers)),
            (&[Rwop, Rwx], old, Err(AccessError::PodAndOthers)),
            (&[Rwx], old, Ok(Mode::MultiNodeMultiWriter)),
            (&[Rwo, Rox, Rwx], new, Ok(Mode::MultiNodeMultiWriter)),
            (&[Rox, Rwo], old, Err(AccessError::ReadOnlyManyAndWriteOnce)),
            (&[Rox], old, Ok(Mode::MultiNodeReaderOnly)),
            (&[Rox], new, Ok(Mode::MultiNodeReaderOnly)),
            (&[Rwo], old, Ok(Mode::SingleNodeWriter)),
            (&[Rwo], new, Ok(Mode::SingleNodeMultiWriter)),
            (&[], old, Err(AccessError::None)),
        ];
        for (modes, single, expected) in cases {
            assert_eq!(mode(modes, single), expected, "{modes:?} {single:?}");
        }
    }
}

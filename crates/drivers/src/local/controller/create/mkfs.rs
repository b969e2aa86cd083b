//! Whether mkfs will do what the class says: better known now than when a pod waits.

use std::collections::BTreeMap;

use orlop_host::FsKind;
use orlop_host::filesystem::{self, MakeError};
use orlop_host::program::ProgramError;

use super::CreateError;
use crate::local::capability::Access;
use crate::local::parameters::{self, ParameterError};

/// Whether the class' options suit the file systems that are asked for. The provisioner keeps the
/// class' `csi.storage.k8s.io/fstype` to itself and names it in the capabilities alone: so a claim for
/// a device does not tell which file system they are for, and what suits none is wrong all the same.
pub(super) fn check(
    accesses: &[Access],
    parameters: &BTreeMap<String, String>,
    default: FsKind,
) -> Result<(), ParameterError> {
    let named = parameters::file_system(parameters);
    let suits = |kind| parameters::mkfs_options(parameters, kind).map(drop);
    for access in accesses {
        match (*access, named) {
            (Access::Mount(kind), _) | (Access::Block, Some(kind)) => suits(kind)?,
            (Access::Block, None) => {
                let any = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs]
                    .into_iter()
                    .any(|kind| suits(kind).is_ok());
                if !any {
                    suits(default)?;
                }
            }
        }
    }
    Ok(())
}

/// Asks mkfs whether it would do what the class says: better now than when a pod waits. Where it
/// cannot be asked, staging will tell.
pub(super) fn try_it(
    accesses: &[Access],
    parameters: &BTreeMap<String, String>,
    size: u64,
) -> Result<(), CreateError> {
    for access in accesses {
        let Access::Mount(kind) = *access else {
            continue;
        };
        let options = parameters::mkfs_options(parameters, kind)?;
        if options.is_empty() {
            continue;
        }
        let tried = filesystem::try_options(kind, size, &options);
        if let Err(MakeError::Program(source @ ProgramError::Failed { .. })) = tried {
            return Err(CreateError::Mkfs { kind, size, source });
        }
    }
    Ok(())
}

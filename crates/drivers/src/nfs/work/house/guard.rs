//! What the driver's own folder must be like to be believed.
//!
//! What stands in it decides what is deleted. Whoever can write to the share's root could have made it,
//! and Kubernetes opens all of a share to a pod's group where that has the whole share for a volume.

use std::ffi::OsStr;
use std::io;

use orlop_host::Folder;
use tonic::Code;

use crate::nfs::HOUSE;
use crate::nfs::failure::Failure;
use crate::nfs::work::share::Share;

/// Who we are where the server believes it.
const ROOT: u32 = 0;

/// Makes sure that nobody else looks into the folder, or that it isn't used.
pub(super) fn private(share: &Share, house: &Folder) -> Result<(), Failure> {
    let looks = house
        .itself()
        .map_err(share.failed("look at the driver's own folder"))?;
    let open = looks.mode & 0o077 != 0;
    if !open && (looks.uid, looks.gid) == (ROOT, ROOT) {
        return Ok(());
    }
    let refused = |error: io::Error| {
        let told = format!(
            "{HOUSE} in share {} is the driver's own folder, but user {} has it and its permissions \
             are {:o}: give it to root alone, or delete it there ({error})",
            share.export, looks.uid, looks.mode
        );
        Failure::new(Code::FailedPrecondition, told)
    };
    match house.set_own_owner(ROOT, ROOT) {
        Ok(()) => {}
        // Where the server maps us to somebody, it is his. What has been opened, he can close.
        Err(error) if is_denied(&error) => {}
        Err(error) => return Err(refused(error)),
    }
    // A change of owner takes special bits away, and nothing else.
    let looks = house
        .itself()
        .map_err(share.failed("look at the driver's own folder"))?;
    match looks.mode == 0o700 {
        true => Ok(()),
        false => house.set_mode(0o700).map_err(refused),
    }
}

/// A server that only lets read changes nothing, so nobody could have there.
fn is_denied(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(
        error.kind(),
        PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported
    )
}

/// Whether a file has the name of a record: also one that was cut short is a volume's.
pub(super) fn is_record(name: &OsStr) -> bool {
    let digest = name.to_str().and_then(|name| name.strip_suffix(".json"));
    digest.is_some_and(|digest| {
        digest.len() == 40 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

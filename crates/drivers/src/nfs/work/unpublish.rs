//! A path of this node shows nothing any more.
//!
//! What is mounted there is seen in the kernel's table alone: a server that is gone answers no looks.

use std::io;
use std::path::Path;

use orlop_host::MountTable;
use orlop_host::mount::{self, Force};
use tonic::Code;

use super::publish::place;
use crate::nfs::failure::Failure;

/// More layers than anyone stacks.
const LAYERS: usize = 64;

pub(super) fn unpublish(reach: Option<&Path>, target: &Path, force: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let (code, advice) = match error.kind() {
            io::ErrorKind::ResourceBusy => (
                Code::FailedPrecondition,
                "; a process of this node still uses it: end it, then repeat the call",
            ),
            _ => (Code::Internal, ""),
        };
        let told = format!("could not unmount {}: {error}{advice}", target.display());
        Failure::new(code, told)
    };
    let place = match place(reach, target) {
        Ok(place) => place,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let force = match force {
        true => Force::Yes,
        false => Force::No,
    };
    for _ in 0..LAYERS {
        let table = MountTable::read().map_err(|error| failed(io::Error::other(error)))?;
        if table.at(target).is_none() {
            return place.remove().map_err(failed);
        }
        match mount::unmount_unseen(&place, force) {
            Ok(()) => {}
            // Somebody was quicker.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(io::Error::other(
        "something is mounted there again and again",
    )))
}

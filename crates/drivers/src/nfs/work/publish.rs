//! A volume appears at a path of this node.
//!
//! The share is mounted where nobody sees it; the volume's folder is walked to from its root, without
//! following a link; and only that folder is carried to the path, with its restrictions on it.

use std::io;
use std::path::Path;

use orlop_host::Place;
use orlop_host::mount::{self, Depth};
use tonic::Code;

use super::share::Ground;
use super::{sight, statd};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Publish};
use crate::nfs::shown::{Relation, relation};

/// Permissions of the empty folder below the mount.
const MODE: u32 = 0o750;

pub(super) fn publish(ground: &Ground<'_>, order: &Publish) -> Result<Answer, Failure> {
    let share = ground.open(&order.on)?;
    let folder = match &order.folder {
        None => share.root.again().map_err(share.failed("open the root"))?,
        // A server may have a file system of its own for a volume, or map root to somebody who may not read
        // it, while pods may.
        Some(folder) => match share.root.hold_across_mounts(folder.path()) {
            Ok(held) => held,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let told = format!(
                    "there is no folder {folder} in share {}; make it, or mend the volume's subDir",
                    share.export
                );
                return Err(Failure::not_found(told));
            }
            Err(error) => return Err(share.failed(&format!("open {folder}"))(error)),
        },
    };
    if let Some(mode) = order.permissions.filter(|mode| *mode != 0) {
        let looks = folder.itself().map_err(share.failed("look"))?;
        if looks.mode != mode {
            let failed = share.failed("set the volume's mountPermissions");
            folder.set_mode(mode).map_err(failed)?;
        }
    }
    if let Some(there) = &order.there {
        let own = sight::own(ground, &share, &order.on)?;
        let same = relation(there, &own, order.folder.as_ref()) == Some(Relation::Same);
        return match same {
            true => Ok(Answer::Done),
            false => {
                let told = format!("{} shows another volume already", there.point);
                Err(Failure::new(Code::AlreadyExists, told))
            }
        };
    }
    if let Some(mount) = sight::mount(&share)? {
        statd::refuse_without(&mount, &share.export, statd::RPCBIND)?;
    }
    let failed = |error: io::Error| {
        let told = format!(
            "could not show share {} at {}: {error}",
            share.export,
            order.target.display()
        );
        Failure::new(Code::Internal, told)
    };
    let restrictions = order.on.plan.restrictions();
    let carried = mount::detach(&folder, Depth::One, restrictions).map_err(failed)?;
    ground.go_home().map_err(failed)?;
    let target = place(order.reach.as_deref(), &order.target).map_err(failed)?;
    target.make_directory(MODE).map_err(failed)?;
    let held = target.open().map_err(failed)?;
    carried.put(held).map_err(failed)?;
    Ok(Answer::Done)
}

/// A path of the node, reached without a link on the way.
pub(super) fn place(reach: Option<&Path>, target: &Path) -> io::Result<Place> {
    match reach {
        None => Place::at(target),
        Some(folder) => Place::beneath(folder, target),
    }
}

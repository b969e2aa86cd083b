//! What this node shows of the share that is worked on.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use orlop_host::MountTable;
use tonic::Code;

use super::share::{Ground, Share};
use crate::nfs::failure::Failure;
use crate::nfs::order::Mounting;
use crate::nfs::shown::{Relation, Seen, relation};
use crate::nfs::sub_dir::SubDir;

/// How the kernel tells of the share as it is mounted here.
pub(super) fn own(ground: &Ground<'_>, share: &Share, on: &Mounting) -> Result<Seen, Failure> {
    let failed = |error: io::Error| {
        let told = format!(
            "could not see what share {} is mounted as: {error}",
            share.export
        );
        Failure::new(Code::Internal, told)
    };
    let table = MountTable::read().map_err(failed)?;
    let missing = || failed(io::ErrorKind::NotFound.into());
    let mount = table.holding(&share.root).map_err(failed)?;
    let mount = mount.ok_or_else(missing)?;
    let held = format!("/proc/self/fd/{}", share.root.as_fd().as_raw_fd());
    let held = std::fs::read_link(held).map_err(failed)?;
    let way = held.strip_prefix(&mount.point).unwrap_or(Path::new(""));
    let address = ground.address(on).map(|address| address.ip());
    Ok(Seen::of(mount).below(way).known_as(&share.export, address))
}

/// A mount of the node that shows a folder of the share, or a part of it, or what it is a part of.
pub(super) fn nearby<'a>(
    own: &Seen,
    folder: &SubDir,
    shown: &'a [Seen],
) -> Option<(&'a Seen, Relation)> {
    let related = |seen: &'a Seen| Some((seen, relation(seen, own, Some(folder))?));
    let found: Vec<(&Seen, Relation)> = shown.iter().filter_map(related).collect();
    let same = found.iter().find(|(_, how)| *how == Relation::Same);
    same.or(found.first()).copied()
}

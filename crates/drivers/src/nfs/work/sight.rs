//! What this node shows of the share that is worked on.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use orlop_host::{Mount, MountTable};
use tonic::Code;

use super::house::House;
use super::share::{Ground, Share};
use crate::nfs::failure::Failure;
use crate::nfs::order::Mounting;
use crate::nfs::shown::{Relation, Seen, relation};
use crate::nfs::sub_dir::SubDir;

/// How the kernel tells of the share as it is mounted here.
pub(super) fn own(ground: &Ground<'_>, share: &Share, on: &Mounting) -> Result<Seen, Failure> {
    let failed = unseen(share);
    let mount = mount(share)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let held = format!("/proc/self/fd/{}", share.root.as_fd().as_raw_fd());
    let held = std::fs::read_link(held).map_err(&failed)?;
    let way = held.strip_prefix(&mount.point).unwrap_or(Path::new(""));
    let address = ground.address(on).map(|address| address.ip());
    Ok(Seen::of(&mount).below(way).known_as(&share.export, address))
}

/// The share's line of the kernel's table.
pub(super) fn mount(share: &Share) -> Result<Option<Mount>, Failure> {
    let failed = unseen(share);
    let table = MountTable::read().map_err(&failed)?;
    Ok(table.holding(&share.root).map_err(&failed)?.cloned())
}

fn unseen(share: &Share) -> impl Fn(io::Error) -> Failure + use<> {
    let export = share.export.clone();
    move |error| {
        let told = format!("could not see what share {export} is mounted as: {error}");
        Failure::new(Code::Internal, told)
    }
}

/// Refuses what would take away what this node shows.
pub(super) fn refuse_in_use(
    ground: &Ground<'_>,
    share: &Share,
    on: &Mounting,
    folder: &SubDir,
    shown: &[Seen],
) -> Result<(), Failure> {
    if shown.is_empty() {
        return Ok(());
    }
    let own = own(ground, share, on)?;
    let related = |seen| Some((seen, relation(seen, &own, Some(folder))?));
    let found: Vec<(&Seen, Relation)> = shown.iter().filter_map(related).collect();
    let same = found.iter().find(|(_, how)| *how == Relation::Same);
    let Some((seen, relation)) = same.or(found.first()) else {
        return Ok(());
    };
    let what = match relation {
        Relation::Same => "it",
        Relation::Below => "a folder in it",
        Relation::Above => "a folder that it is in",
    };
    let told = format!(
        "folder {folder} of share {} is in use: this node shows {what} at {}; end the pods that use \
         that, then repeat the call",
        share.export, seen.point
    );
    Err(Failure::new(Code::FailedPrecondition, told))
}

/// Refuses to take another volume away with a folder that it is in.
pub(super) fn refuse_holder(
    share: &Share,
    house: Option<&House>,
    folder: &SubDir,
) -> Result<(), Failure> {
    let Some(house) = house else { return Ok(()) };
    let failed = share.failed(&format!("look for volumes in {folder}"));
    let Some(inner) = house.inner(share, folder).map_err(failed)? else {
        return Ok(());
    };
    let told = format!(
        "folder {folder} of share {} holds folder {} of volume {:?}: delete that volume first, or move \
         its folder elsewhere if it was retained",
        share.export, inner.folder, inner.key
    );
    Err(Failure::new(Code::FailedPrecondition, told))
}

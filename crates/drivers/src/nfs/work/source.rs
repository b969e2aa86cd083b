//! The folder that is copied or packed, of which another controller may be the one to delete it.

use std::io;

use orlop_host::Folder;

use super::share::Share;
use crate::nfs::failure::Failure;
use crate::nfs::sub_dir::SubDir;

/// A volume's folder, held.
pub(super) struct Source<'a> {
    share: &'a Share,
    path: &'a SubDir,
    pub(super) folder: Folder,
    inode: u64,
}

impl<'a> Source<'a> {
    pub(super) fn open(share: &'a Share, path: &'a SubDir) -> Result<Self, Failure> {
        let folder = enter(share, path, "volume")?;
        let looks = folder.itself().map_err(failed(share, path))?;
        Ok(Self {
            share,
            path,
            folder,
            inode: looks.inode,
        })
    }

    /// What came of reading it. A deleted volume leaves its name before any of its files: what still has
    /// its name was there as a whole, and all else that may have gone wrong is of no interest.
    pub(super) fn read<T>(
        &self,
        outcome: io::Result<T>,
        failed: impl Fn(io::Error) -> Failure,
    ) -> Result<T, Failure> {
        // By what the server says now: the client may remember the name for longer than it is there.
        let still = self.share.root.enter_anew(self.path.path());
        let still = entered(self.share, self.path, "volume", still)?;
        let looks = still
            .itself()
            .map_err(self::failed(self.share, self.path))?;
        if looks.inode != self.inode {
            return Err(missing(self.share, self.path, "volume"));
        }
        outcome.map_err(failed)
    }
}

fn failed(share: &Share, path: &SubDir) -> impl Fn(io::Error) -> Failure + use<> {
    share.failed(&format!("look at {path}"))
}

pub(super) fn enter(share: &Share, folder: &SubDir, what: &str) -> Result<Folder, Failure> {
    let held = share.root.enter(folder.path());
    entered(share, folder, what, held)
}

fn entered(
    share: &Share,
    folder: &SubDir,
    what: &str,
    held: io::Result<Folder>,
) -> Result<Folder, Failure> {
    match held {
        Ok(held) => Ok(held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(share, folder, what)),
        Err(error) => Err(share.failed(&format!("open {what} {folder}"))(error)),
    }
}

pub(super) fn missing(share: &Share, folder: &SubDir, what: &str) -> Failure {
    let told = format!("there is no {what} {folder} in share {}", share.export);
    Failure::not_found(told)
}

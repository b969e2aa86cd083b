//! A path of this node shows nothing any more.
//!
//! What is mounted there is seen in the kernel's table alone: a server that is gone answers no looks.

use std::io;
use std::path::Path;

use orlop_host::MountTable;
use orlop_host::mount::{self, Force};
use orlop_host::place::{Kind, Occupant};
use tonic::Code;

use super::publish::place;
use crate::nfs::failure::Failure;
use crate::nfs::shown::is_nfs;

/// More layers than anyone stacks.
const LAYERS: usize = 64;

/// `any` where folders stand for servers.
pub(super) fn unpublish(
    reach: Option<&Path>,
    target: &Path,
    force: bool,
    any: bool,
) -> Result<(), Failure> {
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
        let Some(mount) = table.at(target) else {
            return match place.look().map_err(failed)? {
                Occupant::Absent => Ok(()),
                Occupant::Plain(Kind::Directory) => place.remove().map_err(failed),
                // What a crash left of somebody's preparations for a mount.
                Occupant::Plain(Kind::File) if is_empty(target).map_err(failed)? => {
                    place.remove().map_err(failed)
                }
                _ => Err(foreign(target, "a file or a link, and no folder")),
            };
        };
        if !any && !is_nfs(mount) {
            let what = format!("a mount of {}", mount.fs_type.to_string_lossy());
            return Err(foreign(target, &what));
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

fn is_empty(file: &Path) -> io::Result<bool> {
    Ok(file.symlink_metadata()?.len() == 0)
}

/// What this driver did not put there is somebody's.
fn foreign(target: &Path, what: &str) -> Failure {
    let told = format!(
        "{} is {what}: no volume of this driver, so it stays; take it away by hand if nobody needs it",
        target.display()
    );
    Failure::new(Code::FailedPrecondition, told)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use orlop_csi::server::CsiError;
    use orlop_host::mount::{NewMount, mount};
    use orlop_host::{Folder, Place, Restrictions};

    use super::*;

    #[test]
    fn what_is_no_volume_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        let (filled, empty) = (dir.path().join("filled"), dir.path().join("empty"));
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink("empty", &link).unwrap();
        fs::create_dir_all(filled.join("below")).unwrap();
        for path in [&file, &link, &filled] {
            let refused = unpublish(None, path, false, false).unwrap_err();
            assert!(
                refused.to_string().contains(path.to_str().unwrap()),
                "{refused}"
            );
            assert!(fs::symlink_metadata(path).is_ok(), "{refused}");
        }
        // A crash may leave either, before a mount or after it.
        for what in [fs::create_dir, |path| fs::write(path, "")] {
            let _ = fs::remove_dir(&empty);
            what(&empty).unwrap();
            for _ in 0..2 {
                unpublish(None, &empty, false, false).unwrap();
                assert!(!empty.exists());
            }
        }
    }

    #[test]
    fn a_mount_that_is_not_of_nfs_stays() {
        if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            eprintln!("skipped: mounts need root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        let new = NewMount {
            fs_type: "tmpfs",
            source: Path::new("theirs"),
            restrictions: Restrictions::default(),
            options: &[],
        };
        mount(&new, Folder::open(&target).unwrap()).unwrap();
        fs::write(target.join("data"), "x").unwrap();
        let refused = unpublish(None, &target, true, false);
        let stays = target.join("data").exists();
        mount::unmount(&Place::at(&target).unwrap()).unwrap();
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(stays && refused.to_string().contains("tmpfs"), "{refused}");
    }
}

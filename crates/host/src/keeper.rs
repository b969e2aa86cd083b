//! One keeper per folder, told by the folder itself: processes find each other by it in whatever
//! mount, network or process namespaces they are, and several may be the same keeper.
//!
//! A shared lock on the folder says that it has a keeper, and an extended attribute who that is;
//! whoever writes the attribute holds the lock alone. The kernel drops locks with their processes,
//! and without one the attribute means nothing.

use std::{
    fs::File,
    io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, XattrFlags, fgetxattr, flock, fsetxattr},
    io::Errno,
};

const NAME: &str = "trusted.orlop.keeper";
/// The longest name that is read.
const LONGEST: usize = 1024;
/// While somebody writes the attribute.
const MOMENT: Duration = Duration::from_millis(5);
/// Nobody takes so long for that.
const PATIENCE: Duration = Duration::from_secs(1);

/// A folder that is kept; let go of when dropped.
#[derive(Debug)]
pub struct Kept {
    folder: File,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A child that is just being started has a copy of the descriptor.
        let _ = flock(&self.folder, FlockOperation::Unlock);
    }
}

/// Why a folder isn't kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It has another keeper.
    #[error("{0} has it")]
    Another(String),
    /// It can't be opened or locked.
    #[error("it can't be locked")]
    Io(#[from] io::Error),
}

/// Keeps a folder in a name. Where a file system has no such attributes, nobody is kept out.
///
/// # Errors
/// It has a keeper of another name, or can't be locked.
pub fn keep(folder: &Path, name: &str) -> Result<Kept, KeepError> {
    let kept = Kept {
        folder: File::open(folder)?,
    };
    let folder = &kept.folder;
    let until = Instant::now() + PATIENCE;
    loop {
        if lock(folder, FlockOperation::NonBlockingLockExclusive)? {
            match fsetxattr(folder, NAME, name.as_bytes(), XattrFlags::empty()) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ROFS) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        // From alone to shared another may come between; what it wrote is read then.
        if lock(folder, FlockOperation::NonBlockingLockShared)? {
            return match keeper(folder) {
                Some(keeper) if keeper != name => Err(KeepError::Another(keeper)),
                Some(_) | None => Ok(kept),
            };
        }
        if Instant::now() > until {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        std::thread::sleep(MOMENT);
    }
}

fn lock(folder: &File, how: FlockOperation) -> io::Result<bool> {
    match flock(folder, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn keeper(folder: &File) -> Option<String> {
    let mut name = [0; LONGEST];
    let length = fgetxattr(folder, NAME, &mut name[..]).ok()?;
    Some(String::from_utf8_lossy(&name[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_keeper_at_a_time_who_may_come_twice() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let one = keep(folder.path(), "one").expect("the first");
        let again = keep(folder.path(), "one").expect("the same");
        let other = || keep(folder.path(), "other");
        assert!(matches!(other(), Err(KeepError::Another(by)) if by == "one"));
        drop(one);
        assert!(matches!(other(), Err(KeepError::Another(_))));
        drop(again);
        let _other = other().expect("the next");
        assert!(keep(folder.path(), "one").is_err());
    }
}

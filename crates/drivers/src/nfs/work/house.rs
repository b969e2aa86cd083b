//! The driver's own folder in a share.
//!
//! ```text
//! .orlop-csi/volumes/<folder>/<name>.json   who uses a folder
//!            nested/<folder>/<folder>       which of those are in others
//!            making/<name>                  what is not whole yet, see [`super::attempt`]
//!            trash/<number>                 what is being deleted
//! ```

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use orlop_host::Folder;
use uuid::Uuid;

use super::copy::has_no_second_names;
use super::share::Share;
use crate::nfs::HOUSE;
use crate::nfs::failure::Failure;
use crate::nfs::record::{Record, digest};
use crate::nfs::sub_dir::SubDir;

mod guard;
mod nested;

/// No record of ours is longer.
const LONGEST: u64 = 64 << 10;

/// The folder, held.
pub(super) struct House(Folder);

impl House {
    /// Makes it where it is missing.
    pub(super) fn make(share: &Share) -> Result<Self, Failure> {
        let failed = share.failed("make the driver's own folder");
        let house = share.root.make(HOUSE, 0o700).map_err(failed)?;
        guard::private(share, &house)?;
        Ok(Self(house))
    }

    /// Finds it: who only looks leaves nothing behind, and may look at what is read-only.
    pub(super) fn find(share: &Share) -> Result<Option<Self>, Failure> {
        let failed = share.failed("look into the driver's own folder");
        let house = found(share.root.enter(HOUSE)).map_err(failed)?;
        if let Some(house) = &house {
            guard::private(share, house)?;
        }
        Ok(house.map(Self))
    }

    /// Where half-made things are.
    pub(super) fn making(&self) -> io::Result<Folder> {
        self.0.make("making", 0o700)
    }

    /// Where things go to be deleted.
    pub(super) fn trash(&self) -> io::Result<Folder> {
        self.0.make("trash", 0o700)
    }

    fn users(&self, folder: &SubDir) -> io::Result<Option<Folder>> {
        found(self.0.enter(format!("volumes/{}", digest(folder.as_str()))))
    }

    /// What is written down about a volume.
    pub(super) fn record(&self, folder: &SubDir, key: &str) -> io::Result<Option<Record>> {
        self.record_among(self.users(folder)?, folder, key)
    }

    /// The same, as the server has it at this moment.
    pub(super) fn record_anew(&self, folder: &SubDir, key: &str) -> io::Result<Option<Record>> {
        let users = format!("volumes/{}", digest(folder.as_str()));
        self.record_among(found(self.0.enter_anew(users))?, folder, key)
    }

    fn record_among(
        &self,
        users: Option<Folder>,
        folder: &SubDir,
        key: &str,
    ) -> io::Result<Option<Record>> {
        let Some(users) = users else {
            return Ok(None);
        };
        let Some(file) = found(users.read(file_name(key)))? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        // One that was cut short by the server's crash is as good as none: the volume's folder is
        // what counts.
        let record: Option<Record> = serde_json::from_slice(&bytes).ok();
        Ok(record.filter(|record| record.is_of(folder, key)))
    }

    /// Writes a volume's record, all of it or nothing.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let name = file_name(&record.key);
        self.written(record, |making, new, users| {
            making.rename(new, users, &name)
        })
    }

    /// Writes a volume's record if there is none; `false` if there is.
    pub(super) fn claim(&self, record: &Record) -> io::Result<bool> {
        let name = file_name(&record.key);
        self.written(record, |making, new, users| {
            match users.add_name(&name, making, new) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                Err(error) if has_no_second_names(&error) => match users.look(&name)? {
                    Some(_) => Ok(false),
                    None => making.rename(new, users, &name).map(|()| true),
                },
                Err(error) => Err(error),
            }
        })
    }

    /// Writes a record beside its place; if that does not get it there, it goes.
    fn written<T>(
        &self,
        record: &Record,
        put: impl FnOnce(&Folder, &str, &Folder) -> io::Result<T>,
    ) -> io::Result<T> {
        self.note(&record.folder)?;
        let users = format!("volumes/{}", digest(record.folder.as_str()));
        let users = self.0.make(users, 0o700)?;
        let making = self.making()?;
        // One's own name: another controller may write of the same volume.
        let new = format!("record-{}", Uuid::new_v4().simple());
        let mut file = making.create(&new, 0o600)?;
        let written = serde_json::to_vec(record)
            .map_err(io::Error::from)
            .and_then(|bytes| file.write_all(&bytes))
            .and_then(|()| file.sync_all());
        // A client keeps what is removed while it is open, under a name of its own.
        drop(file);
        let written = written.and_then(|()| put(&making, &new, &users));
        // After a rename there is nothing of that name.
        let removed = making.remove_file(&new);
        written.and_then(|done| removed.map(|_| done))
    }

    /// Forgets what is written down about a volume, though not that its folder may be used.
    pub(super) fn forget_record(&self, record: &Record) -> io::Result<()> {
        match self.users(&record.folder)? {
            None => Ok(()),
            Some(users) => users.remove_file(file_name(&record.key)).map(drop),
        }
    }

    /// Whether no other volume uses a folder.
    pub(super) fn is_alone(&self, folder: &SubDir, key: &str) -> io::Result<bool> {
        let Some(users) = self.users(folder)? else {
            return Ok(true);
        };
        let own = file_name(key);
        let other = |name: &OsString| *name != own && guard::is_record(name);
        Ok(!users.names()?.iter().any(other))
    }

    /// Whether no volume has a folder, and nothing of others is known to be in it.
    pub(super) fn is_nobodys(&self, folder: &SubDir) -> io::Result<bool> {
        Ok(self.is_alone(folder, "")? && self.notes(folder)?.is_empty())
    }

    /// Forgets a volume. `true` if no other one uses its folder.
    pub(super) fn forget(&self, folder: &SubDir, key: &str) -> io::Result<bool> {
        let Some(users) = self.users(folder)? else {
            return Ok(true);
        };
        users.remove_file(file_name(key))?;
        // What else lies there is no volume's.
        if users.names()?.iter().any(|name| guard::is_record(name)) {
            return Ok(false);
        }
        let volumes = self.0.enter("volumes")?;
        match volumes.remove_empty(digest(folder.as_str())) {
            Ok(_) => self.take_notes(folder).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                // Somebody has come meanwhile, or what lies there stays.
                Ok(!users.names()?.iter().any(|name| guard::is_record(name)))
            }
            Err(error) => Err(error),
        }
    }

    /// Moves something to the trash; what it is called there, if it was there.
    pub(super) fn throw_away(
        &self,
        from: &Folder,
        name: impl AsRef<OsStr>,
    ) -> io::Result<Option<OsString>> {
        let name = name.as_ref();
        let trash = self.trash()?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        for attempt in 0..100_u32 {
            let place = format!("{}-{}-{attempt}", now.as_nanos(), std::process::id());
            // It would replace an empty folder of that name, which is what it is there for.
            match from.rename(name, &trash, &place) {
                Ok(()) => return Ok(Some(place.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("the trash has no free name"))
    }
}

fn file_name(key: &str) -> OsString {
    format!("{}.json", digest(key)).into()
}

/// What is missing is no error.
pub(super) fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes away empty folders, from this one up to the share.
pub(super) fn remove_empty_parents(share: &Share, folder: &SubDir) -> io::Result<()> {
    let mut next = folder.parent();
    while let Some(path) = next {
        let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
        let Some(name) = path.file_name() else { break };
        let held = match parent {
            None => share.root.again()?,
            Some(parent) => match found(share.root.enter(parent))? {
                Some(held) => held,
                None => break,
            },
        };
        match held.remove_empty(name) {
            Ok(_) => {}
            // Others live there, or somebody holds it: it is not ours to remove.
            Err(_) => break,
        }
        next = parent.map(std::path::Path::to_path_buf);
    }
    Ok(())
}

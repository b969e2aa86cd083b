//! A volume's folder goes: out of its place in one step, and then away, however long that takes.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use orlop_csi::server::CsiError;
use orlop_host::Folder;
use orlop_host::folder::EntryKind;
use tonic::Code;

use super::attempt::{self, Kind};
use super::bulk::Bulk;
use super::house::{House, found, remove_empty_parents};
use super::remove::{self, Removal};
use super::share::{Ground, Left, Share};
use super::sight;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Mounting, Work};
use crate::nfs::parameters::OnDelete;
use crate::nfs::sub_dir::SubDir;

/// How long a caller waits for the files themselves; beyond it, that the name is free must do.
const AT_ONCE: Duration = Duration::from_secs(1);

pub(super) fn delete(ground: &Ground<'_>, order: &Work) -> Result<Answer, Failure> {
    let Work::Delete {
        on,
        key,
        folder,
        on_delete,
        remove_archived,
        shown,
    } = order
    else {
        return Err(Failure::new(Code::Internal, "not an order to delete"));
    };
    let share = ground.open(on)?;
    let failed = |doing: &str| share.failed(&format!("{doing} {folder}"));
    let there = found(share.root.enter(folder.path())).map_err(failed("look for"))?;
    if there.is_none() {
        finish(ground, &share, folder).map_err(failed("delete"))?;
    }
    let house = match (&there, House::find(&share)?) {
        (_, Some(house)) => Some(house),
        // Where there is no room for our own folder nothing is on record, and what goes makes room.
        (Some(_), None) => match House::make(&share) {
            Ok(house) => Some(house),
            Err(failure) if failure.code() == Code::ResourceExhausted => None,
            Err(failure) => return Err(failure),
        },
        // Nothing there, and nothing ever written: not even our own folder is made.
        (None, None) => return Ok(Answer::Done),
    };
    let (mut alone, mut outer) = (true, None);
    if let Some(house) = &house {
        let users = house.is_alone(folder, key);
        alone = users.map_err(failed("look for users of"))?;
        outer = house.outer(folder).map_err(failed("look around"))?;
    }
    if there.is_some() && alone && outer.is_none() {
        sight::refuse_in_use(ground, &share, on, folder, shown)?;
        sight::refuse_holder(&share, house.as_ref(), folder)?;
    }
    let mut thrown = Vec::new();
    if let Some(house) = &house {
        alone = house.forget(folder, key).map_err(failed("forget"))?;
        // What was to become of it, and never came to its place.
        let attempts = attempt::throw_away(house, Kind::Volume, key);
        thrown = attempts.map_err(failed("delete"))?;
    }
    if there.is_none() || !alone || outer.is_some() {
        // It goes with the last of those that have it, or with the folder that it is in.
        let why = match outer {
            _ if there.is_none() => None,
            _ if !alone => Some("another volume has it, or had it and was retained".to_owned()),
            Some(it) => Some(format!(
                "it is in folder {} of volume {:?}",
                it.folder, it.key
            )),
            None => None,
        };
        if let Some(why) = why {
            eprintln!("folder {folder} of share {} stays: {why}", share.export);
        }
        ground.left.replace(ground.to_delete(thrown));
        return Ok(Answer::Done);
    }
    thrown.extend(match on_delete {
        OnDelete::Retain => None,
        OnDelete::Archive => {
            let house = house.as_ref();
            let older = folder.archived(0);
            // What has that name may be a volume, or hold one, or another one's archive.
            let nobodys = house.map(|house| house.is_nobodys(&older)).transpose();
            let replace = *remove_archived
                && nobodys.map_err(failed("look at the archive of"))? == Some(true)
                && sight::refuse_in_use(ground, &share, on, &older, shown).is_ok();
            archive(&share, house, folder, replace).map_err(failed("archive"))?
        }
        OnDelete::Delete => {
            let thrown = throw_away(ground, &share, house.as_ref(), folder);
            let thrown = thrown.map_err(failed("delete"))?;
            remove_empty_parents(&share, folder).map_err(failed("tidy up after"))?;
            thrown
        }
    });
    begin_to_sweep(ground, &share, thrown);
    Ok(Answer::Done)
}

/// Moves a folder to the trash. Where there is no room for that it is removed beside its place, however
/// long its caller has to wait: a share that is full must be emptied somehow.
fn throw_away(
    ground: &Ground<'_>,
    share: &Share,
    house: Option<&House>,
    folder: &SubDir,
) -> io::Result<Option<OsString>> {
    let parent = parent(share, folder)?;
    match house.map(|house| house.throw_away(&parent, folder.name())) {
        Some(Err(error)) if is_full(&error) => {}
        Some(outcome) => return outcome,
        None => {}
    }
    ground
        .pulse
        .doing(format!("delete {folder} beside its place"));
    remove::remove_in_place(ground.pulse, &parent, folder.name()).map(|()| None)
}

/// Removes what an earlier call began to remove beside its place.
fn finish(ground: &Ground<'_>, share: &Share, folder: &SubDir) -> io::Result<()> {
    let Some(parent) = found(parent(share, folder))? else {
        return Ok(());
    };
    if !remove::is_begun(&parent, folder.name())? {
        return Ok(());
    }
    remove::remove_in_place(ground.pulse, &parent, folder.name())?;
    remove_empty_parents(share, folder)
}

/// The folder that one is in.
fn parent(share: &Share, folder: &SubDir) -> io::Result<Folder> {
    match folder.parent() {
        None => share.root.again(),
        Some(parent) => share.root.enter(parent),
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Renames a folder; what makes way for it, if something does.
fn archive(
    share: &Share,
    house: Option<&House>,
    folder: &SubDir,
    replace: bool,
) -> io::Result<Option<OsString>> {
    let from = parent(share, folder)?;
    let archived = folder.archived(0);
    let to = match archived.parent() {
        None => share.root.again()?,
        Some(parent) => share.root.make(parent, 0o777)?,
    };
    match house.map(|house| house.note(&archived)) {
        Some(Err(error)) if !is_full(&error) => return Err(error),
        _ => {}
    }
    let thrown = match house.filter(|_| replace) {
        Some(house) => house.throw_away(&to, archived.name())?,
        None => None,
    };
    // An older archive of the same name is somebody's data: the new one gets a number.
    for number in 0..10_000_u32 {
        let archived = folder.archived(number);
        if to.look(archived.name())?.is_some() {
            continue;
        }
        from.rename(folder.name(), &to, archived.name())?;
        return Ok(thrown);
    }
    Err(io::Error::other("there are too many archives of this name"))
}

/// Deletes while the caller waits, and notes what is left for afterwards.
pub(super) fn begin_to_sweep(ground: &Ground<'_>, share: &Share, thrown: Vec<OsString>) {
    let left = ground.to_delete(thrown);
    let left = sweep_share(ground, share, left, Some(AT_ONCE));
    ground.left.replace(left);
}

/// Deletes what is left, however long it takes.
pub(super) fn sweep(ground: &Ground<'_>, on: &Mounting) {
    let left = ground.left.take();
    if matches!(left, Left::Nothing) {
        return;
    }
    match ground.open(on) {
        Ok(share) => {
            let left = sweep_at_once(ground, &share, on, left);
            sweep_share(ground, &share, left, None);
        }
        Err(failure) => eprintln!("the trash is swept later: {failure}"),
    }
}

/// Deletes what can be deleted by few requests. What is left, for whatever reason, is to be swept as if
/// nobody had tried.
fn sweep_at_once(ground: &Ground<'_>, share: &Share, on: &Mounting, left: Left) -> Left {
    let Some(address) = ground.address(on).filter(|_| Bulk::fits(on)) else {
        return left;
    };
    let swept = || -> io::Result<()> {
        let Some(house) = House::find(share).map_err(io::Error::other)? else {
            return Ok(());
        };
        let trash = house.trash()?;
        let all;
        let names = match &left {
            Left::Nothing => return Ok(()),
            Left::These(names) => names,
            Left::All => {
                all = trash.names()?;
                &all
            }
        };
        let bulk = Bulk::open(ground.pulse, on, address)?;
        for name in names {
            match trash.look(name)? {
                Some(entry) if entry.kind == EntryKind::Folder => {
                    bulk.remove(name.as_bytes(), entry.inode)?;
                }
                _ => {}
            }
        }
        Ok(())
    };
    if let Err(error) = swept() {
        eprintln!("{}: files are removed one by one: {error}", share.export);
    }
    left
}

/// Deletes what has to go, all of it or for so long; what is left then. What cannot be deleted stays
/// for the next sweep of all, to which a worker's end leads: its name is free, which is all that
/// callers need.
fn sweep_share(ground: &Ground<'_>, share: &Share, left: Left, at_most: Option<Duration>) -> Left {
    let until = at_most.map(|at_most| Instant::now() + at_most);
    let swept = || -> Result<Left, Failure> {
        let failed = share.failed("delete");
        let Some(house) = House::find(share)? else {
            return Ok(Left::Nothing);
        };
        let trash = house.trash().map_err(&failed)?;
        let aside = |parent: &Folder, name: &OsStr| house.throw_away(parent, name);
        let removal = Removal::new(ground.pulse, &aside, until);
        let (mut names, all) = match left {
            Left::Nothing => return Ok(Left::Nothing),
            Left::These(names) => (names, false),
            Left::All => {
                attempt::throw_away_abandoned(&house).map_err(&failed)?;
                (trash.names().map_err(&failed)?, true)
            }
        };
        while let Some(name) = names.pop() {
            match removal.remove(&trash, &name) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    names.push(name);
                    names.extend(removal.moved());
                    return Ok(if all { Left::All } else { Left::These(names) });
                }
                Err(error) => {
                    eprintln!("{name:?} stays in the trash of {}: {error}", share.export);
                    ground.let_go();
                }
            }
            // What was too deep lies in the trash by itself now.
            names.extend(removal.moved());
        }
        Ok(Left::Nothing)
    };
    swept().unwrap_or_else(|failure| {
        eprintln!("the trash is swept later: {failure}");
        ground.let_go();
        Left::Nothing
    })
}

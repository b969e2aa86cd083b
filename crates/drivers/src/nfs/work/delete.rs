//! A volume's folder goes: out of its place in one step, and then away, however long that takes.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use tonic::Code;

use super::house::{House, found, remove_empty_parents};
use super::remove::Removal;
use super::share::{Ground, Share};
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
    } = order
    else {
        return Err(Failure::new(Code::Internal, "not an order to delete"));
    };
    let share = ground.open(on)?;
    let failed = |doing: &str| share.failed(&format!("{doing} {folder}"));
    // Nothing there, and nothing ever written: not even our own folder is made.
    let there = found(share.root.enter(folder.path())).map_err(failed("look for"))?;
    let house = House::make(&share)?;
    let alone = house.forget(folder, key).map_err(failed("forget"))?;
    if there.is_none() || !alone {
        return Ok(Answer::Done);
    }
    match on_delete {
        OnDelete::Retain => {}
        OnDelete::Archive => {
            archive(&share, &house, folder, *remove_archived).map_err(failed("archive"))?;
        }
        OnDelete::Delete => {
            throw_away(&share, &house, folder).map_err(failed("delete"))?;
            remove_empty_parents(&share, folder).map_err(failed("tidy up after"))?;
        }
    }
    sweep_share(ground, &share, Some(AT_ONCE));
    Ok(Answer::Done)
}

/// A snapshot's folder goes the same way.
pub(super) fn discard(
    ground: &Ground<'_>,
    on: &Mounting,
    folder: &SubDir,
) -> Result<Answer, Failure> {
    let share = ground.open(on)?;
    let failed = |doing: &str| share.failed(&format!("{doing} {folder}"));
    if found(share.root.enter(folder.path()))
        .map_err(failed("look for"))?
        .is_none()
    {
        return Ok(Answer::Done);
    }
    let house = House::make(&share)?;
    throw_away(&share, &house, folder).map_err(failed("delete"))?;
    sweep_share(ground, &share, Some(AT_ONCE));
    Ok(Answer::Done)
}

fn throw_away(share: &Share, house: &House, folder: &SubDir) -> io::Result<()> {
    let parent = match folder.parent() {
        None => share.root.again()?,
        Some(parent) => share.root.enter(parent)?,
    };
    house.throw_away(&parent, folder.name()).map(drop)
}

fn archive(share: &Share, house: &House, folder: &SubDir, replace: bool) -> io::Result<()> {
    let from = match folder.parent() {
        None => share.root.again()?,
        Some(parent) => share.root.enter(parent)?,
    };
    let archived = folder.archived();
    let to = match archived.parent() {
        None => share.root.again()?,
        Some(parent) => share.root.make(parent, 0o777)?,
    };
    if replace {
        house.throw_away(&to, archived.name())?;
    }
    // An older archive of the same name is somebody's data: the new one gets a number.
    for number in 0..10_000_u32 {
        let name = match number {
            0 => archived.name().to_owned(),
            number => format!("{}-{number}", archived.name()),
        };
        if to.look(&name)?.is_some() {
            continue;
        }
        return from.rename(folder.name(), &to, &name);
    }
    Err(io::Error::other("there are too many archives of this name"))
}

/// Deletes all that is in the trash, however long it takes.
pub(super) fn sweep(ground: &Ground<'_>, on: &Mounting) {
    match ground.open(on) {
        Ok(share) => sweep_share(ground, &share, None),
        Err(failure) => eprintln!("the trash is swept later: {failure}"),
    }
}

/// Deletes what is in the trash, all of it or for so long. What cannot be deleted stays for the next
/// time: its name is free, which is all that callers need.
fn sweep_share(ground: &Ground<'_>, share: &Share, at_most: Option<Duration>) {
    let until = at_most.map(|at_most| Instant::now() + at_most);
    let swept = || -> Result<(), Failure> {
        let failed = share.failed("delete");
        let house = House::make(share)?;
        let trash = house.trash().map_err(&failed)?;
        let removal = Removal::new(ground.pulse, &house, until);
        let mut stay = BTreeSet::new();
        // What is too deep comes back here as a new entry.
        loop {
            let mut names = trash.names().map_err(&failed)?;
            names.retain(|name| !stay.contains(name));
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                match removal.remove(&trash, &name) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
                    Err(error) => {
                        eprintln!("{name:?} stays in the trash of {}: {error}", share.export);
                        stay.insert(name);
                    }
                }
            }
        }
    };
    if let Err(failure) = swept() {
        eprintln!("the trash is swept later: {failure}");
    }
}

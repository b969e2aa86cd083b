//! A snapshot goes: its archive, and the folder around it if nothing else is there.
//!
//! A snapshot's id is no proof that its folder is a snapshot's: it may be a volume's of that name. So
//! only what is known to be an archive's place is touched.

use std::ffi::OsString;
use std::io;

use orlop_csi::server::CsiError;
use orlop_host::Folder;
use orlop_host::folder::EntryKind;
use tonic::Code;

use super::archive::{self, Packed};
use super::attempt::{self, Kind};
use super::delete::{begin_to_sweep, is_full};
use super::house::{House, found};
use super::share::{Ground, Share};
use super::sight;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};
use crate::nfs::sub_dir::SubDir;

/// What the kernel's client leaves of a deleted file that somebody has open.
const SILLY: &str = ".nfs";

pub(super) fn discard(ground: &Ground<'_>, order: &Work) -> Result<Answer, Failure> {
    let Work::Discard {
        on,
        folder,
        source,
        shown,
    } = order
    else {
        return Err(Failure::new(Code::Internal, "not an order to discard"));
    };
    let share = ground.open(on)?;
    let failed = |doing: &str| share.failed(&format!("{doing} snapshot {folder}"));
    let house = House::find(&share)?;
    let mut thrown = Vec::new();
    if let Some(house) = &house {
        // What was to become of it, and never came to its place.
        let attempts = attempt::throw_away(house, Kind::Snapshot, folder.as_str());
        thrown = attempts.map_err(failed("delete"))?;
    }
    let Some(snapshot) = found(share.root.enter(folder.path())).map_err(failed("look for"))? else {
        begin_to_sweep(ground, &share, thrown);
        return Ok(Answer::Done);
    };
    let Some(place) = Place::find(&snapshot, source).map_err(failed("look into"))? else {
        eprintln!(
            "folder {folder} of share {} holds no archive of {source}: nothing is deleted",
            share.export
        );
        begin_to_sweep(ground, &share, thrown);
        return Ok(Answer::Done);
    };
    sight::refuse_in_use(ground, &share, on, folder, shown)?;
    sight::refuse_holder(&share, house.as_ref(), folder)?;
    thrown.extend(remove(&share, house, folder, source, &place)?);
    begin_to_sweep(ground, &share, thrown);
    Ok(Answer::Done)
}

/// Throws an archive away that is not whole, so that it can be packed anew.
pub(super) fn make_way(share: &Share, folder: &SubDir, source: &SubDir) -> Result<(), Failure> {
    let failed = |doing: &str| share.failed(&format!("{doing} snapshot {folder}"));
    let snapshot = share
        .root
        .enter(folder.path())
        .map_err(failed("look for"))?;
    match Place::find(&snapshot, source).map_err(failed("look into"))? {
        Some(place) => remove(share, House::find(share)?, folder, source, &place).map(drop),
        None => Ok(()),
    }
}

/// Removes an archive, and the folders around it, which hold nothing else; what is in the trash then.
fn remove(
    share: &Share,
    house: Option<House>,
    folder: &SubDir,
    source: &SubDir,
    place: &Place,
) -> Result<Vec<OsString>, Failure> {
    let failed = |doing: &str| share.failed(&format!("{doing} snapshot {folder}"));
    let free = house.as_ref().map(|house| house.is_alone(folder, ""));
    let free = free.transpose().map_err(failed("look for users of"))?;
    if free == Some(false) {
        return Err(refused(share, folder, "it is a volume's"));
    }
    if let Some(other) = &place.other {
        return Err(refused(
            share,
            folder,
            &format!("it holds {other:?} besides"),
        ));
    }
    let house = match house.map_or_else(|| House::make(share), Ok) {
        Ok(house) => Some(house),
        Err(failure) if failure.code() == Code::ResourceExhausted => None,
        Err(failure) => return Err(failure),
    };
    let mut thrown = Vec::new();
    for name in &place.archives {
        let moved = house
            .as_ref()
            .map(|house| house.throw_away(&place.held, name));
        match moved {
            Some(Err(error)) if !is_full(&error) => return Err(failed("delete")(error)),
            Some(Ok(moved)) => thrown.extend(moved),
            // There is no room for a trash.
            Some(Err(_)) | None => {
                place.held.remove_file(name).map_err(failed("delete"))?;
            }
        }
    }
    tidy(share, folder, source).map_err(failed("tidy up after"))?;
    Ok(thrown)
}

/// Where an archive is.
struct Place {
    held: Folder,
    archives: Vec<String>,
    /// Something that doesn't belong to it.
    other: Option<OsString>,
}

impl Place {
    fn find(snapshot: &Folder, source: &SubDir) -> io::Result<Option<Self>> {
        let (mut held, mut other) = (snapshot.again()?, None);
        let mut note = |held: &Folder, known: &[String]| -> io::Result<()> {
            let strange = |name: &OsString| {
                let name = name.to_string_lossy();
                !name.starts_with(SILLY) && !known.iter().any(|known| *known == name)
            };
            let found = held.names()?.into_iter().find(strange);
            other = other.take().or(found);
            Ok(())
        };
        for part in source.parent().iter().flat_map(|path| path.iter()) {
            note(&held, &[part.to_string_lossy().into_owned()])?;
            match found(held.enter(part))? {
                Some(below) => held = below,
                None => return Ok(None),
            }
        }
        let names = [Packed::Gzip, Packed::Plain].map(|packed| archive::place(source, packed).1);
        note(&held, &names)?;
        let mut archives = Vec::new();
        for name in names {
            if let Some(entry) = held.look(&name)?
                && entry.kind == EntryKind::File
            {
                archives.push(name);
            }
        }
        Ok((!archives.is_empty()).then_some(Self {
            held,
            archives,
            other,
        }))
    }
}

/// Takes the folders away that are empty now.
fn tidy(share: &Share, folder: &SubDir, source: &SubDir) -> io::Result<()> {
    let whole = folder.path().join(source.path());
    let inside = |path: &&std::path::Path| path.starts_with(folder.path());
    for path in whole.ancestors().skip(1).take_while(inside) {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = match parent {
            None => share.root.again()?,
            Some(parent) => share.root.enter(parent)?,
        };
        match parent.remove_empty(path.file_name().unwrap_or_default()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn refused(share: &Share, folder: &SubDir, why: &str) -> Failure {
    let told = format!(
        "folder {folder} of share {} is not a snapshot's alone ({why}), so nothing in it is deleted; \
         delete the archive by hand if it is one",
        share.export
    );
    Failure::new(Code::FailedPrecondition, told)
}

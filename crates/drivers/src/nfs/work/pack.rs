//! A snapshot comes to be: packed beside its place, and moved there when it is whole.

use std::io;

use orlop_host::Folder;
use orlop_host::folder::EntryKind;
use tonic::Code;

use super::Pulse;
use super::archive::{self, Packed};
use super::attempt::{Attempt, Kind};
use super::create::MODE;
use super::discard;
use super::house::{House, found};
use super::share::{Ground, Share};
use super::source::Source;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};
use crate::nfs::sub_dir::SubDir;

/// No source is in more folders.
const LEVELS: usize = 64;

pub(super) fn pack(ground: &Ground<'_>, order: &Work) -> Result<Answer, Failure> {
    let Work::Pack {
        from,
        source,
        to,
        folder,
        aside,
        archive,
        compress,
    } = order
    else {
        return Err(Failure::new(Code::Internal, "not an order to pack"));
    };
    let target = ground.open(to)?;
    let known = House::find(&target)?;
    let look = |folder, is_aside| {
        let (house, pulse) = (known.as_ref(), ground.pulse);
        look(&target, house, folder, archive, is_aside, pulse)
    };
    let standing = look(folder, false)?;
    let is_aside = matches!(standing, Standing::Volume);
    let (folder, standing) = match standing {
        Standing::Made(answer) => return Ok(answer),
        Standing::Volume => (aside, look(aside, true)?),
        // One that went aside stays there, also when the volume has gone that had its name.
        free => match look(aside, true)? {
            Standing::Made(answer) => return Ok(answer),
            _ => (folder, free),
        },
    };
    match standing {
        Standing::Made(answer) => return Ok(answer),
        Standing::Volume => return Err(taken(&target, folder)),
        Standing::Short => {
            eprintln!("the archive of snapshot {folder} is cut short, and packed anew");
            discard::make_way(&target, folder, archive)?;
        }
        Standing::Nothing => {}
    }
    let failed = |doing: &str| target.failed(&format!("{doing} {folder}"));
    let packed = match compress {
        true => Packed::Gzip,
        false => Packed::Plain,
    };
    let other = match from.export == to.export {
        true => None,
        false => Some(ground.open(from)?),
    };
    let origin = other.as_ref().unwrap_or(&target);
    let volume = Source::open(origin, source)?;
    ground.pulse.doing(format!("pack {source}"));
    let house = House::make(&target)?;
    let begin = Attempt::begin(&house, ground.pulse, Kind::Snapshot, folder.as_str());
    let mut attempt = begin.map_err(failed("prepare"))?;
    let file = archive::create(attempt.folder(), archive, packed).map_err(failed("prepare"))?;
    let packed = archive::pack(&volume.folder, &file, packed, ground.pulse);
    let packed = packed.and_then(|()| file.sync_all());
    volume.read(packed, failed("pack"))?;
    let parent = match folder.parent() {
        None => target.root.again(),
        Some(parent) => target.root.make(parent, MODE),
    };
    let parent = parent.map_err(failed("make the folder of"))?;
    // It would replace an empty folder, which somebody may have made meanwhile.
    let there = found(target.root.enter(folder.path())).map_err(failed("look for"))?;
    let put = match there {
        Some(_) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        None => attempt.put(&parent, folder.name()),
    };
    match put {
        Ok(()) => answer(&file, is_aside).map_err(failed("measure")),
        Err(error) if is_occupied(&error) => match look(folder, is_aside)? {
            Standing::Made(answer) => Ok(answer),
            Standing::Nothing | Standing::Short | Standing::Volume => {
                Err(failed("put in its place")(error))
            }
        },
        Err(error) => Err(failed("put in its place")(error)),
    }
}

/// What is where a snapshot shall be.
enum Standing {
    Nothing,
    /// The snapshot.
    Made(Answer),
    /// What the original could not finish.
    Short,
    /// A volume's folder: people give both one name.
    Volume,
}

/// Looks what is there. A snapshot's folder comes with the archive in it, so that one without it is
/// somebody else's, even if it is empty.
fn look(
    target: &Share,
    house: Option<&House>,
    folder: &SubDir,
    source: &SubDir,
    is_aside: bool,
    pulse: &Pulse<'_>,
) -> Result<Standing, Failure> {
    let failed = |doing: &str| target.failed(&format!("{doing} {folder}"));
    let there = found(target.root.enter(folder.path())).map_err(failed("look for"))?;
    let Some(there) = there else {
        return Ok(Standing::Nothing);
    };
    let opened = archive::open(&there, source).map_err(failed("look into"))?;
    if let Some((file, packed)) = &opened {
        pulse.doing(format!("read the archive of {folder}"));
        if archive::is_whole(file, *packed, pulse).map_err(failed("read the archive of"))? {
            let answer = answer(file, is_aside).map_err(failed("measure"))?;
            return Ok(Standing::Made(answer));
        }
    }
    let free = house.map(|house| house.is_alone(folder, "")).transpose();
    let is_volume = free.map_err(failed("look for users of"))? == Some(false);
    if is_volume {
        Ok(Standing::Volume)
    } else if opened.is_some() {
        Ok(Standing::Short)
    } else if holds_an_archive(there).map_err(failed("look into"))? {
        Err(taken(target, folder))
    } else {
        Ok(Standing::Volume)
    }
}

/// Whether there is one archive and nothing else, in as many folders as its source had.
fn holds_an_archive(mut folder: Folder) -> io::Result<bool> {
    for _ in 0..LEVELS {
        let names = folder.names()?;
        let [name] = &names[..] else {
            return Ok(false);
        };
        match folder.look(name)? {
            Some(entry) if entry.kind == EntryKind::Folder => folder = folder.enter(name)?,
            Some(entry) if entry.kind == EntryKind::File => {
                let name = name.to_string_lossy();
                return Ok(name.ends_with(".tar") || name.ends_with(".tar.gz"));
            }
            _ => return Ok(false),
        }
    }
    Ok(false)
}

fn taken(target: &Share, folder: &SubDir) -> Failure {
    let told = format!(
        "folder {folder} in share {} is there, and is another volume's snapshot, or a volume itself",
        target.export
    );
    Failure::new(Code::AlreadyExists, told)
}

fn is_occupied(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(
        error.kind(),
        AlreadyExists | DirectoryNotEmpty | NotADirectory
    )
}

fn answer(file: &std::fs::File, is_aside: bool) -> io::Result<Answer> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata()?;
    Ok(Answer::Archive {
        bytes: found.len(),
        made: (
            found.mtime(),
            u32::try_from(found.mtime_nsec()).unwrap_or_default(),
        ),
        is_aside,
    })
}

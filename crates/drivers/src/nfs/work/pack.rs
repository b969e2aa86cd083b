//! A snapshot comes to be: packed beside its place, and moved there when it is whole.

use std::io;

use tonic::Code;

use super::archive::{self, Packed};
use super::attempt::{Attempt, Kind};
use super::create::MODE;
use super::house::{House, found};
use super::share::{Ground, Share};
use super::source::Source;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};
use crate::nfs::sub_dir::SubDir;

pub(super) fn pack(ground: &Ground<'_>, order: &Work) -> Result<Answer, Failure> {
    let Work::Pack {
        from,
        source,
        to,
        folder,
        archive,
        compress,
    } = order
    else {
        return Err(Failure::new(Code::Internal, "not an order to pack"));
    };
    let target = ground.open(to)?;
    let failed = |doing: &str| target.failed(&format!("{doing} {folder}"));
    if let Some(answer) = made(&target, folder, archive)? {
        return Ok(answer);
    }
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
        Ok(()) => answer(&file).map_err(failed("measure")),
        Err(error) if is_occupied(&error) => match made(&target, folder, archive)? {
            Some(answer) => Ok(answer),
            None => Err(failed("put in its place")(error)),
        },
        Err(error) => Err(failed("put in its place")(error)),
    }
}

/// The snapshot, if it is there. Its folder comes with the archive in it, so that one without it is
/// somebody else's, even if it is empty.
fn made(target: &Share, folder: &SubDir, source: &SubDir) -> Result<Option<Answer>, Failure> {
    let failed = |doing: &str| target.failed(&format!("{doing} {folder}"));
    let there = found(target.root.enter(folder.path())).map_err(failed("look for"))?;
    let Some(snapshot) = there else {
        return Ok(None);
    };
    if let Some((file, _)) = archive::open(&snapshot, source).map_err(failed("look into"))? {
        return answer(&file).map(Some).map_err(failed("measure"));
    }
    let told = format!(
        "folder {folder} in share {} is there, and is no snapshot of {source}: it is that of another \
         volume, or a volume itself",
        target.export
    );
    Err(Failure::new(Code::AlreadyExists, told))
}

fn is_occupied(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(
        error.kind(),
        AlreadyExists | DirectoryNotEmpty | NotADirectory
    )
}

fn answer(file: &std::fs::File) -> io::Result<Answer> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata()?;
    Ok(Answer::Archive {
        bytes: found.len(),
        made: (
            found.mtime(),
            u32::try_from(found.mtime_nsec()).unwrap_or_default(),
        ),
    })
}

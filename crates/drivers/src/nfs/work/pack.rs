//! A snapshot comes to be: packed beside its place, and moved there when it is whole.

use std::io;

use tonic::Code;

use super::archive::{self, Packed};
use super::house::{House, found};
use super::share::Ground;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};
use crate::nfs::record::digest;

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
    let there = found(target.root.enter(folder.path())).map_err(failed("look for"))?;
    if let Some(snapshot) = &there {
        if let Some((file, _)) = archive::open(snapshot, archive).map_err(failed("look into"))? {
            return answer(&file).map_err(failed("measure"));
        }
        if !snapshot.names().map_err(failed("look into"))?.is_empty() {
            let told = format!(
                "snapshot {folder} in share {} exists already, of another volume",
                target.export
            );
            return Err(Failure::new(Code::AlreadyExists, told));
        }
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
    let volume = match origin.root.enter(source.path()) {
        Ok(volume) => volume,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let told = format!("there is no volume {source} in share {}", origin.export);
            return Err(Failure::not_found(told));
        }
        Err(error) => return Err(origin.failed(&format!("open {source}"))(error)),
    };
    ground.pulse.doing(format!("pack {source}"));
    let house = House::make(&target)?;
    let making = house.making().map_err(failed("prepare"))?;
    let name = digest(folder.as_str());
    making.remove_file(&name).map_err(failed("prepare"))?;
    let file = making.create(&name, 0o600).map_err(failed("prepare"))?;
    archive::pack(&volume, &file, packed, ground.pulse).map_err(failed("pack"))?;
    file.sync_all().map_err(failed("pack"))?;
    let (parent, ending) = archive::place(archive, packed);
    let path = match parent {
        None => folder.path().to_owned(),
        Some(parent) => folder.path().join(parent),
    };
    let place = target
        .root
        .make(path, 0o777)
        .map_err(failed("make the folder"))?;
    making
        .rename(&name, &place, &ending)
        .map_err(failed("put in its place"))?;
    answer(&file).map_err(failed("measure"))
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

//! A volume's folder comes to be: empty at once, or filled beside its place and then moved there.

use std::io;

use orlop_host::Folder;
use tonic::Code;

use super::house::{House, found};
use super::share::{Ground, Share};
use super::{archive, copy};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Content, Create, Mounting};
use crate::nfs::record::digest;
use crate::nfs::sub_dir::SubDir;

/// The folders' permissions before the umask, as the original makes them.
const MODE: u32 = 0o777;

pub(super) fn create(ground: &Ground<'_>, order: &Create) -> Result<Answer, Failure> {
    let share = ground.open(&order.on)?;
    let wanted = &order.record;
    let failed = |doing: &str| share.failed(&format!("{doing} {}", wanted.folder));
    let house = House::make(&share)?;
    let known = house
        .record(&wanted.folder, &wanted.key)
        .map_err(failed("read of"))?;
    let difference = known
        .as_ref()
        .and_then(|known| known.difference(order.required, order.limit, wanted));
    if let Some(what) = difference {
        let told = format!("volume {:?} exists already with another {what}", wanted.key);
        return Err(Failure::new(Code::AlreadyExists, told));
    }
    let there = found(share.root.enter(wanted.folder.path())).map_err(failed("look for"))?;
    let record = known.as_ref().unwrap_or(wanted);
    match (&order.content, there) {
        (None, there) => {
            if known.is_none() {
                house.write(record).map_err(failed("write of"))?;
            }
            let folder = match there {
                Some(folder) => folder,
                None => {
                    let made = share.root.make(wanted.folder.path(), MODE);
                    made.map_err(failed("make the folder"))?
                }
            };
            permit(&folder, order.permissions);
        }
        (Some(_), Some(_)) if known.is_some() => {}
        (Some(content), there) => {
            let filled = match &there {
                Some(folder) => !folder.names().map_err(failed("look into"))?.is_empty(),
                None => false,
            };
            if filled {
                let told = format!(
                    "folder {} in share {} is there and not empty, so nothing is copied into it; \
                     choose another subDir",
                    wanted.folder, share.export
                );
                return Err(Failure::new(Code::AlreadyExists, told));
            }
            fill(ground, &share, &house, content, order)?;
        }
    }
    Ok(Answer::Volume {
        capacity_bytes: record.capacity_bytes,
        quota: None,
        context: record.context.clone(),
    })
}

/// A server that maps root to nobody refuses it; what the folder has by itself may do.
fn permit(folder: &Folder, permissions: Option<u32>) {
    if let Some(mode) = permissions
        && let Err(error) = folder.set_mode(mode)
    {
        eprintln!("the folder keeps its permissions: {error}");
    }
}

fn fill(
    ground: &Ground<'_>,
    share: &Share,
    house: &House,
    content: &Content,
    order: &Create,
) -> Result<(), Failure> {
    let wanted = &order.record;
    let failed = |doing: &str| share.failed(&format!("{doing} {}", wanted.folder));
    let place = digest(&wanted.key);
    let making = house.making().map_err(failed("prepare"))?;
    let prepare = || {
        house.throw_away(&making, &place)?;
        making.make(&place, 0o700)
    };
    let folder = match content {
        Content::Volume {
            on,
            key,
            folder: source,
        } => {
            ground.pulse.doing(format!("copy {source}"));
            let from = open_source(ground, share, on)?;
            let from = from.as_ref().unwrap_or(share);
            let tree = enter(from, source, "volume")?;
            let record = match House::find(from)? {
                None => None,
                Some(house) => house.record(source, key).map_err(failed("copy into"))?,
            };
            fits(order, record.map_or(0, |record| record.capacity_bytes))?;
            let folder = prepare().map_err(failed("prepare"))?;
            copy::copy(&tree, &folder, ground.pulse).map_err(failed("copy into"))?;
            // A deleted volume leaves its name before any of its files: what is still there was
            // there as a whole.
            let is = |held: &Folder| held.itself().map(|entry| entry.inode);
            let still = enter(from, source, "volume")?;
            let (was, now) = (is(&tree), is(&still));
            if was.map_err(failed("copy into"))? != now.map_err(failed("copy into"))? {
                return Err(missing(from, source, "volume"));
            }
            folder
        }
        Content::Snapshot {
            on,
            folder: snapshot,
            source,
        } => {
            ground.pulse.doing(format!("unpack {snapshot}"));
            let from = open_source(ground, share, on)?;
            let from = from.as_ref().unwrap_or(share);
            let held = enter(from, snapshot, "snapshot")?;
            let opening = from.failed(&format!("open the archive of {snapshot}"));
            let (file, packed) = archive::open(&held, source)
                .map_err(&opening)?
                .ok_or_else(|| missing(from, snapshot, "archive of snapshot"))?;
            let bytes = file.metadata().map_err(&opening)?.len();
            // What was packed is no larger than its volume was, if that is known.
            let record = match House::find(from)? {
                None => None,
                Some(house) => house.record(source, source.as_str()).map_err(opening)?,
            };
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            fits(order, record.map_or(0, |it| it.capacity_bytes).max(bytes))?;
            let folder = prepare().map_err(failed("prepare"))?;
            archive::unpack(file, packed, &folder, ground.pulse).map_err(failed("unpack into"))?;
            folder
        }
    };
    permit(&folder, order.permissions);
    house.write(wanted).map_err(failed("write of"))?;
    let parent = match wanted.folder.parent() {
        None => share.root.again(),
        Some(parent) => share.root.make(parent, MODE),
    };
    let parent = parent.map_err(failed("make the folder of"))?;
    making
        .rename(&place, &parent, wanted.folder.name())
        .map_err(failed("put in its place"))
}

/// Whether what a volume is filled from may be as large as the wish allows.
fn fits(order: &Create, bytes: i64) -> Result<(), Failure> {
    if order.limit == 0 || bytes <= order.limit {
        return Ok(());
    }
    let told = format!(
        "what volume {:?} is to be filled from has {bytes} bytes, more than its limit of {}",
        order.record.key, order.limit
    );
    Err(Failure::new(Code::OutOfRange, told))
}

/// The source's share, if it is another one.
fn open_source(
    ground: &Ground<'_>,
    share: &Share,
    on: &Mounting,
) -> Result<Option<Share>, Failure> {
    match share.export == on.export {
        true => Ok(None),
        false => ground.open(on).map(Some),
    }
}

fn enter(share: &Share, folder: &SubDir, what: &str) -> Result<Folder, Failure> {
    match share.root.enter(folder.path()) {
        Ok(held) => Ok(held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(share, folder, what)),
        Err(error) => Err(share.failed(&format!("open {what} {folder}"))(error)),
    }
}

fn missing(share: &Share, folder: &SubDir, what: &str) -> Failure {
    let told = format!("there is no {what} {folder} in share {}", share.export);
    Failure::not_found(told)
}

//! A volume's folder is filled beside its place, and appears there when it is whole.
//!
//! Its record is written when the content is whole, by whoever is first, and names the folder that has
//! it: whoever finds that may put it in its place, and nobody else's folder gets there. Then the record
//! says that the volume is complete.

use orlop_host::Folder;
use tonic::Code;

use super::attempt::{Attempt, Kind};
use super::create::{MODE, permit};
use super::house::{House, found};
use super::share::{Ground, Share};
use super::source::{Source, enter, missing};
use super::{archive, copy, sight};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Content, Create, Mounting};
use crate::nfs::record::{Placing, Record};

/// Sees to it that a volume's folder is there, and whole.
pub(super) fn fill(
    ground: &Ground<'_>,
    share: &Share,
    house: &House,
    content: &Content,
    order: &Create,
    known: Option<&Record>,
) -> Result<(), Failure> {
    let wanted = &order.record;
    let failed = |doing: &str| share.failed(&format!("{doing} {}", wanted.folder));
    if let Some(known) = known {
        // Whoever wrote this may not have come to the end of it.
        if place(share, house, known)? {
            return Ok(());
        }
    }
    // What says otherwise is wrong: cut short, or of a folder that has gone since.
    house.forget_record(wanted).map_err(failed("forget"))?;
    free(ground, share, house, order)?;
    let mut attempt = from_source(ground, share, house, content, order)?;
    permit(attempt.folder(), order.permissions);
    let looks = attempt.folder().itself().map_err(failed("look at"))?;
    let record = Record {
        placing: Some(Placing {
            attempt: attempt.name().to_owned(),
            inode: looks.inode,
        }),
        ..wanted.clone()
    };
    if let Err(refused) = free(ground, share, house, order) {
        // It may be this very volume: another controller was quicker.
        let standing = house.record_anew(&wanted.folder, &wanted.key);
        return match standing.map_err(failed("read the record of"))? {
            Some(standing) if place(share, house, &standing)? => Ok(()),
            _ => Err(refused),
        };
    }
    attempt.expose();
    let claimed = house
        .claim(&record)
        .map_err(failed("write the record of"))?;
    let own = |it: &Record| it.placing == record.placing;
    let standing = match claimed {
        true => None,
        false => {
            let standing = house.record(&wanted.folder, &wanted.key);
            // A client may ask once more for what a server has done already.
            standing
                .map_err(failed("read the record of"))?
                .filter(|it| !own(it))
        }
    };
    if let Some(standing) = standing {
        return match place(share, house, &standing)? {
            true => Ok(()),
            false => Err(elsewhere(share, wanted)),
        };
    }
    // Where this fails, the record stays: the folder may be in its place already, and only by its record
    // does the next call know that it is whole. One that names nothing is forgotten then.
    match place(share, house, &record)? {
        true => {
            attempt.settle();
            Ok(())
        }
        false => Err(elsewhere(share, wanted)),
    }
}

fn elsewhere(share: &Share, wanted: &Record) -> Failure {
    let told = format!(
        "another controller fills folder {} in share {}; repeat the call to see how that ends",
        wanted.folder, share.export
    );
    Failure::new(Code::Aborted, told)
}

/// Refuses a folder that somebody has, even an empty one if a pod may show it. One that nobody is known to
/// have is what was left of another try, by the original for one.
fn free(ground: &Ground<'_>, share: &Share, house: &House, order: &Create) -> Result<(), Failure> {
    let wanted = &order.record;
    let failed = |doing: &str| share.failed(&format!("{doing} {}", wanted.folder));
    let told = |why: &str| {
        let told = format!(
            "folder {} in share {} {why}, so nothing is copied into it; choose another subDir",
            wanted.folder, share.export
        );
        Err(Failure::new(Code::AlreadyExists, told))
    };
    let alone = house.is_alone(&wanted.folder, &wanted.key);
    if !alone.map_err(failed("look for users of"))? {
        return told("is another volume's");
    }
    let there = found(share.root.enter(wanted.folder.path())).map_err(failed("look for"))?;
    match there {
        None => Ok(()),
        Some(folder) if folder.names().map_err(failed("look into"))?.is_empty() => {
            sight::refuse_in_use(ground, share, &order.on, &wanted.folder, &order.shown)
        }
        Some(_) => told("is there and not empty"),
    }
}

/// Puts the folder that a record names in its place, if it is not there yet, and notes that it is.
/// `false` if that folder is not to be had, so that there is nothing whole.
fn place(share: &Share, house: &House, record: &Record) -> Result<bool, Failure> {
    let failed = |doing: &str| share.failed(&format!("{doing} {}", record.folder));
    let there = || -> Result<Option<u64>, Failure> {
        let there = found(share.root.enter(record.folder.path())).map_err(failed("look for"))?;
        let looks = there.map(|there| there.itself()).transpose();
        Ok(looks.map_err(failed("look at"))?.map(|it| it.inode))
    };
    let Some(placing) = &record.placing else {
        return Ok(there()?.is_some());
    };
    if there()? != Some(placing.inode) {
        let making = house.making().map_err(failed("prepare"))?;
        let held = found(making.enter(&placing.attempt)).map_err(failed("look for"))?;
        let inode = |held: Folder| held.itself().map(|it| it.inode);
        if held.map(inode).transpose().map_err(failed("look at"))? == Some(placing.inode) {
            let parent = match record.folder.parent() {
                None => share.root.again(),
                Some(parent) => share.root.make(parent, MODE),
            };
            let parent = parent.map_err(failed("make the folder of"))?;
            let moved = making.rename(&placing.attempt, &parent, record.folder.name());
            // Somebody else may be quicker, and does the same.
            found(moved).map_err(failed("put in its place"))?;
        }
        if there()? != Some(placing.inode) {
            return Ok(false);
        }
    }
    let complete = Record {
        placing: None,
        ..record.clone()
    };
    house
        .write(&complete)
        .map_err(failed("write the record of"))?;
    Ok(true)
}

fn from_source<'a>(
    ground: &'a Ground<'_>,
    share: &Share,
    house: &'a House,
    content: &Content,
    order: &Create,
) -> Result<Attempt<'a>, Failure> {
    let wanted = &order.record;
    let failed = |doing: &str| share.failed(&format!("{doing} {}", wanted.folder));
    let begin = || Attempt::begin(house, ground.pulse, Kind::Volume, &wanted.key);
    match content {
        Content::Volume { on, key, folder } => {
            ground.pulse.doing(format!("copy {folder}"));
            let from = open_source(ground, share, on)?;
            let from = from.as_ref().unwrap_or(share);
            let source = Source::open(from, folder)?;
            let record = match House::find(from)? {
                None => None,
                Some(house) => house.record(folder, key).map_err(failed("copy into"))?,
            };
            fits(order, record.map_or(0, |record| record.capacity_bytes))?;
            let attempt = begin().map_err(failed("prepare"))?;
            let copied = copy::copy(&source.folder, attempt.folder(), ground.pulse);
            source.read(copied, failed("copy into"))?;
            Ok(attempt)
        }
        Content::Snapshot { on, folder, source } => {
            ground.pulse.doing(format!("unpack {folder}"));
            let from = open_source(ground, share, on)?;
            let from = from.as_ref().unwrap_or(share);
            let held = enter(from, folder, "snapshot")?;
            let opening = from.failed(&format!("open the archive of {folder}"));
            let (file, packed) = archive::open(&held, source)
                .map_err(&opening)?
                .ok_or_else(|| missing(from, folder, "archive of snapshot"))?;
            let bytes = file.metadata().map_err(&opening)?.len();
            // What was packed is no larger than its volume was, if that is known.
            let record = match House::find(from)? {
                None => None,
                Some(house) => house.record(source, source.as_str()).map_err(opening)?,
            };
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            fits(order, record.map_or(0, |it| it.capacity_bytes).max(bytes))?;
            let attempt = begin().map_err(failed("prepare"))?;
            let unpacked = archive::unpack(file, packed, attempt.folder(), ground.pulse);
            unpacked.map_err(failed("unpack into"))?;
            Ok(attempt)
        }
    }
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

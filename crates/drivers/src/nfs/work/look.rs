//! Looking at a volume and at its share.

use std::collections::BTreeMap;

use tonic::Code;

use super::house::{House, found};
use super::share::{Ground, Share};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Mounting, Work};
use crate::nfs::record::Record;
use crate::nfs::sub_dir::SubDir;

pub(super) fn look(
    ground: &Ground<'_>,
    on: &Mounting,
    key: &str,
    folder: &SubDir,
) -> Result<Answer, Failure> {
    let share = ground.open(on)?;
    match seen(&share, key, folder)? {
        None => Ok(Answer::Nothing),
        Some(Seen { record, quota }) => Ok(Answer::Volume {
            capacity_bytes: record.as_ref().map_or(0, |record| record.capacity_bytes),
            quota,
            context: record.map(|record| record.context).unwrap_or_default(),
        }),
    }
}

/// A volume that is there.
struct Seen {
    /// What is written down of it.
    record: Option<Record>,
    /// What its server limits it to.
    quota: Option<u64>,
}

/// Looks for a volume. A server with quotas tells the folder's own size where the share's would stand.
fn seen(share: &Share, key: &str, folder: &SubDir) -> Result<Option<Seen>, Failure> {
    let failed = |doing: &str| share.failed(&format!("{doing} {folder}"));
    let Some(held) = found(share.root.enter(folder.path())).map_err(failed("look for"))? else {
        return Ok(None);
    };
    let own = held.usage().map_err(failed("measure"))?.total_bytes;
    let all = share.root.usage().map_err(failed("measure"))?.total_bytes;
    let record = match House::find(share)? {
        None => None,
        Some(house) => house
            .record(folder, key)
            .map_err(failed("read the record of"))?,
    };
    Ok(Some(Seen {
        record,
        quota: (own != all).then_some(own),
    }))
}

pub(super) fn expand(ground: &Ground<'_>, order: &Work) -> Result<Answer, Failure> {
    let Work::Expand {
        on,
        key,
        folder,
        required,
    } = order
    else {
        return Err(Failure::new(Code::Internal, "not an order to expand"));
    };
    let share = ground.open(on)?;
    let Some(Seen { record, quota }) = seen(&share, key, folder)? else {
        return Ok(Answer::Nothing);
    };
    if let Some(quota) = quota
        && u64::try_from(*required).is_ok_and(|required| required > quota)
    {
        let told = format!(
            "NFS server {} limits {folder} to {quota} bytes: raise its quota there to {required} \
             (share {})",
            share.export.server, share.export
        );
        return Err(Failure::new(Code::FailedPrecondition, told));
    }
    let before = record.as_ref().map_or(0, |record| record.capacity_bytes);
    let capacity_bytes = before.max(*required);
    if let Some(record) = record.filter(|record| record.capacity_bytes < capacity_bytes) {
        let house = House::make(&share)?;
        let grown = Record {
            capacity_bytes,
            ..record
        };
        house
            .write(&grown)
            .map_err(share.failed(&format!("write the record of {folder}")))?;
    }
    Ok(Answer::Volume {
        capacity_bytes,
        quota,
        context: BTreeMap::new(),
    })
}

pub(super) fn measure(ground: &Ground<'_>, on: &Mounting) -> Result<Answer, Failure> {
    let share = ground.open(on)?;
    let usage = share.root.usage().map_err(share.failed("measure"))?;
    Ok(Answer::Usage(usage.into()))
}

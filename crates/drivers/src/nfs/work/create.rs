//! A volume's folder comes to be: empty at once, or filled.

use orlop_host::Folder;
use tonic::Code;

use super::fill;
use super::house::{House, found};
use super::share::Ground;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Create};

/// The folders' permissions before the umask, as the original makes them.
pub(super) const MODE: u32 = 0o777;

pub(super) fn create(ground: &Ground<'_>, order: &Create) -> Result<Answer, Failure> {
    let share = ground.open(&order.on)?;
    let wanted = &order.record;
    let failed = |doing: &str| share.failed(&format!("{doing} {}", wanted.folder));
    let house = House::make(&share)?;
    let known = house
        .record(&wanted.folder, &wanted.key)
        .map_err(failed("read the record of"))?;
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
                house.write(record).map_err(failed("write the record of"))?;
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
        (Some(content), _) => {
            fill::fill(ground, &share, &house, content, order, known.as_ref())?;
        }
    }
    Ok(Answer::Volume {
        capacity_bytes: record.capacity_bytes,
        quota: None,
        context: record.context.clone(),
    })
}

/// A server that maps root to nobody refuses it; what the folder has by itself may do.
pub(super) fn permit(folder: &Folder, permissions: Option<u32>) {
    if let Some(mode) = permissions
        && let Err(error) = folder.set_mode(mode)
    {
        eprintln!("the folder keeps its permissions: {error}");
    }
}

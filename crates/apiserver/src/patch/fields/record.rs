//! A record that is amended where a write touches it. Most writes change what few managers have, and
//! reading and writing anew what the others have would cost more than the rest of the write.

use super::managers::{MAX_UPDATERS, Manager, Share, decode, encode, manager_of};
use super::set::FieldSet;
use serde_json::Value;
use std::collections::BTreeSet;

/// What a write did to an object's fields.
pub(crate) struct Written<'w> {
    /// Set anew or otherwise.
    pub(crate) written: &'w FieldSet,
    /// Not there any more.
    pub(crate) removed: &'w FieldSet,
    /// Who wrote, and what is theirs from now on, if anything is.
    pub(crate) by: Option<&'w (Manager, Share)>,
}

/// The entries of a record as [`super::managers::Managers`] would make them of the same write. `None` where
/// that must do it: an entry can't be read, or there are so many that some must be merged.
pub(crate) fn amend(entries: Vec<Value>, write: &Written<'_>) -> Option<Vec<Value>> {
    if entries.is_empty() || entries.len() >= MAX_UPDATERS {
        return None;
    }
    let mut seen = BTreeSet::new();
    let mut amended = Vec::with_capacity(entries.len() + 1);
    let mut mine = write.by;
    for entry in entries {
        let manager = manager_of(&entry)?;
        let fields = entry.get("fieldsV1")?;
        let own = mine.take_if(|(me, _)| *me == manager);
        if own.is_none() && !write.written.meets(fields) && !write.removed.meets(fields) {
            amended.push(entry);
        } else {
            let (_, share) = decode(&entry)?;
            let left = share.fields.minus(write.written).minus(write.removed);
            let share = match own {
                Some((_, own)) => Share {
                    fields: left.join(own.fields.clone()),
                    ..own.clone()
                },
                None => Share {
                    fields: left,
                    ..share
                },
            };
            if !share.fields.is_empty() {
                amended.push(encode((&manager, &share)));
            }
        }
        if !seen.insert(manager) {
            return None;
        }
    }
    if let Some((me, share)) = mine {
        amended.push(encode((me, share)));
    }
    amended.sort_by(|one, other| order(one).cmp(&order(other)));
    Some(amended)
}

fn order(entry: &Value) -> [&str; 5] {
    // "Apply" comes before "Update".
    ["operation", "time", "manager", "apiVersion", "subresource"]
        .map(|name| entry[name].as_str().unwrap_or(""))
}

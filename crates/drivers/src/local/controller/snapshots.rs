//! Snapshots: cut, removed, listed, looked at.

use std::collections::BTreeMap;

mod create;
mod delete;
mod get;
mod list;

pub use create::CreateSnapshotError;
pub(super) use create::create;
pub use delete::DeleteSnapshotError;
pub(super) use delete::delete;
pub use get::GetSnapshotError;
pub(super) use get::get;
pub use list::ListSnapshotsError;
pub(super) use list::list;

/// A parameter of a snapshot class, of which we know none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("snapshot class parameter {0:?} is not known")]
pub struct UnknownParameter(String);

/// Refuses parameters: they were meant to do something, and would not.
pub(in crate::local) fn no_parameters(
    wire: &BTreeMap<String, String>,
) -> Result<(), UnknownParameter> {
    // Parameters under this prefix are the snapshotter's own words.
    let unknown = wire
        .keys()
        .find(|key| !key.starts_with("csi.storage.k8s.io/"));
    unknown.map_or(Ok(()), |key| Err(UnknownParameter(key.clone())))
}

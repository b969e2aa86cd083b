//! Changes that stay right however often an object changes meanwhile.

use orlop_model::Kind;
use orlop_runtime::{ApiError, Cluster, Patch};

/// More conflicts in a row than this are not bad luck: the turn ends and its queue waits.
const TRIES: usize = 8;

/// Applies `change`, made anew from the live object after each conflict. `change` pins its
/// patch to the version that it is given and answers `None` once there is nothing to do.
///
/// Gives the object as it is then; `None` if this very object is gone.
pub(crate) async fn insist<K: Kind>(
    cluster: &Cluster,
    seen: &K,
    change: impl Fn(&K) -> Option<Patch>,
) -> Result<Option<K>, ApiError> {
    insist_on(cluster, seen, Part::Object, change).await
}

/// As [`insist`], on the status.
pub(crate) async fn insist_status<K: Kind>(
    cluster: &Cluster,
    seen: &K,
    change: impl Fn(&K) -> Option<Patch>,
) -> Result<Option<K>, ApiError> {
    insist_on(cluster, seen, Part::Status, change).await
}

/// What of an object is changed.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Status,
}

async fn insist_on<K: Kind>(
    cluster: &Cluster,
    seen: &K,
    part: Part,
    change: impl Fn(&K) -> Option<Patch>,
) -> Result<Option<K>, ApiError> {
    let key = seen.key();
    let mut now = seen.clone();
    let mut tries = 0;
    loop {
        let Some(patch) = change(&now) else {
            return Ok(Some(now));
        };
        let patched = match part {
            Part::Object => cluster.patch::<K>(&key, &patch).await,
            Part::Status => cluster.patch_status::<K>(&key, &patch).await,
        };
        match patched {
            Ok(changed) => return Ok(Some(changed)),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if error.is_conflict() && tries < TRIES => {
                tries += 1;
                match cluster.get::<K>(&key).await? {
                    Some(live) if live.meta().uid == seen.meta().uid => now = live,
                    _ => return Ok(None),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

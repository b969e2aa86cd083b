//! Claims: those that are cut are held meanwhile, and those that are made from a snapshot hold it.

use orlop_model::{
    Claim, ClaimPhase, Key, Kind as _, VolumeSnapshot,
    well_known::CLAIM_AS_SNAPSHOT_SOURCE as FINALIZER,
};
use orlop_runtime::{ApiError, EventType, Outcome, with_finalizer, without_finalizer};

use super::shop::Shop;
use crate::insist::insist;

/// The snapshot that a claim's first content comes from.
pub(super) fn made_from(claim: &Claim) -> Option<Key> {
    let spec = &claim.spec;
    let source = spec
        .data_source
        .as_ref()
        .or(spec.data_source_ref.as_ref())?;
    let text = |field: &str| source.get(field).and_then(|value| value.as_str());
    if text("kind") != Some(VolumeSnapshot::KIND) || text("apiGroup") != Some(VolumeSnapshot::GROUP)
    {
        return None;
    }
    let namespace = text("namespace").unwrap_or(&claim.metadata.namespace);
    Some(Key::namespaced(namespace, text("name")?))
}

/// Whether a claim has no volume yet.
pub(super) fn is_being_made(claim: &Claim) -> bool {
    claim.phase() == ClaimPhase::Pending
}

/// Whether a claim is held for a snapshot of it.
pub(super) fn is_held(claim: &Claim) -> bool {
    claim.metadata.has_finalizer(FINALIZER)
}

/// Holds a claim while a snapshot of it is cut; `false` if it is going or gone.
pub(super) async fn hold(shop: &Shop, claim: &Claim) -> Result<bool, ApiError> {
    if is_held(claim) {
        return Ok(true);
    }
    let hold = |now: &Claim| {
        let stays = !now.metadata.is_deleting();
        stays.then(|| with_finalizer(now, FINALIZER))?
    };
    let Some(held) = insist(&shop.cluster, claim, hold).await? else {
        return Ok(false);
    };
    let is_held = is_held(&held);
    shop.claims.absorb(held);
    Ok(is_held)
}

/// Lets go of a claim that nobody is cutting any more.
pub(super) async fn turn(shop: &Shop, key: Key) -> Outcome {
    let Some(claim) = shop.claims.get(&key) else {
        return Outcome::Done;
    };
    let is_cut = |key: &Key| {
        let snapshots = shop.by_claim.get(&key.to_string());
        snapshots.iter().any(|one| !one.is_ready())
    };
    if !is_held(&claim) || is_cut(&key) {
        return Outcome::Done;
    }
    let let_go = |now: &Claim| {
        // One may have come while we asked.
        let over = !is_cut(&now.key());
        over.then(|| without_finalizer(now, FINALIZER))?
    };
    let released = insist(&shop.cluster, &*claim, let_go)
        .await
        .map(|released| {
            released.into_iter().for_each(|one| shop.claims.absorb(one));
            Outcome::Done
        });
    if let Err(error) = &released
        && error.is_refused()
    {
        // Told on those that the claim was held for: it is they who are waited for.
        for snapshot in shop.by_claim.get(&key.to_string()) {
            let text = format!(
                "Error check and remove PVC Finalizer for VolumeSnapshot: {}",
                error.chain()
            );
            let recorder = &shop.recorder;
            recorder.say(&*snapshot, EventType::Warning, "ErrorPVCFinalizer", text);
        }
    }
    shop.conclude::<Claim>(&key, released)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_names_the_snapshot_that_it_is_made_from() {
        let mut claim = Claim::default();
        claim.metadata.namespace = "a".into();
        assert_eq!(made_from(&claim), None);
        claim.spec.data_source = Some(json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "cut",
        }));
        assert_eq!(made_from(&claim), Some(Key::namespaced("a", "cut")));
        claim.spec.data_source = Some(json!({"kind": "PersistentVolumeClaim", "name": "cut"}));
        assert_eq!(made_from(&claim), None);
        claim.spec.data_source = None;
        claim.spec.data_source_ref = Some(json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "cut",
            "namespace": "b",
        }));
        assert_eq!(made_from(&claim), Some(Key::namespaced("b", "cut")));
    }
}

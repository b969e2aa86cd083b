//! Whether somebody names a class of attributes.

use orlop_model::{
    Claim, Kind, Volume, VolumeAttributesClass as Class,
    well_known::{self, VAC_PROTECTION},
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, Index, Outcome, Process, Queue, with_finalizer,
    without_finalizer, work,
};
use tracing::debug;

use super::Decision;
use crate::{Evidence, turn};

/// Decides about the protection of a class.
pub fn decide(class: &Class, used: bool, evidence: Evidence) -> Decision {
    let protected = class.metadata.has_finalizer(well_known::VAC_PROTECTION);
    match (class.metadata.is_deleting(), protected) {
        (false, false) => Decision::Protect,
        (false, true) | (true, false) => Decision::Keep,
        (true, true) if used => Decision::Keep,
        (true, true) => match evidence {
            Evidence::Cached => Decision::Confirm,
            Evidence::Live => Decision::Lift,
        },
    }
}

/// The classes that a claim names: the one that it wants, has, and is being given.
pub fn named_by_claim(claim: &Claim) -> Vec<String> {
    let status = &claim.status;
    let target = status.modify_volume_status.as_ref();
    let names = [
        claim.spec.volume_attributes_class_name.as_deref(),
        status.current_volume_attributes_class_name.as_deref(),
        target.map(|modify| modify.target_volume_attributes_class_name.as_str()),
    ];
    let mut names: Vec<String> = names.into_iter().flatten().map(str::to_owned).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

/// The class that a volume names.
pub fn named_by_volume(volume: &Volume) -> Vec<String> {
    let name = volume.spec.volume_attributes_class_name.iter();
    name.filter(|name| !name.is_empty()).cloned().collect()
}

#[derive(Clone)]
struct Attributes {
    cluster: Cluster,
    queue: Queue<String>,
    classes: Cache<Class>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    by_claims: Index<Claim>,
    by_volumes: Index<Volume>,
}

/// Starts the protection of classes of attributes. It is a task of its own: where the API
/// server doesn't know such classes, claims and volumes are protected all the same.
pub(super) fn start(process: &Process) {
    let claims = process.cache::<Claim>();
    let volumes = process.cache::<Volume>();
    let role = Attributes {
        cluster: process.cluster.clone(),
        queue: Queue::new(turn::backoff()),
        classes: process.cache(),
        by_claims: claims.index("attributes-class", named_by_claim),
        by_volumes: volumes.index("attributes-class", named_by_volume),
        claims,
        volumes,
    };
    process.spawn("protection of attributes classes", role.run());
}

impl Attributes {
    async fn run(self) {
        self.classes.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        let queue = self.queue.clone();
        self.classes
            .subscribe(move |change| queue.add(change.object().metadata.name.clone()));
        let queue = self.queue.clone();
        self.claims
            .subscribe(move |change| wake(&queue, change, named_by_claim));
        let queue = self.queue.clone();
        self.volumes
            .subscribe(move |change| wake(&queue, change, named_by_volume));
        let queue = self.queue.clone();
        work(queue, 1, |name| self.turn(name)).await;
    }

    async fn turn(&self, name: String) -> Outcome {
        let done = self.look(&name).await;
        done.map_or_else(|error| turn::retry(&error), |()| Outcome::Done)
    }

    async fn look(&self, name: &str) -> Result<(), ApiError> {
        let Some(class) = self.classes.named(name) else {
            return Ok(());
        };
        let used = !self.by_claims.get(name).is_empty() || !self.by_volumes.get(name).is_empty();
        let mut decision = decide(&class, used, Evidence::Cached);
        if decision == Decision::Confirm {
            decision = decide(&class, self.is_used(name).await?, Evidence::Live);
        }
        debug!(class = name, ?decision, "decided");
        let patch = match decision {
            Decision::Keep | Decision::Confirm => None,
            Decision::Protect => with_finalizer(&*class, VAC_PROTECTION),
            Decision::Lift => without_finalizer(&*class, VAC_PROTECTION),
        };
        if let Some(patch) = patch {
            let answer: Class = self.cluster.patch(&class.key(), &patch).await?;
            self.classes.absorb(answer);
        }
        Ok(())
    }

    /// A class is rarely deleted: all claims and volumes may be read for it.
    async fn is_used(&self, name: &str) -> Result<bool, ApiError> {
        let names = |names: Vec<String>| names.iter().any(|one| one == name);
        let claims = self.cluster.list::<Claim>(None).await?;
        if claims.iter().any(|claim| names(named_by_claim(claim))) {
            return Ok(true);
        }
        let volumes = self.cluster.list::<Volume>(None).await?;
        Ok(volumes.iter().any(|volume| names(named_by_volume(volume))))
    }
}

/// Who stops naming a class may have been the last.
fn wake<K: Kind>(queue: &Queue<String>, change: &Change<'_, K>, names: fn(&K) -> Vec<String>) {
    let before = match change {
        Change::Applied { old, .. } => old.map(|old| names(old)),
        Change::Deleted(old) => Some(names(old)),
    };
    let after = match change {
        Change::Applied { new, .. } => names(new),
        Change::Deleted(_) => Vec::new(),
    };
    let left = before.into_iter().flatten();
    left.filter(|name| !after.contains(name))
        .for_each(|name| queue.add(name));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{claim as a_claim, deleting, object, volume as a_volume};

    fn class(finalizers: &[&str]) -> Class {
        object(json!({"metadata": {"name": "gold", "finalizers": finalizers}}))
    }

    #[test]
    fn a_class_is_protected_while_somebody_names_it() {
        let (bare, guarded) = (class(&[]), class(&[VAC_PROTECTION]));
        let cached = Evidence::Cached;
        assert_eq!(decide(&bare, false, cached), Decision::Protect);
        assert_eq!(decide(&guarded, false, cached), Decision::Keep);
        let going = deleting(guarded);
        assert_eq!(decide(&going, true, cached), Decision::Keep);
        assert_eq!(decide(&going, false, cached), Decision::Confirm);
        assert_eq!(decide(&going, true, Evidence::Live), Decision::Keep);
        assert_eq!(decide(&going, false, Evidence::Live), Decision::Lift);
        assert_eq!(decide(&deleting(bare), false, cached), Decision::Keep);
    }

    #[test]
    fn a_claim_names_what_it_wants_has_and_is_being_given() {
        let mut claim = a_claim("data", "c");
        assert!(named_by_claim(&claim).is_empty());
        claim.spec.volume_attributes_class_name = Some("gold".into());
        claim.status = serde_json::from_value(json!({
            "currentVolumeAttributesClassName": "silver",
            "modifyVolumeStatus": {"status": "InProgress",
                                   "targetVolumeAttributesClassName": "bronze"},
        }))
        .unwrap();
        assert_eq!(named_by_claim(&claim), ["bronze", "gold", "silver"]);
        let mut volume = a_volume("vol", "c");
        volume.spec.volume_attributes_class_name = Some(String::new());
        assert!(named_by_volume(&volume).is_empty());
    }
}

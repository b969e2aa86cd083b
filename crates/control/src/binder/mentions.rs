//! Which volumes claims' events name: when one of them is taken or gone, the event isn't true any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use orlop_model::{Key, Volume};

/// The volumes that were named to waiting claims. Lost in a crash, and learned again: then every
/// claim is looked at.
#[derive(Default)]
pub(super) struct Mentions(Mutex<Both>);

/// Found from either side, so that no change costs a look at all claims.
#[derive(Default)]
struct Both {
    by_claim: BTreeMap<Key, BTreeSet<String>>,
    by_volume: BTreeMap<String, BTreeSet<Key>>,
}

impl Mentions {
    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a claim is told names these volumes, and no others.
    pub(super) fn told(&self, claim: &Key, volumes: BTreeSet<String>) {
        let mut both = self.lock();
        for volume in both.by_claim.remove(claim).unwrap_or_default() {
            if let Some(claims) = both.by_volume.get_mut(&volume) {
                claims.remove(claim);
                if claims.is_empty() {
                    both.by_volume.remove(&volume);
                }
            }
        }
        for volume in &volumes {
            let claims = both.by_volume.entry(volume.clone()).or_default();
            claims.insert(claim.clone());
        }
        if !volumes.is_empty() {
            both.by_claim.insert(claim.clone(), volumes);
        }
    }

    /// The claim waits for nothing any more.
    pub(super) fn over(&self, claim: &Key) {
        self.told(claim, BTreeSet::new());
    }

    /// The claims that were told of a volume.
    pub(super) fn of(&self, volume: &str) -> Vec<Key> {
        let both = self.lock();
        let claims = both.by_volume.get(volume);
        claims.into_iter().flatten().cloned().collect()
    }
}

/// Whether anything that may have been said of a volume has changed.
pub(super) fn is_another(old: &Volume, new: &Volume) -> bool {
    old.metadata.uid != new.metadata.uid
        || old.metadata.is_deleting() != new.metadata.is_deleting()
        || old.metadata.labels != new.metadata.labels
        || old.spec != new.spec
        || old.phase() != new.phase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_found_by_the_volumes_that_it_was_last_told_of() {
        let mentions = Mentions::default();
        let (one, other) = (Key::namespaced("n", "one"), Key::namespaced("n", "other"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        mentions.told(&one, names(&["a", "b"]));
        mentions.told(&other, names(&["a"]));
        assert_eq!(mentions.of("a"), [one.clone(), other.clone()]);
        mentions.told(&one, names(&["b"]));
        assert_eq!(mentions.of("a"), std::slice::from_ref(&other));
        assert_eq!(mentions.of("b"), std::slice::from_ref(&one));
        mentions.over(&one);
        mentions.over(&other);
        assert!(mentions.of("a").is_empty() && mentions.of("b").is_empty());
        let both = mentions.lock();
        assert!(both.by_claim.is_empty() && both.by_volume.is_empty());
    }
}

//! Which volume suits a claim: the rule that the binder and the scheduler share.

use std::{cell::OnceCell, collections::BTreeMap};

use crate::{
    claim::Claim,
    selector::Prepared,
    volume::{Volume, VolumePhase},
};

mod shelves;
mod shortage;

pub use shelves::{
    BY_CLAIMANT, FREE, LABELLED, RELEASED, claimant, free_shelf, group, labelled_shelves,
    labelled_stretches, released_shelf, shelves, stretches,
};
pub use shortage::{of_class, shortage};

/// From where the matched volume must be reachable.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// Anywhere: the binder's question.
    Anywhere,
    /// From this node: the scheduler's question.
    Node {
        /// Its name.
        name: &'a str,
        /// Its labels.
        labels: &'a BTreeMap<String, String>,
    },
}

impl Place<'_> {
    fn reaches(self, volume: &Volume) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Node { name, labels } => volume.reachable_from(name, labels),
        }
    }
}

/// Whether binding is the scheduler's to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Bind whatever fits now.
    Now,
    /// Only a volume reserved for the claim may be bound without the scheduler.
    Late,
}

/// Why a volume that a claim names can't be bound to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It is being deleted.
    #[error("the volume is being deleted")]
    Deleting,
    /// It is too small.
    #[error("requested PV is too small")]
    Size,
    /// Its class is another.
    #[error("storageClassName does not match")]
    Class,
    /// Its attributes class is another.
    #[error("volumeAttributesClassName does not match")]
    AttributesClass,
    /// Files against device.
    #[error("incompatible volumeMode")]
    Mode,
    /// It lacks an access mode.
    #[error("incompatible accessMode")]
    Access,
}

/// Whether this very volume can serve the claim. The claim's selector is not asked: whoever
/// names a volume knows what they want.
///
/// # Errors
/// The first thing that doesn't fit.
pub fn check(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    check_size(claim, volume)?;
    if claim.class().unwrap_or_default() != volume.class() {
        return Err(Mismatch::Class);
    }
    check_abilities(claim, volume)
}

/// As [`check`], where the volume's class doesn't matter.
///
/// # Errors
/// The first thing that doesn't fit.
pub fn check_but_class(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    check_size(claim, volume)?;
    check_abilities(claim, volume)
}

/// Whether a volume would do, were it not for its end and its class.
fn fits_while_there(claim: &Claim, volume: &Volume) -> bool {
    let selector = claim.spec.selector.as_ref();
    volume.capacity_bytes() >= claim.requested_bytes()
        && check_abilities(claim, volume).is_ok()
        && selector.is_none_or(|s| s.matches(&volume.metadata.labels))
}

fn check_size(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    if volume.metadata.is_deleting() {
        return Err(Mismatch::Deleting);
    }
    if volume.capacity_bytes() < claim.requested_bytes() {
        return Err(Mismatch::Size);
    }
    Ok(())
}

fn check_abilities(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    if !same_attributes_class(claim, volume) {
        return Err(Mismatch::AttributesClass);
    }
    if claim.volume_mode() != volume.volume_mode() {
        return Err(Mismatch::Mode);
    }
    if !grants_access(claim, volume) {
        return Err(Mismatch::Access);
    }
    Ok(())
}

fn same_attributes_class(claim: &Claim, volume: &Volume) -> bool {
    let name = |n: &Option<String>| n.clone().unwrap_or_default();
    name(&claim.spec.volume_attributes_class_name)
        == name(&volume.spec.volume_attributes_class_name)
}

fn grants_access(claim: &Claim, volume: &Volume) -> bool {
    claim
        .spec
        .access_modes
        .iter()
        .all(|mode| volume.spec.access_modes.contains(mode))
}

/// The best of the volumes for a claim: one that is reserved for it; else, of the free ones
/// that fit, the one with the fewest access modes, then the smallest, then the first. Also a
/// reserved one must be able to do what the claim asks; only its class and its labels don't
/// matter.
pub fn best<'a>(
    claim: &Claim,
    volumes: impl IntoIterator<Item = &'a Volume>,
    place: Place<'_>,
    timing: Timing,
) -> Option<&'a Volume> {
    Seeker::new(claim).best(volumes, place, timing)
}

/// A claim that is compared with volumes more than once.
#[derive(Debug)]
pub struct Seeker<'c> {
    claim: &'c Claim,
    /// Most claims are never compared by their labels.
    selector: OnceCell<Option<Prepared<'c>>>,
}

impl<'c> Seeker<'c> {
    /// One for this claim.
    pub const fn new(claim: &'c Claim) -> Self {
        Self {
            claim,
            selector: OnceCell::new(),
        }
    }

    fn selects(&self, volume: &Volume) -> bool {
        let prepare = || self.claim.spec.selector.as_ref().map(Prepared::new);
        let selector = self.selector.get_or_init(prepare).as_ref();
        selector.is_none_or(|s| s.matches(&volume.metadata.labels))
    }

    /// As [`best`].
    pub fn best<'a>(
        &self,
        volumes: impl IntoIterator<Item = &'a Volume>,
        place: Place<'_>,
        timing: Timing,
    ) -> Option<&'a Volume> {
        let claim = self.claim;
        let mut found: Option<&Volume> = None;
        for volume in volumes {
            let reserved = volume.is_reserved_for(claim);
            if volume.spec.claim_ref.is_some() && !reserved {
                continue;
            }
            let fits = volume.capacity_bytes() >= claim.requested_bytes()
                && volume.volume_mode() == claim.volume_mode()
                && same_attributes_class(claim, volume)
                && grants_access(claim, volume)
                && !volume.metadata.is_deleting();
            if !fits {
                continue;
            }
            if reserved {
                // A person or the scheduler said "this one": nothing else may be taken instead.
                return place.reaches(volume).then_some(volume);
            }
            let free = timing == Timing::Now
                && volume.phase() == VolumePhase::Available
                && claim.class().unwrap_or_default() == volume.class()
                && self.selects(volume)
                && place.reaches(volume);
            let better = |than: &Volume| shelves::rank(volume) < shelves::rank(than);
            if free && found.is_none_or(better) {
                found = Some(volume);
            }
        }
        found
    }
}

/// Whether a volume is free, and may do for a claim that it didn't do for before: something is
/// new of what a search looks at. Of its annotations, one may say its class.
pub fn is_offered_anew(old: Option<&Volume>, new: &Volume) -> bool {
    let free = |v: &Volume| v.spec.claim_ref.is_none() && v.phase() == VolumePhase::Available;
    let as_before = |old: &Volume| {
        free(old)
            && old.spec == new.spec
            && old.metadata.labels == new.metadata.labels
            && old.class() == new.class()
    };
    free(new) && !old.is_some_and(as_before)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(size: &str) -> Claim {
        serde_json::from_value(json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "u1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c",
                     "resources": {"requests": {"storage": size}}},
        }))
        .unwrap()
    }

    fn volume(name: &str, size: &str) -> Volume {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c",
                     "capacity": {"storage": size}},
            "status": {"phase": "Available"},
        }))
        .unwrap()
    }

    fn name(found: Option<&Volume>) -> Option<&str> {
        found.map(|v| v.metadata.name.as_str())
    }

    #[test]
    fn a_claim_binds_to_the_smallest_volume_that_fits() {
        let volumes = [
            volume("small", "1Gi"),
            volume("big", "9Gi"),
            volume("right", "3Gi"),
        ];
        assert_eq!(
            name(best(&claim("2Gi"), &volumes, Place::Anywhere, Timing::Now)),
            Some("right")
        );
        assert_eq!(
            name(best(&claim("10Gi"), &volumes, Place::Anywhere, Timing::Now)),
            None
        );
    }

    #[test]
    fn a_late_binding_claim_waits_even_when_a_volume_fits() {
        let volumes = [volume("v", "2Gi")];
        assert_eq!(
            name(best(&claim("1Gi"), &volumes, Place::Anywhere, Timing::Late)),
            None
        );
    }

    #[test]
    fn a_reserved_volume_wins_over_a_smaller_one_even_late() {
        let mut reserved = volume("reserved", "9Gi");
        reserved.spec.claim_ref = Some(crate::ObjectRef {
            namespace: "ns".into(),
            name: "data".into(),
            ..Default::default()
        });
        let volumes = [volume("small", "1Gi"), reserved];
        for timing in [Timing::Now, Timing::Late] {
            let found = best(&claim("1Gi"), &volumes, Place::Anywhere, timing);
            assert_eq!(name(found), Some("reserved"));
        }
    }

    #[test]
    fn another_claims_volume_is_never_taken() {
        let mut taken = volume("taken", "1Gi");
        taken.spec.claim_ref = Some(crate::ObjectRef {
            namespace: "ns".into(),
            name: "data".into(),
            uid: "another".into(),
            ..Default::default()
        });
        assert_eq!(
            name(best(&claim("1Gi"), &[taken], Place::Anywhere, Timing::Now)),
            None
        );
    }

    #[test]
    fn every_property_that_differs_rules_a_volume_out() {
        type Alter = fn(&mut Volume);
        let changes: [(&str, Alter); 6] = [
            ("class", |v| v.spec.storage_class_name = "other".into()),
            ("mode", |v| {
                v.spec.volume_mode = Some(crate::VolumeMode::Block)
            }),
            ("access", |v| {
                v.spec.access_modes = vec![crate::AccessMode::ReadOnlyMany]
            }),
            ("attributes", |v| {
                v.spec.volume_attributes_class_name = Some("gold".into())
            }),
            ("deleting", |v| {
                v.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH)
            }),
            ("phase", |v| v.status.phase = Some(VolumePhase::Released)),
        ];
        for (what, change) in changes {
            let mut v = volume("v", "2Gi");
            change(&mut v);
            assert_eq!(
                name(best(&claim("1Gi"), &[v], Place::Anywhere, Timing::Now)),
                None,
                "{what}"
            );
        }
    }

    #[test]
    fn a_reserved_volume_must_be_able_to_do_what_the_claim_asks() {
        let mut reserved = volume("v", "2Gi");
        reserved.spec.claim_ref = Some(crate::ObjectRef {
            namespace: "ns".into(),
            name: "data".into(),
            ..Default::default()
        });
        reserved.spec.storage_class_name = "other".into();
        let found = |claim: &Claim, volume: &Volume| {
            best(claim, [volume], Place::Anywhere, Timing::Now).is_some()
        };
        assert!(found(&claim("1Gi"), &reserved), "its class doesn't matter");
        assert!(!found(&claim("3Gi"), &reserved), "too small");
        let mut shared = claim("1Gi");
        shared.spec.access_modes = vec![crate::AccessMode::ReadWriteMany];
        assert!(!found(&shared, &reserved), "not shared");
    }

    #[test]
    fn whatever_a_search_looks_at_offers_a_free_volume_anew() {
        type Alter = fn(&mut Volume);
        let changes: [(&str, bool, Alter); 6] = [
            ("nothing", false, |_| {}),
            ("a label", true, |v| {
                v.metadata.labels.insert("disk".into(), "fast".into());
            }),
            ("its class, by annotation", true, |v| {
                let class = crate::well_known::BETA_STORAGE_CLASS;
                v.metadata.annotations.insert(class.into(), "d".into());
            }),
            ("another annotation", false, |v| {
                v.metadata.annotations.insert("note".into(), "x".into());
            }),
            ("its size", true, |v| {
                v.spec.capacity = volume("v", "9Gi").spec.capacity;
            }),
            ("taken", false, |v| {
                v.spec.claim_ref = Some(crate::ObjectRef::default());
            }),
        ];
        let before = volume("v", "1Gi");
        assert!(is_offered_anew(None, &before));
        for (what, anew, change) in changes {
            let mut now = before.clone();
            change(&mut now);
            assert_eq!(is_offered_anew(Some(&before), &now), anew, "{what}");
        }
        let mut taken = before.clone();
        taken.spec.claim_ref = Some(crate::ObjectRef::default());
        assert!(is_offered_anew(Some(&taken), &before), "let go of");
    }

    #[test]
    fn fewer_access_modes_come_before_smaller_size() {
        let mut many = volume("many", "1Gi");
        many.spec
            .access_modes
            .push(crate::AccessMode::ReadWriteMany);
        let volumes = [many, volume("few", "5Gi")];
        assert_eq!(
            name(best(&claim("1Gi"), &volumes, Place::Anywhere, Timing::Now)),
            Some("few")
        );
    }
}

//! Which changes of a claim wake its provisioner.

use orlop_model::Claim;

/// Whether a change of a claim can change what is decided. Our own marks and the status of
/// a claim that isn't bound can't, and must not cut a backoff short.
pub(in crate::provisioner) fn stirs(old: &Claim, new: &Claim) -> bool {
    fn matters(claim: &Claim) -> impl PartialEq {
        (
            claim.metadata.uid.clone(),
            claim.metadata.is_deleting(),
            claim.spec.volume_name.clone(),
            claim.phase(),
            claim.provisioner().map(str::to_owned),
            claim.selected_node().map(str::to_owned),
            claim.class().map(str::to_owned),
            claim.spec.volume_attributes_class_name.clone(),
            annotations(claim),
        )
    }
    matters(old) != matters(new)
}

/// Whether the driver is asked for the same by both, but for the place.
pub(in crate::provisioner) fn asks_the_same(old: &Claim, new: &Claim) -> bool {
    fn matters(claim: &Claim) -> impl PartialEq {
        (
            claim.metadata.uid.clone(),
            claim.requested_bytes(),
            claim.class().map(str::to_owned),
            claim.spec.volume_attributes_class_name.clone(),
            annotations(claim),
        )
    }
    matters(old) == matters(new)
}

/// The names of secrets may be made up from the annotations that people write.
fn annotations(claim: &Claim) -> Vec<(String, String)> {
    let all = claim.metadata.annotations.iter();
    all.filter(|(key, _)| !is_a_roles(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Whether an annotation is one by which roles tell each other of a claim.
fn is_a_roles(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    domain.ends_with("kubernetes.io") || domain.ends_with(".orlop.dev")
}

#[cfg(test)]
mod tests {
    use orlop_model::{
        ClaimPhase,
        well_known::{PROVISIONING, PROVISIONING_PLACE, SELECTED_NODE},
    };

    use super::*;

    fn claim() -> Claim {
        let mut claim = Claim::default();
        claim.metadata.finalizers =
            vec!["kubernetes.io/pvc-protection".into(), PROVISIONING.into()];
        let annotations = [
            (PROVISIONING_PLACE, "{}"),
            (SELECTED_NODE, "n1"),
            ("a", "b"),
        ];
        claim.metadata.annotations = annotations
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        claim
    }

    #[test]
    fn our_own_marks_wake_nobody() {
        let before = claim();
        let mut marked = before.clone();
        marked.metadata.finalizers.clear();
        marked.metadata.annotations.remove(PROVISIONING_PLACE);
        marked.metadata.resource_version = "9".into();
        let asked = "volume.kubernetes.io/storage-provisioner-note";
        marked.metadata.annotations.insert(asked.into(), "d".into());
        assert!(!stirs(&before, &marked));
    }

    #[test]
    fn what_matters_wakes_the_claim() {
        let changes: [fn(&mut Claim); 7] = [
            |c| c.metadata.uid = "other".into(),
            |c| c.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH),
            |c| c.spec.volume_name = "v".into(),
            |c| c.spec.volume_attributes_class_name = Some("gold".into()),
            |c| {
                c.metadata.annotations.insert("team".into(), "a".into());
            },
            |c| c.status.phase = Some(ClaimPhase::Bound),
            |c| {
                c.metadata.annotations.remove(SELECTED_NODE);
            },
        ];
        for change in changes {
            let mut changed = claim();
            change(&mut changed);
            assert!(stirs(&claim(), &changed), "{changed:#?}");
        }
    }
}

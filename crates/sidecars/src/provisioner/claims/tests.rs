use orlop_model::{
    ClaimPhase,
    well_known::{PROVISIONING_PLACE, SELECTED_NODE},
};

use super::*;

fn claim() -> Claim {
    let mut claim = Claim::default();
    claim.metadata.finalizers = vec!["kubernetes.io/pvc-protection".into(), PROVISIONING.into()];
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
    assert!(!stirs(&before, &marked));
}

#[test]
fn what_matters_wakes_the_claim() {
    let changes: [fn(&mut Claim); 5] = [
        |c| c.metadata.uid = "other".into(),
        |c| c.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH),
        |c| c.spec.volume_name = "v".into(),
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

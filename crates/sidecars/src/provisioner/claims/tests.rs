use orlop_model::ClaimPhase;

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

fn body(patch: Option<Patch>) -> serde_json::Value {
    match patch {
        Some(Patch::Merge(body)) => body,
        other => panic!("a merge patch, not {other:?}"),
    }
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

#[test]
fn taking_the_intent_off_leaves_the_rest_alone() {
    let off = body(intent_off(&claim(), Keep::Place));
    let meta = &off["metadata"];
    assert_eq!(meta["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(meta["annotations"], json!({PROVISIONING_PLACE: null}));
    let rescheduled = body(intent_off(&claim(), Keep::Nothing));
    assert_eq!(
        rescheduled["metadata"]["annotations"],
        json!({PROVISIONING_PLACE: null, SELECTED_NODE: null})
    );
}

#[test]
fn a_claim_without_intent_needs_no_patch() {
    let mut clean = claim();
    clean.metadata.finalizers.pop();
    clean.metadata.annotations.remove(PROVISIONING_PLACE);
    assert!(intent_off(&clean, Keep::Place).is_none());
}

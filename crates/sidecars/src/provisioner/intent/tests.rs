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
fn taking_the_intent_off_leaves_the_rest_alone() {
    let settled = body(off(&claim(), Keep::Place));
    let meta = &settled["metadata"];
    assert_eq!(meta["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(meta["annotations"], json!({PROVISIONING_PLACE: null}));
    let rescheduled = body(off(&claim(), Keep::Nothing));
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
    assert!(off(&clean, Keep::Place).is_none());
}

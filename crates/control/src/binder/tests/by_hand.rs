//! What people change by hand while the binder is at it.

use super::*;

#[test]
fn no_claim_gets_a_volume_that_is_still_being_emptied() {
    let mut view = view(a_claim("data", ""));
    view.candidates = vec![Arc::new(a_volume("vol", ""))];
    assert_eq!(claim::decide(&view).because, Because::Fits);
    view.emptied = vec!["vol".to_owned()];
    let decision = claim::decide(&view);
    assert_eq!(decision.because, Because::BeingEmptied("vol".into()));
    assert!(!decision.steps.contains(&Step::ReserveVolume));
}

#[test]
fn a_lost_claim_is_bound_again_to_a_volume_that_names_it_without_its_uid() {
    let (mut claim, mut volume) = bound("data", "vol");
    claim.status.phase = Some(ClaimPhase::Lost);
    volume.status.phase = Some(VolumePhase::Available);
    volume.spec.claim_ref.as_mut().unwrap().uid.clear();
    let mut v = view(claim);
    v.named = shared(volume.clone());
    let expected = [
        Step::ReserveVolume,
        Step::MarkVolumeBound,
        Step::MarkClaimBound,
    ];
    assert_eq!(claim::decide(&v).steps, expected);
    volume.spec.claim_ref.as_mut().unwrap().name = "other".into();
    v.named = shared(volume);
    assert_eq!(claim::decide(&v).because, Because::Lost);
}

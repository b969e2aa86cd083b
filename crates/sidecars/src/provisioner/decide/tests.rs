use orlop_csi::Method;
use orlop_model::{
    BindingMode, ObjectRef,
    well_known::{SELECTED_NODE, STORAGE_PROVISIONER},
};

use super::*;

const DRIVER: &str = "d";
const NAME: &str = "pvc-u1";

fn claim() -> Claim {
    let mut claim = Claim::default();
    claim.metadata.name = "data".into();
    claim.metadata.namespace = "ns".into();
    claim.metadata.uid = "u1".into();
    claim.annotate(STORAGE_PROVISIONER, DRIVER);
    claim
}

trait Marks {
    fn annotate(&mut self, key: &str, value: &str);
    fn with(self, change: impl FnOnce(&mut Claim)) -> Claim;
    fn intent(self) -> Claim;
    fn deleted(self) -> Claim;
    fn bound_to(self, volume: &str) -> Claim;
    fn at(self, node: &str) -> Claim;
}

impl Marks for Claim {
    fn annotate(&mut self, key: &str, value: &str) {
        self.metadata.annotations.insert(key.into(), value.into());
    }
    fn with(mut self, change: impl FnOnce(&mut Claim)) -> Claim {
        change(&mut self);
        self
    }
    fn intent(self) -> Claim {
        self.with(|c| c.metadata.finalizers.push(PROVISIONING.into()))
    }
    fn deleted(self) -> Claim {
        self.with(|c| c.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH))
    }
    fn bound_to(self, volume: &str) -> Claim {
        self.with(|c| {
            c.spec.volume_name = volume.into();
            c.status.phase = Some(ClaimPhase::Bound);
        })
    }
    fn at(self, node: &str) -> Claim {
        self.with(|c| c.annotate(SELECTED_NODE, node))
    }
}

fn class(timing: BindingMode) -> StorageClass {
    StorageClass {
        provisioner: DRIVER.into(),
        volume_binding_mode: Some(timing),
        ..StorageClass::default()
    }
}

fn record_for(uid: &str) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.name = NAME.into();
    volume.spec.claim_ref = Some(ObjectRef {
        uid: uid.into(),
        ..ObjectRef::default()
    });
    volume
}

/// A step without what it borrows.
#[derive(Debug, PartialEq)]
enum Does {
    Leave(Because),
    Provision(Intent),
    Settle,
    Undo,
    Stuck,
    HandOff,
    Bid,
}

fn does(claim: &Claim, class: Option<&StorageClass>, volume: Option<&Volume>) -> Does {
    does_at(&Deployment::Central, claim, class, volume)
}

fn does_at(
    deployment: &Deployment,
    claim: &Claim,
    class: Option<&StorageClass>,
    volume: Option<&Volume>,
) -> Does {
    let view = View {
        driver: DRIVER,
        deployment,
        claim,
        class,
        volume_name: NAME,
        volume,
        unasked: Unasked::Wait,
    };
    step(&view)
}

fn step(view: &View<'_>) -> Does {
    match decide(view) {
        Step::Leave(because) => Does::Leave(because),
        Step::Provision(_, intent) => Does::Provision(intent),
        Step::Settle => Does::Settle,
        Step::Undo(_) => Does::Undo,
        Step::Stuck => Does::Stuck,
        Step::HandOff => Does::HandOff,
        Step::Bid(_) => Does::Bid,
    }
}

#[test]
fn a_claim_is_taken_from_intent_to_record_to_settled() {
    let (now, ours) = (class(BindingMode::Immediate), record_for("u1"));
    let now = Some(&now);
    let recorded = Some(&ours);
    let cases = [
        (claim(), None, Does::Provision(Intent::ToRecord)),
        (claim().intent(), None, Does::Provision(Intent::OnRecord)),
        (
            claim().intent(),
            recorded,
            Does::Leave(Because::VolumeOnRecord),
        ),
        (claim().intent().bound_to(NAME), recorded, Does::Settle),
        (
            claim().bound_to(NAME),
            recorded,
            Does::Leave(Because::VolumeOnRecord),
        ),
        // The record went since; it isn't ours to make another.
        (claim().intent().bound_to(NAME), None, Does::Settle),
        (
            claim().bound_to(NAME),
            None,
            Does::Leave(Because::AlreadyBound),
        ),
    ];
    for (claim, volume, expected) in cases {
        assert_eq!(does(&claim, now, volume), expected, "{claim:#?}");
    }
}

#[test]
fn an_intent_nobody_wants_any_more_is_undone_not_forgotten() {
    let (now, ours) = (class(BindingMode::Immediate), record_for("u1"));
    let late = class(BindingMode::WaitForFirstConsumer);
    let gone = claim().intent().deleted();
    assert_eq!(does(&gone, Some(&now), None), Does::Undo);
    assert_eq!(does(&gone, Some(&now), Some(&ours)), Does::Settle);
    let elsewhere = claim().intent().bound_to("by-hand");
    assert_eq!(does(&elsewhere, Some(&now), None), Does::Undo);
    assert_eq!(does(&claim().intent(), Some(&late), None), Does::Undo);
    assert_eq!(does(&gone, None, None), Does::Stuck);
    assert_eq!(does(&claim().intent(), None, None), Does::Stuck);
}

#[test]
fn another_claims_record_is_not_this_claims() {
    let now = class(BindingMode::Immediate);
    let other = record_for("u0");
    assert_eq!(
        does(&claim().intent().deleted(), Some(&now), Some(&other)),
        Does::Undo
    );
}

#[test]
fn claims_that_are_not_ours_or_not_ready_are_left_alone() {
    let now = class(BindingMode::Immediate);
    let late = class(BindingMode::WaitForFirstConsumer);
    let mut foreign = class(BindingMode::Immediate);
    foreign.provisioner = "other".into();
    let stranger = claim().with(|c| c.annotate(STORAGE_PROVISIONER, "other"));
    let cases = [
        (stranger, Some(&now), Because::AnotherProvisioner),
        (claim().deleted(), Some(&now), Because::Deleted),
        (
            claim().bound_to("by-hand"),
            Some(&now),
            Because::AlreadyBound,
        ),
        (claim(), None, Because::NoClass),
        (claim(), Some(&foreign), Because::ClassOfAnother),
        (claim(), Some(&late), Because::NoConsumerYet),
    ];
    for (claim, class, because) in cases {
        assert_eq!(does(&claim, class, None), Does::Leave(because));
    }
    let placed = claim().at("n1");
    assert_eq!(
        does(&placed, Some(&late), None),
        Does::Provision(Intent::ToRecord)
    );
}

#[test]
fn a_provisioner_of_a_node_serves_the_claims_placed_there() {
    let late = class(BindingMode::WaitForFirstConsumer);
    let here = Deployment::node("n1");
    let at = |claim: Claim| does_at(&here, &claim, Some(&late), None);
    assert_eq!(at(claim().at("n1")), Does::Provision(Intent::ToRecord));
    assert_eq!(at(claim().at("n2")), Does::Leave(Because::AnotherNode));
    assert_eq!(at(claim()), Does::Leave(Because::AnotherNode));
}

#[test]
fn only_an_answer_that_excludes_a_volume_ends_an_intent() {
    use Code::*;
    let cases = [
        (DeadlineExceeded, Intent::ToRecord, Verdict::Unknown),
        (Unavailable, Intent::ToRecord, Verdict::Unknown),
        (Aborted, Intent::OnRecord, Verdict::Unknown),
        (Cancelled, Intent::OnRecord, Verdict::Unknown),
        (AlreadyExists, Intent::ToRecord, Verdict::Unknown),
        (AlreadyExists, Intent::OnRecord, Verdict::Unknown),
        (Unauthenticated, Intent::ToRecord, Verdict::Nothing),
        (Unauthenticated, Intent::OnRecord, Verdict::Unknown),
        (PermissionDenied, Intent::OnRecord, Verdict::Unknown),
        (Internal, Intent::OnRecord, Verdict::Nothing),
        (InvalidArgument, Intent::ToRecord, Verdict::Infeasible),
        (OutOfRange, Intent::ToRecord, Verdict::Nothing),
        (ResourceExhausted, Intent::ToRecord, Verdict::Nothing),
    ];
    for (code, intent, expected) in cases {
        let error = CallError::new(Method::CreateVolume, code, "x");
        assert_eq!(
            judge(&error, intent, false),
            expected,
            "{code:?} {intent:?}"
        );
    }
    let full = CallError::new(Method::CreateVolume, ResourceExhausted, "x");
    assert_eq!(judge(&full, Intent::ToRecord, true), Verdict::NothingHere);
}

#[test]
fn a_claim_that_somebody_else_fills_is_handed_off() {
    let class = class(BindingMode::Immediate);
    let filled_with = |kind: &str, group: &str| {
        let source = serde_json::json!({"kind": kind, "apiGroup": group, "name": "x"});
        let claim = claim().with(|c| c.spec.data_source_ref = Some(source));
        does(&claim, Some(&class), None)
    };
    assert_eq!(filled_with("Image", "x.io"), Does::HandOff);
    let ours = Does::Provision(Intent::ToRecord);
    assert_eq!(filled_with("PersistentVolumeClaim", ""), ours);
    let group = "snapshot.storage.k8s.io";
    assert_eq!(filled_with("VolumeSnapshot", group), ours);
}

#[test]
fn claims_of_an_in_tree_plugin_that_was_taken_over_are_served() {
    let mut old = class(BindingMode::Immediate);
    old.provisioner = "kubernetes.io/old".into();
    let theirs = claim().with(|c| {
        c.metadata.annotations.clear();
        c.annotate(
            "volume.kubernetes.io/storage-provisioner",
            "kubernetes.io/old",
        );
    });
    let not_ours = Does::Leave(Because::AnotherProvisioner);
    assert_eq!(does(&theirs, Some(&old), None), not_ours);
    let taken_over = theirs.with(|c| c.annotate(MIGRATED_TO, DRIVER));
    let ours = Does::Provision(Intent::ToRecord);
    assert_eq!(does(&taken_over, Some(&old), None), ours);
}

#[test]
fn a_node_bids_for_claims_that_bind_immediately_unless_told_not_to() {
    let (now, late) = (
        class(BindingMode::Immediate),
        class(BindingMode::WaitForFirstConsumer),
    );
    let here = Deployment::node("n1");
    let modest = Deployment::Node {
        name: "n1".into(),
        immediate: None,
    };
    let others = Does::Leave(Because::AnotherNode);
    let at = |deployment: &Deployment, claim: Claim, class: &StorageClass| {
        does_at(deployment, &claim, Some(class), None)
    };
    assert_eq!(at(&here, claim(), &now), Does::Bid);
    assert_eq!(at(&modest, claim(), &now), others);
    assert_eq!(at(&here, claim(), &late), others);
    assert_eq!(at(&here, claim().deleted(), &now), others);
    assert_eq!(at(&here, claim().intent(), &now), others, "another node's");
    assert_eq!(at(&here, claim().at("n2"), &now), others);
    let ours = Does::Provision(Intent::ToRecord);
    assert_eq!(at(&here, claim().at("n1"), &now), ours);
}

#[test]
fn a_claim_that_nobody_was_asked_for_is_taken_only_if_the_binder_gives_way() {
    let (now, late) = (
        class(BindingMode::Immediate),
        class(BindingMode::WaitForFirstConsumer),
    );
    let mut another = class(BindingMode::Immediate);
    another.provisioner = "another".into();
    let unasked = claim().with(|c| c.metadata.annotations.clear());
    let taken = Does::Provision(Intent::ToRecord);
    let left = || Does::Leave(Because::AnotherProvisioner);
    let filled = unasked.clone().with(|c| {
        let source = r#"{"kind": "PersistentVolumeClaim", "name": "other"}"#;
        c.spec.data_source = serde_json::from_str(source).ok();
    });
    for (claim, class, unasked, expected) in [
        (&unasked, &now, Unasked::Take, taken),
        (&unasked, &now, Unasked::Wait, left()),
        (&unasked, &another, Unasked::Take, left()),
        (&unasked, &late, Unasked::Take, left()),
        (&unasked.clone().deleted(), &now, Unasked::Take, left()),
        (&unasked.clone().bound_to("v"), &now, Unasked::Take, left()),
        (&filled, &now, Unasked::Take, left()),
    ] {
        let view = View {
            driver: DRIVER,
            deployment: &Deployment::Central,
            claim,
            class: Some(class),
            volume_name: NAME,
            volume: None,
            unasked,
        };
        assert_eq!(step(&view), expected, "{claim:?} {unasked:?}");
    }
}

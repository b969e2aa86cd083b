mod mistakes;

use orlop_model::{AccessMode, Kind, ObjectRef, VolumeMode, VolumePhase, matching::Mismatch};
use serde_json::json;

use super::*;
use crate::fixtures::{bound, claim as a_claim, volume as a_volume};

fn told(claim: &Claim, because: &Because, survey: &Survey) -> (&'static str, String) {
    let news = news(claim, because, survey).expect("something is told");
    (news.reason, news.message)
}

#[test]
fn what_people_are_told_begins_as_the_original_says_it() {
    let pods = |names: &[&str]| Because::NoConsumer {
        pods: names.iter().map(ToString::to_string).collect(),
    };
    let texts = [
        (
            pods(&[]),
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        (
            pods(&["a", "b"]),
            "WaitForPodScheduled",
            "waiting for pods a,b to be scheduled",
        ),
        (
            Because::Provisioning("d".into()),
            "ExternalProvisioning",
            "Waiting for a volume to be created either by the external provisioner 'd' or \
             manually by the system administrator. If volume creation is delayed, please verify \
             that the provisioner is running and correctly registered.",
        ),
        (
            Because::NoSuchClass("x".into()),
            "ProvisioningFailed",
            "storageclass.storage.k8s.io \"x\" not found",
        ),
        (
            Because::NoProvisioner("kubernetes.io/no-provisioner".into()),
            "ProvisioningFailed",
            "no volume plugin matched name: kubernetes.io/no-provisioner",
        ),
        (
            Because::NothingFits,
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        ),
        (
            Because::Taken {
                volume: "v".into(),
                owner: "ns/other".into(),
            },
            "FailedBinding",
            "volume \"v\" already bound to a different claim.",
        ),
        (
            Because::Mismatch {
                volume: "v".into(),
                why: Mismatch::Size,
            },
            "VolumeMismatch",
            "Cannot bind to requested volume \"v\": requested PV is too small",
        ),
        (
            Because::LostVolume,
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        ),
    ];
    for (because, reason, beginning) in texts {
        let (said, message) = told(&a_claim("data", ""), &because, &Survey::default());
        assert_eq!(said, reason);
        assert!(message.starts_with(beginning), "{message}");
    }
}

/// What a claim of a class is told when there are these volumes.
fn offered(change: impl FnOnce(&mut Claim), volumes: Vec<Volume>) -> String {
    let mut claim = a_claim("data", "");
    change(&mut claim);
    let survey = Survey {
        largest: volumes.into_iter().map(Arc::new).collect(),
        ..Survey::default()
    };
    let (_, message) = told(&claim, &Because::NothingFits, &survey);
    let (_, offer) = message.split_once("; ").expect("an offer");
    offer.to_owned()
}

#[test]
fn a_claim_that_nothing_fits_is_told_what_there_is() {
    let wants = |size: &'static str| {
        move |claim: &mut Claim| {
            claim.spec.resources.requests =
                serde_json::from_value(json!({"storage": size})).unwrap();
        }
    };
    let volume = |change: fn(&mut Volume)| {
        let mut volume = a_volume("vol", "");
        change(&mut volume);
        volume
    };
    let plain = || volume(|_| {});
    assert_eq!(
        offered(|_| {}, vec![]),
        "there is no free volume without a class"
    );
    assert_eq!(
        offered(wants("5Gi"), vec![plain()]),
        "the largest free volume without a class that would do is \"vol\" with 2Gi, and the claim \
         asks for 5Gi"
    );
    let shared = |claim: &mut Claim| {
        claim.spec.access_modes = vec![AccessMode::ReadWriteMany];
    };
    assert_eq!(
        offered(shared, vec![plain()]),
        "no free volume without a class offers ReadWriteMany; there are such with ReadWriteOnce"
    );
    let device = |claim: &mut Claim| claim.spec.volume_mode = Some(VolumeMode::Block);
    assert_eq!(
        offered(device, vec![plain()]),
        "no free volume without a class has volumeMode Block; there are such with Filesystem"
    );
    let gold = |claim: &mut Claim| claim.spec.volume_attributes_class_name = Some("gold".into());
    assert_eq!(
        offered(gold, vec![plain()]),
        "no free volume without a class has volumeAttributesClassName \"gold\""
    );
    let of_class = volume(|v| v.spec.storage_class_name = "slow".into());
    assert_eq!(
        offered(|_| {}, vec![of_class]),
        "there is no free volume without a class; volume \"vol\" would fit, but is of class \
         \"slow\""
    );
}

/// What a claim with a selector is told when there is one volume that fits but for its labels, and
/// these of its requirements are met by no volume.
fn told_of_selector(
    selector: serde_json::Value,
    labels: serde_json::Value,
    unmet: &[&str],
) -> String {
    let mut claim = a_claim("data", "");
    claim.spec.selector = serde_json::from_value(selector).unwrap();
    let mut volume = a_volume("vol", "");
    volume.metadata.labels = serde_json::from_value(labels).unwrap();
    let all = claim.spec.selector.iter();
    let all = all.flat_map(LabelSelector::requirements);
    let survey = Survey {
        largest: vec![Arc::new(volume)],
        unmet: all
            .filter(|r| unmet.contains(&r.to_string().as_str()))
            .collect(),
        ..Survey::default()
    };
    let (_, message) = told(&claim, &Because::NothingFits, &survey);
    let (_, offer) = message.split_once("; ").expect("an offer");
    offer.to_owned()
}

#[test]
fn a_selector_that_nothing_satisfies_is_told_by_what_nothing_has() {
    let gold_in_a = || {
        json!({"matchLabels": {"tier": "gold"}, "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
        ]})
    };
    let none = "no free volume without a class that is large enough satisfies";
    for (labels, unmet, text) in [
        (
            json!({"tier": "silver", "zone": "a"}),
            &["tier=gold"][..],
            format!(
                "volume \"vol\" would fit otherwise, but has tier=silver; {none} what the claim's \
                 selector asks for: \"tier=gold\""
            ),
        ),
        (
            json!({}),
            &["tier=gold", "zone in (a,b)"],
            format!(
                "volume \"vol\" would fit otherwise, but has no label tier; {none} what the \
                 claim's selector asks for: \"tier=gold\" or \"zone in (a,b)\""
            ),
        ),
        (
            json!({"tier": "gold", "zone": "c"}),
            &[],
            format!(
                "volume \"vol\" would fit otherwise, but has zone=c; {none} all that the claim's \
                 selector asks for: \"tier=gold\" and \"zone in (a,b)\""
            ),
        ),
    ] {
        assert_eq!(told_of_selector(gold_in_a(), labels, unmet), text);
    }
}

#[test]
fn a_reservation_that_does_not_fit_is_told_first() {
    let claim = a_claim("data", "");
    let mut reserved = a_volume("mine", "");
    reserved.spec.capacity = serde_json::from_value(json!({"storage": "1Mi"})).unwrap();
    reserved.spec.claim_ref = Some(ObjectRef {
        uid: String::new(),
        ..claim.reference()
    });
    let survey = Survey {
        reserved: vec![Arc::new(reserved)],
        ..Survey::default()
    };
    let (_, message) = told(&claim, &Because::NothingFits, &survey);
    let offer = "volume \"mine\" is reserved for this claim, but requested PV is too small (the \
                 volume has 1Mi, the claim asks for 1Gi)";
    assert!(message.ends_with(offer), "{message}");
}

#[test]
fn a_misspelt_class_is_met_with_the_one_that_was_meant() {
    let said = |missing: &str, classes: &[&str]| {
        let survey = Survey {
            classes: classes.iter().map(ToString::to_string).collect(),
            ..Survey::default()
        };
        let because = Because::NoSuchClass(missing.into());
        let (_, message) = told(&a_claim("data", missing), &because, &survey);
        let (_, rest) = message.split_once("; ").expect("a hint");
        rest.to_owned()
    };
    assert_eq!(said("fsat", &["fast", "slow"]), "did you mean \"fast\"?");
    assert_eq!(said("lokal", &["local"]), "did you mean \"local\"?");
    assert_eq!(
        said("gold", &["fast", "slow"]),
        "there are \"fast\", \"slow\""
    );
    assert_eq!(said("gold", &[]), "there is no class at all");
    let many = ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "gggg"];
    assert!(said("zzzzzzz", &many).ends_with("\"eeee\" and 2 more"));
}

#[test]
fn a_class_that_only_volumes_have_is_told_by_what_keeps_them_from_the_claim() {
    let said = |class: &str, change: fn(&mut Claim)| {
        let mut claim = a_claim("data", class);
        change(&mut claim);
        let survey = Survey {
            largest: vec![Arc::new(a_volume("vol", "manual"))],
            classes: vec!["local".to_owned()],
            ..Survey::default()
        };
        let (_, message) = told(&claim, &Because::NoSuchClass(class.into()), &survey);
        let (_, rest) = message.split_once("; ").expect("a hint");
        rest.to_owned()
    };
    let large = |claim: &mut Claim| {
        claim.spec.resources.requests = serde_json::from_value(json!({"storage": "5Gi"})).unwrap();
    };
    assert_eq!(
        said("manual", large),
        "the largest free volume of class \"manual\" that would do is \"vol\" with 2Gi, and the \
         claim asks for 5Gi"
    );
    let shared = |claim: &mut Claim| claim.spec.access_modes = vec![AccessMode::ReadWriteMany];
    assert_eq!(
        said("manual", shared),
        "no free volume of class \"manual\" offers ReadWriteMany; there are such with ReadWriteOnce"
    );
    assert_eq!(
        said("lcal", |_| {}),
        "did you mean \"local\"?",
        "a class is proposed before one that only volumes have"
    );
    assert_eq!(said("manul", |_| {}), "did you mean \"manual\"?");
    assert_eq!(said("gold", |_| {}), "there are \"local\", \"manual\"");
}

#[test]
fn both_sides_of_a_mismatch_are_told() {
    let volume = Arc::new(a_volume("vol", "slow"));
    let survey = Survey {
        named: Some(volume),
        ..Survey::default()
    };
    for (why, end) in [
        (
            Mismatch::Size,
            "(the volume has 2Gi, the claim asks for 1Gi)",
        ),
        (
            Mismatch::Class,
            "(the volume has \"slow\", the claim asks for \"c\")",
        ),
        (
            Mismatch::Mode,
            "(the volume has Filesystem, the claim asks for Filesystem)",
        ),
        (
            Mismatch::Access,
            "(the volume has ReadWriteOnce, the claim asks for ReadWriteOnce)",
        ),
        (Mismatch::Deleting, "the volume is being deleted"),
    ] {
        let because = Because::Mismatch {
            volume: "vol".into(),
            why,
        };
        let (_, message) = told(&a_claim("data", "c"), &because, &survey);
        assert!(message.ends_with(end), "{message}");
    }
}

//! What a claim is told of volumes that a small change would free or find.

use super::*;

#[test]
fn a_volume_of_another_class_is_named_only_if_all_else_fits() {
    let of_class = || {
        let mut volume = a_volume("vol", "");
        volume.spec.storage_class_name = "slow".into();
        volume
    };
    let none = "there is no free volume without a class";
    let device = |claim: &mut Claim| claim.spec.volume_mode = Some(VolumeMode::Block);
    let shared = |claim: &mut Claim| claim.spec.access_modes = vec![AccessMode::ReadWriteMany];
    let gold = |claim: &mut Claim| claim.spec.volume_attributes_class_name = Some("gold".into());
    assert_eq!(offered(device, vec![of_class()]), none);
    assert_eq!(offered(shared, vec![of_class()]), none);
    assert_eq!(offered(gold, vec![of_class()]), none);
    assert!(offered(|_| {}, vec![of_class()]).ends_with("is of class \"slow\""));
}

/// A volume that names an earlier claim of this name or another.
fn kept(name: &str, owner: &str, policy: ReclaimPolicy) -> Arc<Volume> {
    let mut volume = a_volume(name, "manual");
    volume.spec.persistent_volume_reclaim_policy = Some(policy);
    volume.status.phase = Some(VolumePhase::Released);
    volume.spec.claim_ref = Some(ObjectRef {
        name: owner.into(),
        uid: "gone".into(),
        ..a_claim("data", "").reference()
    });
    Arc::new(volume)
}

#[test]
fn a_volume_of_an_earlier_claim_of_the_same_name_is_not_told_to_belong_to_the_claim_itself() {
    let claim = a_claim("data", "manual");
    let owner = claim.key().to_string();
    let said = |owner: &str, policy| {
        let survey = Survey {
            named: Some(kept("vol", "data", policy)),
            ..Survey::default()
        };
        let because = Because::Taken {
            volume: "vol".into(),
            owner: owner.into(),
        };
        let (_, message) = told(&claim, &because, &survey);
        let start = "volume \"vol\" already bound to a different claim. It belongs to ";
        message
            .strip_prefix(start)
            .expect("the original's words")
            .to_owned()
    };
    assert_eq!(
        said(&owner, ReclaimPolicy::Retain),
        format!(
            "an earlier claim {owner} that is gone; remove the volume's spec.claimRef to offer it \
             again."
        )
    );
    assert!(said(&owner, ReclaimPolicy::Delete).ends_with("so it will be deleted."));
    assert!(said(&owner, ReclaimPolicy::Recycle).ends_with("scrubbed and offered again."));
    assert_eq!(
        said("ns/other", ReclaimPolicy::Retain),
        "the claim ns/other that is gone; remove the volume's spec.claimRef to offer it again."
    );
    let (_, taken) = bound("other", "vol");
    let survey = Survey {
        named: Some(Arc::new(taken)),
        ..Survey::default()
    };
    let because = Because::Taken {
        volume: "vol".into(),
        owner: "ns/other".into(),
    };
    let (_, message) = told(&claim, &because, &survey);
    assert!(message.ends_with("It belongs to ns/other."), "{message}");
}

#[test]
fn a_released_volume_that_would_fit_is_named_with_what_frees_it() {
    let hint = "; volume \"vol\" would fit, but is Released and still names a former claim";
    let said = |because: &Because, change: fn(&mut Claim)| {
        let mut claim = a_claim("data", "manual");
        change(&mut claim);
        let survey = Survey {
            released: vec![kept("vol", "former", ReclaimPolicy::Retain)],
            ..Survey::default()
        };
        told(&claim, because, &survey).1
    };
    let large = |claim: &mut Claim| {
        claim.spec.resources.requests = serde_json::from_value(json!({"storage": "5Gi"})).unwrap();
    };
    for because in [
        Because::NoProvisioner("kubernetes.io/no-provisioner".into()),
        Because::NoSuchClass("manual".into()),
    ] {
        let message = said(&because, |_| {});
        assert!(message.contains(hint), "{message}");
        assert!(message.ends_with("remove its spec.claimRef to offer it again"));
        assert!(!said(&because, large).contains(hint), "too small");
    }
}

#[test]
fn a_reservation_that_does_not_fit_is_told_also_without_an_object_of_the_class() {
    let mut claim = a_claim("data", "manual");
    claim.spec.volume_mode = Some(VolumeMode::Block);
    for class in ["manual", "other"] {
        let mut reserved = a_volume("mine", class);
        reserved.spec.claim_ref = Some(claim.reference());
        let survey = Survey {
            reserved: vec![Arc::new(reserved)],
            ..Survey::default()
        };
        let (_, message) = told(&claim, &Because::NoSuchClass("manual".into()), &survey);
        let offer = "volume \"mine\" is reserved for this claim, but incompatible volumeMode (the \
                     volume has Filesystem, the claim asks for Block)";
        assert!(message.ends_with(offer), "{message}");
    }
}

#[test]
fn a_misspelt_volume_is_met_with_the_one_that_was_meant() {
    let mut claim = a_claim("data", "manual");
    claim.spec.volume_name = "vlo".into();
    let survey = Survey {
        meant: Some("vol".into()),
        ..Survey::default()
    };
    let (_, message) = told(&claim, &Because::NoSuchVolume, &survey);
    assert!(message.starts_with("volume \"vlo\" not found"), "{message}");
    assert!(message.ends_with("; did you mean \"vol\"?"), "{message}");
}

#[test]
fn a_misspelt_provisioner_is_told_which_drivers_there_are() {
    let said = |drivers: &[&str]| {
        let survey = Survey {
            drivers: drivers.iter().map(ToString::to_string).collect(),
            ..Survey::default()
        };
        let because = Because::Provisioning("loacl.csi.example".into());
        let (_, message) = told(&a_claim("data", "fast"), &because, &survey);
        let (_, more) = message.split_once("correctly registered.").unwrap();
        more.to_owned()
    };
    let none = " No CSIDriver of that name is registered";
    assert_eq!(
        said(&["local.csi.example", "nfs.csi.example"]),
        format!("{none}; did you mean \"local.csi.example\"?")
    );
    assert_eq!(
        said(&["ebs.example"]),
        format!("{none}; there are \"ebs.example\"")
    );
    // It may be no CSI driver at all.
    assert_eq!(said(&[]), "");
    assert_eq!(said(&["loacl.csi.example"]), "");
}

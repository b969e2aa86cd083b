//! Volumes, with a claim and without.

use super::*;

/// Number, volume, its claim, and what must be done.
type VolumeCase = (&'static str, Change<Volume>, Owner, Vec<volume::Step>);

/// What a volume's turn must come to, once the API server was asked.
fn volumes() -> Vec<VolumeCase> {
    use volume::Step as S;
    let mark = |phase| vec![S::Mark(phase)];
    vec![
        (
            "4-1",
            |v| {
                v.spec.claim_ref = None;
                v.status.phase = Some(VolumePhase::Pending);
            },
            Owner::None,
            mark(VolumePhase::Available),
        ),
        (
            "4-2",
            |v| {
                v.spec.claim_ref.as_mut().unwrap().uid.clear();
                v.status.phase = Some(VolumePhase::Pending);
            },
            Owner::None,
            mark(VolumePhase::Available),
        ),
        (
            "4-3 and 4-4",
            |_| {},
            Owner::None,
            mark(VolumePhase::Released),
        ),
        ("4-5", |_| {}, Owner::Unbound, vec![S::WakeClaim]),
        (
            "4-6",
            |v| v.status.phase = Some(VolumePhase::Available),
            Owner::Bound,
            mark(VolumePhase::Bound),
        ),
        (
            "4-7",
            |v| {
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
            },
            Owner::Elsewhere,
            vec![
                S::Release(Forget::Everything),
                S::Mark(VolumePhase::Available),
            ],
        ),
        (
            "4-8",
            |_| {},
            Owner::Elsewhere,
            vec![
                S::Release(Forget::Identity),
                S::Mark(VolumePhase::Available),
            ],
        ),
        (
            "4-9, 4-12 and 8-7",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete),
            Owner::Bound,
            vec![],
        ),
        ("14-14", |_| {}, Owner::Unbound, vec![S::WakeClaim]),
        (
            "14-13",
            |v| v.spec.volume_mode = Some(VolumeMode::Block),
            Owner::Unbound,
            vec![],
        ),
        (
            "6-1, 6-2 and 6-3",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
                v.status.phase = Some(VolumePhase::Released);
            },
            Owner::None,
            vec![S::Recycle],
        ),
        (
            "7-1: what failed is tried again",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
                v.status.phase = Some(VolumePhase::Failed);
            },
            Owner::None,
            vec![S::Recycle],
        ),
        (
            "6-9: its claim exists",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle),
            Owner::Bound,
            vec![],
        ),
        (
            "6-8: it waits for a claim that comes",
            |v| {
                v.spec.claim_ref.as_mut().unwrap().uid.clear();
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
            },
            Owner::None,
            mark(VolumePhase::Available),
        ),
        (
            "8-10-1: provisioned by somebody else",
            |v| {
                v.spec.csi = None;
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::PROVISIONED_BY.into(), "vendor.com/x".into());
            },
            Owner::None,
            vec![],
        ),
        (
            "8-10-2: a CSI driver's, made by hand",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
            },
            Owner::None,
            vec![],
        ),
        (
            "8-10-3: a CSI driver took over",
            |v| {
                v.spec.csi = None;
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
                let annotations = &mut v.metadata.annotations;
                let maker = "kubernetes.io/gce-pd";
                annotations.insert(well_known::PROVISIONED_BY.into(), maker.into());
                let driver = "pd.csi.storage.gke.io";
                annotations.insert(well_known::MIGRATED_TO.into(), driver.into());
            },
            Owner::None,
            vec![],
        ),
        (
            "8-12: two were provisioned for one claim",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::PROVISIONED_BY.into(), "d".into());
            },
            Owner::Elsewhere,
            mark(VolumePhase::Released),
        ),
        (
            "8-13: it is being deleted",
            |v| {
                *v = deleting(v.clone());
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
            },
            Owner::None,
            vec![],
        ),
    ]
}

/// The claim that a volume names.
enum Owner {
    None,
    Unbound,
    Bound,
    Elsewhere,
}

#[test]
fn every_numbered_case_of_a_volume_has_its_counterpart() {
    for (number, change, owner, steps) in volumes() {
        let (mut claim, mut volume) = bound("data", "vol");
        change(&mut volume);
        let owner = match owner {
            Owner::None => None,
            Owner::Bound => Some(claim),
            Owner::Unbound => {
                claim.spec.volume_name.clear();
                Some(claim)
            }
            Owner::Elsewhere => {
                claim.spec.volume_name = "another".into();
                Some(claim)
            }
        };
        assert_eq!(look(volume, owner, Evidence::Live).steps, steps, "{number}");
    }
}

#[test]
fn a_volume_that_nobody_deletes_says_so() {
    // 4-10, 8-3, 8-4 and 6-10.
    let cases: [(&str, Change<Volume>, &str, &str); 4] = [
        (
            "no plugin",
            |_| {},
            "VolumeFailedDelete",
            "no deletable volume plugin matched",
        ),
        (
            "a plugin that is gone",
            |v| {
                let annotations = &mut v.metadata.annotations;
                annotations.insert(
                    well_known::PROVISIONED_BY.into(),
                    "kubernetes.io/rbd".into(),
                );
            },
            "VolumeFailedDelete",
            "no volume plugin matched name: kubernetes.io/rbd",
        ),
        (
            "a folder",
            |v| {
                v.spec.host_path = serde_json::from_value(json!({"path": "/srv/a"})).unwrap();
            },
            "VolumeFailedDelete",
            "empty /srv/a by hand",
        ),
        (
            "6-10",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Unknown),
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        ),
    ];
    for (name, change, reason, text) in cases {
        let (_, mut volume) = bound("data", "vol");
        volume.spec.csi = None;
        volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
        volume.status.phase = Some(VolumePhase::Released);
        change(&mut volume);
        let steps = look(volume.clone(), None, Evidence::Cached).steps;
        let [volume::Step::MarkFailed(news)] = steps.as_slice() else {
            panic!("{name}: {steps:?}");
        };
        assert_eq!(news.reason, reason, "{name}");
        assert!(news.message.contains(text), "{name}: {}", news.message);
        // It is told once, and a person sees it until they act.
        volume.status.phase = Some(VolumePhase::Failed);
        let steps = look(volume, None, Evidence::Cached).steps;
        assert_eq!(steps, [], "{name}");
    }
}

#[test]
fn a_volume_is_scrubbed_only_on_the_servers_word() {
    let (_, mut volume) = bound("data", "vol");
    volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
    for phase in [
        VolumePhase::Released,
        VolumePhase::Failed,
        VolumePhase::Bound,
    ] {
        volume.status.phase = Some(phase);
        let cached = look(volume.clone(), None, Evidence::Cached);
        assert!(cached.needs_live_evidence(), "{phase:?}");
        assert_eq!(cached.steps, [], "{phase:?}");
    }
}

#[test]
fn the_finalizers_of_a_made_volume_say_who_deletes_it() {
    let keep_up = |maker: &str, policy: ReclaimPolicy, finalizers: &[&str]| {
        let (claim, mut volume) = bound("data", "vol");
        let annotations = &mut volume.metadata.annotations;
        annotations.insert(well_known::PROVISIONED_BY.into(), maker.into());
        volume.metadata.finalizers = finalizers.iter().map(ToString::to_string).collect();
        volume.spec.persistent_volume_reclaim_policy = Some(policy);
        match look(volume, Some(claim), Evidence::Cached).steps.as_slice() {
            [] => None,
            [volume::Step::KeepUp(upkeep)] => Some(upkeep.clone()),
            other => panic!("{other:?}"),
        }
    };
    let (mine, theirs) = (
        well_known::IN_TREE_PROVISIONER,
        well_known::EXTERNAL_PROVISIONER,
    );
    let delete = ReclaimPolicy::Delete;
    let migrated = keep_up("kubernetes.io/cinder", delete, &["other", mine]).unwrap();
    assert_eq!(migrated.migrated_to, Some(Some("cinder.csi.openstack.org")));
    assert_eq!(migrated.finalizers, Some(vec!["other".to_owned()]));
    let left_over = keep_up("kubernetes.io/host-path", delete, &[mine, theirs]).unwrap();
    assert_eq!(left_over.finalizers, Some(vec![mine.to_owned()]));
    let kept = keep_up("kubernetes.io/host-path", ReclaimPolicy::Retain, &[mine]).unwrap();
    assert_eq!(kept.finalizers, Some(vec![]));
    assert_eq!(
        keep_up("d", delete, &[theirs]),
        None,
        "the driver's business"
    );
}

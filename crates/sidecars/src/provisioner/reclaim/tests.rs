use super::*;

const DRIVER: &str = "d";

fn volume(phase: VolumePhase, policy: ReclaimPolicy) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.finalizers = vec![EXTERNAL_PROVISIONER.into()];
    volume
        .metadata
        .annotations
        .insert(PROVISIONED_BY.into(), DRIVER.into());
    volume.spec.persistent_volume_reclaim_policy = Some(policy);
    volume.spec.csi = Some(CsiSource {
        driver: DRIVER.into(),
        volume_handle: "h".into(),
        ..CsiSource::default()
    });
    volume.status.phase = Some(phase);
    volume
}

fn released() -> Volume {
    volume(VolumePhase::Released, ReclaimPolicy::Delete)
}

fn bound() -> Volume {
    volume(VolumePhase::Bound, ReclaimPolicy::Delete)
}

fn changed(mut volume: Volume, change: impl FnOnce(&mut Volume)) -> Volume {
    change(&mut volume);
    volume
}

fn deleted(volume: Volume) -> Volume {
    changed(volume, |v| {
        v.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    })
}

fn unguarded(volume: Volume) -> Volume {
    changed(volume, |v| v.metadata.finalizers.clear())
}

fn step(volume: &Volume, attached: bool) -> &'static str {
    step_at(&Deployment::Central, &BTreeMap::new(), volume, attached)
}

fn step_at(
    deployment: &Deployment,
    place: &BTreeMap<String, String>,
    volume: &Volume,
    attached: bool,
) -> &'static str {
    let view = View {
        driver: DRIVER,
        deployment,
        place,
        volume,
        of_plugin: false,
        attached,
    };
    match decide(&view) {
        Step::Leave => "leave",
        Step::Guard => "guard",
        Step::Unguard => "unguard",
        Step::Delete(_) => "delete",
        Step::WaitForDetach => "wait",
    }
}

#[test]
fn a_released_volume_is_deleted_once_it_is_detached() {
    assert_eq!(step(&released(), false), "delete");
    assert_eq!(step(&released(), true), "wait");
    assert_eq!(step(&deleted(released()), false), "delete");
    // A crash between the two last writes.
    assert_eq!(step(&unguarded(released()), false), "delete");
    assert_eq!(step(&deleted(unguarded(released())), false), "leave");
}

#[test]
fn a_volume_that_is_kept_or_in_use_is_never_deleted() {
    for phase in [
        VolumePhase::Pending,
        VolumePhase::Available,
        VolumePhase::Bound,
        VolumePhase::Released,
        VolumePhase::Failed,
    ] {
        let kept = volume(phase, ReclaimPolicy::Retain);
        assert_eq!(step(&kept, false), "unguard", "{phase:?}");
        assert_eq!(step(&unguarded(kept), false), "leave", "{phase:?}");
        let live = volume(phase, ReclaimPolicy::Delete);
        if phase != VolumePhase::Released {
            assert_eq!(step(&live, false), "leave", "{phase:?}");
            assert_eq!(step(&deleted(live), false), "leave", "{phase:?}");
        }
    }
}

#[test]
fn a_bound_volume_that_will_be_deleted_is_guarded() {
    assert_eq!(step(&unguarded(bound()), false), "guard");
    assert_eq!(step(&bound(), false), "leave");
    // The API server lets nobody add a finalizer now.
    assert_eq!(step(&deleted(unguarded(bound())), false), "leave");
}

#[test]
fn somebody_elses_volume_is_left_alone() {
    let other = changed(released(), |v| {
        v.spec.csi.as_mut().expect("it has one").driver = "other".into();
    });
    assert_eq!(step(&other, false), "leave");
    let no_source = changed(released(), |v| v.spec.csi = None);
    assert_eq!(step(&no_source, false), "leave");
    let of_another = |v: &mut Volume| {
        let by = v.metadata.annotations.get_mut(PROVISIONED_BY);
        *by.expect("it has one") = "kubernetes.io/old".to_owned();
    };
    for volume in [released(), unguarded(bound())] {
        assert_eq!(step(&changed(volume, of_another), false), "leave");
    }
    let migrated = changed(changed(released(), of_another), |v| {
        let to = (MIGRATED_TO.to_owned(), DRIVER.to_owned());
        v.metadata.annotations.extend([to]);
    });
    assert_eq!(step(&migrated, false), "delete");
}

#[test]
fn a_volume_that_was_written_by_hand_goes_as_its_policy_says() {
    let by_hand = |volume| changed(volume, |v: &mut Volume| v.metadata.annotations.clear());
    assert_eq!(step(&by_hand(unguarded(bound())), false), "guard");
    assert_eq!(step(&by_hand(released()), false), "delete");
    assert_eq!(step(&by_hand(deleted(released())), false), "delete");
    let kept = by_hand(volume(VolumePhase::Released, ReclaimPolicy::Retain));
    assert_eq!(step(&kept, false), "unguard");
    // One of a plugin whose place the driver took is another's until the binder says otherwise.
    let (volume, place) = (by_hand(released()), BTreeMap::new());
    let view = View {
        driver: DRIVER,
        deployment: &Deployment::Central,
        place: &place,
        volume: &volume,
        of_plugin: true,
        attached: false,
    };
    assert_eq!(decide(&view), Step::Leave);
}

#[test]
fn a_provisioner_of_a_node_deletes_the_volumes_that_are_there() {
    use orlop_model::{
        selector::{NodeSelector, NodeSelectorTerm, Requirement},
        volume::VolumeNodeAffinity,
    };
    let at_n1 = changed(released(), |v| {
        v.spec.node_affinity = Some(VolumeNodeAffinity {
            required: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: vec![Requirement {
                        key: "host".into(),
                        operator: "In".into(),
                        values: vec!["n1".into()],
                    }],
                    ..NodeSelectorTerm::default()
                }],
            }),
        });
    });
    let place = |name: &str| BTreeMap::from([("host".to_owned(), name.to_owned())]);
    let on = |name: &str| Deployment::node(name);
    assert_eq!(step_at(&on("n1"), &place("n1"), &at_n1, false), "delete");
    assert_eq!(step_at(&on("n2"), &place("n2"), &at_n1, false), "leave");
}

use orlop_csi::proto::{CapacityRange, CreateVolumeRequest};
use orlop_model::{AccessMode, ReclaimPolicy};

use super::*;

fn plan() -> Plan {
    Plan {
        request: CreateVolumeRequest {
            name: "pvc-u1".into(),
            capacity_range: Some(CapacityRange {
                required_bytes: 1000,
                limit_bytes: 0,
            }),
            ..CreateVolumeRequest::default()
        },
        fs_type: "ext4".into(),
        provision_secret: Some(SecretRef {
            name: "s".into(),
            namespace: "n".into(),
        }),
        controller_publish_secret: None,
        node_stage_secret: None,
        node_publish_secret: None,
        controller_expand_secret: None,
        node_expand_secret: None,
    }
}

fn volume(answer: &proto::Volume) -> Volume {
    let mut claim = Claim::default();
    claim.metadata.name = "data".into();
    claim.metadata.namespace = "ns".into();
    claim.metadata.uid = "u1".into();
    claim.spec.access_modes = vec![AccessMode::ReadWriteOnce];
    let mut class = StorageClass {
        provisioner: "d".into(),
        ..StorageClass::default()
    };
    class.metadata.name = "fast".into();
    let made = Made {
        driver: "d",
        identity: "me",
        claim: &claim,
        class: &class,
        plan: &plan(),
        answer,
    };
    made.volume()
}

fn answer(bytes: i64) -> proto::Volume {
    proto::Volume {
        volume_id: "h".into(),
        capacity_bytes: bytes,
        ..proto::Volume::default()
    }
}

#[test]
fn the_volume_is_reserved_for_the_very_claim_that_asked() {
    let volume = volume(&answer(2000));
    let reference = volume.spec.claim_ref.as_ref().expect("it is reserved");
    assert_eq!(reference.uid, "u1");
    assert_eq!(reference.kind, "PersistentVolumeClaim");
    assert_eq!(volume.reclaim_policy(), ReclaimPolicy::Delete);
    assert_eq!(volume.metadata.annotation(DELETION_SECRET_NAME), Some("s"));
    assert_eq!(volume.metadata.finalizers, [EXTERNAL_PROVISIONER]);
    assert_eq!(volume.capacity_bytes(), 2000);
}

#[test]
fn a_size_that_the_driver_does_not_know_is_the_one_asked_for() {
    assert_eq!(volume(&answer(0)).capacity_bytes(), 1000);
    assert_eq!(check(&plan(), &answer(0)), Ok(()));
}

#[test]
fn an_answer_that_is_short_or_nameless_is_refused() {
    assert_eq!(check(&plan(), &answer(1000)), Ok(()));
    assert_eq!(
        check(&plan(), &answer(999)),
        Err(AnswerError::TooSmall {
            got: 999,
            asked: 1000
        })
    );
    let nameless = proto::Volume::default();
    assert_eq!(check(&plan(), &nameless), Err(AnswerError::NoId));
}

#[test]
fn places_become_node_affinity_one_term_each() {
    let mut here = answer(1000);
    assert_eq!(volume(&here).spec.node_affinity, None);
    for zone in ["a", "b"] {
        here.accessible_topology.push(proto::Topology {
            segments: BTreeMap::from([("zone".into(), zone.into())]),
        });
    }
    let volume = volume(&here);
    let labels = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    assert!(volume.reachable_from("x", &labels("a")));
    assert!(volume.reachable_from("x", &labels("b")));
    assert!(!volume.reachable_from("x", &labels("c")));
}

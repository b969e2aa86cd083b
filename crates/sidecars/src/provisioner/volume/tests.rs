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
        content: None,
        attributes_class: None,
        readonly: false,
        provision_secret: Some(SecretRef {
            name: "s".into(),
            namespace: "n".into(),
        }),
        controller_publish_secret: None,
        node_stage_secret: None,
        node_publish_secret: None,
        controller_expand_secret: None,
        node_expand_secret: None,
        controller_modify_secret: None,
    }
}

fn volume(answer: &proto::Volume) -> Volume {
    volume_of(answer, &plan(), "d")
}

fn volume_of(answer: &proto::Volume, plan: &Plan, provisioner: &str) -> Volume {
    let mut claim = Claim::default();
    claim.metadata.name = "data".into();
    claim.metadata.namespace = "ns".into();
    claim.metadata.uid = "u1".into();
    claim.spec.access_modes = vec![AccessMode::ReadWriteOnce];
    let mut class = StorageClass {
        provisioner: provisioner.into(),
        ..StorageClass::default()
    };
    class.metadata.name = "fast".into();
    let made = Made {
        driver: "d",
        identity: "me",
        claim: &claim,
        class: &class,
        plan,
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

#[test]
fn a_volume_that_is_not_filled_as_asked_is_no_answer() {
    use crate::provisioner::source::Content;
    let content = Content::Snapshot("s".into());
    let plan = Plan {
        content: Some(content.clone()),
        ..plan()
    };
    assert_eq!(check(&plan, &answer(1000)), Err(AnswerError::NotFilled));
    let filled = proto::Volume {
        content_source: Some(content.to_proto()),
        ..answer(1000)
    };
    assert_eq!(check(&plan, &filled), Ok(()));
}

#[test]
fn the_record_tells_attributes_reading_and_the_secret_of_changes() {
    let asked = Plan {
        attributes_class: Some("gold".into()),
        readonly: true,
        controller_modify_secret: Some(SecretRef {
            name: "m".into(),
            namespace: "n".into(),
        }),
        ..plan()
    };
    let volume = volume_of(&answer(1000), &asked, "d");
    let class = volume.spec.volume_attributes_class_name.as_deref();
    assert_eq!(class, Some("gold"));
    assert!(volume.spec.csi.expect("a CSI volume").read_only);
    let annotation = |key| volume.metadata.annotation(key);
    assert_eq!(annotation(MODIFY_SECRET_NAME), Some("m"));
    assert_eq!(annotation(MODIFY_SECRET_NAMESPACE), Some("n"));
    assert_eq!(annotation(MIGRATED_TO), None);
}

#[test]
fn a_volume_in_an_in_tree_plugins_place_names_both() {
    let volume = volume_of(&answer(1000), &plan(), "kubernetes.io/old");
    let annotation = |key| volume.metadata.annotation(key);
    assert_eq!(annotation(PROVISIONED_BY), Some("kubernetes.io/old"));
    assert_eq!(annotation(MIGRATED_TO), Some("d"));
}

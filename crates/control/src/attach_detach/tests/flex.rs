//! FlexVolumes: what their records say, and what is next.

use std::sync::Arc;

use orlop_model::{
    VolumeAttachment, flex as names, node::AttachedVolume, volume::FlexSource, well_known,
};
use serde_json::{Value, json};

use super::*;
use crate::attach_detach::{
    decide::NodeDecision,
    flex::{self, Step},
};

const A: &str = "example.org/disk/vol";

fn record(on: &str) -> VolumeAttachment {
    flex::record(A, on, Some("vol"))
}

fn let_go(mut record: VolumeAttachment) -> VolumeAttachment {
    record.metadata.finalizers.clear();
    record
}

fn attached(mut record: VolumeAttachment, device: &str) -> VolumeAttachment {
    record.status.attached = true;
    let key = well_known::FLEX_DEVICE.to_owned();
    let told = &mut record.status.attachment_metadata;
    told.insert(key, device.to_owned());
    record
}

#[test]
fn a_record_is_held_from_the_first_and_no_driver_is_called_for_one_that_is_not() {
    let new = record("n1");
    let on = attached(new.clone(), "/dev/a");
    for (name, record, step) in [
        ("new", new.clone(), Step::Attach),
        ("attached", on.clone(), Step::None),
        ("given up before", deleting(new.clone()), Step::Detach),
        ("given back", deleting(on.clone()), Step::Detach),
        ("let go by hand", let_go(new.clone()), Step::None),
        ("let go by hand, attached", let_go(on), Step::None),
        ("gone by hand", deleting(let_go(new)), Step::None),
    ] {
        assert_eq!(flex::step(&record), step, "{name}");
    }
}

#[test]
fn a_record_says_which_volume_it_is_of_and_belongs_to_who_made_it() {
    let made = record("n1");
    assert_eq!(made.volume_name(), "vol");
    assert_eq!(flex::unique_name(&made), Some(A));
    assert!(flex::is_ours(&made) && actual::is_ours(&made));
    assert_ne!(made.metadata.name, record("n2").metadata.name);
    // A pod's own volume has no object, and must not be taken for another's.
    let own = flex::record(A, "n1", None);
    assert_eq!(own.volume_name(), own.metadata.name);
    let change = |change: fn(&mut VolumeAttachment)| {
        let mut record = record("n1");
        change(&mut record);
        record
    };
    for (name, other) in [
        (
            "another attacher's",
            change(|r| r.spec.attacher = "d".into()),
        ),
        ("another name", change(|r| r.metadata.name = "mine".into())),
        ("another node", change(|r| r.spec.node_name = "n2".into())),
        ("no volume", change(|r| r.metadata.annotations.clear())),
        (
            "no FlexVolume",
            change(|r| {
                let name = "kubernetes.io/csi/d^h".to_owned();
                let annotation = well_known::FLEX_VOLUME.to_owned();
                r.metadata.annotations.insert(annotation, name);
            }),
        ),
    ] {
        assert!(!flex::is_ours(&other), "{name}");
    }
    // What a CSI driver says of its volume is no device.
    let foreign = change(|r| r.spec.attacher = "d".into());
    assert_eq!(flex::device(&attached(foreign, "/dev/a")), "");
}

fn options(wish: &Wish) -> Value {
    serde_json::from_str(&flex::options(wish).unwrap()).unwrap()
}

#[test]
fn a_driver_is_told_what_the_original_tells_it_and_no_secret() {
    let source = FlexSource {
        driver: "example.org/disk".into(),
        fs_type: "ext4".into(),
        secret_ref: Some(orlop_model::volume::SecretRef::default()),
        read_only: true,
        ..FlexSource::default()
    };
    let (_, mut volume) = bound("data", "vol");
    volume.spec.csi = None;
    volume.spec.flex_volume = Some(source.clone());
    let wish = |pod: Pod, volume: Volume, inline| Wish {
        pod: Arc::new(pod),
        volume: Arc::new(volume),
        inline,
    };
    let told = |name: &str, mode: &str| {
        json!({"kubernetes.io/fsType": "ext4", "kubernetes.io/readwrite": mode,
               "kubernetes.io/pvOrVolumeName": name})
    };
    let writes = wish(a_pod("p", "n1", "data"), volume.clone(), false);
    assert_eq!(options(&writes), told("vol", "rw"));
    let mut reader = a_pod("p", "n1", "data");
    let claim = reader.spec.volumes[0].persistent_volume_claim.as_mut();
    claim.unwrap().read_only = true;
    assert_eq!(options(&wish(reader, volume, false)), told("vol", "ro"));
    let own = orlop_model::pod::PodVolume {
        name: "own".into(),
        flex_volume: Some(source),
        ..Default::default()
    };
    let own = names::inline(&own).unwrap();
    let own = wish(a_pod("p", "n1", "data"), own, true);
    assert_eq!(options(&own), told("own", "ro"));
}

#[test]
fn a_node_is_told_of_a_device_and_keeps_what_is_not_on_record() {
    let other = AttachedVolume {
        name: "example.org/disk/other".into(),
        device_path: "/dev/o".into(),
    };
    let mut node = a_node("n1");
    node.status.volumes_attached = vec![other.clone()];
    let standing = |attachment, leaving| Standing {
        attachment: Arc::new(attachment),
        unique_name: Some(A.to_owned()),
        wanted: true,
        leaving,
        overdue: false,
    };
    let decide = |standing: Standing, node: &Node| {
        decide_node(&NodeView {
            node: Some(Arc::new(node.clone())),
            attachments: vec![standing],
            asking: false,
            evidence: Evidence::Cached,
        })
    };
    let on = attached(record("n1"), "/dev/a");
    let ours = AttachedVolume {
        name: A.into(),
        device_path: "/dev/a".into(),
    };
    let decision = decide(standing(on.clone(), false), &node);
    assert_eq!(decision.tell, Some(vec![other.clone(), ours.clone()]));
    node.status.volumes_attached = vec![ours, other.clone()];
    let expected = NodeDecision::default();
    assert_eq!(decide(standing(on.clone(), false), &node), expected);
    let decision = decide(standing(deleting(on), true), &node);
    assert_eq!(decision.tell, Some(vec![other]));
}

#[test]
fn a_record_of_a_node_that_there_can_not_be_is_nobodys() {
    let volume = "example.org/disk/v-a";
    for good in ["n1", "a.b-c.d", "0"] {
        assert!(flex::is_ours(&flex::record(volume, good, None)), "{good}");
    }
    let long = "x".repeat(254);
    let bad = [
        "",
        ".",
        "..",
        "../..",
        "../../../etc",
        "n1/x",
        "/n1",
        "N1",
        "-n",
        "n-",
        "a..b",
        "a\0b",
        &long,
    ];
    for bad in bad {
        assert!(!flex::is_ours(&flex::record(volume, bad, None)), "{bad}");
    }
}

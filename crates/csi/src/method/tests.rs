use std::collections::BTreeSet;

use super::*;
use crate::testing::descriptors;

#[test]
fn the_table_is_the_proto() {
    let ours: BTreeSet<_> = TYPES
        .iter()
        .map(|(method, request, reply, shape)| {
            (
                method.path().to_owned(),
                (*request).to_owned(),
                (*reply).to_owned(),
                *shape,
            )
        })
        .collect();
    let mut theirs = BTreeSet::new();
    for service in &descriptors().service {
        for method in &service.method {
            let path = format!("/csi.v1.{}/{}", service.name(), method.name());
            let input = method
                .input_type()
                .trim_start_matches(".csi.v1.")
                .to_owned();
            let output = method
                .output_type()
                .trim_start_matches(".csi.v1.")
                .to_owned();
            let shape = if method.server_streaming() {
                "Streams"
            } else {
                "Unary"
            };
            theirs.insert((path, input, output, shape));
        }
    }
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 32, "CSI 1.12 has 32 calls");
}

#[test]
fn a_method_is_found_by_its_path() {
    for method in Method::ALL {
        assert_eq!(Method::from_path(method.path()), Some(*method));
    }
    assert_eq!(Method::from_path("/csi.v1.Controller/Nonsense"), None);
}

#[test]
fn a_request_says_what_it_is_about() {
    let stage = proto::NodeStageVolumeRequest {
        volume_id: "v1".into(),
        ..Default::default()
    };
    assert_eq!((stage.subject(), stage.volume_id()), ("v1", Some("v1")));
    let create = proto::CreateVolumeRequest {
        name: "pvc-1".into(),
        ..Default::default()
    };
    assert_eq!((create.subject(), create.volume_id()), ("pvc-1", None));
    let probe = proto::ProbeRequest {};
    assert_eq!((probe.subject(), probe.volume_id()), ("", None));
}

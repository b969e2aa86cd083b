use super::*;
use crate::kinds;
use serde_json::Value;

/// Every `$ref` in a document, with the path to what it names.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(target)) = map.get("$ref") {
                found.push(target.trim_start_matches('#').to_owned());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let index = v3_index(&Kinds::default());
    let mut documents = vec![v2(&Kinds::default())];
    for path in index["paths"].as_object().expect("paths").keys() {
        documents.push(v3(&Kinds::default(), path).expect("indexed"));
    }
    for document in documents {
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            assert!(
                document.pointer(&target).is_some_and(Value::is_object),
                "{target}"
            );
        }
    }
}

/// What `kubectl apply` looks for before it leaves validation to the server.
#[test]
fn every_kind_takes_field_validation_and_strategic_patches() {
    for kind in kinds::all() {
        let document = v3(&Kinds::default(), &path(kind.group, kind.version)).expect("served");
        let wanted = serde_json::json!({
            "group": kind.group, "version": kind.version, "kind": kind.kind,
        });
        let patches = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .filter_map(|path| path.get("patch"))
            .filter(|patch| patch["x-kubernetes-group-version-kind"] == wanted)
            .collect::<Vec<_>>();
        assert!(!patches.is_empty(), "{}", kind.kind);
        for patch in patches {
            let parameters = patch["parameters"].as_array().expect("list");
            assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
            let content = &patch["requestBody"]["content"];
            assert!(content["application/strategic-merge-patch+json"].is_object());
        }
    }
}

#[test]
fn merge_keys_are_published_where_kubectl_reads_them() {
    let document = v3(&Kinds::default(), "api/v1").expect("served");
    let containers = document
        .pointer("/components/schemas/io.k8s.api.core.v1.PodSpec/properties/containers")
        .expect("a field");
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-map-keys"][0], "name");
}

#[test]
fn the_index_points_to_documents_by_a_stable_hash() {
    let index = v3_index(&Kinds::default());
    assert_eq!(index, v3_index(&Kinds::default()));
    let url = index["paths"]["apis/storage.k8s.io/v1"]["serverRelativeURL"].as_str();
    let url = url.expect("a url");
    assert!(
        url.starts_with("/openapi/v3/apis/storage.k8s.io/v1?hash="),
        "{url}"
    );
    assert!(v3(&Kinds::default(), "apis/apps/v1beta1").is_none());
}

/// Reads back what was written, field by field, as any protobuf reader would.
#[test]
fn the_protobuf_form_holds_every_definition() {
    let bytes = v2_protobuf(&Kinds::default());
    let document = fields(&bytes);
    let definitions = document
        .iter()
        .find(|(number, _)| *number == 9)
        .expect("definitions");
    let names: Vec<String> = fields(definitions.1)
        .iter()
        .map(|(_, named)| String::from_utf8(fields(named)[0].1.to_vec()).expect("text"))
        .collect();
    let json = v2(&Kinds::default());
    let wanted: Vec<String> = json["definitions"]
        .as_object()
        .expect("map")
        .keys()
        .cloned()
        .collect();
    assert_eq!(names, wanted);
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        assert_eq!(tag & 7, 2, "only length-delimited fields are written");
        let length = usize::try_from(varint(&mut bytes)).expect("fits");
        let (field, rest) = bytes.split_at(length);
        found.push((tag >> 3, field));
        bytes = rest;
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("more bytes");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[test]
fn go_clients_get_protobuf_under_a_type_they_can_read() {
    // What client-go sends, and what older ones did.
    for version in ["v2@v1.0", "v2.v1.0"] {
        let accept = format!("application/com.github.proto-openapi.spec.{version}+protobuf");
        assert!(wants_v2_protobuf(&accept));
    }
    assert!(!wants_v2_protobuf("application/json"));
    assert!(!V2_PROTOBUF.contains('@'));
}

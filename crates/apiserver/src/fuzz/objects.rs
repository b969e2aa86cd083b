//! Objects and patches: what is accepted is in order, and stays so when it is sent again.

use bytes::Bytes;
use serde_json::{Value, json};

use super::run;
use crate::document::{self, DEEPEST, Form, Source, depth};
use crate::kinds::{self, KindInfo};
use crate::patch::{self, ApplyOptions};
use crate::protobuf;
use crate::schema::{self, FieldValidation};
use crate::store::Draft;

const POD: &[u8] = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["x/y"]},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"requests":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"k"}]}}"#;
const CLAIM: &[u8] = br#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}}"#;
const DEFINITION: &[u8] = br#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a.b.c"},"spec":{"group":"b.c","names":{"kind":"A","plural":"a"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"x":{"type":"array","items":{"type":"string"}}}}}}]}}"#;

fn parsed(bytes: &[u8]) -> Option<Value> {
    let read = document::read(Form::Json, &Bytes::copy_from_slice(bytes)).ok()?;
    Some(read.value)
}

/// The kind that an object says it is of, or pods.
fn kind_of(object: &Value) -> &'static KindInfo {
    let text = |field: &str| object[field].as_str().unwrap_or("");
    let pods = kinds::find("", "v1", "pods").expect("a served kind");
    kinds::by_kind(text("apiVersion"), text("kind")).unwrap_or(pods)
}

/// An object as the store would take it, if it takes it.
fn accepted(mut object: Value) -> Option<Value> {
    if !object.is_object() {
        return None;
    }
    let kind = kind_of(&object);
    let source = Source::default();
    schema::decode(kind, &mut object, (FieldValidation::Warn, &source)).ok()?;
    let before = object.clone();
    let again = schema::decode(kind, &mut object, (FieldValidation::Strict, &source));
    assert_eq!(
        again.expect("what was accepted is clean"),
        Vec::<String>::new()
    );
    assert_eq!(object, before, "accepting changes nothing more");
    Some(object)
}

#[test]
fn an_accepted_object_is_stored_as_it_is_and_travels_as_protobuf() {
    run("objects", &[POD, CLAIM, DEFINITION], |bytes| {
        let Some(object) = parsed(bytes).and_then(accepted) else {
            return;
        };
        let mut stored = Draft::new(&object).at(7).value();
        if let Some(metadata) = stored["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let mut sent = object.clone();
        if let Some(metadata) = sent.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        // The store makes room for the revision.
        if sent["metadata"].is_null() {
            sent["metadata"] = json!({});
        }
        assert_eq!(stored, sent);
        if let Some(encoded) = protobuf::object(&object) {
            let decoded = protobuf::decode(&encoded).expect("what is encoded can be decoded");
            let again = protobuf::object(&decoded).expect("of the same kind");
            assert_eq!(protobuf::decode(&again), Ok(decoded));
        }
    });
}

#[test]
fn protobuf_that_was_decoded_is_encoded_to_the_same() {
    let encode = |text| protobuf::object(&parsed(text).expect("valid")).expect("a known kind");
    let corpus: Vec<Vec<u8>> = [POD, CLAIM].into_iter().map(encode).collect();
    let corpus: Vec<&[u8]> = corpus.iter().map(Vec::as_slice).collect();
    run("protobuf", &corpus, |bytes| {
        let Ok(object) = protobuf::decode(bytes) else {
            return;
        };
        assert!(depth(&object) <= DEEPEST);
        let encoded = protobuf::object(&object).expect("it was of a known kind");
        let again = protobuf::decode(&encoded).expect("what is encoded can be decoded");
        let encoded = protobuf::object(&again).expect("of the same kind");
        assert_eq!(protobuf::decode(&encoded), Ok(again));
    });
}

/// An object and a patch, apart by a zero byte.
fn pair(bytes: &[u8]) -> Option<(Value, Value)> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    let object = accepted(parsed(&bytes[..at])?)?;
    Some((object, parsed(&bytes[at + 1..])?))
}

fn pairs(patches: &[&str]) -> Vec<Vec<u8>> {
    let join = |patch: &&str| [POD, b"\0", patch.as_bytes()].concat();
    patches.iter().map(join).collect()
}

fn run_pairs(name: &str, patches: &[&str], property: impl Fn(Value, Value)) {
    let corpus = pairs(patches);
    let corpus: Vec<&[u8]> = corpus.iter().map(Vec::as_slice).collect();
    run(name, &corpus, |bytes| {
        if let Some((object, patch)) = pair(bytes) {
            property(object, patch);
        }
    });
}

#[test]
fn a_merge_patch_twice_is_the_patch_once() {
    let patches = [
        r#"{"metadata":{"labels":{"a":null,"c":"d"}},"spec":{"volumes":null}}"#,
        r#"{"spec":{"containers":[{"name":"d"}],"nodeName":"n"}}"#,
    ];
    run_pairs("merge", &patches, |object, patch| {
        let once = patch::merge(&object, &patch);
        assert_eq!(patch::merge(&once, &patch), once);
        assert!(depth(&once) <= DEEPEST);
        let _ = accepted(once);
    });
}

#[test]
fn a_json_patch_keeps_to_its_limits() {
    let patches = [
        r#"[{"op":"test","path":"/kind","value":"Pod"},{"op":"add","path":"/metadata/labels/x~1y","value":"1"},{"op":"remove","path":"/spec/volumes/0"}]"#,
        r#"[{"op":"copy","from":"/spec","path":"/metadata/annotations"},{"op":"move","from":"/spec/volumes","path":"/spec/containers/-"},{"op":"replace","path":"/spec","value":{}}]"#,
    ];
    run_pairs("json patch", &patches, |object, patch| {
        let Ok(patched) = patch::json(&object, &patch) else {
            return;
        };
        assert!(depth(&patched) <= DEEPEST);
        let _ = accepted(patched);
    });
}

#[test]
fn a_strategic_patch_gives_an_object_without_directives() {
    let patches = [
        r#"{"spec":{"containers":[{"name":"c","image":"j"},{"name":"e"}],"volumes":[{"name":"v","$patch":"delete"}],"$setElementOrder/containers":[{"name":"e"},{"name":"c"}]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"],"labels":{"$patch":"replace","z":"1"}},"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/"}}]}}"#,
    ];
    run_pairs("strategic", &patches, |object, patch| {
        let kind = kind_of(&object);
        let Ok(patched) = patch::strategic(kind, &object, &patch) else {
            return;
        };
        let Some(patched) = accepted(patched) else {
            return;
        };
        assert!(depth(&patched) <= DEEPEST);
    });
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let patches = [
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"q":"r"}},"spec":{"containers":[{"name":"c","image":"j"}]}}"#,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","finalizers":["x/z"]},"spec":{"tolerations":[{"key":"k"}],"volumes":[{"name":"w","emptyDir":{}}]}}"#,
    ];
    run_pairs("apply", &patches, |object, patch| {
        let kind = kind_of(&object);
        let options = ApplyOptions {
            manager: "fuzz",
            force: true,
            subresource: None,
            now: "2026-01-01T00:00:00Z",
        };
        let Ok(once) = patch::server_side_apply(kind, Some(&object), &patch, options) else {
            return;
        };
        let twice = patch::server_side_apply(kind, Some(&once), &patch, options);
        assert_eq!(twice.expect("it was applied before"), once);
    });
}

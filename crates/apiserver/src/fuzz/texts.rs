//! Bodies, selectors, tokens and quantities.

use bytes::Bytes;
use orlop_model::Quantity;
use serde_json::{Value, json};

use super::run;
use crate::document::{self, DEEPEST, Form, depth};
use crate::kinds;
use crate::selector::{Fields, Labels};

const JSON: &[&[u8]] = &[
    br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b"}},"data":{"k":"v","k":"w"}}"#,
    br#"[1,-1,0,1.5,1e9,18446744073709551615,true,false,null,"\u00e9\n\"\\",[],{}]"#,
    br#"{"a":{"a":{"a":[[[[{"b":[]}]]]]}}}"#,
];

const YAML: &[&[u8]] = &[
    b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    two\n    lines\n  f: >-\n    x\n",
    b"a: &a [1, 2, 'x', \"y\"]\nb: *a\nc:\n  <<: {d: 1}\n  e: ~\n- x\n",
    b"--- # comment\n? key\n: value\n...\n",
    b"a: 010\nb: 0x1f\nc: yes\nd: !!str 12\ne: 1_000\nf: .5\n",
];

fn read(form: Form, bytes: &[u8]) -> Option<Value> {
    let read = document::read(form, &Bytes::copy_from_slice(bytes)).ok()?;
    // Whatever was read, its mistakes can be told.
    let _ = read.source.error(&["unknown".to_owned()].into());
    assert!(depth(&read.value) <= DEEPEST);
    Some(read.value)
}

#[test]
fn json_is_read_as_others_read_it_and_never_nests_too_deep() {
    run("json", JSON, |bytes| {
        let theirs = serde_json::from_slice::<Value>(bytes).ok();
        match read(Form::Json, bytes) {
            Some(ours) => {
                let again = read(Form::Json, ours.to_string().as_bytes());
                assert_eq!(again.as_ref(), Some(&ours));
                assert_eq!(Some(ours), theirs);
            }
            None => assert!(theirs.is_none_or(|theirs| depth(&theirs) >= DEEPEST)),
        }
    });
}

#[test]
fn yaml_that_was_read_means_the_same_as_json() {
    run("yaml", YAML, |bytes| {
        if let Some(value) = read(Form::Yaml, bytes) {
            let again = read(Form::Json, value.to_string().as_bytes());
            assert_eq!(again.as_ref(), Some(&value));
        }
    });
}

#[test]
fn a_label_selector_that_is_one_stays_one_and_narrows_with_every_requirement() {
    let corpus: &[&[u8]] = &[
        b"a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2",
        b"example.com/x==y",
        b"a in (,b,)",
    ];
    let objects = [
        json!({ "metadata": { "labels": { "a": "b", "l": "5", "e": "f" } } }),
        json!({ "metadata": {} }),
    ];
    run("labels", corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let Ok(labels) = Labels::parse(text) else {
            return;
        };
        let narrower = format!("{text},zz");
        if text.trim().is_empty() {
            return;
        }
        let narrower = Labels::parse(&narrower).expect("a requirement more is a selector, too");
        for object in &objects {
            assert!(!narrower.matches(object), "no object has zz");
            let _ = labels.matches(object);
        }
    });
}

#[test]
fn a_field_selector_matches_what_it_pins() {
    let corpus: &[&[u8]] = &[
        b"metadata.name=a,metadata.namespace!=b",
        b"spec.nodeName==n\\,1,status.phase!=Failed",
    ];
    let pod = kinds::find("", "v1", "pods").expect("a served kind");
    run("fields", corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let Ok(fields) = Fields::parse(pod, text) else {
            return;
        };
        let name = fields.pinned("metadata.name").unwrap_or("other-name");
        let object = json!({ "metadata": { "name": format!("{name}x") } });
        if fields.pinned("metadata.name").is_some() {
            assert!(!fields.matches(&object), "{text}");
        }
    });
}

#[test]
fn a_quantity_is_written_as_it_is_read() {
    let corpus: &[&[u8]] = &[
        b"1Gi",
        b"100m",
        b"1.5e3",
        b"-12Ki",
        b"0.5",
        b"9223372036854775807",
        b"1E",
        b"+3n",
    ];
    run("quantities", corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let Ok(quantity) = text.parse::<Quantity>() else {
            return;
        };
        let written = quantity.to_string();
        let again: Quantity = written.parse().expect("what is written can be read");
        assert_eq!(again, quantity, "{text} became {written}");
        assert_eq!(again.to_string(), written);
    });
}

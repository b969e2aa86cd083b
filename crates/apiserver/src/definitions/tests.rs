use serde_json::{Value, json};

use super::*;
use columns::Path;

fn errors(schema: &Value, object: &Value) -> Vec<String> {
    let errors = validate::validate(&Structural::parse(schema), None, object);
    errors.iter().map(ToString::to_string).collect()
}

fn spec(property: &Value) -> Value {
    json!({ "type": "object", "properties": { "x": property } })
}

#[test]
fn what_is_wrong_is_said_in_the_originals_words() {
    for (property, value, expected) in [
        (
            json!({ "type": "integer" }),
            json!("a"),
            "x: Invalid value: \"string\": x in body must be of type integer: \"string\"",
        ),
        (
            json!({ "type": "string", "enum": ["a", "b"] }),
            json!("c"),
            "x: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({ "type": "string", "pattern": "^a+$" }),
            json!("b"),
            "x: Invalid value: \"b\": x in body should match '^a+$'",
        ),
        (
            json!({ "type": "string", "minLength": 2 }),
            json!("b"),
            "x: Invalid value: \"b\": x in body should be at least 2 chars long",
        ),
        (
            json!({ "type": "string", "maxLength": 2 }),
            json!("abc"),
            "x: Too long: may not be more than 2 bytes",
        ),
        (
            json!({ "type": "integer", "minimum": 1 }),
            json!(0),
            "x: Invalid value: 0: x in body should be greater than or equal to 1",
        ),
        (
            json!({ "type": "array", "maxItems": 1, "items": { "type": "integer" } }),
            json!([1, 2]),
            "x: Too many: 2: must have at most 1 items",
        ),
        (
            json!({ "type": "object", "required": ["y"] }),
            json!({}),
            "x.y: Required value",
        ),
        (
            json!({
                "type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"], "items": { "type": "object" },
            }),
            json!([{ "k": "a" }, { "k": "a" }]),
            "x[1]: Duplicate value: {\"k\":\"a\"}",
        ),
        (
            json!({ "type": "object", "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            json!({ "a": 1, "b": 1 }),
            "x: Invalid value: \"\": \"x\" must validate one and only one schema (oneOf). \
             Found 2 valid alternatives",
        ),
        (
            json!({ "type": "string", "x-kubernetes-validations":
                [{ "rule": "size(self) > 0", "message": "must be set" }] }),
            json!(""),
            "x: Invalid value: \"\": must be set",
        ),
        (
            json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self == 'a'" }] }),
            json!("b"),
            "x: Invalid value: \"b\": failed rule: self == 'a'",
        ),
    ] {
        let found = errors(&spec(&property), &json!({ "x": value }));
        assert_eq!(found, [expected]);
    }
}

#[test]
fn what_fits_is_left_alone() {
    for (property, value) in [
        (json!({ "type": "number" }), json!(1)),
        (json!({ "type": "integer" }), json!(1.0)),
        (
            json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
            json!("10%"),
        ),
        (
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
            json!({ "a": 1 }),
        ),
        (
            json!({ "type": "string", "format": "date-time" }),
            json!("2026-01-01T00:00:00Z"),
        ),
        // No past, no rule about change.
        (
            json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] }),
            json!("b"),
        ),
    ] {
        assert_eq!(errors(&spec(&property), &json!({ "x": value })), [""; 0]);
    }
}

#[test]
fn rules_about_change_see_the_same_item_of_a_keyed_list() {
    let schema = spec(&json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": { "type": "object", "properties": {
            "k": { "type": "string" },
            "v": { "type": "integer", "x-kubernetes-validations":
                [{ "rule": "self >= oldSelf", "message": "may only grow" }] },
        } },
    }));
    let schema = Structural::parse(&schema);
    let old = json!({ "x": [{ "k": "a", "v": 1 }, { "k": "b", "v": 5 }] });
    let new = json!({ "x": [{ "k": "b", "v": 4 }, { "k": "a", "v": 2 }, { "k": "c", "v": 0 }] });
    let errors = validate::validate(&schema, Some(&old), &new);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["x[0].v: Invalid value: 4: may only grow"]);
}

#[test]
fn defaults_fill_what_is_left_out_also_inside_of_defaults_and_lists() {
    let schema = Structural::parse(&spec(&json!({
        "type": "object", "default": {}, "properties": {
            "a": { "type": "integer", "default": 3 },
            "l": { "type": "array", "items": { "type": "object", "properties": {
                "b": { "type": "boolean", "default": false },
            } } },
        },
    })));
    let mut empty = json!({});
    schema.fill(&mut empty);
    assert_eq!(empty, json!({ "x": { "a": 3 } }));
    let mut given = json!({ "x": { "a": 1, "l": [{}, { "b": true }] } });
    schema.fill(&mut given);
    assert_eq!(
        given,
        json!({ "x": { "a": 1, "l": [{ "b": false }, { "b": true }] } })
    );
}

#[test]
fn columns_find_their_values() {
    let object = json!({
        "metadata": { "annotations": { "a.b/c": "d" } },
        "status": { "n": 3, "conditions": [
            { "type": "Other", "status": "False" }, { "type": "Ready", "status": "True" },
        ] },
    });
    let columns = json!([
        { "name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" },
        { "name": "N", "type": "integer", "jsonPath": ".status.n", "priority": 1 },
        { "name": "A", "type": "string", "jsonPath": ".metadata.annotations.a\\.b/c" },
        { "name": "B", "type": "string", "jsonPath": ".metadata.annotations['a.b/c']" },
        { "name": "First", "type": "string", "jsonPath": ".status.conditions[0].type" },
        { "name": "None", "type": "string", "jsonPath": ".status.none" },
    ]);
    let columns = Columns::parse(&columns);
    let cells: Vec<Value> = columns
        .cells(&object, jiff::Timestamp::UNIX_EPOCH)
        .collect();
    assert_eq!(
        cells,
        [
            json!("True"),
            json!(3),
            json!("d"),
            json!("d"),
            json!("Other"),
            Value::Null
        ]
    );
    for bad in ["status", ".a[", ".a[?(@.b)]", ".a.", "..", ".a[x]"] {
        assert_eq!(Path::parse(bad), None, "{bad}");
    }
}

#[test]
fn the_definitions_that_are_installed_make_sense() {
    for file in [
        include_str!("../../../../deploy/crds/snapshots.yaml"),
        include_str!("../../../../deploy/crds/group-snapshots.yaml"),
    ] {
        for document in file.split("\n---").filter(|text| text.contains("kind:")) {
            let body = bytes::Bytes::from(document.to_owned());
            let read = crate::document::read(crate::document::Form::Yaml, &body);
            let mut definition = read.expect("YAML").value;
            defaults(&mut definition);
            let errors = validate_definition(&definition);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, [""; 0], "{}", definition["metadata"]["name"]);
        }
    }
}

#[test]
fn many_items_of_a_keyed_list_are_told_apart_in_time_that_grows_with_their_number() {
    let schema = spec(&json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": { "type": "object", "properties": { "k": { "type": "integer" } } },
    }));
    let schema = Structural::parse(&schema);
    let list = |change: i32| -> Vec<Value> {
        (0..20_000)
            .map(|k| json!({ "k": k, "v": change }))
            .collect()
    };
    let (old, mut new) = (json!({ "x": list(1) }), list(2));
    new.push(json!({ "k": 7 }));
    new.push(json!({ "k": 7 }));
    let began = std::time::Instant::now();
    let found = validate::validate(&schema, Some(&old), &json!({ "x": new }));
    // Each against each would be minutes.
    assert!(began.elapsed() < std::time::Duration::from_secs(15));
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["x[20000]: Duplicate value: {\"k\":7}"]);
}

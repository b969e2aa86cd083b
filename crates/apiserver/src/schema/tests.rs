use super::*;
use crate::document::Source;
use crate::kinds;
use serde_json::json;

fn kind(api_version: &str, name: &str) -> &'static KindInfo {
    kinds::by_kind(api_version, name).expect("a served kind")
}

#[test]
fn every_served_kind_has_a_shape() {
    for kind in kinds::all() {
        assert!(
            matches!(schema().of(kind), Shape::Struct { .. }),
            "{}",
            kind.kind
        );
    }
}

#[test]
fn every_key_of_a_keyed_list_is_a_field_of_its_elements() {
    for ty in &schema().types {
        for (name, field) in &ty.fields {
            if let ListType::Keyed(keys) = field.shape.list_type() {
                for key in keys {
                    let (shape, named) = field.shape.element().entry(key);
                    assert!(named, "{}.{name} has no key {key}", ty.name);
                    assert!(matches!(shape, Shape::Scalar(_)));
                }
            }
        }
    }
}

#[test]
fn lists_merge_as_upstream_declares_them() {
    let pod = schema().of(kind("v1", "Pod"));
    let spec = pod.entry("spec").0;
    let container = spec.entry("containers").0.element();
    let ports = container.entry("ports").0;
    assert_eq!(
        *ports.list_type(),
        ListType::Keyed(vec!["containerPort", "protocol"])
    );
    assert_eq!(
        ports.list_patch(),
        ListPatch::MergeBy {
            key: "containerPort",
            retain_keys: false
        }
    );
    assert_eq!(ports.element().default_of("protocol"), Some("TCP"));
    assert_eq!(*spec.entry("tolerations").0.list_type(), ListType::Atomic);
    assert!(spec.entry("nodeSelector").0.atomic_map());
    assert!(matches!(
        spec.entry("volumes").0.list_patch(),
        ListPatch::MergeBy {
            key: "name",
            retain_keys: true
        }
    ));
    let finalizers = pod.entry("metadata").0.entry("finalizers").0;
    assert_eq!(*finalizers.list_type(), ListType::Set);
    assert_eq!(finalizers.list_patch(), ListPatch::Union);
    let pv = schema().of(kind("v1", "PersistentVolume"));
    assert!(!pv.entry("spec").0.entry("claimRef").0.atomic_map());
}

#[test]
fn unknown_and_mistyped_fields_are_told_apart() {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a", "labels": {"any.thing/goes": "x"}},
        "spec": {
            "accessModes": "ReadWriteOnce",
            "resources": {"requests": {"storage": 5}},
            "storageClass": "fast",
            "selector": {"matchExpressions": [{"key": "k", "operator": "In", "vals": []}]},
        },
    });
    let problems = check(kind("v1", "PersistentVolumeClaim"), &claim);
    let unknown: Vec<_> = problems.unknown.iter().map(String::as_str).collect();
    assert_eq!(
        unknown,
        [
            "spec.selector.matchExpressions[0].vals",
            "spec.storageClass"
        ]
    );
    assert_eq!(
        problems.mistyped,
        ["spec.accessModes: expected a list, found a string"]
    );
}

#[test]
fn a_faulty_table_is_refused() {
    let err = |table| parse::parse(&[table]).expect_err("faulty");
    assert!(matches!(
        err("package p\ntype A\n  a: Missing"),
        parse::TableError::Undefined(_)
    ));
    assert!(matches!(
        err("package p\ntype A\n  a"),
        parse::TableError::NotAField(_)
    ));
    assert!(matches!(
        err("package p\ntype A\ntype A"),
        parse::TableError::Twice(_)
    ));
    assert!(matches!(
        err("package p\n  a: string"),
        parse::TableError::NoType(_)
    ));
}

fn claim_with(extra: serde_json::Value) -> serde_json::Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a", "creationTimestamp": null},
        "spec": {"volumeName": null, "resources": {"requests": {"storage": "1Gi"}}},
    });
    claim["spec"]["extra"] = extra;
    claim
}

#[test]
fn unknown_fields_and_nulls_are_dropped_with_a_warning() {
    let kind = kind("v1", "PersistentVolumeClaim");
    let mut claim = claim_with(json!({"x": 1}));
    let warnings = decode(
        kind,
        &mut claim,
        (FieldValidation::Warn, &Source::default()),
    )
    .expect("readable");
    assert_eq!(warnings, ["unknown field \"spec.extra\""]);
    assert_eq!(
        claim,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        })
    );
    let again = decode(
        kind,
        &mut claim,
        (FieldValidation::Strict, &Source::default()),
    )
    .expect("clean now");
    assert!(again.is_empty());
}

#[test]
fn strict_validation_refuses_unknown_fields_in_upstreams_words() {
    let kind = kind("v1", "PersistentVolumeClaim");
    let mut claim = claim_with(json!("x"));
    let error = decode(
        kind,
        &mut claim,
        (FieldValidation::Strict, &Source::default()),
    )
    .expect_err("unknown field");
    assert_eq!(
        error.to_string(),
        "PersistentVolumeClaim in version \"v1\" cannot be handled as a PersistentVolumeClaim: \
         strict decoding error: unknown field \"spec.extra\""
    );
    assert!(
        decode(
            kind,
            &mut claim,
            (FieldValidation::Ignore, &Source::default())
        )
        .expect("dropped")
        .is_empty()
    );
}

#[test]
fn a_value_of_the_wrong_type_is_always_refused() {
    let mut claim = claim_with(json!(null));
    claim["spec"]["accessModes"] = json!("ReadWriteOnce");
    let kind = kind("v1", "PersistentVolumeClaim");
    assert!(
        decode(
            kind,
            &mut claim,
            (FieldValidation::Ignore, &Source::default())
        )
        .is_err()
    );
}

#[test]
fn every_kind_is_described() {
    for ty in schema()
        .types
        .iter()
        .filter(|ty| ty.is_kind && !ty.name.ends_with("Binding"))
    {
        assert!(ty.description.ends_with('.'), "{}", ty.name);
    }
}

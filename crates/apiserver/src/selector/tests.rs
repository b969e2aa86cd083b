#![expect(
    clippy::needless_pass_by_value,
    reason = "literals are passed as they are written"
)]

use super::*;
use crate::kinds;
use serde_json::{Value, json};

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

#[test]
fn label_requirements_hold_as_upstream_defines_them() {
    let object = labelled(json!({"app": "db", "tier": "", "rank": "7", "example.com/x": "y"}));
    for (selector, holds) in [
        ("", true),
        ("app=db", true),
        ("app==db", true),
        ("app = db , rank=7", true),
        ("app=web", false),
        ("app!=web", true),
        ("app!=db", false),
        ("absent!=db", true),
        ("absent=", false),
        ("tier=", true),
        ("tier", true),
        ("absent", false),
        ("!absent", true),
        ("!app", false),
        ("app in (web, db)", true),
        ("app in (web)", false),
        ("app notin (web,db)", false),
        ("absent notin (web)", true),
        ("rank>6", true),
        ("rank>7", false),
        ("rank<8,app", true),
        ("app>1", false),
        ("example.com/x=y", true),
        ("in in (in)", false),
        ("tier in ()", true),
    ] {
        let parsed = Labels::parse(selector).expect(selector);
        assert_eq!(parsed.matches(&object), holds, "{selector}");
    }
}

#[test]
fn an_object_without_labels_satisfies_only_negative_requirements() {
    let bare = json!({"metadata": {}});
    assert!(
        Labels::parse("!a,b!=c,d notin (e)")
            .expect("valid")
            .matches(&bare)
    );
    assert!(!Labels::parse("a").expect("valid").matches(&bare));
}

#[test]
fn broken_label_selectors_are_refused() {
    for selector in [
        "=a", "a=b=c", "a in b", "a in (b", "a,", ",a", "a b", "a=b c", "!", "a>x", "-a=b", "a=-b",
        "UP.er/a", "a(b)",
    ] {
        assert!(Labels::parse(selector).is_err(), "{selector}");
    }
    let error = Labels::parse("a in b").expect_err("no parenthesis");
    assert_eq!(
        error.to_string(),
        "unable to parse requirement: found 'b' expected: '('"
    );
}

fn fields(api_version: &str, kind: &str, text: &str) -> Result<Fields, SelectorError> {
    Fields::parse(
        kinds::by_kind(api_version, kind).expect("a served kind"),
        text,
    )
}

#[test]
fn fields_are_compared_as_text_and_absent_ones_are_empty() {
    let pod = json!({
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd::1"}]},
    });
    for (selector, holds) in [
        ("metadata.name=a", true),
        ("metadata.name==a,metadata.namespace=b", true),
        ("metadata.name!=a", false),
        ("spec.nodeName=n1,status.phase=Running", true),
        ("spec.nodeName=", false),
        ("spec.schedulerName=", true),
        ("status.phase!=Succeeded,status.phase!=Failed", true),
        ("spec.hostNetwork=false", true),
        ("status.podIPs=10.0.0.1\\,fd::1", true),
    ] {
        let parsed = fields("v1", "Pod", selector).expect(selector);
        assert_eq!(parsed.matches(&pod), holds, "{selector}");
    }
}

#[test]
fn events_are_selected_by_what_they_are_about() {
    let event = json!({
        "involvedObject": {"kind": "Pod", "name": "a", "uid": "1"},
        "reason": "Started", "type": "Normal", "source": {"component": "kubelet"},
    });
    let selector = "involvedObject.name=a,involvedObject.uid=1,type!=Warning,source=kubelet";
    assert!(
        fields("v1", "Event", selector)
            .expect("valid")
            .matches(&event)
    );
}

#[test]
fn unsupported_fields_are_named() {
    let error = fields("v1", "Pod", "spec.color=red").expect_err("unsupported");
    assert_eq!(error.to_string(), "field label not supported: spec.color");
    let error = fields("v1", "ConfigMap", "data.a=b").expect_err("unsupported");
    assert_eq!(
        error.to_string(),
        "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    let error = fields("v1", "Pod", "metadata.name").expect_err("no operator");
    assert_eq!(
        error.to_string(),
        "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
    );
}

#[test]
fn a_pinned_name_is_known_without_looking_at_objects() {
    let parsed = fields("v1", "Pod", "metadata.name=a,status.phase!=Failed").expect("valid");
    assert_eq!(parsed.pinned("metadata.name"), Some("a"));
    assert_eq!(parsed.pinned("status.phase"), None);
}

//! Kinds that users define, and what is refused of a definition.

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, WatchParams};
use kube::api::{DeleteParams, WatchEvent};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::fixtures::*;

fn api(cluster: &Cluster, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk(&gvk);
    Api::all_with(cluster.client.clone(), &resource)
}

fn definitions(cluster: &Cluster) -> Api<DynamicObject> {
    api(
        cluster,
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    )
}

fn definition(plural: &str, kind: &str, schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

fn open_schema() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn thing(name: &str, spec: &Value) -> DynamicObject {
    of(json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": { "name": name }, "spec": spec,
    }))
}

async fn post(api: &Api<DynamicObject>, object: Value) -> Result<Value, (u16, String, String)> {
    let made = api.create(&PostParams::default(), &of(object)).await;
    made.map(|made| value(&made)).map_err(refusal)
}

#[tokio::test]
async fn a_definition_is_established_at_once_and_its_objects_are_pruned_and_filled() {
    let cluster = cluster().await;
    let schema = json!({ "type": "object", "properties": { "spec": {
        "type": "object",
        "properties": {
            "size": { "type": "integer", "default": 1 },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "pod": { "type": "object", "x-kubernetes-embedded-resource": true,
                "properties": { "spec": { "type": "object" } } },
        },
    } } });
    let made = post(
        &definitions(&cluster),
        definition("things", "Thing", &schema),
    )
    .await
    .unwrap();
    let conditions = made["status"]["conditions"].as_array().unwrap();
    for wanted in ["NamesAccepted", "Established"] {
        let holds = |one: &Value| one["type"] == wanted && one["status"] == "True";
        assert!(conditions.iter().any(holds), "{wanted}");
    }
    assert_eq!(made["status"]["acceptedNames"]["listKind"], "ThingList");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let things = api(&cluster, "example.com", "v1", "Thing");
    let spec = json!({
        "unknown": 1, "free": { "any": [1] },
        "pod": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "other": 1 },
    });
    let made = value(
        &things
            .create(&PostParams::default(), &thing("a", &spec))
            .await
            .unwrap(),
    );
    let expected = json!({
        "size": 1, "free": { "any": [1] },
        "pod": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } },
    });
    assert_eq!(made["spec"], expected);
    assert_eq!(made["metadata"]["generation"], 1);
    let wrong = thing("b", &json!({ "size": "large" }));
    let (code, _, message) = refusal(
        things
            .create(&PostParams::default(), &wrong)
            .await
            .unwrap_err(),
    );
    assert_eq!(code, 422);
    assert!(
        message.contains("spec.size in body must be of type integer: \"string\""),
        "{message}"
    );
}

#[tokio::test]
async fn a_definition_that_makes_no_sense_is_refused_with_the_reason() {
    let cluster = cluster().await;
    let definitions = definitions(&cluster);
    let with = |change: fn(&mut Value)| {
        let mut definition = definition("things", "Thing", &open_schema());
        change(&mut definition);
        definition
    };
    for (definition, expected) in [
        (
            with(|d| d["metadata"]["name"] = "x.example.com".into()),
            "metadata.name: Invalid value: \"x.example.com\": must be \
             spec.names.plural+\".\"+spec.group",
        ),
        (
            with(|d| d["spec"]["scope"] = "Galaxy".into()),
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            with(|d| d["spec"]["versions"][0]["storage"] = false.into()),
            "must have exactly one version marked as storage version",
        ),
        (
            with(|d| d["spec"]["versions"][0]["schema"] = Value::Null),
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            with(|d| d["spec"]["conversion"] = json!({ "strategy": "Webhook" })),
            "spec.conversion.strategy: Unsupported value: \"Webhook\": supported values: \"None\"",
        ),
        (
            with(|d| {
                d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
                    json!([{ "rule": "isOdd(self.kind)" }]);
            }),
            "undeclared reference to 'isOdd'",
        ),
        (
            with(|d| {
                d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
                    json!({ "a": {} });
            }),
            "openAPIV3Schema.properties[a].type: Required value",
        ),
    ] {
        let (code, _, message) = post(&definitions, definition).await.unwrap_err();
        assert_eq!(code, 422, "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn a_taken_kind_is_not_accepted_a_second_time() {
    let cluster = cluster().await;
    let definitions = definitions(&cluster);
    post(&definitions, definition("things", "Thing", &open_schema()))
        .await
        .unwrap();
    let second = post(
        &definitions,
        definition("thingies", "Thing", &open_schema()),
    )
    .await
    .unwrap();
    let conditions = second["status"]["conditions"].as_array().unwrap();
    let accepted = conditions
        .iter()
        .find(|one| one["type"] == "NamesAccepted")
        .unwrap();
    assert_eq!(accepted["status"], "False");
    assert_eq!(accepted["reason"], "ListKindConflict");
}

#[tokio::test]
async fn a_definition_waits_for_the_finalizers_of_its_objects() {
    let cluster = cluster().await;
    let definitions = definitions(&cluster);
    post(&definitions, definition("things", "Thing", &open_schema()))
        .await
        .unwrap();
    let things = api(&cluster, "example.com", "v1", "Thing");
    let held = json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": { "name": "held", "finalizers": ["example.com/hold"] },
    });
    post(&things, held).await.unwrap();
    post(&things, value(&thing("free", &json!({}))))
        .await
        .unwrap();
    let events = things.watch(&WatchParams::default(), "0").await.unwrap();
    definitions
        .delete("things.example.com", &DeleteParams::default())
        .await
        .unwrap();
    until(events, |event| {
        matches!(event, WatchEvent::Deleted(gone) if gone.metadata.name.as_deref() == Some("free"))
    })
    .await;
    let (code, _, message) = post(&things, value(&thing("new", &json!({}))))
        .await
        .unwrap_err();
    assert_eq!(code, 405, "{message}");
    let watch = definitions
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap();
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    things
        .patch("held", &PatchParams::default(), &free)
        .await
        .unwrap();
    until(watch, |event| matches!(event, WatchEvent::Deleted(_))).await;
    let gone = things.list(&Default::default()).await.unwrap_err();
    assert_eq!(refusal(gone).0, 404);
}

#[tokio::test]
async fn an_apply_of_what_is_there_leaves_the_generation_of_a_defined_kind() {
    let cluster = cluster().await;
    let schema = json!({ "type": "object", "properties": { "spec": {
        "type": "object",
        "properties": {
            "size": { "type": "integer", "default": 1 },
            "name": { "type": "string" },
        },
    } } });
    let defined = definition("things", "Thing", &schema);
    post(&definitions(&cluster), defined).await.unwrap();
    let things = api(&cluster, "example.com", "v1", "Thing");
    let written = value(&thing("a", &json!({ "name": "n" })));
    let made = post(&things, written.clone()).await.unwrap();
    assert_eq!(made["spec"], json!({ "name": "n", "size": 1 }));
    let params = PatchParams::apply("one").force();
    let again = things.patch("a", &params, &Patch::Apply(&written)).await;
    assert_eq!(again.unwrap().metadata.generation, Some(1));
    let mut more = written;
    more["spec"]["size"] = json!(2);
    let changed = things.patch("a", &params, &Patch::Apply(&more)).await;
    assert_eq!(changed.unwrap().metadata.generation, Some(2));
}

//! The operations on each kind. Clients look two things up here: which kind a
//! path serves, and which parameters and patch formats its PATCH takes.

use super::components::gvk;
use crate::kinds::{KindInfo, Kinds};
use crate::schema::full_name;
use serde_json::{Map, Value, json};

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(super) fn of(kinds: &Kinds, group: &str, version: &str) -> Map<String, Value> {
    let mut paths = Map::new();
    for kind in kinds.all() {
        if (kind.group, kind.version) != (group, version) {
            continue;
        }
        let root = format!("/{}", super::path(group, version));
        let base = if kind.namespaced {
            let everywhere = json!({"get": operation(kind, "list", &[])});
            paths.insert(format!("{root}/{}", kind.plural), everywhere);
            format!("{root}/namespaces/{{namespace}}/{}", kind.plural)
        } else {
            format!("{root}/{}", kind.plural)
        };
        paths.insert(
            base.clone(),
            json!({
                "get": operation(kind, "list", &[]),
                "post": with_body(kind, operation(kind, "post", &WRITE)),
            }),
        );
        let one = json!({
            "get": operation(kind, "get", &[]),
            "put": with_body(kind, operation(kind, "put", &WRITE)),
            "patch": patch(kind),
            "delete": operation(kind, "delete", &["dryRun"]),
        });
        paths.insert(format!("{base}/{{name}}"), one);
        if kind.status {
            let status = json!({
                "get": operation(kind, "get", &[]),
                "put": with_body(kind, operation(kind, "put", &WRITE)),
                "patch": patch(kind),
            });
            paths.insert(format!("{base}/{{name}}/status"), status);
        }
    }
    paths
}

const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

fn operation(kind: &KindInfo, action: &str, parameters: &[&str]) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
        .collect();
    json!({
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": {"application/json": reference(kind, action)}},
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(kind.group, kind.version, kind.kind),
    })
}

fn reference(kind: &KindInfo, action: &str) -> Value {
    let list = if action == "list" { "List" } else { "" };
    json!({"schema": {"$ref": format!("#/components/schemas/{}{list}", full_name(kind))}})
}

fn with_body(kind: &KindInfo, mut operation: Value) -> Value {
    operation["requestBody"] =
        json!({"required": true, "content": {"application/json": reference(kind, "")}});
    operation
}

fn patch(kind: &KindInfo) -> Value {
    let mut operation = operation(kind, "patch", &WRITE);
    let force = json!({"name": "force", "in": "query", "schema": {"type": "boolean"}});
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.push(force);
    }
    let content: Map<String, Value> = PATCHES
        .iter()
        .filter(|format| kind.custom.is_none() || !format.contains("strategic"))
        .map(|format| ((*format).to_owned(), json!({"schema": {"type": "object"}})))
        .collect();
    operation["requestBody"] = json!({"required": true, "content": content});
    operation
}

//! The schema table as OpenAPI schemas.

use super::descriptions;
use crate::kinds::{KindInfo, Kinds};
use crate::schema::{Field, ListPatch, ListType, Scalar, Shape, Type, full_name, schema};
use serde_json::{Map, Value, json};

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The two OpenAPI versions spell references differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            // Siblings of $ref are ignored in 3.0, hence the wrapping.
            Self::V3 => json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]}),
        }
    }
}

/// Every schema there is. Version 2 can't say what schemas of defined kinds may say; clients
/// find those in version 3.
pub(super) fn all(kinds: &Kinds, dialect: Dialect) -> Map<String, Value> {
    let mut found = Map::new();
    for kind in kinds.all().filter(|kind| kind.custom.is_none()) {
        add_kind(kind, dialect, &mut found);
    }
    found
}

/// The schemas one group version's kinds are made of.
pub(super) fn reachable(kinds: &Kinds, group: &str, version: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for kind in kinds.all() {
        if (kind.group, kind.version) == (group, version) {
            add_kind(kind, Dialect::V3, &mut found);
        }
    }
    found
}

pub(super) fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn add_kind(kind: &KindInfo, dialect: Dialect, found: &mut Map<String, Value>) {
    let name = full_name(kind);
    match (kind.custom, schema().named(&name)) {
        (Some(custom), _) => {
            let mut own = defined(&custom.openapi, dialect);
            if !custom.selectable.is_empty() {
                let field = |path: &&str| json!({"fieldPath": path});
                let fields: Vec<Value> = custom.selectable.iter().map(field).collect();
                own["x-kubernetes-selectable-fields"] = fields.into();
            }
            found.insert(name.clone(), own);
            add_referenced(&schema().metadata(), dialect, found);
        }
        (None, Some(ty)) => add_type(ty, dialect, found),
        (None, None) => return,
    }
    if let Some(schema) = found.get_mut(&name) {
        schema["x-kubernetes-group-version-kind"] =
            json!([gvk(kind.group, kind.version, kind.kind)]);
    }
    let list = json!({
        "type": "object",
        "description": format!("A list of {}.", kind.plural),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": dialect.reference(LIST_META),
            "items": {"type": "array", "items": dialect.reference(&name)},
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [gvk(kind.group, kind.version, kind.list_kind)],
    });
    found.insert(format!("{name}List"), list);
    found.entry(LIST_META).or_insert_with(|| {
        json!({
            "type": "object",
            "properties": {
                "continue": {"type": "string"},
                "remainingItemCount": {"type": "integer", "format": "int64"},
                "resourceVersion": {"type": "string"},
                "selfLink": {"type": "string"},
            },
        })
    });
}

/// The schema of a defined kind, and what every object has.
fn defined(written: &Value, dialect: Dialect) -> Value {
    let mut schema = written.clone();
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string"});
    properties["kind"] = json!({"type": "string"});
    properties["metadata"] = dialect.reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    for name in ["apiVersion", "kind", "metadata"] {
        properties[name]["description"] = descriptions::common(name).into();
    }
    schema
}

fn add_type(ty: &Type, dialect: Dialect, found: &mut Map<String, Value>) {
    if found.contains_key(&ty.name) {
        return;
    }
    found.insert(ty.name.clone(), Value::Null);
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, field) in &ty.fields {
        let mut value = property(field, dialect);
        // Clients explain from version 3.
        if let (Dialect::V3, Some(text)) = (dialect, descriptions::of(ty, name)) {
            value["description"] = text.into();
        }
        properties.insert((*name).to_owned(), value);
        if field.required {
            required.push(*name);
        }
        add_referenced(&field.shape, dialect, found);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !ty.description.is_empty() {
        schema["description"] = ty.description.into();
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if ty.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    found.insert(ty.name.clone(), schema);
}

fn add_referenced(shape: &Shape, dialect: Dialect, found: &mut Map<String, Value>) {
    match shape {
        Shape::Struct { of, .. } => add_type(schema().get(*of), dialect, found),
        Shape::Map { values, .. } => add_referenced(values, dialect, found),
        Shape::List { items, .. } => add_referenced(items, dialect, found),
        Shape::Scalar(_) | Shape::Any | Shape::Defined(_) => {}
    }
}

fn property(field: &Field, dialect: Dialect) -> Value {
    let mut value = shape_schema(&field.shape, dialect);
    if let Some(default) = field.default {
        value["default"] = default.into();
    }
    value
}

fn shape_schema(shape: &Shape, dialect: Dialect) -> Value {
    match shape {
        Shape::Scalar(scalar) => scalar_schema(*scalar, dialect),
        Shape::Any | Shape::Defined(_) => json!({"type": "object"}),
        Shape::Struct { of, atomic, .. } => {
            let ty = schema().get(*of);
            let mut value = dialect.reference(&ty.name);
            if ty.atomic != *atomic {
                value["x-kubernetes-map-type"] = if *atomic { "atomic" } else { "granular" }.into();
            }
            value
        }
        Shape::Map { values, atomic } => {
            let mut value = json!({
                "type": "object",
                "additionalProperties": shape_schema(values, dialect),
            });
            if *atomic {
                value["x-kubernetes-map-type"] = "atomic".into();
            }
            value
        }
        Shape::List { items, list, patch } => {
            let mut value = json!({"type": "array", "items": shape_schema(items, dialect)});
            match list {
                ListType::Atomic => value["x-kubernetes-list-type"] = "atomic".into(),
                ListType::Set => value["x-kubernetes-list-type"] = "set".into(),
                ListType::Keyed(keys) => {
                    value["x-kubernetes-list-type"] = "map".into();
                    value["x-kubernetes-list-map-keys"] = json!(keys);
                }
            }
            match patch {
                ListPatch::Replace => {}
                ListPatch::Union => value["x-kubernetes-patch-strategy"] = "merge".into(),
                ListPatch::MergeBy { key, retain_keys } => {
                    value["x-kubernetes-patch-merge-key"] = (*key).into();
                    value["x-kubernetes-patch-strategy"] = if *retain_keys {
                        "merge,retainKeys".into()
                    } else {
                        "merge".into()
                    };
                }
            }
            value
        }
    }
}

fn scalar_schema(scalar: Scalar, dialect: Dialect) -> Value {
    match (scalar, dialect) {
        // Version 2 has no unions; upstream writes the string form there, too.
        (Scalar::String, _) | (Scalar::Quantity, Dialect::V2) => json!({"type": "string"}),
        (Scalar::Bytes, _) => json!({"type": "string", "format": "byte"}),
        (Scalar::Bool, _) => json!({"type": "boolean"}),
        (Scalar::Int32, _) => json!({"type": "integer", "format": "int32"}),
        (Scalar::Int64, _) => json!({"type": "integer", "format": "int64"}),
        (Scalar::Float, _) => json!({"type": "number", "format": "double"}),
        (Scalar::Time | Scalar::MicroTime, _) => json!({"type": "string", "format": "date-time"}),
        (Scalar::Quantity, Dialect::V3) => {
            json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        }
        (Scalar::IntOrString, Dialect::V2) => {
            json!({"type": "string", "format": "int-or-string"})
        }
        (Scalar::IntOrString, Dialect::V3) => json!({
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        }),
    }
}

//! Kinds that users define: what a CustomResourceDefinition makes the server serve.
//!
//! A definition becomes one [`KindInfo`] per served version, and from there its objects go
//! the way of all others. This room owns the definition's own rules and the schema,
//! defaults, columns and rules of the defined kinds. It must never write.

mod approval;
mod columns;
mod definition;
mod duration;
mod formats;
mod object;
mod rules;
mod scale;
mod schemas;
mod selectable;
mod shape;
mod structural;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::kinds::{self, ALL_VERBS, KindInfo, Kinds, SCALE, preference};
use crate::refusal::FieldError;
use crate::registry::text;
use crate::schema::Shape;
use crate::store::{State, Store};
pub(crate) use columns::Columns;
pub(crate) use definition::{validate_definition, validate_definition_change, warnings};
pub(crate) use object::{FINALIZER, defaults, is_definition, settle, terminate};
pub(crate) use scale::ScalePaths;
use structural::Structural;

/// Where definitions are stored.
pub(crate) const RESOURCE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// What a defined kind has that others don't.
#[derive(Debug)]
pub struct Custom {
    schema: Structural,
    /// How its objects merge.
    pub(crate) shape: Shape,
    /// What is printed of its objects.
    pub(crate) columns: Columns,
    /// The schema as it was written.
    pub(crate) openapi: Value,
    /// The version that objects are stored in.
    pub(crate) storage_version: &'static str,
    /// What to tell whoever uses this version.
    pub(crate) deprecation: Option<String>,
    /// Where its objects say how many they are.
    pub(crate) scale: Option<ScalePaths>,
    /// What its objects can be selected by besides their names.
    pub(crate) selectable: &'static [&'static str],
}

/// Each definition is made once.
impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Custom {}

impl Custom {
    /// Fills in what was left out.
    pub(crate) fn fill(&self, object: &mut Value) {
        self.schema.fill(object);
    }

    /// What is wrong with an object, and with how it changed.
    pub(crate) fn validate(&self, old: Option<&Value>, object: &Value) -> Vec<FieldError> {
        validate::validate(&self.schema, old, object)
    }
}

/// The kinds of a server as of the last change to a definition.
#[derive(Debug, Default)]
pub struct Catalog {
    made: Mutex<Option<(u64, Kinds)>>,
}

impl Catalog {
    /// The kinds as they are now.
    pub(crate) fn kinds(&self, store: &Store) -> Kinds {
        let state = store.read();
        let at = state.changed_at(RESOURCE);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((then, kinds)) if *then == at => kinds.clone(),
            _ => {
                let kinds = Kinds::with(defined(&state));
                *made = Some((at, kinds.clone()));
                kinds
            }
        }
    }
}

fn defined(state: &State) -> Vec<&'static KindInfo> {
    let definitions = state.list(RESOURCE, None);
    definitions
        .flat_map(|(_, _, stored)| kinds_of(&stored.value()))
        // What the server has of its own can't be defined away.
        .filter(|kind| kinds::find(kind.group, kind.version, kind.plural).is_none())
        .collect()
}

/// The kinds that a definition makes, one per served version.
fn kinds_of(definition: &Value) -> Vec<&'static KindInfo> {
    if !object::is_true(definition, "Established") {
        return Vec::new();
    }
    let versions = definition["spec"]["versions"].as_array();
    let versions = versions.into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .map(|version| kind_of(&definition["spec"], version))
        .collect()
}

/// The kind of one version. Kinds live as long as the process, as those of the table do;
/// there is one per distinct definition, however often it is read.
fn kind_of(spec: &Value, version: &Value) -> &'static KindInfo {
    static KNOWN: LazyLock<Mutex<HashMap<String, &'static KindInfo>>> =
        LazyLock::new(Mutex::default);
    let storage = object::storage_version(spec);
    let identity = json!([
        spec["group"],
        spec["names"],
        spec["scope"],
        storage,
        version,
        deprecation(spec, version)
    ]);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .entry(identity.to_string())
        .or_insert_with(|| Box::leak(Box::new(make(spec, version, storage))))
}

fn make(spec: &Value, version: &Value, storage: &str) -> KindInfo {
    let names = &spec["names"];
    let openapi = &version["schema"]["openAPIV3Schema"];
    let schema = Structural::parse_root(openapi);
    let custom = Custom {
        shape: shape::of_root(&schema),
        schema,
        columns: Columns::parse(&version["additionalPrinterColumns"]),
        openapi: openapi.clone(),
        storage_version: kept(storage),
        deprecation: deprecation(spec, version),
        scale: ScalePaths::parse(&version["subresources"]["scale"]),
        selectable: selectable::parse(&version["selectableFields"]),
    };
    KindInfo {
        group: kept(text(spec, "/group")),
        version: kept(text(version, "/name")),
        kind: kept(text(names, "/kind")),
        plural: kept(text(names, "/plural")),
        singular: kept(text(names, "/singular")),
        short_names: kept_list(&names["shortNames"]),
        namespaced: spec["scope"] == "Namespaced",
        verbs: ALL_VERBS,
        status: version["subresources"]["status"].is_object(),
        list_kind: kept(text(names, "/listKind")),
        categories: kept_list(&names["categories"]),
        subresources: match custom.scale {
            Some(_) => SCALE,
            None => &[],
        },
        custom: Some(Box::leak(Box::new(custom))),
    }
}

/// What to tell whoever uses a version that is to go, and which to use instead.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let (group, kind) = (text(spec, "/group"), text(spec, "/names/kind"));
    let mut warning = format!("{group}/{} {kind} is deprecated", text(version, "/name"));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let better = versions
        .filter(|one| one["served"] == true && one["deprecated"] != true)
        .map(|one| text(one, "/name"))
        .min_by_key(|name| preference(name));
    if let Some(better) = better {
        warning.push_str(&format!("; use {group}/{better} {kind}"));
    }
    Some(warning)
}

fn kept(text: &str) -> &'static str {
    text.to_owned().leak()
}

fn kept_list(list: &Value) -> &'static [&'static str] {
    let list = list.as_array().into_iter().flatten();
    let list: Vec<&'static str> = list.filter_map(Value::as_str).map(kept).collect();
    list.leak()
}

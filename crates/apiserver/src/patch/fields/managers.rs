//! `metadata.managedFields`: who manages which fields of an object.

use super::set::FieldSet;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// More update entries than this are merged, oldest first.
pub(super) const MAX_UPDATERS: usize = 10;
const OLD_UPDATERS: &str = "ancient-changes";

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Tells managers apart. Appliers have one entry whatever version they apply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) operation: Operation,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Empty for appliers.
    update_version: String,
}

impl Manager {
    pub(crate) fn applier(name: &str, subresource: Option<&str>) -> Self {
        Self {
            operation: Operation::Apply,
            name: name.to_owned(),
            subresource: subresource.unwrap_or("").to_owned(),
            update_version: String::new(),
        }
    }

    pub(crate) fn updater(name: &str, subresource: Option<&str>, api_version: &str) -> Self {
        Self {
            operation: Operation::Update,
            name: name.to_owned(),
            subresource: subresource.unwrap_or("").to_owned(),
            update_version: api_version.to_owned(),
        }
    }

    /// As conflict messages describe a manager.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", self.subresource);
        }
        match self.operation {
            Operation::Apply => text,
            Operation::Update => format!("{text} using {}", self.update_version),
        }
    }
}

/// What one manager manages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) fields: FieldSet,
    pub(crate) api_version: String,
    /// RFC 3339; empty when unknown.
    pub(crate) time: String,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Managers {
    pub(crate) shares: BTreeMap<Manager, Share>,
}

impl Managers {
    /// Reads an object's record; `None` when there is none that can be read.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        Self::of_record(object.pointer("/metadata/managedFields")?)
    }

    /// Reads a record; `None` when it can't be read or is empty.
    pub(crate) fn of_record(record: &Value) -> Option<Self> {
        let entries = record.as_array()?;
        let mut shares = BTreeMap::new();
        for entry in entries {
            let (manager, share) = decode(entry)?;
            shares.insert(manager, share);
        }
        (!shares.is_empty()).then_some(Self { shares })
    }

    /// Writes the record into an object.
    pub(crate) fn store(&self, object: &mut Value) {
        let Some(object) = object.as_object_mut() else {
            return;
        };
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        let Some(metadata) = metadata.as_object_mut() else {
            return;
        };
        let mut entries: Vec<(&Manager, &Share)> = self.shares.iter().collect();
        if entries.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        entries.sort_by_key(|(manager, share)| {
            (
                manager.operation,
                share.time.as_str(),
                manager.name.as_str(),
                share.api_version.as_str(),
                manager.subresource.as_str(),
            )
        });
        let entries: Vec<Value> = entries.into_iter().map(encode).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }

    /// Takes fields from everyone but `keeper`; who is left with none goes.
    pub(crate) fn take(&mut self, fields: &FieldSet, keeper: Option<&Manager>) {
        for (manager, share) in &mut self.shares {
            if Some(manager) != keeper {
                share.fields = std::mem::take(&mut share.fields).minus(fields);
            }
        }
        self.shares.retain(|_, share| !share.fields.is_empty());
    }

    /// Merges the oldest update entries until few enough are left.
    pub(crate) fn cap_updaters(&mut self) {
        let mut updaters: Vec<(String, Manager)> = self
            .shares
            .iter()
            .filter(|(manager, _)| manager.operation == Operation::Update)
            .map(|(manager, share)| (share.time.clone(), manager.clone()))
            .collect();
        updaters.sort();
        let Some(surplus) = updaters.len().checked_sub(MAX_UPDATERS).filter(|n| *n > 0) else {
            return;
        };
        // One more than the surplus, as together they become one entry.
        for (time, manager) in updaters.into_iter().take(surplus + 1) {
            let Some(share) = self.shares.remove(&manager) else {
                continue;
            };
            let bucket = Manager::updater(OLD_UPDATERS, None, &share.api_version);
            let merged = self.shares.entry(bucket).or_insert_with(|| Share {
                fields: FieldSet::default(),
                api_version: share.api_version.clone(),
                time: String::new(),
            });
            merged.fields = merged.fields.union(&share.fields);
            merged.time = merged.time.clone().max(time);
        }
    }
}

/// Who an entry of a record is about; `None` when it can't be read.
pub(super) fn manager_of(entry: &Value) -> Option<Manager> {
    let text = |name: &str| entry[name].as_str().unwrap_or("");
    let (name, subresource) = (text("manager"), Some(text("subresource")));
    let api_version = text("apiVersion");
    if api_version.is_empty() || entry["fieldsType"] != "FieldsV1" {
        return None;
    }
    match text("operation") {
        "Apply" => Some(Manager::applier(name, subresource)),
        "Update" => Some(Manager::updater(name, subresource, api_version)),
        _ => None,
    }
}

/// Reads an entry of a record.
pub(super) fn decode(entry: &Value) -> Option<(Manager, Share)> {
    let text = |name: &str| entry[name].as_str().unwrap_or("").to_owned();
    let share = Share {
        fields: match entry.get("fieldsV1") {
            Some(fields) => FieldSet::decode(fields)?,
            None => FieldSet::default(),
        },
        api_version: text("apiVersion"),
        time: text("time"),
    };
    Some((manager_of(entry)?, share))
}

/// An entry of a record.
pub(super) fn encode((manager, share): (&Manager, &Share)) -> Value {
    let mut entry = json!({
        "manager": manager.name,
        "operation": manager.operation.name(),
        "apiVersion": share.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": share.fields.encode(),
    });
    if !share.time.is_empty() {
        entry["time"] = share.time.as_str().into();
    }
    if !manager.subresource.is_empty() {
        entry["subresource"] = manager.subresource.as_str().into();
    }
    entry
}

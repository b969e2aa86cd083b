//! `meta.k8s.io/v1` Tables: what `kubectl get` prints.
//!
//! The server decides columns and cells; kubectl only aligns them and leaves
//! out columns with a priority unless `-o wide` is given. Columns and cells are
//! those of the original, letter by letter: people's eyes and scripts know them.

mod access;
mod age;
mod cluster;
mod pods;
mod storage;
#[cfg(test)]
mod tests;
mod workloads;

use crate::kinds::KindInfo;
use jiff::Timestamp;
use serde_json::{Value, json};

/// How much of each object a row carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`; what clients get unless they ask.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// A kind's columns and how to fill them.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Marks finished objects, so that clients can grey them out.
    completed: fn(&Value) -> Option<Value>,
}

struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    priority: u8,
}

const fn text(name: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        priority: 0,
    }
}

const fn wide(name: &'static str) -> Column {
    Column {
        priority: 1,
        ..text(name)
    }
}

const fn boolean(name: &'static str) -> Column {
    Column {
        kind: "boolean",
        ..text(name)
    }
}

const fn number(name: &'static str) -> Column {
    Column {
        kind: "integer",
        ..text(name)
    }
}

const NAME: Column = Column {
    format: "name",
    ..text("Name")
};
const AGE: Column = text("Age");

/// Renders objects of one kind as a Table; the caller sets list metadata.
pub fn render(kind: &KindInfo, objects: &[&Value], now: Timestamp, include: Include) -> Value {
    let rows = objects.iter().map(|object| row(kind, object, now, include));
    let rows: Vec<Value> = rows.collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns(kind),
        "rows": rows,
    })
}

/// The columns of a kind's Table.
pub(crate) fn columns(kind: &KindInfo) -> Vec<Value> {
    match kind.custom {
        Some(custom) => {
            let heads = std::iter::once(head(&NAME)).chain(custom.columns.heads());
            heads.collect()
        }
        None => printer(kind).columns.iter().map(head).collect(),
    }
}

/// The row of one object in its kind's Table.
pub(crate) fn row(kind: &KindInfo, object: &Value, now: Timestamp, include: Include) -> Value {
    let (cells, condition) = match kind.custom {
        Some(custom) => {
            let cells = std::iter::once(name(object)).chain(custom.columns.cells(object, now));
            (cells.collect::<Vec<_>>(), None)
        }
        None => {
            let printer = printer(kind);
            ((printer.cells)(object, now), (printer.completed)(object))
        }
    };
    let mut row = json!({ "cells": cells });
    if let Some(condition) = condition {
        row["conditions"] = json!([condition]);
    }
    row["object"] = match include {
        Include::None => Value::Null,
        Include::Metadata => metadata_only(object),
        Include::Object => object.clone(),
    };
    row
}

fn head(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": "",
        "priority": column.priority,
    })
}

/// The time since another, in words.
pub(crate) fn since(time: &str, now: Timestamp) -> String {
    age::since(time, now)
}

fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

fn printer(kind: &KindInfo) -> Printer {
    let plain = |columns, cells| Printer {
        columns,
        cells,
        completed: |_| None,
    };
    match kind.kind {
        "PersistentVolume" => plain(storage::VOLUME, storage::volume),
        "PersistentVolumeClaim" => plain(storage::CLAIM, storage::claim),
        "StorageClass" => plain(storage::CLASS, storage::class),
        "VolumeAttributesClass" => plain(storage::ATTRIBUTES_CLASS, storage::attributes_class),
        "VolumeAttachment" => plain(storage::ATTACHMENT, storage::attachment),
        "CSIDriver" => plain(storage::DRIVER, storage::driver),
        "CSINode" => plain(storage::CSI_NODE, storage::csi_node),
        "CSIStorageCapacity" => plain(storage::CAPACITY, storage::capacity),
        "Pod" => Printer {
            columns: pods::POD,
            cells: pods::pod,
            completed: pods::completed,
        },
        "Node" => plain(cluster::NODE, cluster::node),
        "Namespace" => plain(cluster::NAMESPACE, cluster::namespace),
        "Event" => plain(cluster::EVENT, cluster::event),
        "Secret" => plain(cluster::SECRET, cluster::secret),
        "ConfigMap" => plain(cluster::CONFIG_MAP, cluster::config_map),
        "Service" => plain(cluster::SERVICE, cluster::service),
        "Endpoints" => plain(cluster::ENDPOINTS, cluster::endpoints),
        "CustomResourceDefinition" => plain(cluster::DEFINITION, cluster::definition),
        "Lease" => plain(cluster::LEASE, cluster::lease),
        "ControllerRevision" => plain(workloads::REVISION, workloads::revision),
        "DaemonSet" => plain(workloads::DAEMON_SET, workloads::daemon_set),
        "Deployment" => plain(workloads::DEPLOYMENT, workloads::deployment),
        "Job" => plain(workloads::JOB, workloads::job),
        "ReplicaSet" => plain(workloads::REPLICA_SET, workloads::replica_set),
        "StatefulSet" => plain(workloads::STATEFUL_SET, workloads::stateful_set),
        "Role" | "ClusterRole" => plain(access::ROLE, access::role),
        "LimitRange" => plain(access::RANGE, access::role),
        "ResourceQuota" => plain(cluster::QUOTA, cluster::quota),
        "PriorityClass" => plain(cluster::PRIORITY_CLASS, cluster::priority_class),
        "RoleBinding" | "ClusterRoleBinding" => plain(access::BINDING, access::binding),
        _ => plain(&[NAME, AGE], |object, now| {
            vec![name(object), age::of(object, now)]
        }),
    }
}

/// The text at `path`, or empty.
fn at<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

/// The text at `path`, or `otherwise` when there is none.
fn at_or<'a>(object: &'a Value, path: &str, otherwise: &'a str) -> &'a str {
    match at(object, path) {
        "" => otherwise,
        text => text,
    }
}

fn flag(object: &Value, path: &str) -> Option<bool> {
    object.pointer(path).and_then(Value::as_bool)
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object
        .pointer(path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn name(object: &Value) -> Value {
    at(object, "/metadata/name").into()
}

fn deleting(object: &Value) -> bool {
    !at(object, "/metadata/deletionTimestamp").is_empty()
}

//! Rows of the kinds that make pods.

use super::{AGE, Column, NAME, age, at, deleting, list, name, number, text, wide};
use crate::selector::written;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) const DEPLOYMENT: &[Column] = &[
    NAME,
    text("Ready"),
    text("Up-to-date"),
    text("Available"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub(super) fn deployment(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = layout(deployment);
    vec![
        name(deployment),
        ready_of_wanted(deployment),
        count(deployment, "/status/updatedReplicas"),
        count(deployment, "/status/availableReplicas"),
        age::of(deployment, now),
        containers,
        images,
        written(&deployment["spec"]["selector"]).into(),
    ]
}

pub(super) const REPLICA_SET: &[Column] = &[
    NAME,
    number("Desired"),
    number("Current"),
    number("Ready"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub(super) fn replica_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = layout(set);
    vec![
        name(set),
        count(set, "/spec/replicas"),
        count(set, "/status/replicas"),
        count(set, "/status/readyReplicas"),
        age::of(set, now),
        containers,
        images,
        selector(set),
    ]
}

pub(super) const STATEFUL_SET: &[Column] =
    &[NAME, text("Ready"), AGE, wide("Containers"), wide("Images")];

pub(super) fn stateful_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = layout(set);
    let ready = ready_of_wanted(set);
    vec![name(set), ready, age::of(set, now), containers, images]
}

pub(super) const DAEMON_SET: &[Column] = &[
    NAME,
    number("Desired"),
    number("Current"),
    number("Ready"),
    number("Up-to-date"),
    number("Available"),
    text("Node Selector"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub(super) fn daemon_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = layout(set);
    let labels = json!({ "matchLabels": set.pointer("/spec/template/spec/nodeSelector") });
    vec![
        name(set),
        count(set, "/status/desiredNumberScheduled"),
        count(set, "/status/currentNumberScheduled"),
        count(set, "/status/numberReady"),
        count(set, "/status/updatedNumberScheduled"),
        count(set, "/status/numberAvailable"),
        none_if_empty(written(&labels)),
        age::of(set, now),
        containers,
        images,
        selector(set),
    ]
}

pub(super) const JOB: &[Column] = &[
    NAME,
    text("Status"),
    text("Completions"),
    text("Duration"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub(super) fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images] = layout(job);
    let succeeded = count(job, "/status/succeeded");
    let completions = match (
        job["spec"]["completions"].as_i64(),
        job["spec"]["parallelism"].as_i64(),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(at_once)) if at_once > 1 => format!("{succeeded}/1 of {at_once}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let took = match (
        at(job, "/status/startTime"),
        at(job, "/status/completionTime").parse::<Timestamp>(),
    ) {
        ("", _) => String::new(),
        (start, Ok(end)) => age::since(start, end),
        (start, Err(_)) => age::since(start, now),
    };
    vec![
        name(job),
        job_status(job).into(),
        completions.into(),
        took.into(),
        age::of(job, now),
        containers,
        images,
        selector(job),
    ]
}

fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| {
        let mut conditions = list(job, "/status/conditions").iter();
        conditions.any(|c| c["type"] == kind && c["status"] == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if deleting(job) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub(super) const REVISION: &[Column] = &[NAME, text("Controller"), text("Revision"), AGE];

pub(super) fn revision(revision: &Value, now: Timestamp) -> Vec<Value> {
    let owners = list(revision, "/metadata/ownerReferences");
    let controller = owners.iter().find(|owner| owner["controller"] == true);
    let controller = controller.map_or("<none>".to_owned(), |owner| {
        let version = at(owner, "/apiVersion");
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let kind = at(owner, "/kind").to_lowercase();
        let dot = if group.is_empty() { "" } else { "." };
        format!("{kind}{dot}{group}/{}", at(owner, "/name"))
    });
    vec![
        name(revision),
        controller.into(),
        count(revision, "/revision"),
        age::of(revision, now),
    ]
}

fn count(object: &Value, path: &str) -> Value {
    object
        .pointer(path)
        .and_then(Value::as_i64)
        .unwrap_or(0)
        .into()
}

fn ready_of_wanted(object: &Value) -> Value {
    let ready = count(object, "/status/readyReplicas");
    let wanted = count(object, "/spec/replicas");
    format!("{ready}/{wanted}").into()
}

/// The names and the images of the template's containers.
fn layout(object: &Value) -> [Value; 2] {
    ["/name", "/image"].map(|field| {
        let containers = list(object, "/spec/template/spec/containers").iter();
        let all: Vec<&str> = containers.map(|container| at(container, field)).collect();
        all.join(",").into()
    })
}

fn selector(object: &Value) -> Value {
    none_if_empty(written(&object["spec"]["selector"]))
}

fn none_if_empty(text: String) -> Value {
    if text.is_empty() {
        "<none>".into()
    } else {
        text.into()
    }
}

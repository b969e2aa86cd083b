//! What the API server holds, without what differs from one life to the next: made-up names, uids,
//! versions, times, and who wrote what. Two lives that were led in the same way are then equal.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::stage::Stage;

/// Of a claim's conditions, the one that tells since when the claim has not been used: Kubernetes'
/// own controllers write it at once, ours after a rest. Nothing depends on it.
const UNUSED: &str = "Unused";
/// Members of objects that say when, by whom or in which version.
const PASSING: [&str; 10] = [
    "creationTime",
    "creationTimestamp",
    "deletionTimestamp",
    "lastPhaseTransitionTime",
    "lastProbeTime",
    "lastTransitionTime",
    "managedFields",
    "resourceVersion",
    "generation",
    "time",
];
/// What annotations begin with that our controllers write for themselves.
const NOTES: [&str; 2] = ["binder.orlop.dev/", "snapshot-controller.orlop.dev/"];
/// How long nothing must have changed before it counts as settled.
const STILL: Duration = Duration::from_secs(3);

/// What was made up, and what it is called in a likeness.
pub(super) type Names = BTreeMap<String, String>;

/// What is read, once it doesn't change any more.
pub(super) async fn settled<F>(stage: &Stage, read: impl Fn() -> F) -> Result<Value>
where
    F: Future<Output = Result<Value>>,
{
    stage
        .bounded("nothing changes any more", async {
            let mut last = read().await?;
            let mut since = tokio::time::Instant::now();
            while since.elapsed() < STILL {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let now = read().await?;
                if now != last {
                    (last, since) = (now, tokio::time::Instant::now());
                }
            }
            Ok(last)
        })
        .await
}

/// Takes the likeness of what there is at a stop, or compares it with an earlier life's.
pub(super) async fn stop<F>(
    stage: &Stage,
    what: &str,
    stops: &mut Vec<Value>,
    like: Option<&[Value]>,
    read: impl Fn() -> F,
) -> Result<()>
where
    F: Future<Output = Result<Value>>,
{
    match like.and_then(|like| like.get(stops.len())) {
        None => stops.push(settled(stage, read).await?),
        Some(expected) => {
            stage.until_equal(what, expected, read).await?;
            stops.push(expected.clone());
        }
    }
    Ok(())
}

/// Where two readings differ: a line for each, with what was expected and what was found.
pub(super) fn differences(path: &str, expected: &Value, found: &Value, all: &mut Vec<String>) {
    match (expected, found) {
        _ if expected == found => {}
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            for name in names {
                let (one, other) = (&expected[name.as_str()], &found[name.as_str()]);
                differences(&format!("{path}/{name}"), one, other, all);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            let lacks = one.iter().filter(|item| !other.contains(item));
            all.extend(lacks.map(|item| format!("{path}: not there: {item}")));
            let more = other.iter().filter(|item| !one.contains(item));
            all.extend(more.map(|item| format!("{path}: not expected: {item}")));
        }
        _ => all.push(format!("{path}: expected {expected}, found {found}")),
    }
}

/// Objects by their names, plain.
pub(super) fn objects(all: &[Value], names: &Names) -> Value {
    let alike = all
        .iter()
        .map(|object| (title(object, names), plain(object, names)));
    alike.collect::<Map<_, _>>().into()
}

/// An event in one line.
pub(super) fn line(event: &Value, names: &Names) -> String {
    let words = ["/type", "/reason", "/source/component", "/message"];
    let about = text(event, "/involvedObject/name");
    let words = words.map(|pointer| text(event, pointer));
    rename(&format!("{about}: {}", words.join(" ")), names)
}

fn title(object: &Value, names: &Names) -> String {
    rename(&text(object, "/metadata/name"), names)
}

pub(super) fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

pub(super) fn rename(text: &str, names: &Names) -> String {
    names
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// An object without what passes, and with made-up names replaced.
pub(super) fn plain(value: &Value, names: &Names) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !PASSING.contains(&name.as_str()))
            .filter(|(name, _)| !NOTES.iter().any(|note| name.starts_with(note)))
            .map(|(name, member)| (rename(name, names), plain(member, names)))
            .filter(|(_, member)| *member != json!([]))
            // Where there were notes of ours and nothing else.
            .filter(|(name, member)| name != "annotations" || *member != json!({}))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items
            .iter()
            .filter(|item| item["type"] != UNUSED)
            .map(|item| plain(item, names))
            .collect(),
        Value::String(text) => rename(text, names).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

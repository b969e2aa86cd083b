//! Field selectors: `metadata.name=a,status.phase!=b`, on the few fields each
//! kind can be selected by.

use super::SelectorError;
use crate::kinds::KindInfo;
use serde_json::Value;
use std::borrow::Cow;

/// A parsed field selector; the default selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    field: String,
    value: String,
    equal: bool,
    /// Whether the field is just what it is called.
    plain: bool,
}

impl Fields {
    /// Parses a selector for a kind; the empty text selects everything.
    pub fn parse(kind: &KindInfo, text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in split(text) {
            if let Some(escape) = bad_escape(part) {
                return Err(SelectorError::Escape(escape));
            }
            let mut requirement =
                requirement(part).ok_or_else(|| SelectorError::MalformedFields {
                    text: text.to_owned(),
                    part: part.to_owned(),
                })?;
            supported(kind, &requirement.field)?;
            requirement.plain = kind.custom.is_some();
            requirements.push(requirement);
        }
        Ok(Self { requirements })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value a field must have, when the selector pins it: a watch of one
    /// name need not look at other objects.
    pub fn pinned(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equal && r.field == field)
            .map(|r| r.value.as_str())
    }

    /// Whether the object's fields satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|r| (read(object, r) == r.value.as_str()) == r.equal)
    }
}

/// Splits at commas that no backslash precedes.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn requirement(part: &str) -> Option<Requirement> {
    let at = part.find(['=', '!'])?;
    let (field, rest) = part.split_at(at);
    let (equal, value) = match rest {
        rest if rest.starts_with("!=") => (false, &rest[2..]),
        rest if rest.starts_with("==") => (true, &rest[2..]),
        rest if rest.starts_with('=') => (true, &rest[1..]),
        _ => return None,
    };
    Some(Requirement {
        field: field.trim().to_owned(),
        value: unescape(value)?,
        equal,
        plain: false,
    })
}

/// What is escaped and needs none.
fn bad_escape(text: &str) -> Option<String> {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            match chars.next() {
                Some('\\' | ',' | '=') => {}
                other => return Some(other.map(String::from).unwrap_or_default()),
            }
        }
    }
    None
}

fn unescape(text: &str) -> Option<String> {
    let mut result = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                c @ ('\\' | ',' | '=') => result.push(c),
                _ => return None,
            },
            ',' | '=' => return None,
            c => result.push(c),
        }
    }
    Some(result)
}

fn supported(kind: &KindInfo, field: &str) -> Result<(), SelectorError> {
    if field == "metadata.name" || (field == "metadata.namespace" && kind.namespaced) {
        return Ok(());
    }
    match selectable(kind) {
        [] if kind.custom.is_none() => Err(SelectorError::OnlyMetadata(field.to_owned())),
        fields if fields.contains(&field) => Ok(()),
        _ => Err(SelectorError::Unsupported(field.to_owned())),
    }
}

/// What a kind can be selected by besides its name and namespace.
fn selectable(kind: &KindInfo) -> &'static [&'static str] {
    if let Some(custom) = kind.custom {
        return custom.selectable;
    }
    match (kind.group, kind.kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        _ => &[],
    }
}

/// A field's value as selectors see it: what is not there is empty.
fn read<'a>(object: &'a Value, requirement: &Requirement) -> Cow<'a, str> {
    let field = requirement.field.as_str();
    let at = |path: &str| match object.pointer(path) {
        Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
        Some(Value::Bool(flag)) => Cow::Owned(flag.to_string()),
        Some(Value::Number(number)) => Cow::Owned(number.to_string()),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => Cow::Borrowed(""),
    };
    match field {
        field if requirement.plain => at(&format!("/{}", field.replace('.', "/"))),
        "spec.hostNetwork" | "spec.unschedulable" => {
            let value = at(&format!("/{}", field.replace('.', "/")));
            if value.is_empty() {
                Cow::Borrowed("false")
            } else {
                value
            }
        }
        "status.podIPs" => {
            let ips = object.pointer("/status/podIPs").and_then(Value::as_array);
            let ips = ips.into_iter().flatten().filter_map(|ip| ip["ip"].as_str());
            Cow::Owned(ips.collect::<Vec<_>>().join(","))
        }
        // Both event APIs write the reporter; old writers fill in the source only.
        "source" => match at("/source/component") {
            Cow::Borrowed("") => at("/reportingComponent"),
            component => component,
        },
        _ => at(&format!("/{}", field.replace('.', "/"))),
    }
}

//! The `scale` subresource: how many pods a workload has and shall have, in one shape for all
//! kinds, so that a client can change the number without knowing the kind.

use axum::body::Body;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::negotiate::Answer;
use super::writes::PATCH_TYPES;
use super::writing::Writing;
use super::{Api, reply};
use crate::kinds::KindInfo;
use crate::patch;
use crate::refusal::{FieldError, Refusal};
use crate::registry::{Part, PatchFormat, Served as _, Target, text};
use crate::selector::written;

/// The scale of an object.
fn scale(kind: &KindInfo, object: &Value) -> Value {
    let mut metadata = serde_json::Map::new();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let places = Places::of(kind);
    let selector = match &places.selector {
        Selector::Structured => written(&object["spec"]["selector"]),
        Selector::Text(path) => text(object, path).to_owned(),
        Selector::None => String::new(),
    };
    let mut status = json!({ "replicas": number(places.present) });
    if !selector.is_empty() || kind.custom.is_none() {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": { "replicas": number(places.wanted) },
        "status": status,
    })
}

/// Where a kind keeps what a scale shows.
struct Places<'k> {
    wanted: &'k str,
    present: &'k str,
    selector: Selector<'k>,
}

enum Selector<'k> {
    /// As workloads have it.
    Structured,
    /// Written out, at this place.
    Text(&'k str),
    None,
}

impl<'k> Places<'k> {
    fn of(kind: &'k KindInfo) -> Self {
        match kind.custom.and_then(|custom| custom.scale.as_ref()) {
            Some(paths) => Self {
                wanted: &paths.wanted,
                present: &paths.present,
                selector: paths
                    .selector
                    .as_deref()
                    .map_or(Selector::None, Selector::Text),
            },
            None => Self {
                wanted: "/spec/replicas",
                present: "/status/replicas",
                selector: Selector::Structured,
            },
        }
    }
}

/// The object with another scale; a version or uid that the scale names is a precondition.
fn rescaled(target: &Target, object: &Value, scale: &Value) -> Result<Value, Refusal> {
    let replicas = &scale["spec"]["replicas"];
    let number = match replicas {
        Value::Null => Some(0),
        number => number.as_i64(),
    };
    let Some(number) = number.filter(|number| *number >= 0) else {
        if target.kind.custom.is_some() {
            let field = Places::of(target.kind).wanted.replace('/', ".");
            let error = FieldError::invalid(field, replicas, "should be a non-negative integer");
            return Err(Refusal::invalid(target.kind, &target.name, &[error]));
        }
        let why = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", replicas, why);
        let named = format!("Scale.autoscaling {:?}", target.name);
        return Err(Refusal::invalid_named(&named, &[error]));
    };
    let mut changed = object.clone();
    put(&mut changed, Places::of(target.kind).wanted, number.into());
    for field in ["resourceVersion", "uid"] {
        if let Some(value) = scale["metadata"].get(field) {
            changed["metadata"][field] = value.clone();
        }
    }
    Ok(changed)
}

/// Puts a value at a place, making the objects that lead to it.
fn put(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for name in path.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[name];
    }
    *at = value;
}

impl Api {
    /// Reads the scale of an object.
    pub(super) fn scale(&self, target: &Target, answer: Answer) -> Result<Response<Body>, Refusal> {
        let stored = self.registry.store.get(&target.key());
        let stored = stored.ok_or_else(|| Refusal::not_found(target.kind, &target.name))?;
        let scale = scale(target.kind, &stored.parsed(target.kind));
        Ok(reply::object(StatusCode::OK, answer.encoding, &scale))
    }

    /// Changes the scale of an object by PUT or PATCH.
    pub(super) async fn rescale(
        &self,
        writing: &Writing<'_>,
        method: &Method,
    ) -> Result<Response<Body>, Refusal> {
        let name = writing.route.name.as_deref();
        let target = writing.target(name.ok_or_else(Refusal::method_not_allowed)?);
        let (wanted, format) = match *method {
            Method::PUT => (writing.object()?.value, "whole"),
            Method::PATCH => {
                let patch = writing.patch(PatchFormat::Merge)?;
                (patch.value, writing.content_type())
            }
            _ => return Err(Refusal::method_not_allowed()),
        };
        if text(&wanted, "/kind") != "Scale" && format == "whole" {
            let why = "the object of this subresource is a Scale of autoscaling/v1";
            return Err(Refusal::bad_request(why));
        }
        let edit = |object: &Value| {
            let current = scale(target.kind, object);
            let next = match format {
                "whole" => Ok(wanted.clone()),
                "application/json-patch+json" => patch::json(&current, &wanted),
                // A scale has no lists: both merge alike.
                "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                    Ok(patch::merge(&current, &wanted))
                }
                _ => return Err(Refusal::unsupported_media_type(PATCH_TYPES)),
            };
            let next = next.map_err(|error| Refusal::unprocessable(error.to_string()))?;
            rescaled(&target, object, &next)
        };
        let options = writing.options();
        let written = self
            .registry
            .change(&target, Part::Main, &options, edit)
            .await?;
        let scale = scale(target.kind, &written.object().parsed(target.kind));
        Ok(reply::object(
            StatusCode::OK,
            writing.answer.encoding,
            &scale,
        ))
    }
}

//! POST, PUT, PATCH and DELETE.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::negotiate::{Answer, Encoding};
use super::pieces::ListText;
use super::query::Query;
use super::route::Route;
use super::{Api, read, reply};
use crate::access::User;
use crate::admission;
use crate::document::{self, Document, Form, Source, Unreadable};
use crate::kinds::KindInfo;
use crate::protobuf::{self, DecodeError};
use crate::refusal::{FieldError, Refusal};
use crate::registry::{
    DeleteOptions, Deletion, Part, PatchFormat, Propagation, Served as _, Target, Warnings,
    WriteOptions, Written, text,
};
use crate::schema::FieldValidation;

const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const DEFINED_BODY_TYPES: &str = "application/json, application/yaml";
pub(super) const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
    application/strategic-merge-patch+json, application/apply-patch+yaml";
const DEFINED_PATCH_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// A request that writes.
pub(super) struct Writing<'r> {
    pub(super) route: &'r Route,
    pub(super) query: &'r Query,
    pub(super) answer: Answer,
    pub(super) headers: &'r HeaderMap,
    pub(super) user: &'r User,
    pub(super) body: &'r Bytes,
}

impl Writing<'_> {
    pub(super) fn options(&self) -> WriteOptions {
        let agent = self
            .headers
            .get("user-agent")
            .and_then(|agent| agent.to_str().ok());
        let manager = if self.query.field_manager.is_empty() {
            agent
                .and_then(|agent| agent.split('/').next())
                .filter(|name| !name.is_empty())
        } else {
            Some(self.query.field_manager.as_str())
        };
        WriteOptions {
            dry_run: self.query.dry_run,
            manager: manager.unwrap_or("unknown").to_owned(),
            validation: self.query.field_validation,
            source: Source::default(),
            warnings: Warnings::default(),
        }
    }

    pub(super) fn content_type(&self) -> &str {
        let header = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        header
            .and_then(|value| value.split(';').next())
            .unwrap_or("")
            .trim()
    }

    /// The body as an object.
    pub(super) fn object(&self) -> Result<Document, Refusal> {
        let defined = self.route.kind.custom.is_some();
        let form = match self.content_type() {
            "" | "application/json" => Form::Json,
            "application/yaml" => Form::Yaml,
            protobuf::MEDIA_TYPE if !defined => {
                let value = protobuf::decode(self.body).map_err(|error| match error {
                    DecodeError::Kind(_) => {
                        let mut refusal = Refusal::unsupported_media_type(BODY_TYPES);
                        refusal.message = error.to_string();
                        refusal
                    }
                    DecodeError::Magic | DecodeError::Malformed | DecodeError::Deep => {
                        Refusal::bad_request(error.to_string())
                    }
                })?;
                let source = Source::default();
                return Ok(Document { value, source });
            }
            _ if defined => return Err(Refusal::unsupported_media_type(DEFINED_BODY_TYPES)),
            _ => return Err(Refusal::unsupported_media_type(BODY_TYPES)),
        };
        let mut read =
            document::read(form, self.body).map_err(|why| self.unreadable(form, &why))?;
        if form == Form::Yaml && read.value.is_null() {
            read.value = json!({});
        }
        Ok(read)
    }

    fn unreadable(&self, form: Form, why: &Unreadable) -> Refusal {
        // What is no Secret may hold one all the same, and this text ends up in logs.
        let sent = match std::str::from_utf8(self.body) {
            Ok("") => "<empty>",
            Ok(text) if text.len() < 64 && self.route.kind.kind != "Secret" => text,
            _ => "...",
        };
        let kind = self.route.kind.kind;
        let step = match form {
            Form::Json => "couldn't get version/kind; json parse error: ",
            Form::Yaml => "",
        };
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {step}{why} ({sent})"
        ))
    }

    /// The body as a patch.
    pub(super) fn patch(&self, format: PatchFormat) -> Result<Document, Refusal> {
        let read = document::read(Form::Json, self.body).map_err(|why| match (format, why) {
            (_, Unreadable::Deep) => Refusal::bad_request(Unreadable::Deep.to_string()),
            (PatchFormat::Merge, _) => Refusal::bad_request("invalid JSON patch"),
            (_, why) => Refusal::bad_request(format!("error decoding patch: {why}")),
        })?;
        check_patch(format, &read.value)?;
        let Document { value, source } = read;
        let source = match format {
            PatchFormat::Json => source.of_json_patch(&value),
            PatchFormat::Merge | PatchFormat::Strategic => source.of_patch(),
        };
        Ok(Document { value, source })
    }

    /// The body as a configuration to apply.
    fn configuration(&self) -> Result<Document, Refusal> {
        let read = document::read(Form::Yaml, self.body)
            .map_err(|why| Refusal::bad_request(format!("error decoding YAML: {why}")))?;
        let repeated = read.source.yaml_error();
        if self.query.field_validation == FieldValidation::Strict && !repeated.is_empty() {
            return Err(Refusal::bad_request(format!(
                "error strict decoding patch: error converting YAML to JSON: {repeated}"
            )));
        }
        Ok(read)
    }

    /// A `Status` that says it was done.
    fn success(&self, code: StatusCode, details: Option<Value>) -> Response<Body> {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
        });
        match details {
            Some(details) => status["details"] = details,
            None => status["code"] = code.as_u16().into(),
        }
        reply::object(code, self.answer.encoding, &status)
    }

    pub(super) fn target(&self, name: &str) -> Target {
        Target {
            kind: self.route.kind,
            namespace: self.route.namespace.clone(),
            name: name.to_owned(),
        }
    }

    fn part(&self) -> Result<Part, Refusal> {
        match self.route.subresource.as_deref() {
            None => Ok(Part::Main),
            Some("status") => Ok(Part::Status),
            Some("finalize") => Ok(Part::Finalize),
            Some(_) => Err(Refusal::method_not_allowed()),
        }
    }
}

impl Api {
    fn written(
        &self,
        writing: &Writing<'_>,
        written: &Written,
        options: &WriteOptions,
    ) -> Response<Body> {
        let code = match written {
            Written::Created(_) => StatusCode::CREATED,
            Written::Updated(_) => StatusCode::OK,
        };
        let body = self.render(
            writing.route.kind,
            writing.answer,
            writing.query,
            written.object(),
        );
        let content_type = writing.answer.encoding.content_type();
        let response = reply::with_type(code, content_type, body);
        reply::warned(response, &options.warnings.take())
    }

    pub(super) async fn post(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        let route = writing.route;
        let options = writing.options();
        match (route.name.as_deref(), route.subresource.as_deref()) {
            (None, _) if route.kind.namespaced && route.namespace.is_empty() => {
                Err(Refusal::method_not_allowed())
            }
            (None, _) if !route.kind.is_stored() => {
                let answer = self.gate().review(
                    route.kind,
                    &route.namespace,
                    writing.user,
                    writing.object()?.value,
                )?;
                let encoding = writing.answer.encoding;
                Ok(reply::object(StatusCode::CREATED, encoding, &answer))
            }
            (None, _) => {
                let Document {
                    value: object,
                    source,
                } = writing.object()?;
                let options = WriteOptions { source, ..options };
                self.gate()
                    .escalates(writing.user, &writing.target(""), &object)?;
                let created = self
                    .registry
                    .create(route.kind, &route.namespace, object, &options)
                    .await?;
                Ok(self.written(writing, &created, &options))
            }
            (Some(pod), Some("binding")) => {
                let binding = writing.object()?.value;
                self.registry
                    .bind(&writing.target(pod), &binding, &options)
                    .await?;
                Ok(writing.success(StatusCode::CREATED, None))
            }
            (Some(account), Some("token")) => {
                let request = writing.object()?.value;
                let token = self.gate().token(&writing.target(account), request)?;
                let encoding = writing.answer.encoding;
                Ok(reply::object(StatusCode::CREATED, encoding, &token))
            }
            (Some(pod), Some("eviction")) => {
                let eviction = writing.object()?.value;
                let options = DeleteOptions::parse(&eviction["deleteOptions"])?;
                self.registry.delete(&writing.target(pod), &options).await?;
                Ok(writing.success(StatusCode::CREATED, None))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    pub(super) async fn put(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        let name = writing
            .route
            .name
            .as_deref()
            .ok_or_else(Refusal::method_not_allowed)?;
        let part = writing.part()?;
        let Document {
            value: object,
            source,
        } = writing.object()?;
        let options = WriteOptions {
            source,
            ..writing.options()
        };
        let target = writing.target(name);
        self.gate().escalates(writing.user, &target, &object)?;
        let written = self
            .registry
            .replace(&target, part, object, &options)
            .await?;
        Ok(self.written(writing, &written, &options))
    }

    pub(super) async fn patch(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        let name = writing
            .route
            .name
            .as_deref()
            .ok_or_else(Refusal::method_not_allowed)?;
        let part = writing.part()?;
        let target = writing.target(name);
        let options = writing.options();
        let format = match writing.content_type() {
            "application/json-patch+json" => PatchFormat::Json,
            "application/merge-patch+json" => PatchFormat::Merge,
            "application/strategic-merge-patch+json" if target.kind.custom.is_none() => {
                PatchFormat::Strategic
            }
            "application/apply-patch+yaml" => {
                if writing.query.field_manager.is_empty() {
                    let why = "is required for apply patch";
                    let error = FieldError::required("fieldManager", why);
                    return Err(Refusal::invalid_named("PatchOptions.meta.k8s.io", &[error]));
                }
                let Document { value, source } = writing.configuration()?;
                let applied = (value, writing.query.force);
                let options = WriteOptions { source, ..options };
                if self.gate().must_watch(writing.user, &target) {
                    let dry = options.clone().dry();
                    let tried = self.registry.apply(&target, part, applied.clone(), &dry);
                    let outcome = tried.await?.object().value();
                    self.gate().escalates(writing.user, &target, &outcome)?;
                }
                let written = self
                    .registry
                    .apply(&target, part, applied, &options)
                    .await?;
                return Ok(self.written(writing, &written, &options));
            }
            "application/strategic-merge-patch+json" => {
                return Err(Refusal::unsupported_media_type(DEFINED_PATCH_TYPES));
            }
            _ => {
                let mut refusal = Refusal::unsupported_media_type(PATCH_TYPES);
                "415: Unsupported Media Type".clone_into(&mut refusal.message);
                refusal.details = json!({});
                return Err(refusal);
            }
        };
        let Document {
            value: patch,
            source,
        } = writing.patch(format)?;
        let options = WriteOptions { source, ..options };
        if self.gate().must_watch(writing.user, &target) {
            let dry = options.clone().dry();
            let tried = self.registry.patch(&target, part, (format, &patch), &dry);
            let outcome = tried.await?.object().value();
            self.gate().escalates(writing.user, &target, &outcome)?;
        }
        let written = self
            .registry
            .patch(&target, part, (format, &patch), &options)
            .await?;
        Ok(self.written(writing, &written, &options))
    }

    pub(super) async fn delete(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        if writing.route.subresource.is_some() {
            return Err(Refusal::method_not_allowed());
        }
        let options = delete_options(writing)?;
        let Some(name) = writing.route.name.as_deref() else {
            return self.delete_collection(writing, &options).await;
        };
        let target = writing.target(name);
        admission::admit_delete(&target)?;
        let deletion = self.registry.delete(&target, &options).await?;
        Ok(match &deletion {
            Deletion::Removed(object) if !returns_deleted_object(target.kind) => {
                let mut details =
                    json!({ "name": name, "kind": target.kind.plural, "uid": object.meta.uid });
                if !target.kind.group.is_empty() {
                    details["group"] = target.kind.group.into();
                }
                writing.success(StatusCode::OK, Some(details))
            }
            Deletion::Removed(object) | Deletion::Pending(object) => {
                let body = self.render(target.kind, writing.answer, writing.query, object);
                let content_type = writing.answer.encoding.content_type();
                reply::with_type(StatusCode::OK, content_type, body)
            }
        })
    }

    async fn delete_collection(
        &self,
        writing: &Writing<'_>,
        options: &DeleteOptions,
    ) -> Result<Response<Body>, Refusal> {
        let (kind, namespace) = (writing.route.kind, writing.route.namespace.as_str());
        let served = kind.verbs.contains(&"deletecollection");
        if !served || kind.namespaced && namespace.is_empty() {
            return Err(Refusal::method_not_allowed());
        }
        let selection = writing.query.selection(kind)?;
        let page = self
            .page((kind, namespace), writing.query, &selection)
            .await?;
        let mut items = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            let value = object.parsed(kind);
            let name = text(&value, "/metadata/name");
            match self.registry.delete(&writing.target(name), options).await {
                Ok(_) => items.push(Arc::clone(object)),
                // Somebody else was faster.
                Err(refusal) if refusal.reason == "NotFound" => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let revision = self.registry.store.read().revision().to_string();
        let mut metadata = json!({ "resourceVersion": revision });
        if kind.custom.is_some() {
            metadata["continue"] = "".into();
        }
        let encoding = writing.answer.encoding;
        let body = match encoding {
            Encoding::Json => {
                let pieces: Vec<_> = ListText::new(kind, &metadata, items).collect();
                pieces.concat()
            }
            Encoding::Protobuf => read::list_message(kind, &metadata, &items),
        };
        let content_type = encoding.content_type();
        Ok(reply::with_type(StatusCode::OK, content_type, body))
    }
}

/// Refuses what has not even the shape of a patch, in the words that clients know.
fn check_patch(format: PatchFormat, patch: &Value) -> Result<(), Refusal> {
    let found = match patch {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let map = "map[string]interface {}";
    let why = match (format, patch) {
        (PatchFormat::Json, Value::Array(_))
        | (PatchFormat::Merge | PatchFormat::Strategic, Value::Object(_)) => return Ok(()),
        (PatchFormat::Merge, Value::Null) => "Invalid JSON Patch".to_owned(),
        (PatchFormat::Json, _) => format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type \
             []handlers.jsonPatchOp"
        ),
        (PatchFormat::Merge, _) => format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type {map}"
        ),
        (PatchFormat::Strategic, _) => {
            format!("json: cannot unmarshal {found} into Go value of type {map}")
        }
    };
    Err(Refusal::bad_request(why))
}

fn delete_options(writing: &Writing<'_>) -> Result<DeleteOptions, Refusal> {
    let body = if writing.body.is_empty() {
        Value::Null
    } else {
        writing.object()?.value
    };
    let mut options = DeleteOptions::parse(&body)?;
    options.dry_run |= writing.query.dry_run;
    options.grace = options.grace.or(writing.query.grace);
    if writing.query.orphan_dependents {
        options.propagation = Propagation::Orphan;
    }
    if !writing.query.propagation.is_empty() {
        options.propagation = Propagation::parse(&writing.query.propagation)?;
    }
    Ok(options)
}

/// Kinds whose deletion answers with the object, as the original's do.
fn returns_deleted_object(kind: &KindInfo) -> bool {
    kind.custom.is_none() && kind.group == "storage.k8s.io"
        || matches!(
            kind.kind,
            "Pod"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "ResourceQuota"
                | "ServiceAccount"
        )
}

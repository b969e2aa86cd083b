//! A request that writes: what its body and its parameters say.

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::negotiate::Answer;
use super::query::Query;
use super::reply;
use super::route::Route;
use crate::access::User;
use crate::document::{self, Document, Form, Source, Unreadable};
use crate::protobuf::{self, DecodeError};
use crate::refusal::Refusal;
use crate::registry::{
    DeleteOptions, Part, PatchFormat, Propagation, Target, Warnings, WriteOptions,
};
use crate::schema::FieldValidation;

const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const DEFINED_BODY_TYPES: &str = "application/json, application/yaml";

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
    pub(super) fn configuration(&self) -> Result<Document, Refusal> {
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
    pub(super) fn success(&self, code: StatusCode, details: Option<Value>) -> Response<Body> {
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

    pub(super) fn part(&self) -> Result<Part, Refusal> {
        match self.route.subresource.as_deref() {
            None => Ok(Part::Main),
            Some("status") => Ok(Part::Status),
            Some("finalize") => Ok(Part::Finalize),
            Some(_) => Err(Refusal::method_not_allowed()),
        }
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

/// What a deletion asks for, in its body or its parameters.
pub(super) fn delete_options(writing: &Writing<'_>) -> Result<DeleteOptions, Refusal> {
    let body = if writing.body.is_empty() {
        Value::Null
    } else {
        writing.object()?.value
    };
    // Whoever sent something else meant something else.
    let kind = match &body {
        Value::Null => "",
        Value::Object(fields) => fields
            .get("kind")
            .map_or("", |kind| kind.as_str().unwrap_or("?")),
        _ => "?",
    };
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type DeleteOptions): its kind is \
             {kind:?}"
        )));
    }
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

//! Why a request is refused, as clients see it: a `Status` object with the original's
//! reasons, codes and texts.
//!
//! Messages name objects and fields, never the contents of a Secret.

mod field;

use std::fmt;

use http::StatusCode;
use serde_json::{Value, json};

use crate::access::{Act, User};
use crate::kinds::KindInfo;
use crate::store::{Health, WriteError};

pub use field::{Fault, FieldError};

/// A refused request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: StatusCode,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// What it is about.
    pub details: Value,
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    fn about(mut self, kind: &KindInfo, name: &str) -> Self {
        self.details = details(kind, name);
        self
    }

    /// With details that say nothing, where the original has such.
    fn about_nothing(mut self) -> Self {
        self.details = json!({});
        self
    }

    /// No such object.
    pub fn not_found(kind: &KindInfo, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
    }

    /// No such path.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about_nothing()
    }

    /// The name is taken.
    pub fn already_exists(kind: &KindInfo, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    /// The object changed since the client read it.
    pub fn modified(kind: &KindInfo, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest \
                   version and try again";
        Self::conflict(kind, name, why)
    }

    /// The request contradicts the object's state.
    pub fn conflict(kind: &KindInfo, name: &str, why: impl fmt::Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.resource()
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// Server-side apply met fields of other managers.
    pub fn apply_conflict(message: impl Into<String>, causes: &[Value]) -> Self {
        let mut refusal = Self::new(StatusCode::CONFLICT, "Conflict", message);
        refusal.details = json!({ "causes": causes });
        refusal
    }

    /// A precondition on the uid or the revision doesn't hold.
    pub fn precondition(kind: &KindInfo, name: &str, mismatch: &PreconditionMismatch) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {mismatch}",
            kind.kind
        );
        let mut refusal = Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name);
        refusal.details["kind"] = kind.kind.into();
        refusal
    }

    /// Admission says no.
    pub fn forbidden(kind: &KindInfo, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(kind, name)
    }

    /// No role allows it.
    pub(crate) fn not_allowed(user: &User, act: &Act<'_>) -> Self {
        let who = format!("User {:?} cannot", user.name);
        let (message, details) = match *act {
            Act::Resource {
                verb,
                group,
                resource,
                namespace,
                name,
            } => {
                let plural = resource.split('/').next().unwrap_or(resource);
                let title = match (group, name) {
                    ("", "") => plural.to_owned(),
                    (group, "") => format!("{plural}.{group}"),
                    ("", name) => format!("{plural} {name:?}"),
                    (group, name) => format!("{plural}.{group} {name:?}"),
                };
                let place = match namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let message = format!(
                    "{title} is forbidden: {who} {verb} resource {resource:?} in API group \
                     {group:?} {place}"
                );
                let mut details = json!({ "kind": plural });
                for (field, value) in [("name", name), ("group", group)] {
                    if !value.is_empty() {
                        details[field] = value.into();
                    }
                }
                (message, details)
            }
            Act::Path { verb, path } => {
                (format!("forbidden: {who} {verb} path {path:?}"), json!({}))
            }
        };
        let mut refusal = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        refusal.details = details;
        refusal
    }

    /// Fields of a body that is no object of its own are wrong.
    pub(crate) fn invalid_named(subject: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{subject} \"\" is invalid: {text}");
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let (kind, group) = subject.split_once('.').unwrap_or((subject, ""));
        refusal.details = json!({ "kind": kind, "group": group, "causes": causes });
        refusal
    }

    /// Fields are wrong.
    pub fn invalid(kind: &KindInfo, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let subject = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("{subject} \"{name}\" is invalid: {text}");
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        refusal.details = details(kind, name);
        refusal.details["kind"] = kind.kind.into();
        refusal.details["causes"] = causes.into();
        refusal
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A patch can't be applied to the object.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about_nothing()
    }

    /// The resource has no such verb.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about_nothing()
    }

    /// The kind is about to be gone.
    pub fn terminating() -> Self {
        let message = "create not allowed while custom resource definition is terminating";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// Nobody known sent this.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// None of the accepted formats can be served.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, \
                       application/json;stream=watch";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The body's format isn't understood.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted}"
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// The body, or what it makes of an object, is too long.
    pub fn too_large(why: impl fmt::Display) -> Self {
        let message = format!("Request entity too large: {why}");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// The headers are too long.
    pub fn headers_too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "RequestHeaderFieldsTooLarge",
            format!("Request header fields too large: limit is {limit}"),
        )
    }

    /// The revision asked for is forgotten.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The revision asked for doesn't exist yet.
    pub fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut refusal = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        refusal.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        refusal
    }

    /// The server has enough to do.
    pub fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        let code = StatusCode::TOO_MANY_REQUESTS;
        let mut refusal = Self::new(code, "TooManyRequests", message);
        refusal.details = json!({ "retryAfterSeconds": 1 });
        refusal
    }

    /// It takes longer than the client or the server wants to wait. A write may still happen.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).about_nothing()
    }

    /// What the original has no reason for, and calls a failure of its own.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// A patch makes something of an object that its kind has no place for. The object itself
    /// isn't repeated: it may be a Secret.
    pub fn patch(kind: &KindInfo, name: &str, why: &str) -> Self {
        let subject = format!("{}/{name}", kind.kind);
        let error = FieldError::invalid("patch", &subject.into(), why);
        let message = format!(" \"\" is invalid: {error}");
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        refusal.details = json!({ "causes": [error.cause()] });
        refusal
    }

    /// The server itself failed.
    pub fn internal(message: impl fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// The store refused a write for a reason that isn't about the object.
    pub fn store(error: &WriteError) -> Self {
        match error {
            WriteError::Closed => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                error.to_string(),
            ),
            WriteError::Unwritten(Health::Full(_)) => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "InsufficientStorage",
                error.to_string(),
            ),
            other => Self::internal(other),
        }
    }

    /// Whether it is for want of room alone.
    pub(crate) fn is_for_room(&self) -> bool {
        self.code == StatusCode::INSUFFICIENT_STORAGE
    }

    /// The object of kind `Status` that says so.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

fn details(kind: &KindInfo, name: &str) -> Value {
    let mut details = json!({ "kind": kind.plural });
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    details
}

/// A precondition that doesn't hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreconditionMismatch {
    /// Another object has taken the name.
    Uid {
        /// The uid asked for.
        wanted: String,
        /// The uid found.
        found: String,
    },
    /// The object changed.
    ResourceVersion {
        /// The version asked for.
        wanted: String,
        /// The version found.
        found: String,
    },
}

impl fmt::Display for PreconditionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid { wanted, found } => {
                write!(
                    f,
                    "the UID in the precondition ({wanted}) does not match the UID in record \
                     ({found}). The object might have been deleted and then recreated"
                )
            }
            Self::ResourceVersion { wanted, found } => write!(
                f,
                "the ResourceVersion in the precondition ({wanted}) does not match the \
                 ResourceVersion in record ({found}). The object might have been modified"
            ),
        }
    }
}

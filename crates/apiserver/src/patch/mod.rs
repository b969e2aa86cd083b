//! How a request changes an object: the four patch formats and the upkeep of
//! `metadata.managedFields`.
//!
//! Everything here is a pure function over JSON. Nothing here knows of storage,
//! of HTTP or of the time: the caller says when now is.

mod json;
mod merge;

pub use json::json;
pub use merge::merge;

use crate::kinds::KindInfo;
use serde_json::Value;

/// Why a patch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The patch document itself is not a patch: HTTP 400.
    #[error("the patch is malformed: {0}")]
    Malformed(String),
    /// The patch does not fit the object it was sent for: HTTP 422.
    #[error("the server rejected our request due to an error in our request: {0}")]
    Unprocessable(String),
}

/// Why a server-side apply is refused.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Fields belong to other managers and `force` was not set: HTTP 409.
    #[error("{}", conflict_text(.0))]
    Conflict(Vec<FieldConflict>),
    /// The applied configuration does not fit the kind's schema: HTTP 400 or 422.
    #[error("{0}")]
    Invalid(String),
}

/// One field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// Who owns the field, as upstream describes a manager.
    pub manager: String,
    /// Path such as `.spec.replicas`.
    pub field: String,
}

fn conflict_text(_conflicts: &[FieldConflict]) -> String {
    String::new()
}

/// Who applies, and how.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions<'a> {
    /// The `fieldManager` parameter.
    pub manager: &'a str,
    /// Take fields from other managers instead of failing.
    pub force: bool,
    /// `status` when the request went to the subresource.
    pub subresource: Option<&'a str>,
    /// RFC 3339 time for the managedFields entry.
    pub now: &'a str,
}

/// Who updates.
#[derive(Debug, Clone, Copy)]
pub struct UpdateOptions<'a> {
    /// The `fieldManager` parameter, or the user agent up to its first slash.
    pub manager: &'a str,
    /// `status` when the request went to the subresource.
    pub subresource: Option<&'a str>,
    /// RFC 3339 time for the managedFields entry.
    pub now: &'a str,
}

/// Applies a strategic merge patch.
pub fn strategic(kind: &KindInfo, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let _ = kind;
    Ok(merge(current, patch))
}

/// Applies a configuration server-side.
pub fn server_side_apply(
    kind: &KindInfo,
    current: Option<&Value>,
    applied: &Value,
    options: ApplyOptions<'_>,
) -> Result<Value, ApplyError> {
    let _ = (kind, options);
    Ok(merge(current.unwrap_or(&Value::Null), applied))
}

/// Keeps `metadata.managedFields` of `after` true after an ordinary write.
pub fn track_update(
    kind: &KindInfo,
    before: Option<&Value>,
    after: &mut Value,
    options: UpdateOptions<'_>,
) {
    let _ = (kind, before, after, options);
}

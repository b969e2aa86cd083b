//! How a request changes an object: the four patch formats and the upkeep of
//! `metadata.managedFields`.
//!
//! Everything here is a pure function over JSON. Nothing here knows of storage,
//! of HTTP or of the time: the caller says when now is.

mod apply;
mod fields;
mod json;
mod merge;
mod strategic;

pub use apply::{server_side_apply, track_update};
pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The patch document itself is not a patch: HTTP 400.
    #[error("the patch is malformed: {0}")]
    Malformed(String),
    /// The patch takes the object's name away: HTTP 400.
    #[error("the name of the object ({0} based on URL) was undeterminable: name must be provided")]
    Nameless(String),
    /// The patch has more operations than are taken: HTTP 413.
    #[error("{0}")]
    TooLarge(String),
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
    /// The applied configuration has fields that the kind doesn't: HTTP 500, as the original
    /// has it.
    #[error("{0}")]
    Untyped(String),
    /// The applied configuration makes no sense: HTTP 400.
    #[error("{0}")]
    Invalid(String),
}

/// One field that another manager owns; becomes a cause of the Status, with
/// `reason: FieldManagerConflict` and `message: conflict with <manager>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// Who owns the field, such as `"kubectl" using v1`.
    pub manager: String,
    /// Path such as `.spec.replicas`.
    pub field: String,
}

/// Clients show this text as it is: one line for one conflict, a list of
/// fields under each manager otherwise.
fn conflict_text(conflicts: &[FieldConflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.field
        );
    }
    let mut lines = Vec::new();
    let mut manager = None;
    for conflict in conflicts {
        if manager != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            manager = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
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

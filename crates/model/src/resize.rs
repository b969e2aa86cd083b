//! What the parts of an expansion write on a claim: conditions, as pieces of a strategic
//! merge patch. Conditions merge by their type, so that nobody touches another's.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::claim::ResizeStatus;

/// Condition: an expansion is under way.
pub const RESIZING: &str = "Resizing";
/// Condition: the node's part is missing.
pub const FILE_SYSTEM_RESIZE_PENDING: &str = "FileSystemResizePending";
/// Condition: the backend's part failed.
pub const CONTROLLER_RESIZE_ERROR: &str = "ControllerResizeError";
/// Condition: the node's part failed.
pub const NODE_RESIZE_ERROR: &str = "NodeResizeError";

/// Every condition that speaks of an expansion.
const ALL: [&str; 4] = [
    RESIZING,
    FILE_SYSTEM_RESIZE_PENDING,
    CONTROLLER_RESIZE_ERROR,
    NODE_RESIZE_ERROR,
];

/// A condition that holds.
pub fn holds(type_: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": type_,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    })
}

/// A condition that is taken away.
pub fn gone(type_: &str) -> Value {
    json!({"$patch": "delete", "type": type_})
}

/// The status of an expansion that begins: its goal is on record, older news are gone.
pub fn begun(size: &crate::Quantity, now: Timestamp) -> Value {
    let mut conditions: Vec<Value> = ALL[1..].iter().copied().map(gone).collect();
    conditions.push(holds(RESIZING, "", "", now));
    json!({
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": {"storage": ResizeStatus::ControllerResizeInProgress},
        "conditions": conditions,
    })
}

/// The status of an expansion that is over.
pub fn over(size: &crate::Quantity) -> Value {
    json!({
        "capacity": {"storage": size},
        "allocatedResourceStatuses": {"storage": null},
        "conditions": ALL.map(gone),
    })
}

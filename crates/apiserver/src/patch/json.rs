//! JSON patch, RFC 6902.

use super::PatchError;
use serde_json::Value;

/// Applies a list of operations; all of them or none.
pub fn json(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::Malformed(error.to_string()))?;
    let mut result = current.clone();
    json_patch::patch(&mut result, &operations)
        .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    Ok(result)
}

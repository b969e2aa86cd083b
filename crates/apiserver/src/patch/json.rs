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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_in_order_or_not_at_all() {
        let current = json!({"metadata": {"finalizers": ["a", "b"]}});
        let remove = json!([
            {"op": "test", "path": "/metadata/finalizers/0", "value": "a"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
            {"op": "add", "path": "/metadata/labels", "value": {"x/y": "1"}},
            {"op": "replace", "path": "/metadata/labels/x~1y", "value": "2"},
        ]);
        assert_eq!(
            json(&current, &remove).expect("applies"),
            json!({"metadata": {"finalizers": ["b"], "labels": {"x/y": "2"}}})
        );
        let stale = json!([
            {"op": "remove", "path": "/metadata/finalizers/0"},
            {"op": "test", "path": "/metadata/finalizers/0", "value": "a"},
        ]);
        assert!(matches!(
            json(&current, &stale),
            Err(PatchError::Unprocessable(_))
        ));
    }

    #[test]
    fn what_is_no_list_of_operations_is_malformed() {
        for patch in [
            json!({}),
            json!([{"op": "fly", "path": "/a"}]),
            json!([{"op": "add"}]),
        ] {
            assert!(matches!(
                json(&json!({}), &patch),
                Err(PatchError::Malformed(_))
            ));
        }
    }
}

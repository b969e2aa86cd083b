//! JSON patch, RFC 6902.

use super::PatchError;
use serde_json::Value;

/// The original's limits. A patch may copy what an earlier operation copied, and so grow
/// the object exponentially; neither may it keep the server busy with operations alone.
const MOST_OPERATIONS: usize = 10_000;
const MOST_COPIED: usize = 3 << 20;
/// What a patch may nest, as a body may.
const DEEPEST: usize = crate::document::DEEPEST;

/// Applies a list of operations; all of them or none.
pub fn json(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|error| match patch {
            Value::Array(_) => PatchError::Unprocessable(error.to_string()),
            _ => PatchError::Malformed(error.to_string()),
        })?;
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut result = current.clone();
    let mut copied = 0;
    for operation in operations.0 {
        if let json_patch::PatchOperation::Copy(copy) = &operation {
            let source = copy.from.resolve(&result).ok();
            copied += source.map_or(0, |value| value.to_string().len());
            if copied > MOST_COPIED {
                return Err(PatchError::Unprocessable(format!(
                    "the patch copies more than {MOST_COPIED} bytes"
                )));
            }
        }
        if depth_after(&result, &operation) > DEEPEST {
            return Err(PatchError::Unprocessable(format!(
                "the patch nests the object more than {DEEPEST} levels deep"
            )));
        }
        let operation = leniently(&result, operation);
        json_patch::patch(&mut result, &[operation])
            .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    }
    Ok(result)
}

/// An operation as the original takes it, to whom a member of an object that is not there is
/// null: it can be replaced, copied, and tested for being null. Removed it can't be, nor is
/// there an element of a list that is not there.
fn leniently(object: &Value, operation: json_patch::PatchOperation) -> json_patch::PatchOperation {
    use json_patch::{AddOperation, PatchOperation as Op, TestOperation};
    let missing = |path: &json_patch::jsonptr::PointerBuf| {
        let (parent, _) = path.split_back()?;
        let inside = parent.resolve(object).ok()?.is_object();
        (inside && path.resolve(object).is_err()).then_some(())
    };
    match operation {
        Op::Replace(replace) if missing(&replace.path).is_some() => Op::Add(AddOperation {
            path: replace.path,
            value: replace.value,
        }),
        Op::Copy(copy) if missing(&copy.from).is_some() => Op::Add(AddOperation {
            path: copy.path,
            value: Value::Null,
        }),
        // The whole is always what it is.
        Op::Test(test) if test.value.is_null() && missing(&test.path).is_some() => {
            Op::Test(TestOperation {
                path: json_patch::jsonptr::PointerBuf::default(),
                value: object.clone(),
            })
        }
        other => other,
    }
}

/// How deep what an operation puts in its place lies at most.
fn depth_after(object: &Value, operation: &json_patch::PatchOperation) -> usize {
    use json_patch::PatchOperation as Op;
    let (path, put) = match operation {
        Op::Add(add) => (&add.path, Some(&add.value)),
        Op::Replace(replace) => (&replace.path, Some(&replace.value)),
        Op::Move(from) => (&from.path, from.from.resolve(object).ok()),
        Op::Copy(from) => (&from.path, from.from.resolve(object).ok()),
        Op::Remove(_) | Op::Test(_) => return 0,
    };
    path.count() + put.map_or(0, crate::document::depth)
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
    fn a_missing_member_is_null_to_all_but_remove_as_with_the_original() {
        let current = json!({"spec": {"a": 1}, "list": ["x"]});
        for (operation, expected) in [
            (
                json!({"op": "replace", "path": "/spec/b", "value": 2}),
                Some(json!({"spec": {"a": 1, "b": 2}, "list": ["x"]})),
            ),
            (
                json!({"op": "replace", "path": "/status", "value": {}}),
                Some(json!({"spec": {"a": 1}, "list": ["x"], "status": {}})),
            ),
            (
                json!({"op": "replace", "path": "/list/0", "value": "y"}),
                Some(json!({"spec": {"a": 1}, "list": ["y"]})),
            ),
            (
                json!({"op": "test", "path": "/spec/b", "value": null}),
                Some(current.clone()),
            ),
            (
                json!({"op": "copy", "from": "/spec/b", "path": "/spec/a"}),
                Some(json!({"spec": {"a": null}, "list": ["x"]})),
            ),
            (
                json!({"op": "replace", "path": "/list/1", "value": "y"}),
                None,
            ),
            (
                json!({"op": "replace", "path": "/list/-", "value": "y"}),
                None,
            ),
            (
                json!({"op": "replace", "path": "/status/phase", "value": "y"}),
                None,
            ),
            (
                json!({"op": "replace", "path": "/spec/a/b", "value": "y"}),
                None,
            ),
            (json!({"op": "remove", "path": "/spec/b"}), None),
            (json!({"op": "remove", "path": "/list/1"}), None),
            (
                json!({"op": "move", "from": "/spec/b", "path": "/spec/a"}),
                None,
            ),
            (json!({"op": "test", "path": "/spec/b", "value": 1}), None),
            (
                json!({"op": "test", "path": "/status/phase", "value": null}),
                None,
            ),
        ] {
            let patched = json(&current, &json!([operation])).ok();
            assert_eq!(patched, expected, "{operation}");
        }
    }

    #[test]
    fn what_is_no_list_is_malformed_and_what_is_no_operation_does_not_fit() {
        let refused = json(&json!({}), &json!({}));
        assert!(matches!(refused, Err(PatchError::Malformed(_))));
        for patch in [json!([{"op": "fly", "path": "/a"}]), json!([{"op": "add"}])] {
            let refused = json(&json!({}), &patch);
            assert!(
                matches!(refused, Err(PatchError::Unprocessable(_))),
                "{patch}"
            );
        }
    }

    #[test]
    fn a_patch_that_copies_its_copies_is_refused_before_it_fills_the_memory() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": "x".repeat(1024)})];
        for n in 0..40 {
            let path = format!("/copy-{n}");
            operations.push(json!({"op": "copy", "from": "", "path": path}));
        }
        let refused = json(&json!({}), &Value::Array(operations));
        assert!(matches!(refused, Err(PatchError::Unprocessable(_))));
        let many = vec![json!({"op": "test", "path": "", "value": {}}); MOST_OPERATIONS + 1];
        let refused = json(&json!({}), &Value::Array(many));
        assert!(matches!(refused, Err(PatchError::TooLarge(_))));
    }

    #[test]
    fn a_patch_that_nests_without_end_is_refused() {
        let nested = (0..60).fold(json!(1), |inner, _| json!({ "a": inner }));
        let path = "/a".repeat(50);
        let deep = json!([
            {"op": "add", "path": "/a", "value": nested},
            {"op": "add", "path": path, "value": nested},
        ]);
        assert!(matches!(
            json(&json!({}), &deep),
            Err(PatchError::Unprocessable(_))
        ));
        let moved = json!([
            {"op": "add", "path": "/a", "value": nested},
            {"op": "add", "path": "/b", "value": nested},
            {"op": "move", "from": "/b", "path": path},
        ]);
        assert!(matches!(
            json(&json!({}), &moved),
            Err(PatchError::Unprocessable(_))
        ));
    }
}

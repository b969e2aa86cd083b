//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

/// Merges `patch` into `current`: null removes, maps merge, the rest replaces.
pub fn merge(current: &Value, patch: &Value) -> Value {
    let mut result = current.clone();
    merge_into(&mut result, patch);
    result
}

/// The same in place: what the patch doesn't name is not copied once per level.
fn merge_into(current: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        current.clone_from(patch);
        return;
    };
    if !current.is_object() {
        *current = Value::Object(Map::new());
    }
    let Value::Object(current) = current else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            current.remove(key);
        } else if let Some(there) = current.get_mut(key) {
            merge_into(there, value);
        } else {
            let mut new = Value::Null;
            merge_into(&mut new, value);
            current.insert(key.clone(), new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (current, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!(["a"]),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
        ] {
            assert_eq!(merge(&current, &patch), result);
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[a-c]".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(current in any_value(), patch in any_value()) {
            let once = merge(&current, &patch);
            prop_assert_eq!(merge(&once, &patch), once);
        }

        #[test]
        fn an_empty_patch_changes_no_object(fields in prop::collection::btree_map("[a-c]", any_value(), 0..4)) {
            let current = Value::Object(fields.into_iter().collect());
            prop_assert_eq!(merge(&current, &json!({})), current);
        }
    }
}

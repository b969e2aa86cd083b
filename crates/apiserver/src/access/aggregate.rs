//! Roles that gather the rules of others, by the others' labels. Pure.

use serde_json::Value;

use crate::registry::text;

/// The rules that a role is to have: those of the roles that it selects, in the order of its
/// selectors and of their names, each once. None if it gathers nothing.
pub(crate) fn gathered(role: &Value, all: &[Value]) -> Option<Vec<Value>> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
    let mut others: Vec<&Value> = all
        .iter()
        .filter(|other| text(other, "/metadata/name") != text(role, "/metadata/name"))
        .collect();
    others.sort_by_key(|other| text(other, "/metadata/name"));
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        for other in others.iter().filter(|other| selects(selector, other)) {
            for rule in other["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

/// Whether a selector of labels means an object; an empty one means every object.
fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let mut wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"].as_array();
    wanted.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().flatten().all(|one| {
            let own = labels.get(text(one, "/key"));
            let listed = one["values"].as_array().zip(own);
            let listed = listed.is_some_and(|(values, own)| values.contains(own));
            match text(one, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => own.is_some(),
                "DoesNotExist" => own.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, labels: &Value, rules: &Value) -> Value {
        json!({ "metadata": { "name": name, "labels": labels }, "rules": rules })
    }

    #[test]
    fn rules_are_gathered_by_label_each_once_and_never_from_oneself() {
        let mut all = vec![
            role("z", &json!({ "to": "a" }), &json!(["1", "2"])),
            role("b", &json!({ "to": "a" }), &json!(["2", "3"])),
            role("c", &json!({ "to": "other" }), &json!(["4"])),
            role("me", &json!({ "to": "a" }), &json!(["5"])),
        ];
        all[3]["aggregationRule"] =
            json!({ "clusterRoleSelectors": [{ "matchLabels": { "to": "a" } }] });
        let gathered = super::gathered(&all[3], &all).unwrap();
        assert_eq!(json!(gathered), json!(["2", "3", "1"]));
        assert_eq!(super::gathered(&all[0], &all), None);
    }

    #[test]
    fn selectors_select_by_expressions_too() {
        let object = json!({ "metadata": { "labels": { "a": "1" } } });
        for (key, operator, values, meant) in [
            ("a", "In", json!(["1", "2"]), true),
            ("a", "In", json!(["2"]), false),
            ("b", "In", json!(["2"]), false),
            ("a", "NotIn", json!(["1"]), false),
            ("b", "NotIn", json!(["1"]), true),
            ("a", "Exists", json!(null), true),
            ("b", "DoesNotExist", json!(null), true),
            ("a", "Near", json!(["1"]), false),
        ] {
            let one = json!({ "key": key, "operator": operator, "values": values });
            let selector = json!({ "matchExpressions": [one] });
            assert_eq!(selects(&selector, &object), meant, "{selector}");
        }
        assert!(selects(&json!({}), &object));
    }
}

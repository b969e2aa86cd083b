//! An object's own `labelSelector` as the text that a request would carry.

use serde_json::Value;

/// The text of a `LabelSelector`, in the order of its keys; empty if it selects everything.
pub(crate) fn written(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or("");
        parts.push((key.clone(), format!("{key}={value}")));
    }
    let expressions = selector["matchExpressions"].as_array();
    for expression in expressions.into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or("");
        let mut values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_is_written_as_kubectl_reads_it() {
        let selector = json!({
            "matchLabels": { "b": "1" },
            "matchExpressions": [
                { "key": "c", "operator": "In", "values": ["z", "y"] },
                { "key": "a", "operator": "DoesNotExist" },
                { "key": "d", "operator": "NotIn", "values": ["x"] },
                { "key": "e", "operator": "Exists" },
            ],
        });
        let text = "!a,b=1,c in (y,z),d notin (x),e";
        assert_eq!(written(&selector), text);
        assert!(crate::selector::Labels::parse(text).is_ok());
        assert_eq!(written(&json!({})), "");
    }
}

//! Paths into the schema of a defined kind: the fields that its objects can be selected by,
//! and those that a rule speaks of.

use serde_json::Value;

use super::kept;
use crate::refusal::{Fault, FieldError};
use crate::registry::text;

/// How many fields a kind may be selected by.
const MOST: usize = 8;

/// The fields of `selectableFields`, as selectors name them.
pub(super) fn parse(fields: &Value) -> &'static [&'static str] {
    let fields = fields.as_array().into_iter().flatten();
    let fields = fields.filter_map(|field| text(field, "/jsonPath").strip_prefix('.'));
    fields.map(kept).collect::<Vec<_>>().leak()
}

/// What is wrong with `selectableFields`.
pub(super) fn errors(fields: &Value, schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for (at, field) in fields.as_array().into_iter().flatten().enumerate() {
        let (place, value) = (format!("{path}[{at}].jsonPath"), &field["jsonPath"]);
        let given = text(field, "/jsonPath");
        if given.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let (found, inner) = match walk(given, schema, Brackets::Refused) {
            Ok(found) => found,
            Err(why) => {
                let detail = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid(place, value, detail));
                continue;
            }
        };
        if found == "metadata" || found.starts_with("metadata.") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(place.clone(), value, detail));
        }
        if !matches!(text(inner, "/type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string \
                          fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(place.clone(), value, detail));
        }
        if known.contains(&found) {
            errors.push(FieldError::new(&place, Fault::Duplicate(value.clone())));
        } else {
            known.push(found);
        }
    }
    if known.len() > MOST {
        let fault = Fault::TooMany(known.len(), MOST as u64);
        errors.push(FieldError::new(path, fault));
    }
    errors
}

/// Whether a path may name a field in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brackets {
    Taken,
    Refused,
}

/// Follows `.a.b['c']` through a schema: the path as errors write it, and what it leads to.
pub(super) fn walk<'s>(
    path: &str,
    schema: &'s Value,
    brackets: Brackets,
) -> Result<(String, &'s Value), String> {
    let end = || "unexpected end of JSON path".to_owned();
    let mut at = schema;
    let mut written = String::new();
    let mut tokens = split(path).into_iter();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            "[" if brackets == Brackets::Refused => {
                return Err("array notation is not allowed".to_owned());
            }
            "[" => {
                let quoted = tokens.next().ok_or_else(end)?;
                let inner = quoted.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
                let inner = inner
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                match tokens.next() {
                    None => return Err(end()),
                    Some("]") => inner.replace("\\'", "'").replace("\\\\", "\\"),
                    Some(other) => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        if at["properties"].is_object() {
            at = at["properties"]
                .get(&name)
                .ok_or("does not refer to a valid field")?;
            if !written.is_empty() {
                written.push('.');
            }
            written.push_str(&name);
        } else if at["additionalProperties"].is_object() {
            at = &at["additionalProperties"];
            written.push_str(&format!("[{name}]"));
        } else {
            return Err("does not refer to a valid field".to_owned());
        }
    }
    Ok((written, at))
}

/// Delimiters on their own, quoted texts whole, and what is between.
fn split(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = if let Some(quoted) = rest.strip_prefix('\'') {
            let mut escaped = false;
            let close = quoted.char_indices().find(|(_, c)| match c {
                '\'' if !escaped => true,
                c => {
                    escaped = *c == '\\';
                    false
                }
            });
            close.map_or(rest.len(), |(at, _)| at + 2)
        } else {
            match rest.find(['.', '[', ']']) {
                Some(0) => 1,
                Some(at) => at,
                None => rest.len(),
            }
        };
        tokens.push(&rest[..end]);
        rest = &rest[end..];
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_through_properties_and_maps() {
        let schema = json!({ "properties": {
            "spec": { "properties": { "a.b": { "type": "string" }, "m": {
                "additionalProperties": { "type": "integer" },
            } } },
        } });
        for (path, found) in [
            (".spec", Ok("spec")),
            (".spec['a.b']", Ok("spec.a.b")),
            (".spec.m['x']", Ok("spec.m[x]")),
            (".spec.none", Err("does not refer to a valid field")),
            ("spec", Err("expected [ or . but got: spec")),
            (".spec.", Err("unexpected end of JSON path")),
            (".spec[0]", Err("expected single quoted string but got 0")),
        ] {
            let walked = walk(path, &schema, Brackets::Taken);
            let walked = walked.as_ref().map(|(path, _)| path.as_str());
            assert_eq!(walked.map_err(String::as_str), found, "{path}");
        }
        let refused = walk(".spec['a.b']", &schema, Brackets::Refused);
        assert_eq!(refused.unwrap_err(), "array notation is not allowed");
    }
}

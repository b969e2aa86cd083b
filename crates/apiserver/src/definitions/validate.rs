//! Does an object keep to its kind's schema? The texts are the original's.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::formats;
use super::rules::{self, Subject};
use super::structural::{List, Structural, Type, join};
use crate::refusal::{Fault, FieldError};

/// What is wrong with a value, and with how it changed.
pub(super) fn validate(schema: &Structural, old: Option<&Value>, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, "", old, value, &mut errors);
    // Rules are about objects whose parts are what they should be.
    if schema.any_rules && errors.iter().any(is_blocking) {
        let detail = "some validation rules were not checked because the object was invalid; \
                      correct the existing errors to complete validation";
        errors.push(FieldError::invalid("<nil>", &Value::Null, detail));
    } else {
        let mut budget = rules::BUDGET;
        let place = Place {
            schema,
            old,
            value,
            same: false,
        };
        // What ran out of budget said so.
        let _ = apply_rules(&place, "", &mut budget, &mut errors);
    }
    errors
}

fn is_blocking(error: &FieldError) -> bool {
    matches!(
        error.fault,
        Fault::NotSupported(..)
            | Fault::Required
            | Fault::TooLong(_)
            | Fault::TooMany(..)
            | Fault::TypeInvalid(_)
    )
}

fn walk(
    schema: &Structural,
    path: &str,
    old: Option<&Value>,
    value: &Value,
    errors: &mut Vec<FieldError>,
) {
    // A definition that became stricter must not keep the rest of an object from changing.
    if old == Some(value) {
        return;
    }
    if value.is_null() && (schema.nullable || schema.kind.is_none() && !schema.int_or_string) {
        return;
    }
    if let Some(error) = mistyped(schema, path, value) {
        errors.push(error);
        if schema.kind == Some(Type::Integer) && value.is_number() {
            errors.push(unchecked(path, "(default format)"));
        }
        return;
    }
    if schema.embedded {
        for name in ["apiVersion", "kind"] {
            if value[name].as_str().unwrap_or("").is_empty() {
                errors.push(FieldError::required(join(path, name), ""));
            }
        }
    }
    if schema.limits.format == "int32"
        && value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_err())
    {
        errors.push(unchecked(path, "with format int32"));
    }
    limits(schema, path, value, errors);
    match value {
        Value::Object(map) => {
            for name in &schema.required {
                if !map.contains_key(name) {
                    errors.push(FieldError::required(join(path, name), ""));
                }
            }
            for (name, value) in map {
                if let Some(inner) = schema.property(name) {
                    let old = old.and_then(|old| old.get(name));
                    walk(inner, &join(path, name), old, value, errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(inner) = &schema.items {
                let past = Past::new(schema, old);
                for (at, value) in list.iter().enumerate() {
                    let old = past.of(value);
                    walk(inner, &format!("{path}[{at}]"), old, value, errors);
                }
            }
            duplicates(schema, path, list, errors);
        }
        _ => {}
    }
    junctions(schema, path, value, errors);
}

/// A number that doesn't fit, as the original tells it: of no field.
fn unchecked(path: &str, how: &str) -> FieldError {
    let detail = format!("Checked value must be of type integer {how} in {path}");
    FieldError::invalid("<nil>", &"".into(), detail)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mistyped(schema: &Structural, path: &str, value: &Value) -> Option<FieldError> {
    let found = type_name(value);
    let (fits, wanted) = if schema.int_or_string {
        (matches!(found, "integer" | "string"), "integer,string")
    } else {
        let wanted = schema.kind?;
        let fits = match wanted {
            Type::Number => matches!(found, "number" | "integer"),
            // 1.0 is an integer to JSON schema.
            Type::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            other => found == other.name(),
        };
        (fits, wanted.name())
    };
    (!fits).then(|| {
        let detail = format!("{path} in body must be of type {wanted}: \"{found}\"");
        FieldError {
            field: path.to_owned(),
            fault: Fault::TypeInvalid(found.into()),
            detail,
        }
    })
}

fn limits(schema: &Structural, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let limits = &schema.limits;
    let says = |what: String| FieldError::invalid(path, value, format!("{path} in body {what}"));
    match value {
        Value::String(text) => {
            let length = text.chars().count() as u64;
            if let Some(least) = limits.length.0.filter(|least| length < *least) {
                errors.push(says(format!("should be at least {least} chars long")));
            }
            if let Some((pattern, compiled)) = &limits.pattern
                && !compiled.is_match(text)
            {
                errors.push(says(format!("should match '{pattern}'")));
            }
            if !limits.format.is_empty() && !formats::fits(&limits.format, text) {
                errors.push(FieldError {
                    field: path.to_owned(),
                    fault: Fault::TypeInvalid(value.clone()),
                    detail: format!("{path} in body must be of type {}: {value}", limits.format),
                });
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(0.0);
            match limits.minimum {
                Some((least, true)) if number <= least => {
                    errors.push(says(format!("should be greater than {least}")));
                }
                Some((least, false)) if number < least => {
                    errors.push(says(format!("should be greater than or equal to {least}")));
                }
                _ => {}
            }
            match limits.maximum {
                Some((most, true)) if number >= most => {
                    errors.push(says(format!("should be less than {most}")))
                }
                Some((most, false)) if number > most => {
                    errors.push(says(format!("should be less than or equal to {most}")));
                }
                _ => {}
            }
            if let Some(of) = limits.multiple.filter(|of| (number / of).fract() != 0.0) {
                errors.push(says(format!("should be a multiple of {of}")));
            }
        }
        Value::Array(list) => {
            let count = list.len() as u64;
            if let Some(least) = limits.items.0.filter(|least| count < *least) {
                let detail = format!("{path} in body should have at least {least} items");
                errors.push(FieldError::invalid(path, &count.into(), detail));
            }
            let mut seen = HashSet::new();
            if limits.unique && !list.iter().all(|item| seen.insert(item.to_string())) {
                errors.push(says("shouldn't contain duplicates".to_owned()));
            }
        }
        Value::Object(map) => {
            let count = map.len() as u64;
            if let Some(least) = limits.properties.0.filter(|least| count < *least) {
                let detail = format!("{path} in body should have at least {least} properties");
                errors.push(FieldError::invalid(path, &count.into(), detail));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    if !limits.any.is_empty() && !limits.any.contains(value) {
        let supported = limits.any.iter().map(ToString::to_string).collect();
        let fault = Fault::NotSupported(value.clone(), supported);
        errors.push(FieldError::new(path, fault));
    }
    let (count, most) = match value {
        Value::String(text) => {
            if let Some(most) = limits.length.1
                && text.chars().count() as u64 > most
            {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                errors.push(FieldError::new(path, Fault::TooLong(most)));
            }
            return;
        }
        Value::Array(list) => (list.len(), limits.items.1),
        Value::Object(map) => (map.len(), limits.properties.1),
        _ => return,
    };
    if let Some(most) = most.filter(|most| count as u64 > *most) {
        errors.push(FieldError::new(path, Fault::TooMany(count, most)));
    }
}

fn duplicates(schema: &Structural, path: &str, list: &[Value], errors: &mut Vec<FieldError>) {
    let identity = |item: &Value| match &schema.list {
        List::Atomic => None,
        List::Set => Some(item.clone()),
        List::Keyed(keys) => Some(key_of(schema, keys, item)),
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (at, value) in list.iter().enumerate() {
        let Some(value) = identity(value) else {
            return;
        };
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        // Of many that are the same, the second is told.
        if *times == 2 {
            let path = format!("{path}[{at}]");
            errors.push(FieldError::new(&path, Fault::Duplicate(value)));
        }
    }
}

/// What tells the items of a keyed list apart.
fn key_of(schema: &Structural, keys: &[String], item: &Value) -> Value {
    let default = |key: &String| {
        let items = schema.items.as_ref()?;
        items.properties.get(key)?.default.clone()
    };
    let value = |key: &String| {
        let value = item.get(key).cloned().or_else(|| default(key));
        (key.clone(), value.unwrap_or(Value::Null))
    };
    Value::Object(keys.iter().map(value).collect())
}

fn junctions(schema: &Structural, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let failures = |inner: &Structural| {
        let mut failed = Vec::new();
        walk(inner, path, None, value, &mut failed);
        failed
    };
    let invalid =
        |what: &str| FieldError::invalid(path, &"".into(), format!("\"{path}\" must {what}"));
    for inner in &schema.all_of {
        let failed = failures(inner);
        if !failed.is_empty() {
            errors.push(invalid("validate all the schemas (allOf)"));
            errors.extend(failed);
        }
    }
    // int-or-string says so by an anyOf of its own.
    if !schema.any_of.is_empty() && !schema.int_or_string {
        let all: Vec<_> = schema.any_of.iter().map(failures).collect();
        if all.iter().all(|failed| !failed.is_empty()) {
            errors.push(invalid("validate at least one schema (anyOf)"));
            errors.extend(all.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    if !schema.one_of.is_empty() {
        let all: Vec<_> = schema.one_of.iter().map(failures).collect();
        match all.iter().filter(|failed| failed.is_empty()).count() {
            1 => {}
            0 => {
                errors.push(invalid(
                    "validate one and only one schema (oneOf). Found none valid",
                ));
                errors.extend(all.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
            count => errors.push(invalid(&format!(
                "validate one and only one schema (oneOf). Found {count} valid alternatives"
            ))),
        }
    }
    if schema
        .not
        .as_deref()
        .is_some_and(|inner| failures(inner).is_empty())
    {
        errors.push(invalid("not validate the schema (not)"));
    }
}

/// Applies rules to a value and to all within. What stays as it was is asked only whether it
/// may change so. The error is that there is no budget left.
fn apply_rules(
    place: &Place<'_>,
    path: &str,
    budget: &mut u64,
    errors: &mut Vec<FieldError>,
) -> Result<(), ()> {
    let Place {
        schema,
        old,
        value,
        same,
    } = *place;
    if value.is_null() || !schema.any_rules {
        return Ok(());
    }
    let same = same || old == Some(value);
    let subject = Subject {
        schema,
        value,
        old,
        same,
    };
    rules::apply(subject, path, budget, errors)?;
    let inner = |schema, old, value| Place {
        schema,
        old,
        value,
        same,
    };
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(schema) = schema.property(name) {
                    let old = old.and_then(|old| old.get(name));
                    let path = match schema_is_named(place.schema, name) {
                        true => join(path, name),
                        false => format!("{path}[{name}]"),
                    };
                    apply_rules(&inner(schema, old, value), &path, budget, errors)?;
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else {
                return Ok(());
            };
            let past = Past::new(schema, old);
            for (at, value) in list.iter().enumerate() {
                let old = past.of(value);
                let path = format!("{path}[{at}]");
                apply_rules(&inner(items, old, value), &path, budget, errors)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// A value within an object, and what it was.
struct Place<'v> {
    schema: &'v Structural,
    old: Option<&'v Value>,
    value: &'v Value,
    /// Whether something around it stayed as it was.
    same: bool,
}

fn schema_is_named(schema: &Structural, name: &str) -> bool {
    schema.properties.contains_key(name)
}

/// What the items of a list were before; only items with keys can be told by.
struct Past<'v> {
    schema: &'v Structural,
    items: HashMap<String, &'v Value>,
}

impl<'v> Past<'v> {
    fn new(schema: &'v Structural, old: Option<&'v Value>) -> Self {
        let mut items = HashMap::new();
        if let List::Keyed(keys) = &schema.list {
            for old in old.and_then(Value::as_array).into_iter().flatten() {
                let key = key_of(schema, keys, old).to_string();
                items.entry(key).or_insert(old);
            }
        }
        Self { schema, items }
    }

    fn of(&self, value: &Value) -> Option<&'v Value> {
        match &self.schema.list {
            List::Keyed(keys) if !self.items.is_empty() => {
                let key = key_of(self.schema, keys, value).to_string();
                self.items.get(&key).copied()
            }
            _ => None,
        }
    }
}

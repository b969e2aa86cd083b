//! The schema of a defined kind, read once from its definition.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::rules::{self, Rule};
use super::selectable::{self, Brackets};

/// What one place of an object may hold.
#[derive(Debug, Default)]
pub(crate) struct Structural {
    pub(crate) kind: Option<Type>,
    pub(crate) properties: BTreeMap<String, Structural>,
    pub(crate) additional: Option<Box<Structural>>,
    pub(crate) items: Option<Box<Structural>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list: List,
    pub(crate) atomic_map: bool,
    pub(crate) rules: Vec<Rule>,
    /// Whether there are rules here or further inside.
    pub(crate) any_rules: bool,
    pub(crate) limits: Limits,
    pub(crate) all_of: Vec<Structural>,
    pub(crate) any_of: Vec<Structural>,
    pub(crate) one_of: Vec<Structural>,
    pub(crate) not: Option<Box<Structural>>,
}

/// The types of JSON schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    #[default]
    Atomic,
    Set,
    Keyed(Vec<String>),
}

/// What a value of the right type must keep to.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) any: Vec<Value>,
    pub(crate) pattern: Option<(String, Regex)>,
    pub(crate) format: String,
    pub(crate) length: (Option<u64>, Option<u64>),
    pub(crate) items: (Option<u64>, Option<u64>),
    pub(crate) properties: (Option<u64>, Option<u64>),
    pub(crate) minimum: Option<(f64, bool)>,
    pub(crate) maximum: Option<(f64, bool)>,
    pub(crate) multiple: Option<f64>,
    pub(crate) unique: bool,
}

impl Type {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Structural {
    /// Reads a schema. What makes no sense is passed over: it was refused when the
    /// definition was written.
    pub(crate) fn parse(schema: &Value) -> Self {
        Self::parse_as(schema, schema["x-kubernetes-embedded-resource"] == true)
    }

    /// Reads the schema of whole objects, which have metadata as embedded ones do.
    pub(crate) fn parse_root(schema: &Value) -> Self {
        Self::parse_as(schema, true)
    }

    fn parse_as(schema: &Value, embedded: bool) -> Self {
        let flag = |name: &str| schema[name] == true;
        let texts = |name: &str| -> Vec<String> {
            let list = schema[name].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let all = |name: &str| -> Vec<Structural> {
            let list = schema[name].as_array().into_iter().flatten();
            list.map(Self::parse).collect()
        };
        let one = |name: &str| {
            let inner = &schema[name];
            inner.is_object().then(|| Box::new(Self::parse(inner)))
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let rules = schema["x-kubernetes-validations"].as_array();
        let mut read = Self {
            kind: schema["type"].as_str().and_then(Type::parse),
            properties: properties
                .map(|(name, inner)| (name.clone(), Self::parse(inner)))
                .collect(),
            additional: match &schema["additionalProperties"] {
                // Anything at all.
                Value::Bool(true) => Some(Box::new(Self {
                    preserve: true,
                    nullable: true,
                    ..Self::default()
                })),
                Value::Object(_) => one("additionalProperties"),
                _ => None,
            },
            items: one("items"),
            required: texts("required"),
            // One that is null is none.
            default: schema
                .get("default")
                .filter(|value| !value.is_null())
                .cloned(),
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded,
            int_or_string: flag("x-kubernetes-int-or-string"),
            list: match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => List::Set,
                Some("map") => List::Keyed(texts("x-kubernetes-list-map-keys")),
                _ => List::Atomic,
            },
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            rules: Vec::new(),
            any_rules: false,
            limits: Limits::parse(schema),
            all_of: all("allOf"),
            any_of: all("anyOf"),
            one_of: all("oneOf"),
            not: one("not"),
        };
        let of = rules::Type::of(&read, read.embedded).filter(|_| rules.is_some());
        if let Some(of) = of {
            let rules = rules.into_iter().flatten();
            let rules = rules.filter_map(|rule| {
                let path = rule["fieldPath"].as_str().unwrap_or("");
                let place = selectable::walk(path, schema, Brackets::Taken);
                let mut rule = Rule::parse(rule, &of).ok()?;
                rule.field_path = place.map_or(String::new(), |(place, _)| place);
                Some(rule)
            });
            read.rules = rules.collect();
        }
        let inner = |one: &Option<Box<Self>>| one.as_ref().is_some_and(|one| one.any_rules);
        read.any_rules = !read.rules.is_empty()
            || inner(&read.additional)
            || inner(&read.items)
            || read.properties.values().any(|one| one.any_rules);
        read
    }

    /// The schema of a property; none if there is no place for it.
    pub(crate) fn property(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Fills in what was left out. Where null isn't a value, it says that there is none.
    pub(crate) fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|name, value| {
                    let inner = self.property(name).filter(|_| value.is_null());
                    inner.is_none_or(|inner| inner.nullable)
                });
                for (name, inner) in &self.properties {
                    if let (None, Some(default)) = (map.get(name), &inner.default) {
                        map.insert(name.clone(), default.clone());
                    }
                }
                for (name, value) in map {
                    if let Some(inner) = self.property(name) {
                        inner.fill(value);
                    }
                }
            }
            Value::Array(list) => {
                let Some(inner) = &self.items else { return };
                for value in list {
                    if let (true, false, Some(default)) =
                        (value.is_null(), inner.nullable, &inner.default)
                    {
                        *value = default.clone();
                    }
                    inner.fill(value);
                }
            }
            _ => {}
        }
    }
}

impl Limits {
    fn parse(schema: &Value) -> Self {
        let range = |least: &str, most: &str| (schema[least].as_u64(), schema[most].as_u64());
        let bound = |name: &str, exclusive: &str| {
            let limit = schema[name].as_f64()?;
            Some((limit, schema[exclusive] == true))
        };
        let pattern = schema["pattern"].as_str().and_then(|pattern| {
            let compiled = Regex::new(pattern).ok()?;
            Some((pattern.to_owned(), compiled))
        });
        Self {
            any: schema["enum"].as_array().cloned().unwrap_or_default(),
            pattern,
            format: schema["format"].as_str().unwrap_or("").to_owned(),
            length: range("minLength", "maxLength"),
            items: range("minItems", "maxItems"),
            properties: range("minProperties", "maxProperties"),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple: schema["multipleOf"].as_f64().filter(|of| *of > 0.0),
            unique: schema["uniqueItems"] == true,
        }
    }
}

/// A field's path.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

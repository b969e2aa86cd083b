//! Values of expressions, and what of an object's JSON they are.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value as Json;

use super::library::{Cidr, NamedFormat, Quantity, Url, Version};
use super::types::escape;
use crate::definitions::duration;
use crate::definitions::structural::{List, Structural};

/// A value; copying one costs next to nothing.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(Arc<Items>),
    Map(Arc<BTreeMap<Key, Value>>),
    Optional(Option<Arc<Value>>),
    /// A type, by its name.
    Type(&'static str),
    Quantity(Quantity),
    Version(Arc<Version>),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Arc<Url>),
    Format(NamedFormat),
}

/// The items of a list, and what makes two lists of them equal.
#[derive(Debug, Default)]
pub(super) struct Items {
    pub(super) values: Vec<Value>,
    pub(super) how: Merge,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Merge {
    #[default]
    Ordered,
    Set,
    Keyed(Arc<[String]>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(Arc<str>),
}

impl Key {
    /// The key that a value is; equal numbers are the same key.
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Int(number) => Self::Int(*number),
            Value::Uint(number) => match i64::try_from(*number) {
                Ok(number) => Self::Int(number),
                Err(_) => Self::Uint(*number),
            },
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Self::Int(*number as i64)
            }
            Value::Text(text) => Self::Text(text.clone()),
            _ => return None,
        })
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Int(number) => Value::Int(*number),
            Self::Uint(number) => Value::Uint(*number),
            Self::Text(text) => Value::Text(text.clone()),
        }
    }
}

impl Value {
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self::Text(Arc::from(text.as_ref()))
    }

    pub(super) fn list(values: Vec<Value>) -> Self {
        Self::List(Arc::new(Items {
            values,
            how: Merge::Ordered,
        }))
    }

    pub(super) fn some(value: Value) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// A count.
    pub(super) fn size(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// What rules see of JSON that is as its schema says.
    pub(crate) fn of(json: &Json, schema: &Structural, is_object: bool) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => {
                let double = schema.kind == Some(crate::definitions::structural::Type::Number);
                match number.as_i64() {
                    Some(whole) if !double => Self::Int(whole),
                    _ if schema.kind.is_none() || double => {
                        Self::Double(number.as_f64().unwrap_or(0.0))
                    }
                    _ => Self::Int(number.as_f64().unwrap_or(0.0) as i64),
                }
            }
            Json::String(text) => Self::of_text(text, &schema.limits.format),
            Json::Array(items) => {
                let Some(inner) = schema.items.as_deref() else {
                    return Self::list(Vec::new());
                };
                let items = items
                    .iter()
                    .map(|item| Self::of(item, inner, inner.embedded));
                Self::List(Arc::new(Items {
                    values: items.collect(),
                    how: match &schema.list {
                        List::Atomic => Merge::Ordered,
                        List::Set => Merge::Set,
                        List::Keyed(keys) => Merge::Keyed(keys.as_slice().into()),
                    },
                }))
            }
            Json::Object(fields) => {
                let entry = |(name, json): (&String, &Json)| {
                    if let Some(inner) = &schema.additional {
                        let value = Self::of(json, inner, inner.embedded);
                        return Some((Key::Text(name.as_str().into()), value));
                    }
                    let key = Key::Text(escape(name)?.into());
                    if is_object && matches!(name.as_str(), "apiVersion" | "kind") {
                        return Some((key, Self::text(json.as_str().unwrap_or(""))));
                    }
                    if is_object && name == "metadata" {
                        return Some((key, names_of(json)));
                    }
                    let inner = schema.properties.get(name)?;
                    Some((key, Self::of(json, inner, inner.embedded)))
                };
                Self::Map(Arc::new(fields.iter().filter_map(entry).collect()))
            }
        }
    }

    fn of_text(text: &str, format: &str) -> Self {
        let known = match format {
            "byte" => STANDARD
                .decode(text)
                .ok()
                .map(|all| Self::Bytes(all.into())),
            "duration" => duration::parse(text).map(Self::Duration),
            "date-time" => text.parse().ok().map(Self::Timestamp),
            "date" => {
                let time = format!("{text}T00:00:00Z");
                time.parse().ok().map(Self::Timestamp)
            }
            _ => None,
        };
        known.unwrap_or_else(|| Self::text(text))
    }

    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Version(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// How much there is to look at, for what it costs.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Text(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(items) => items.values.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(of)) => of.weight(),
            _ => 1,
        }
    }

    /// Which of two comes first; none if they can't be compared.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Uint(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }
}

/// Of metadata, rules see names only.
fn names_of(metadata: &Json) -> Value {
    let name = |name: &str| {
        let text = metadata.get(name)?.as_str()?;
        Some((Key::Text(name.into()), Value::text(text)))
    };
    let names = ["name", "generateName"].into_iter().filter_map(name);
    Value::Map(Arc::new(names.collect()))
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Version(a), Self::Version(b)) => a.compare(b).is_eq(),
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }
}

impl PartialEq for Items {
    fn eq(&self, other: &Self) -> bool {
        if self.values.len() != other.values.len() {
            return false;
        }
        match &self.how {
            Merge::Ordered => self.values == other.values,
            Merge::Set | Merge::Keyed(_) => {
                self.values.iter().all(|one| other.values.contains(one))
            }
        }
    }
}

impl Items {
    /// Both together: of sets, each once; of keyed lists, the later one for each key.
    pub(super) fn add(&self, other: &Self) -> Self {
        let mut values = self.values.clone();
        match &self.how {
            Merge::Ordered => values.extend(other.values.iter().cloned()),
            Merge::Set => {
                for one in &other.values {
                    if !values.contains(one) {
                        values.push(one.clone());
                    }
                }
            }
            Merge::Keyed(keys) => {
                for one in &other.values {
                    let same =
                        |held: &Value| keys.iter().all(|key| field(held, key) == field(one, key));
                    match values.iter_mut().find(|held| same(held)) {
                        Some(held) => *held = one.clone(),
                        None => values.push(one.clone()),
                    }
                }
            }
        }
        Self {
            values,
            how: self.how.clone(),
        }
    }
}

fn field<'v>(of: &'v Value, name: &str) -> Option<&'v Value> {
    match of {
        Value::Map(map) => map.get(&Key::Text(escape(name)?.into())),
        _ => None,
    }
}

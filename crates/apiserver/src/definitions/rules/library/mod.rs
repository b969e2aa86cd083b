//! What functions do. Types were checked; what was only known to be anything is checked here.

mod addresses;
mod conversions;
mod format;
mod formats;
mod lists;
mod operators;
mod quantities;
mod sizes;
mod texts;
mod times;
mod versions;

use std::sync::Arc;

use super::check::TYPE_NAMES;
use super::value::{Items, Merge, Value};
pub(super) use addresses::{Cidr, Url};
pub(super) use formats::NamedFormat;
pub(super) use lists::comparable;
pub(super) use quantities::Quantity;
pub(super) use sizes::{ITEM, ROOM, made};
pub(super) use versions::Version;

/// The result of a function, or why there is none.
type Made = Result<Value, String>;

/// Functions that belong together: what one of this name makes, if it is there.
type Room = fn(&str, &[Value]) -> Option<Made>;

fn no_overload() -> String {
    "no such overload".to_owned()
}

/// The type of this name.
pub(super) fn type_named(name: &str) -> Option<&'static str> {
    TYPE_NAMES.into_iter().find(|known| *known == name)
}

/// Calls a function or operator.
pub(super) fn call(name: &str, arguments: &[Value]) -> Made {
    // The one with this name knows whether it is meant for these values.
    let rooms: [Room; 9] = [
        operators::call,
        conversions::call,
        texts::call,
        lists::call,
        times::call,
        quantities::call,
        versions::call,
        addresses::call,
        formats::call,
    ];
    let made = rooms.into_iter().find_map(|room| room(name, arguments));
    made.unwrap_or_else(|| optional(name, arguments))
}

fn optional(name: &str, arguments: &[Value]) -> Made {
    match (name, arguments) {
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.of", [value]) => Ok(Value::some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => Ok(if is_zero(value) {
            Value::Optional(None)
        } else {
            Value::some(value.clone())
        }),
        ("hasValue", [Value::Optional(inner)]) => Ok(Value::Bool(inner.is_some())),
        ("value", [Value::Optional(inner)]) => match inner {
            Some(inner) => Ok((**inner).clone()),
            None => Err("optional.none() dereference".to_owned()),
        },
        ("or", [Value::Optional(inner), other]) => Ok(match inner {
            Some(_) => arguments[0].clone(),
            None => other.clone(),
        }),
        ("orValue", [Value::Optional(inner), other]) => Ok(match inner {
            Some(inner) => (**inner).clone(),
            None => other.clone(),
        }),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => {
            let inner = |value: &Value| match value {
                Value::Optional(inner) => inner.as_deref().cloned(),
                _ => None,
            };
            Ok(Value::list(list.values.iter().filter_map(inner).collect()))
        }
        _ => Err(no_overload()),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(flag) => !flag,
        Value::Int(number) | Value::Duration(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Text(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.values.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    }
}

/// A value as errors show it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// What a call costs: as much as the original charges for what it has to look at, or for the
/// text of `made` bytes that comes of it.
pub(super) fn price(name: &str, arguments: &[Value], made: u64) -> u64 {
    let looked = looked(name, arguments);
    match name {
        "replace" | "join" | "format" | "strings.quote" => looked.max(made.div_ceil(10)),
        "flatten" => looked.max(made / ITEM),
        _ => looked,
    }
}

fn looked(name: &str, arguments: &[Value]) -> u64 {
    let weight = |at: usize| arguments.get(at).map_or(0, Value::weight);
    let deep = |at: usize| arguments.get(at).map_or(0, inner);
    let read = |weight: u64| weight.div_ceil(10);
    match name {
        "startsWith" | "endsWith" => read(weight(1)),
        "bytes" | "string" | "strings.quote" | "format" | "url" | "lowerAscii" | "upperAscii"
        | "substring" | "trim" | "replace" | "split" | "join" | "reverse" | "charAt"
        | "quantity" | "isQuantity" | "semver" | "isSemver" | "ip" | "isIP" | "cidr" | "isCIDR"
        | "validate" => read(weight(0)).max(1),
        "size" => match arguments {
            [Value::Text(text)] => 1 + text.len() as u64 / 10_000,
            _ => 1,
        },
        "@in" => weight(1).max(deep(1)),
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => match arguments {
            // The longer one's characters need not be counted.
            [Value::Text(a), Value::Text(b)] => read(a.len().min(b.len()) as u64),
            _ => read(weight(0).min(weight(1))).max(contents(arguments)),
        },
        // To tell which items are the same, each is held against each.
        "_+_" if merges(arguments) => weight(0).saturating_mul(weight(1)).div_ceil(20).max(1),
        "_+_" => read(weight(0).saturating_add(weight(1))).max(1),
        "matches" | "find" | "findAll" => {
            let text = read(weight(0).saturating_add(1));
            text.saturating_mul(weight(1).div_ceil(4).max(1))
        }
        "contains" => read(weight(0)).saturating_mul(read(weight(1))),
        "indexOf" | "lastIndexOf" => weight(0).max(deep(0)).max(1),
        "isSorted" | "sum" | "min" | "max" | "first" | "last" | "slice" | "flatten" => {
            weight(0).max(1)
        }
        "distinct" | "sort" => weight(0).saturating_mul(weight(0).max(deep(0))).max(1),
        "sets.contains" | "sets.intersects" | "sets.equivalent" => {
            let (left, right) = (weight(0).max(deep(0)), weight(1).max(deep(1)));
            left.saturating_mul(right).max(1)
        }
        "lists.range" => match arguments {
            [Value::Int(count)] => u64::try_from(*count).unwrap_or(1),
            _ => 1,
        },
        _ => 1,
    }
}

/// As much as is counted of what a value holds: more costs too much, whoever looks at it.
const COUNTED: u64 = 10 * super::evaluate::MOST + 10;

/// Whether two lists are added item by item.
fn merges(arguments: &[Value]) -> bool {
    let merges = |value: &Value| matches!(value, Value::List(list) if list.how != Merge::Ordered);
    arguments.first().is_some_and(merges)
}

/// What it costs to look into the lists and maps that a list holds. They may hold the same
/// ones many times over, so that they are far bigger than what was made of them.
fn inner(list: &Value) -> u64 {
    let Value::List(list) = list else {
        return 0;
    };
    let is_deep =
        |value: &&Value| matches!(value, Value::List(_) | Value::Map(_) | Value::Optional(_));
    let mut left = COUNTED;
    for value in list.values.iter().filter(is_deep) {
        count(value, &mut left);
    }
    match COUNTED - left {
        COUNTED => u64::MAX,
        // Most items differ early.
        counted => counted / 100,
    }
}

/// What it costs to compare all of two lists or maps: as much as the smaller one holds.
fn contents(arguments: &[Value]) -> u64 {
    let mut most = 1000;
    loop {
        let sizes = arguments.iter().map(|value| {
            let mut left = most;
            count(value, &mut left);
            most - left
        });
        let smaller = sizes.min().unwrap_or(1);
        if smaller < most || most >= COUNTED {
            return smaller.div_ceil(10);
        }
        // The bigger one isn't counted to its end.
        most *= 10;
    }
}

/// Takes from `left` what there is to look at, until nothing is left.
fn count(value: &Value, left: &mut u64) {
    let before = *left;
    *left = left.saturating_sub(1);
    match value {
        Value::List(list) => {
            for item in &list.values {
                if *left == 0 {
                    return;
                }
                count(item, left);
            }
            // Whatever order is equal has to be looked for.
            if list.how != Merge::Ordered {
                let times = list.values.len() as u64;
                *left = before.saturating_sub((before - *left).saturating_mul(times));
            }
        }
        Value::Map(map) => {
            for item in map.values() {
                if *left == 0 {
                    return;
                }
                count(item, left);
            }
        }
        Value::Optional(Some(inner)) => count(inner, left),
        other => *left = before.saturating_sub(other.weight()),
    }
}

/// A list of the same kind with these items.
fn like(list: &Arc<Items>, values: Vec<Value>) -> Value {
    Value::List(Arc::new(Items {
        values,
        how: list.how.clone(),
    }))
}

/// A place in a list or text.
fn place(at: i64) -> Option<usize> {
    usize::try_from(at).ok()
}

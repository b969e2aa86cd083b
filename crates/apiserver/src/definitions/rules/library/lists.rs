//! Lists, and lists as sets.

use std::cmp::Ordering;

use super::{Made, like, no_overload, operators, place};
use crate::definitions::rules::value::Value;

/// How long a list may be made.
const LONGEST: i64 = 1_000_000;

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    if name == "lists.range" {
        return Some(match arguments {
            [Value::Int(count @ 0..=LONGEST)] => {
                Ok(Value::list((0..*count).map(Value::Int).collect()))
            }
            _ => Err("lists.range() needs a size from 0 to 1000000".to_owned()),
        });
    }
    if let ("indexOf" | "lastIndexOf", Some(Value::Text(_))) = (name, arguments.first()) {
        return None;
    }
    if let (
        "sets.contains" | "sets.equivalent" | "sets.intersects",
        [Value::List(a), Value::List(b)],
    ) = (name, arguments)
    {
        let within = |these: &[Value], those: &[Value]| these.iter().all(|one| those.contains(one));
        return Some(Ok(Value::Bool(match name {
            "sets.contains" => within(&b.values, &a.values),
            "sets.intersects" => a.values.iter().any(|one| b.values.contains(one)),
            _ => within(&a.values, &b.values) && within(&b.values, &a.values),
        })));
    }
    let known = matches!(
        name,
        "isSorted"
            | "sum"
            | "min"
            | "max"
            | "indexOf"
            | "lastIndexOf"
            | "slice"
            | "flatten"
            | "distinct"
            | "reverse"
            | "sort"
            | "first"
            | "last"
    );
    let Some(Value::List(list)) = arguments.first() else {
        return known.then(|| Err(no_overload()));
    };
    let values = &list.values;
    let optional = |found: Option<&Value>| match found {
        Some(found) => Value::some(found.clone()),
        None => Value::Optional(None),
    };
    Some(match (name, &arguments[1..]) {
        ("isSorted", []) => comparable(values).map(|()| {
            let sorted = values
                .windows(2)
                .all(|pair| pair[0].compare(&pair[1]).is_some_and(Ordering::is_le));
            Value::Bool(sorted)
        }),
        ("sum", []) => sum(values),
        ("min", []) => most(values, Ordering::Less, "min"),
        ("max", []) => most(values, Ordering::Greater, "max"),
        ("indexOf", [one]) => {
            let found = values.iter().position(|held| held == one);
            Ok(found.map_or(Value::Int(-1), Value::size))
        }
        ("lastIndexOf", [one]) => {
            let found = values.iter().rposition(|held| held == one);
            Ok(found.map_or(Value::Int(-1), Value::size))
        }
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(values, *from, *to),
        ("flatten", []) => Ok(Value::list(flatten(values, 1))),
        ("flatten", [Value::Int(depth)]) => match depth {
            ..0 => Err("level must be non-negative".to_owned()),
            depth => Ok(Value::list(flatten(values, *depth))),
        },
        ("distinct", []) => {
            let mut kept: Vec<Value> = Vec::new();
            for one in values {
                if !kept.contains(one) {
                    kept.push(one.clone());
                }
            }
            Ok(like(list, kept))
        }
        ("reverse", []) => Ok(like(list, values.iter().rev().cloned().collect())),
        ("sort", []) => comparable(values).map(|()| {
            let mut sorted = values.clone();
            sorted.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
            like(list, sorted)
        }),
        ("first", []) => Ok(optional(values.first())),
        ("last", []) => Ok(optional(values.last())),
        _ if known => Err(no_overload()),
        _ => return None,
    })
}

/// Whether all of them can be put in order.
pub(in crate::definitions::rules) fn comparable(values: &[Value]) -> Result<(), String> {
    let Some(first) = values.first() else {
        return Ok(());
    };
    let alike = values.iter().all(|one| {
        one.type_name() == first.type_name()
            && (first.compare(one).is_some() || matches!(one, Value::Double(_)))
    });
    if alike {
        Ok(())
    } else {
        Err("list elements must have the same type".to_owned())
    }
}

fn sum(values: &[Value]) -> Made {
    let Some((first, rest)) = values.split_first() else {
        return Ok(Value::Int(0));
    };
    rest.iter().try_fold(first.clone(), |sum, one| {
        let sum = operators::call("_+_", &[sum, one.clone()]);
        sum.unwrap_or_else(|| Err(no_overload()))
    })
}

fn most(values: &[Value], wanted: Ordering, name: &str) -> Made {
    let Some((first, rest)) = values.split_first() else {
        return Err(format!("{name} called on empty list"));
    };
    rest.iter()
        .try_fold(first, |best, one| match one.compare(best) {
            Some(order) if order == wanted => Ok(one),
            Some(_) => Ok(best),
            None => Err(no_overload()),
        })
        .cloned()
}

fn slice(values: &[Value], from: i64, to: i64) -> Made {
    let size = values.len();
    let range = match (place(from), place(to)) {
        (Some(from), Some(to)) if from <= to && to <= size => from..to,
        (None, _) | (_, None) => {
            return Err(format!(
                "cannot slice({from}, {to}), negative indexes not supported"
            ));
        }
        (Some(from), Some(to)) if from > to => {
            return Err(format!(
                "cannot slice({from}, {to}), start index must be less than or equal to end index"
            ));
        }
        _ => return Err(format!("cannot slice({from}, {to}), list is length {size}")),
    };
    Ok(Value::list(values[range].to_vec()))
}

fn flatten(values: &[Value], depth: i64) -> Vec<Value> {
    let mut flat = Vec::new();
    for value in values {
        match value {
            Value::List(inner) if depth > 0 => flat.extend(flatten(&inner.values, depth - 1)),
            other => flat.push(other.clone()),
        }
    }
    flat
}

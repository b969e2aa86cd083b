//! What the signs do.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::SignedDuration;

use super::{Made, no_overload};
use crate::definitions::rules::value::{Key, Value};

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let made = match (name, arguments) {
        ("!_", [Value::Bool(flag)]) => Ok(Value::Bool(!flag)),
        ("-_", [Value::Int(number)]) => whole(number.checked_neg()),
        ("-_", [Value::Double(number)]) => Ok(Value::Double(-number)),
        ("_==_", [a, b]) => Ok(Value::Bool(a == b)),
        ("_!=_", [a, b]) => Ok(Value::Bool(a != b)),
        ("_<_", [a, b]) => ordered(a, b, Ordering::is_lt),
        ("_<=_", [a, b]) => ordered(a, b, Ordering::is_le),
        ("_>_", [a, b]) => ordered(a, b, Ordering::is_gt),
        ("_>=_", [a, b]) => ordered(a, b, Ordering::is_ge),
        ("@in", [one, Value::List(list)]) => Ok(Value::Bool(list.values.contains(one))),
        ("@in", [one, Value::Map(map)]) => {
            let found = Key::of(one).is_some_and(|key| map.contains_key(&key));
            Ok(Value::Bool(found))
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => arithmetic(name, a, b),
        ("!_" | "-_" | "@in", _) => Err(no_overload()),
        ("size", [value]) => match value {
            Value::Text(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => Ok(Value::Int(
                i64::try_from(value.weight()).unwrap_or(i64::MAX),
            )),
            _ => Err(no_overload()),
        },
        _ => return None,
    };
    Some(made)
}

fn ordered(a: &Value, b: &Value, wanted: fn(Ordering) -> bool) -> Made {
    match (a.compare(b), a, b) {
        (Some(order), ..) => Ok(Value::Bool(wanted(order))),
        // No order, but numbers: something isn't one.
        (None, Value::Double(_), _) | (None, _, Value::Double(_)) => Ok(Value::Bool(false)),
        _ => Err(no_overload()),
    }
}

fn whole(number: Option<i64>) -> Made {
    number
        .map(Value::Int)
        .ok_or_else(|| "integer overflow".to_owned())
}

fn arithmetic(name: &str, a: &Value, b: &Value) -> Made {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => {
            by_zero(name, *b == 0)?;
            whole(match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            })
        }
        (Value::Uint(a), Value::Uint(b)) => {
            by_zero(name, *b == 0)?;
            let made = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            made.map(Value::Uint)
                .ok_or_else(|| "unsigned integer overflow".to_owned())
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(match name {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return Err(no_overload()),
        })),
        (Value::Text(a), Value::Text(b)) if name == "_+_" => Ok(Value::text(format!("{a}{b}"))),
        (Value::Bytes(a), Value::Bytes(b)) if name == "_+_" => {
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) if name == "_+_" => Ok(Value::List(Arc::new(a.add(b)))),
        _ => times(name, a, b),
    }
}

fn by_zero(name: &str, zero: bool) -> Result<(), String> {
    match name {
        "_/_" if zero => Err("division by zero".to_owned()),
        "_%_" if zero => Err("modulus by zero".to_owned()),
        _ => Ok(()),
    }
}

fn times(name: &str, a: &Value, b: &Value) -> Made {
    let far = |_| "timestamp overflow".to_owned();
    match (name, a, b) {
        ("_+_", Value::Duration(a), Value::Duration(b)) => span(a.checked_add(*b)),
        ("_-_", Value::Duration(a), Value::Duration(b)) => span(a.checked_sub(*b)),
        ("_+_", Value::Timestamp(at), Value::Duration(by))
        | ("_+_", Value::Duration(by), Value::Timestamp(at)) => {
            let moved = at.checked_add(SignedDuration::from_nanos(*by));
            moved.map(Value::Timestamp).map_err(far)
        }
        ("_-_", Value::Timestamp(at), Value::Duration(by)) => {
            let moved = at.checked_sub(SignedDuration::from_nanos(*by));
            moved.map(Value::Timestamp).map_err(far)
        }
        ("_-_", Value::Timestamp(a), Value::Timestamp(b)) => {
            span(i64::try_from(a.duration_since(*b).as_nanos()).ok())
        }
        _ => Err(no_overload()),
    }
}

fn span(nanos: Option<i64>) -> Made {
    nanos
        .map(Value::Duration)
        .ok_or_else(|| "duration overflow".to_owned())
}

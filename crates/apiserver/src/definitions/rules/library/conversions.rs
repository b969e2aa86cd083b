//! From one type to another.

use jiff::Timestamp;

use super::{Made, no_overload};
use crate::definitions::duration;
use crate::definitions::rules::value::Value;

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let [value] = arguments else { return None };
    Some(match name {
        "type" => Ok(Value::Type(value.type_name())),
        "dyn" => Ok(value.clone()),
        "bool" => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::Text(text) => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => Err(unlike("bool")),
            },
            _ => Err(no_overload()),
        },
        "bytes" => match value {
            Value::Bytes(_) => Ok(value.clone()),
            Value::Text(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(no_overload()),
        },
        "double" => match value {
            Value::Double(_) => Ok(value.clone()),
            Value::Int(number) => Ok(Value::Double(*number as f64)),
            Value::Uint(number) => Ok(Value::Double(*number as f64)),
            Value::Text(text) => match text.parse() {
                Ok(number) => Ok(Value::Double(number)),
                Err(_) => Err(unlike("double")),
            },
            _ => Err(no_overload()),
        },
        "int" => int(value),
        "uint" => uint(value),
        "string" => string(value),
        "duration" => match value {
            Value::Duration(_) => Ok(value.clone()),
            Value::Text(text) => match duration::parse(text) {
                Some(nanos) => Ok(Value::Duration(nanos)),
                None => Err(unlike("google.protobuf.Duration")),
            },
            _ => Err(no_overload()),
        },
        "timestamp" => match value {
            Value::Timestamp(_) => Ok(value.clone()),
            Value::Int(seconds) => Timestamp::from_second(*seconds)
                .map(Value::Timestamp)
                .map_err(|_| "timestamp overflow".to_owned()),
            Value::Text(text) => text
                .parse()
                .map(Value::Timestamp)
                .map_err(|_| unlike("google.protobuf.Timestamp")),
            _ => Err(no_overload()),
        },
        _ => return None,
    })
}

fn unlike(wanted: &str) -> String {
    format!("type conversion error from 'string' to '{wanted}'")
}

fn int(value: &Value) -> Made {
    let overflow = || "integer overflow".to_owned();
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(number) => i64::try_from(*number)
            .map(Value::Int)
            .map_err(|_| overflow()),
        Value::Double(number) if number.is_finite() && number.abs() < 9.223_372_036_854_775e18 => {
            Ok(Value::Int(*number as i64))
        }
        Value::Double(_) => Err(overflow()),
        Value::Text(text) => match text.parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => Err(unlike("int")),
        },
        Value::Timestamp(at) => Ok(Value::Int(at.as_second())),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        _ => Err(no_overload()),
    }
}

fn uint(value: &Value) -> Made {
    let overflow = || "unsigned integer overflow".to_owned();
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(number) => u64::try_from(*number)
            .map(Value::Uint)
            .map_err(|_| overflow()),
        Value::Double(number) if (0.0..1.844_674_407_370_955e19).contains(number) => {
            Ok(Value::Uint(*number as u64))
        }
        Value::Double(_) => Err(overflow()),
        Value::Text(text) => match text.parse() {
            Ok(number) => Ok(Value::Uint(number)),
            Err(_) => Err(unlike("uint")),
        },
        _ => Err(no_overload()),
    }
}

fn string(value: &Value) -> Made {
    Ok(match value {
        Value::Text(_) => value.clone(),
        Value::Bool(flag) => Value::text(flag.to_string()),
        Value::Int(number) => Value::text(number.to_string()),
        Value::Uint(number) => Value::text(number.to_string()),
        Value::Double(number) => Value::text(number.to_string()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => return Err("invalid UTF-8 in bytes, cannot convert to string".to_owned()),
        },
        Value::Duration(nanos) => Value::text(seconds(*nanos)),
        Value::Timestamp(at) => Value::text(at.to_string()),
        Value::Ip(address) => Value::text(address.to_string()),
        Value::Cidr(net) => Value::text(net.to_string()),
        _ => return Err(no_overload()),
    })
}

/// A duration as the language writes it: in seconds.
pub(super) fn seconds(nanos: i64) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

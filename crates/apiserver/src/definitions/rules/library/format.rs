//! `'%s has %d'.format(['a', 1])`.

use std::fmt::Write as _;

use super::conversions::seconds;
use crate::definitions::rules::value::Value;

pub(super) fn format(template: &str, values: &[Value]) -> Result<String, String> {
    let mut made = String::new();
    let mut values = values.iter().enumerate();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            made.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            made.push('%');
            continue;
        }
        let mut precision = None;
        if chars.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            // More than this is no precision of any number.
            let wanted: usize = digits.parse().map_err(|_| "invalid precision".to_owned())?;
            precision = Some(wanted.min(100));
        }
        let verb = chars.next().ok_or("unexpected end of string")?;
        let (at, value) = values
            .next()
            .ok_or("index 0 out of range".replace('0', &made.len().to_string()))?;
        let refused = || {
            let kind = value.type_name();
            format!(
                "error during formatting: %{verb} clause can't be used with argument {at} of \
                 type {kind}"
            )
        };
        match (verb, value) {
            ('s', value) => text(value, &mut made),
            ('d', Value::Int(number)) => _ = write!(made, "{number}"),
            ('d', Value::Uint(number)) => _ = write!(made, "{number}"),
            ('d', Value::Double(number)) if !number.is_finite() => text(value, &mut made),
            ('f' | 'e', value) => {
                let number = match value {
                    Value::Double(number) => *number,
                    Value::Int(number) => *number as f64,
                    Value::Uint(number) => *number as f64,
                    _ => return Err(refused()),
                };
                made.push_str(&fraction(verb, number, precision.unwrap_or(6)));
            }
            ('b', Value::Bool(flag)) => _ = write!(made, "{}", u8::from(*flag)),
            ('b', Value::Uint(number)) => _ = write!(made, "{number:b}"),
            ('o', Value::Uint(number)) => _ = write!(made, "{number:o}"),
            ('x', Value::Uint(number)) => _ = write!(made, "{number:x}"),
            ('X', Value::Uint(number)) => _ = write!(made, "{number:X}"),
            ('b' | 'o' | 'x' | 'X', Value::Int(number)) => {
                let (sign, size) = (if *number < 0 { "-" } else { "" }, number.unsigned_abs());
                made.push_str(sign);
                _ = match verb {
                    'b' => write!(made, "{size:b}"),
                    'o' => write!(made, "{size:o}"),
                    'x' => write!(made, "{size:x}"),
                    _ => write!(made, "{size:X}"),
                };
            }
            ('x' | 'X', Value::Text(text)) => hex(verb, text.as_bytes(), &mut made),
            ('x' | 'X', Value::Bytes(bytes)) => hex(verb, bytes, &mut made),
            ('d' | 'b' | 'o' | 'x' | 'X', _) => return Err(refused()),
            (other, _) => return Err(format!("unrecognized formatting clause \"{other}\"")),
        }
    }
    Ok(made)
}

fn hex(verb: char, bytes: &[u8], made: &mut String) {
    for byte in bytes {
        _ = if verb == 'x' {
            write!(made, "{byte:02x}")
        } else {
            write!(made, "{byte:02X}")
        };
    }
}

fn fraction(verb: char, number: f64, precision: usize) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    if verb == 'f' {
        return format!("{number:.precision$}");
    }
    // The exponent has a sign and two digits.
    let written = format!("{number:.precision$e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// A value inside of another.
fn inner(value: &Value, made: &mut String) {
    match value {
        Value::Text(text) => _ = write!(made, "\"{text}\""),
        Value::Double(number) => made.push_str(&fraction('f', *number, 6)),
        other => text(other, made),
    }
}

fn text(value: &Value, made: &mut String) {
    match value {
        Value::Null => made.push_str("null"),
        Value::Bool(flag) => _ = write!(made, "{flag}"),
        Value::Int(number) => _ = write!(made, "{number}"),
        Value::Uint(number) => _ = write!(made, "{number}"),
        Value::Double(number) => match number {
            number if number.is_nan() => made.push_str("NaN"),
            number if number.is_infinite() => made.push_str(&fraction('f', *number, 0)),
            number => _ = write!(made, "{number}"),
        },
        Value::Text(text) => made.push_str(text),
        Value::Bytes(bytes) => made.push_str(&String::from_utf8_lossy(bytes)),
        Value::Duration(nanos) => made.push_str(&seconds(*nanos)),
        Value::Timestamp(at) => _ = write!(made, "{at}"),
        Value::List(list) => {
            made.push('[');
            for (at, item) in list.values.iter().enumerate() {
                made.push_str(if at > 0 { ", " } else { "" });
                inner(item, made);
            }
            made.push(']');
        }
        Value::Map(map) => {
            made.push('{');
            for (at, (key, item)) in map.iter().enumerate() {
                made.push_str(if at > 0 { ", " } else { "" });
                inner(&key.value(), made);
                made.push(':');
                inner(item, made);
            }
            made.push('}');
        }
        other => made.push_str(other.type_name()),
    }
}

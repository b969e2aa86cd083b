//! What a plain scalar of YAML stands for: the rules of YAML 1.1 that Kubernetes' own reader
//! keeps, by which `yes` is a boolean and `010` is eight.

use serde_json::{Number, Value};

/// The value of a scalar without quotes; none if JSON has no such value.
pub(super) fn plain(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            true.into()
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            false.into()
        }
        ".nan" | ".NaN" | ".NAN" => return None,
        _ => {
            let bare = text.trim_start_matches(['+', '-']);
            if matches!(bare, ".inf" | ".Inf" | ".INF") && text.len() - bare.len() <= 1 {
                return None;
            }
            number(text).map_or_else(|| text.into(), Value::Number)
        }
    })
}

/// A number in any of YAML's notations.
fn number(text: &str) -> Option<Number> {
    let starts = text.bytes().next()?;
    if !(starts.is_ascii_digit() || matches!(starts, b'+' | b'-' | b'.')) {
        return None;
    }
    let clean = text.replace('_', "");
    integer(&clean).or_else(|| {
        let shaped = is_float(&clean).then(|| clean.parse::<f64>().ok())??;
        Number::from_f64(shaped)
    })
}

fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.split_at_checked(2) {
        Some(("0x", rest)) => (16, rest),
        Some(("0o", rest)) => (8, rest),
        Some(("0b", rest)) => (2, rest),
        _ => match lower.strip_prefix('0') {
            Some(rest) if !rest.is_empty() => (8, rest),
            _ => (10, lower.as_str()),
        },
    };
    // The parser would take a second sign.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    if !negative {
        return Some(size.into());
    }
    Some(0i64.checked_sub_unsigned(size)?.into())
}

/// Digits with a point or an exponent, in which Rust's own parser would take words, too.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let sound = digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty());
    let exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    sound && exponent
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars_mean_what_they_mean_to_kubernetes() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("y", json!(true)),
            ("Off", json!(false)),
            ("yep", json!("yep")),
            ("12", json!(12)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("010", json!(8)),
            ("0x1f", json!(31)),
            ("0b11", json!(3)),
            ("1_000", json!(1000)),
            ("0", json!(0)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1e3", json!(1000.0)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1.2.3", json!("1.2.3")),
            ("--1", json!("--1")),
            ("1Gi", json!("1Gi")),
            ("-", json!("-")),
            (".", json!(".")),
            ("inf", json!("inf")),
            ("2001-12-14", json!("2001-12-14")),
            ("08", json!(8.0)),
        ] {
            assert_eq!(plain(text), Some(value), "{text}");
        }
        for none in [".nan", ".inf", "-.inf", "+.Inf"] {
            assert_eq!(plain(none), None, "{none}");
        }
    }
}

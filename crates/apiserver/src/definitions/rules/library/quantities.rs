//! Kubernetes quantities, to a billionth.

use super::{Made, no_overload};
use crate::definitions::rules::value::Value;

/// An amount in billionths; what is too large stays at the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::definitions::rules) struct Quantity(i128);

const ONE: i128 = 1_000_000_000;

impl Quantity {
    fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix(['-', '+']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = rest.split_at(end.unwrap_or(rest.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (binary, decimal) = scale(suffix)?;
        // Digits first, then the places that the fraction and the suffix move them.
        let mut value: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            let digit = i128::from(digit - b'0');
            value = value.saturating_mul(10).saturating_add(digit);
        }
        let places = i64::try_from(fraction.len()).ok()?;
        let mut places = decimal + 9 - places;
        value = value.saturating_mul(1_i128 << binary);
        while places > 0 && value != 0 && value != i128::MAX {
            value = value.saturating_mul(10);
            places -= 1;
        }
        while places < 0 && value != 0 {
            // What is less than can be told is rounded up.
            value = value / 10 + i128::from(value % 10 != 0);
            places += 1;
        }
        Some(Self(if negative { -value } else { value }))
    }

    fn whole(self) -> Option<i64> {
        let whole = i64::try_from(self.0 / ONE).ok()?;
        (self.0 % ONE == 0).then_some(whole)
    }
}

/// What a suffix multiplies by: powers of two and of ten.
fn scale(suffix: &str) -> Option<(u32, i64)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            let digits = exponent.trim_start_matches(['+', '-']);
            let plain = !digits.is_empty() && digits.len() + 1 >= exponent.len();
            let exponent: i64 = exponent.parse().ok().filter(|_| plain)?;
            (0, exponent.clamp(-100, 100))
        }
    })
}

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let made = match (name, arguments) {
        ("quantity", [Value::Text(text)]) => match Quantity::parse(text) {
            Some(amount) => Ok(Value::Quantity(amount)),
            None => Err("quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()),
        },
        ("isQuantity", [Value::Text(text)]) => Ok(Value::Bool(Quantity::parse(text).is_some())),
        ("sign", [Value::Quantity(of)]) => {
            Ok(Value::Int(i64::try_from(of.0.signum()).unwrap_or(0)))
        }
        ("isGreaterThan", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Bool(a > b)),
        ("isLessThan", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Bool(a < b)),
        ("compareTo", [Value::Quantity(a), Value::Quantity(b)]) => Ok(Value::Int(a.cmp(b) as i64)),
        ("asApproximateFloat", [Value::Quantity(of)]) => {
            Ok(Value::Double(of.0 as f64 / ONE as f64))
        }
        ("asInteger", [Value::Quantity(of)]) => of
            .whole()
            .map(Value::Int)
            .ok_or_else(|| "cannot convert value to integer".to_owned()),
        ("isInteger", [Value::Quantity(of)]) => Ok(Value::Bool(of.whole().is_some())),
        ("add" | "sub", [Value::Quantity(a), other]) => {
            let other = match other {
                Value::Quantity(other) => other.0,
                Value::Int(other) => i128::from(*other) * ONE,
                _ => return Some(Err(no_overload())),
            };
            Ok(Value::Quantity(Quantity(match name {
                "add" => a.0.saturating_add(other),
                _ => a.0.saturating_sub(other),
            })))
        }
        ("quantity" | "isQuantity" | "sign" | "asInteger" | "isInteger", _) => Err(no_overload()),
        _ => return None,
    };
    Some(made)
}

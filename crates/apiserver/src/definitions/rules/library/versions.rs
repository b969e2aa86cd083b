//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Made, no_overload};
use crate::definitions::rules::value::Value;

/// A version, its build left out: nothing depends on it.
#[derive(Debug)]
pub(in crate::definitions::rules) struct Version {
    numbers: [u64; 3],
    before: Vec<String>,
}

impl Version {
    /// Reads a version; `lenient` takes a `v` before it, and fewer than three numbers.
    fn parse(text: &str, lenient: bool) -> Option<Self> {
        let text = match text.strip_prefix('v') {
            Some(rest) if lenient => rest,
            Some(_) => return None,
            None => text,
        };
        let (text, build) = text.split_once('+').unwrap_or((text, "0"));
        let (core, before) = match text.split_once('-') {
            Some((core, before)) => (core, before.split('.').map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        let word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !build.split('.').all(word) || !before.iter().all(|one: &String| word(one)) {
            return None;
        }
        let mut numbers = [0; 3];
        let parts: Vec<&str> = core.split('.').collect();
        if parts.len() > 3 || parts.len() < 3 && !lenient {
            return None;
        }
        for (number, part) in numbers.iter_mut().zip(parts) {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            let zeros = part.len() > 1 && part.starts_with('0') && !lenient;
            *number = part.parse().ok().filter(|_| digits && !zeros)?;
        }
        Some(Self { numbers, before })
    }

    pub(in crate::definitions::rules) fn compare(&self, other: &Self) -> Ordering {
        let before = || match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let pairs = self.before.iter().zip(&other.before);
                pairs
                    .map(|(a, b)| words(a, b))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| self.before.len().cmp(&other.before.len()))
            }
        };
        self.numbers.cmp(&other.numbers).then_with(before)
    }
}

/// Numbers come before words.
fn words(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let number = |of: &Version, at: usize| {
        let number = i64::try_from(of.numbers[at]);
        Ok(Value::Int(number.unwrap_or(i64::MAX)))
    };
    let made = match (name, arguments) {
        ("semver" | "isSemver", [Value::Text(text), rest @ ..]) => {
            let lenient = matches!(rest, [Value::Bool(true)]);
            match (name, Version::parse(text, lenient)) {
                ("isSemver", found) => Ok(Value::Bool(found.is_some())),
                (_, Some(found)) => Ok(Value::Version(Arc::new(found))),
                (_, None) => Err(format!("{text:?} is not a semantic version")),
            }
        }
        ("isGreaterThan", [Value::Version(a), Value::Version(b)]) => {
            Ok(Value::Bool(a.compare(b).is_gt()))
        }
        ("isLessThan", [Value::Version(a), Value::Version(b)]) => {
            Ok(Value::Bool(a.compare(b).is_lt()))
        }
        ("compareTo", [Value::Version(a), Value::Version(b)]) => {
            Ok(Value::Int(a.compare(b) as i64))
        }
        ("major", [Value::Version(of)]) => number(of, 0),
        ("minor", [Value::Version(of)]) => number(of, 1),
        ("patch", [Value::Version(of)]) => number(of, 2),
        ("semver" | "isSemver", _) => Err(no_overload()),
        _ => return None,
    };
    Some(made)
}

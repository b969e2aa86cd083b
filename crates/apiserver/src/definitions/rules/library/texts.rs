//! Texts: parts of them, searches, patterns.

use std::cell::RefCell;
use std::collections::VecDeque;

use regex::{Regex, RegexBuilder};

use super::{Made, format, no_overload, place};
use crate::definitions::rules::value::Value;

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let made = match (name, arguments) {
        ("contains", [Value::Text(of), Value::Text(part)]) => Ok(Value::Bool(of.contains(&**part))),
        ("startsWith", [Value::Text(of), Value::Text(part)]) => {
            Ok(Value::Bool(of.starts_with(&**part)))
        }
        ("endsWith", [Value::Text(of), Value::Text(part)]) => {
            Ok(Value::Bool(of.ends_with(&**part)))
        }
        ("matches", [Value::Text(of), Value::Text(by)]) => {
            pattern(by).map(|by| Value::Bool(by.is_match(of)))
        }
        ("find", [Value::Text(of), Value::Text(by)]) => {
            pattern(by).map(|by| Value::text(by.find(of).map_or("", |found| found.as_str())))
        }
        ("findAll", [Value::Text(of), Value::Text(by)]) => find_all(of, by, -1),
        ("findAll", [Value::Text(of), Value::Text(by), Value::Int(most)]) => {
            find_all(of, by, *most)
        }
        ("charAt", [Value::Text(of), Value::Int(at)]) => char_at(of, *at),
        ("indexOf", [Value::Text(of), Value::Text(part)]) => index_of(of, part, 0),
        ("indexOf", [Value::Text(of), Value::Text(part), Value::Int(from)]) => {
            index_of(of, part, *from)
        }
        ("lastIndexOf", [Value::Text(of), Value::Text(part)]) => last_index_of(of, part, None),
        ("lastIndexOf", [Value::Text(of), Value::Text(part), Value::Int(from)]) => {
            last_index_of(of, part, Some(*from))
        }
        ("lowerAscii", [Value::Text(of)]) => Ok(Value::text(of.to_ascii_lowercase())),
        ("upperAscii", [Value::Text(of)]) => Ok(Value::text(of.to_ascii_uppercase())),
        ("trim", [Value::Text(of)]) => Ok(Value::text(of.trim())),
        ("replace", [Value::Text(of), Value::Text(from), Value::Text(to)]) => {
            Ok(Value::text(replace(of, from, to, -1)))
        }
        (
            "replace",
            [
                Value::Text(of),
                Value::Text(from),
                Value::Text(to),
                Value::Int(most),
            ],
        ) => Ok(Value::text(replace(of, from, to, *most))),
        ("split", [Value::Text(of), Value::Text(by)]) => Ok(split(of, by, -1)),
        ("split", [Value::Text(of), Value::Text(by), Value::Int(most)]) => Ok(split(of, by, *most)),
        ("substring", [Value::Text(of), Value::Int(from)]) => {
            let end = i64::try_from(of.chars().count()).unwrap_or(i64::MAX);
            substring(of, *from, end)
        }
        ("substring", [Value::Text(of), Value::Int(from), Value::Int(to)]) => {
            substring(of, *from, *to)
        }
        ("join", [Value::List(list)]) => join(&list.values, ""),
        ("join", [Value::List(list), Value::Text(between)]) => join(&list.values, between),
        ("format", [Value::Text(of), Value::List(list)]) => {
            format::format(of, &list.values).map(Value::text)
        }
        ("strings.quote", [Value::Text(of)]) => Ok(Value::text(quote(of))),
        (
            "contains" | "startsWith" | "endsWith" | "matches" | "find" | "findAll" | "charAt"
            | "lowerAscii" | "upperAscii" | "trim" | "replace" | "split" | "substring" | "join"
            | "format",
            _,
        ) => Err(no_overload()),
        _ => return None,
    };
    Some(made)
}

/// How many patterns are kept: a rule asks for the same one for each item of a list.
const PATTERNS: usize = 16;
/// How big one may become.
const PATTERN: usize = 1 << 20;

thread_local! {
    static KEPT: RefCell<VecDeque<(String, Regex)>> = const { RefCell::new(VecDeque::new()) };
}

pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    let find = |kept: &RefCell<VecDeque<(String, Regex)>>| {
        let kept = kept.borrow();
        let found = kept.iter().find(|(known, _)| known == text);
        found.map(|(_, regex)| regex.clone())
    };
    if let Some(known) = KEPT.with(find) {
        return Ok(known);
    }
    let made = RegexBuilder::new(text).size_limit(PATTERN).build();
    let made = made.map_err(|error| format!("error parsing regexp: {error}"))?;
    KEPT.with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.push_front((text.to_owned(), made.clone()));
        kept.truncate(PATTERNS);
    });
    Ok(made)
}

fn find_all(of: &str, by: &str, most: i64) -> Made {
    let by = pattern(by)?;
    let most = place(most).unwrap_or(usize::MAX);
    let found = by.find_iter(of).take(most);
    Ok(Value::list(
        found.map(|one| Value::text(one.as_str())).collect(),
    ))
}

fn out_of_range(at: i64) -> String {
    format!("index out of range: {at}")
}

/// The byte where a character begins; the end is one, too.
fn byte_of(of: &str, at: i64) -> Result<usize, String> {
    let at_char = place(at).ok_or_else(|| out_of_range(at))?;
    let mut places = of.char_indices().map(|(byte, _)| byte).chain([of.len()]);
    places.nth(at_char).ok_or_else(|| out_of_range(at))
}

fn char_at(of: &str, at: i64) -> Made {
    let from = byte_of(of, at)?;
    let mut buffer = [0; 4];
    let found = of[from..].chars().next();
    Ok(Value::text(
        found.map_or("", |c| c.encode_utf8(&mut buffer)),
    ))
}

fn index_of(of: &str, part: &str, from: i64) -> Made {
    let from = byte_of(of, from)?;
    let found = of[from..]
        .find(part)
        .map(|at| of[..from + at].chars().count());
    Ok(found.map_or(Value::Int(-1), Value::size))
}

fn last_index_of(of: &str, part: &str, from: Option<i64>) -> Made {
    let end = match from {
        None => of.len(),
        Some(from) => {
            let from = byte_of(of, from)?;
            of.len().min(from.saturating_add(part.len()))
        }
    };
    let end = of.floor_char_boundary(end);
    let found = of[..end].rfind(part).map(|at| of[..at].chars().count());
    Ok(found.map_or(Value::Int(-1), Value::size))
}

fn replace(of: &str, from: &str, to: &str, most: i64) -> String {
    match place(most) {
        None => of.replace(from, to),
        Some(most) => of.replacen(from, to, most),
    }
}

fn split(of: &str, by: &str, most: i64) -> Value {
    let chars = || of.char_indices().map(|(at, c)| &of[at..at + c.len_utf8()]);
    let parts: Vec<&str> = match (place(most), by) {
        (Some(0), _) => Vec::new(),
        (None, "") => chars().collect(),
        (Some(most), "") => {
            let mut parts: Vec<&str> = chars().take(most - 1).collect();
            let rest: usize = parts.iter().map(|part| part.len()).sum();
            if rest < of.len() {
                parts.push(&of[rest..]);
            }
            parts
        }
        (None, by) => of.split(by).collect(),
        (Some(most), by) => of.splitn(most, by).collect(),
    };
    Value::list(parts.into_iter().map(Value::text).collect())
}

fn substring(of: &str, from: i64, to: i64) -> Made {
    if from > to {
        return Err(format!("invalid substring range. start: {from}, end: {to}"));
    }
    Ok(Value::text(&of[byte_of(of, from)?..byte_of(of, to)?]))
}

fn join(values: &[Value], between: &str) -> Made {
    let texts: Option<Vec<&str>> = values
        .iter()
        .map(|value| match value {
            Value::Text(text) => Some(&**text),
            _ => None,
        })
        .collect();
    texts
        .map(|texts| Value::text(texts.join(between)))
        .ok_or_else(no_overload)
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

//! How big what a function makes will be: known before it is made.

use super::texts;
use crate::definitions::rules::value::Value;

/// What all that one evaluation makes may take, in bytes.
pub(in crate::definitions::rules) const ROOM: u64 = 16 << 20;
/// What one item of a list takes, with what the allocator keeps of it.
pub(in crate::definitions::rules) const ITEM: u64 = 64;
/// The longest a number is written.
const NUMBER: u64 = 450;

const _: () = assert!(size_of::<Value>() as u64 <= ITEM);

fn length(text: &str) -> u64 {
    text.len() as u64
}

fn items(count: usize) -> u64 {
    (count as u64).saturating_mul(ITEM)
}

/// The most bytes of what a call makes, as far as they are its own; beyond [`ROOM`], any number
/// that is, too.
pub(in crate::definitions::rules) fn made(name: &str, arguments: &[Value]) -> u64 {
    let most = |at: usize| match arguments.get(at) {
        Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    match (name, arguments) {
        ("_+_", [Value::Text(a), Value::Text(b)]) => length(a) + length(b),
        ("_+_", [Value::Bytes(a), Value::Bytes(b)]) => (a.len() + b.len()) as u64,
        ("_+_", [Value::List(a), Value::List(b)]) => items(a.values.len() + b.values.len()),
        ("replace", [Value::Text(of), Value::Text(from), Value::Text(to), ..]) => {
            let times = of.matches(&**from).take(most(3)).count() as u64;
            let added = times.saturating_mul(length(to));
            (length(of) - times * length(from)).saturating_add(added)
        }
        ("join", [Value::List(list), rest @ ..]) => {
            let between = rest.first().map_or(0, |text| written(text, ROOM));
            let each = list.values.iter().map(|text| match text {
                Value::Text(text) => length(text).saturating_add(between),
                _ => 0,
            });
            each.fold(0, u64::saturating_add)
        }
        ("format", [Value::Text(of), Value::List(list)]) => {
            let mut left = ROOM + 1;
            for value in &list.values {
                // Bytes may be written as two digits each.
                let one = written(value, left).saturating_mul(2) + NUMBER;
                left = left.saturating_sub(one);
            }
            (ROOM + 1 - left).saturating_add(length(of))
        }
        ("strings.quote", [Value::Text(of)]) => length(of) * 2 + 2,
        ("split", [Value::Text(of), Value::Text(by), ..]) => {
            let parts = of.matches(&**by).take(most(2)).count();
            items(parts + 1) + length(of)
        }
        ("findAll", [Value::Text(of), Value::Text(by), ..]) => {
            let found = texts::pattern(by).map_or(0, |by| by.find_iter(of).take(most(2)).count());
            items(found) + length(of)
        }
        ("lists.range", [Value::Int(count)]) => items(usize::try_from(*count).unwrap_or(0)),
        ("flatten", [Value::List(list), rest @ ..]) => {
            let depth = match rest {
                [Value::Int(depth)] => *depth,
                _ => 1,
            };
            let mut left = ROOM / ITEM + 1;
            flat(&list.values, depth, &mut left);
            (ROOM / ITEM + 1 - left) * ITEM
        }
        ("getQuery", [Value::Url(url)]) => url.length().saturating_mul(ITEM),
        (_, [Value::Url(url), ..]) => url.length(),
        ("reverse" | "slice" | "distinct" | "sort" | "optional.unwrap" | "unwrapOpt", of) => {
            match of.first() {
                Some(Value::List(list)) => items(list.values.len()),
                Some(of) => written(of, ROOM),
                None => 0,
            }
        }
        ("find" | "charAt" | "lowerAscii" | "upperAscii" | "trim" | "substring", [of, ..]) => {
            written(of, ROOM)
        }
        ("bytes" | "string" | "url" | "semver", [of, ..]) => written(of, ROOM),
        _ => 0,
    }
}

/// Counts the items of a flat list, as far as `left` goes: lists within may be the same one.
fn flat(values: &[Value], depth: i64, left: &mut u64) {
    for value in values {
        // Also a list that holds nothing has to be looked at.
        *left = left.saturating_sub(1);
        if *left == 0 {
            return;
        }
        if let Value::List(inner) = value
            && depth > 0
        {
            flat(&inner.values, depth - 1, left);
        }
    }
}

/// How long a value is as text, as far as `most` goes.
fn written(value: &Value, most: u64) -> u64 {
    let mut left = most;
    write(value, &mut left);
    most - left
}

fn write(value: &Value, left: &mut u64) {
    let own = match value {
        Value::Text(text) => length(text) + 4,
        // What is no text is told so in three bytes.
        Value::Bytes(bytes) => bytes.len() as u64 * 3 + 4,
        Value::Double(_) => NUMBER,
        Value::List(_) | Value::Map(_) => 4,
        Value::Version(_) | Value::Url(_) => 32,
        _ => 40,
    };
    *left = left.saturating_sub(own);
    match value {
        Value::List(list) => {
            for item in &list.values {
                if *left == 0 {
                    return;
                }
                write(item, left);
            }
        }
        Value::Map(map) => {
            for (key, item) in map.iter() {
                if *left == 0 {
                    return;
                }
                write(&key.value(), left);
                write(item, left);
            }
        }
        Value::Optional(Some(inner)) => write(inner, left),
        _ => {}
    }
}

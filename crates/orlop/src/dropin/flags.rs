//! Command lines as Go programs read them.
//!
//! Two dialects: Go's own `flag` (`-x`, `--x`, a value after `=` or as the next word, the first
//! word that is no flag ends them) and `pflag` (`--long`, `-v`, flags anywhere). What is said of a
//! wrong word, and what the program ends with, is theirs too: scripts match on it.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _, time::Duration};

use super::duration;

#[cfg(test)]
mod tests;

/// What a flag's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Duration,
    Text,
    /// `A=true,B=false`; given again it adds.
    Gates,
    /// `key:value,key:value`, kept as it is written.
    Labels,
}

/// Whether we do what a flag asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// It is done.
    Done,
    /// There is nothing here that it could change.
    Moot,
    /// Only with its default; anything else is refused, for this reason.
    DefaultOnly(&'static str),
}

/// A flag.
#[derive(Debug, Clone)]
pub(super) struct Flag {
    pub(super) name: Cow<'static, str>,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
    pub(super) help: Cow<'static, str>,
    pub(super) support: Support,
}

/// How a program reads its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Go,
    Pflag,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Duration(Duration),
    Text(String),
    Gates(BTreeMap<String, bool>),
}

/// Why a program does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its help was asked for.
    Help,
    /// A word is wrong.
    Wrong(String),
}

/// The flags that were given, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Given(BTreeMap<String, Value>);

impl Given {
    /// What a flag was set to, if it was.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// All that were set.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn set(&mut self, flag: &Flag, value: Value) {
        match (self.0.get_mut(&*flag.name), value) {
            (Some(Value::Gates(all)), Value::Gates(more)) => all.extend(more),
            (_, value) => {
                self.0.insert(flag.name.clone().into_owned(), value);
            }
        }
    }
}

impl Flag {
    /// Its value when it is not given.
    pub(super) fn default(&self) -> Value {
        // Checked by a test for every flag of every program.
        read(self.kind, self.default).unwrap_or(Value::Text(self.default.to_owned()))
    }
}

/// Reads a program's words, without its name.
pub(super) fn parse(flags: &[Flag], dialect: Dialect, words: &[String]) -> Result<Given, Stop> {
    let mut given = Given::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match dialect {
            Dialect::Go => {
                if !go_word(flags, word, &mut words, &mut given)? {
                    break;
                }
            }
            Dialect::Pflag => {
                if !pflag_word(flags, word, &mut words, &mut given)? {
                    break;
                }
            }
        }
    }
    Ok(given)
}

type Words<'a> = std::slice::Iter<'a, String>;

/// Takes one word, and its value's; says whether there may be more flags.
fn go_word(
    flags: &[Flag],
    word: &str,
    rest: &mut Words<'_>,
    given: &mut Given,
) -> Result<bool, Stop> {
    let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else {
        return Ok(false);
    };
    let name = match name.strip_prefix('-') {
        Some("") => return Ok(false),
        Some(name) => name,
        None => name,
    };
    if name.starts_with(['-', '=']) {
        return Err(Stop::Wrong(format!("bad flag syntax: {word}")));
    }
    let (name, value) = split(name);
    let Some(flag) = flags.iter().find(|flag| flag.name == name) else {
        return Err(match name {
            "help" | "h" => Stop::Help,
            _ => Stop::Wrong(format!("flag provided but not defined: -{name}")),
        });
    };
    let value = match (flag.kind, value) {
        (_, Some(value)) => value,
        (Kind::Bool, None) => "true",
        (_, None) => rest
            .next()
            .ok_or_else(|| Stop::Wrong(format!("flag needs an argument: -{name}")))?,
    };
    let read = read(flag.kind, value).map_err(|why| {
        Stop::Wrong(match flag.kind {
            Kind::Bool => format!("invalid boolean value {value:?} for -{name}: {why}"),
            _ => format!("invalid value {value:?} for flag -{name}: {why}"),
        })
    })?;
    given.set(flag, read);
    Ok(true)
}

fn pflag_word(
    flags: &[Flag],
    word: &str,
    rest: &mut Words<'_>,
    given: &mut Given,
) -> Result<bool, Stop> {
    if word == "--" {
        return Ok(false);
    }
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').filter(|name| !name.is_empty());
    let (name, value, said) = match (long, short) {
        (Some(name), _) => {
            if name.starts_with(['-', '=']) {
                return Err(Stop::Wrong(format!("bad flag syntax: {word}")));
            }
            let (name, value) = split(name);
            (name, value, format!("--{name}"))
        }
        (None, Some(letters)) => {
            let end = letters.chars().next().map_or(0, char::len_utf8);
            let (letter, value) = letters.split_at(end);
            let value = value.strip_prefix('=').unwrap_or(value);
            let value = Some(value).filter(|value| !value.is_empty());
            (letter, value, format!("-{letter}, --{letter}"))
        }
        // A word that is no flag; flags may follow it.
        (None, None) => return Ok(true),
    };
    let Some(flag) = flags.iter().find(|flag| flag.name == name) else {
        return Err(match (name, long) {
            ("help", Some(_)) | ("h", None) => Stop::Help,
            (_, Some(_)) => Stop::Wrong(format!("unknown flag: --{name}")),
            (_, None) => Stop::Wrong(format!("unknown shorthand flag: '{name}' in {word}")),
        });
    };
    let value = match (flag.kind, value) {
        (_, Some(value)) => value,
        (Kind::Bool, None) => "true",
        (_, None) => rest.next().ok_or_else(|| {
            Stop::Wrong(match long {
                Some(_) => format!("flag needs an argument: --{name}"),
                None => format!("flag needs an argument: '{name}' in {word}"),
            })
        })?,
    };
    let read = read(flag.kind, value).map_err(|why| {
        Stop::Wrong(format!(
            "invalid argument {value:?} for {said:?} flag: {why}"
        ))
    })?;
    given.set(flag, read);
    Ok(true)
}

fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}

/// Reads a value, or says why it is none.
pub(super) fn read(kind: Kind, text: &str) -> Result<Value, String> {
    let none = || "parse error".to_owned();
    match kind {
        Kind::Bool => boolean(text).map(Value::Bool).ok_or_else(none),
        Kind::Int => integer(text).map(Value::Int).ok_or_else(none),
        Kind::Float => text.parse().map(Value::Float).map_err(|_| none()),
        Kind::Duration => duration::parse(text)
            .map(Value::Duration)
            .ok_or_else(|| format!("time: invalid duration {text:?}")),
        Kind::Text => Ok(Value::Text(text.to_owned())),
        Kind::Gates => gates(text).map(Value::Gates),
        Kind::Labels => labels(text).map(|()| Value::Text(text.to_owned())),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A whole number, in the base that its beginning names.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let based = [("0x", 16), ("0b", 2), ("0o", 8)]
        .iter()
        .find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, *base)));
    let (digits, base) = match based {
        Some(based) => based,
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (&*lower, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    Some(sign * i64::from_str_radix(digits, base).ok()?)
}

fn gates(text: &str) -> Result<BTreeMap<String, bool>, String> {
    let mut gates = BTreeMap::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("malformed pair, expect string=bool: {pair}"))?;
        let value = boolean(value.trim())
            .ok_or_else(|| format!("invalid value of {name}: {value}, expect true or false"))?;
        gates.insert(name.trim().to_owned(), value);
    }
    Ok(gates)
}

fn labels(text: &str) -> Result<(), String> {
    let mut pairs = text.split(',').filter(|_| !text.is_empty());
    match pairs.find(|pair| pair.matches(':').count() != 1) {
        Some(pair) => Err(format!("malformed item in list of labels: {pair}")),
        None => Ok(()),
    }
}

/// What `-help` prints, below its first line.
pub(super) fn usage(flags: &[Flag], dialect: Dialect) -> String {
    let mut flags: Vec<&Flag> = flags.iter().collect();
    flags.sort_by(|a, b| a.name.cmp(&b.name));
    let width = flags.iter().map(|flag| head(flag).len()).max();
    let mut text = String::new();
    for flag in flags {
        let default = shown_default(flag).map(|default| format!(" (default {default})"));
        let default = default.unwrap_or_default();
        let help = &flag.help;
        // Writing into a string can't fail.
        let _ = match dialect {
            Dialect::Go => writeln!(text, "  -{}\n    \t{help}{default}", head(flag)),
            Dialect::Pflag => {
                let dashes = if flag.name.len() == 1 { "  -" } else { "--" };
                let width = width.unwrap_or(0);
                writeln!(text, "    {dashes}{:<width$}   {help}{default}", head(flag))
            }
        };
    }
    text
}

/// A flag's default as help shows it, if it is worth a word.
pub(super) fn shown_default(flag: &Flag) -> Option<String> {
    match (flag.kind, flag.default) {
        (_, "" | "0" | "0s" | "false") => None,
        (Kind::Text | Kind::Labels, default) => Some(format!("{default:?}")),
        (_, default) => Some(default.to_owned()),
    }
}

/// A flag's name and what it takes.
fn head(flag: &Flag) -> String {
    let takes = match flag.kind {
        Kind::Bool => return flag.name.to_string(),
        Kind::Int => "int",
        Kind::Float => "float",
        Kind::Duration => "duration",
        Kind::Text | Kind::Labels => "string",
        Kind::Gates => "mapStringBool",
    };
    format!("{} {takes}", flag.name)
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Duration(value) => f.write_str(&duration::text(*value)),
            Self::Text(value) => f.write_str(value),
            Self::Gates(gates) => {
                let pairs: Vec<String> = gates.iter().map(|(n, v)| format!("{n}={v}")).collect();
                f.write_str(&pairs.join(","))
            }
        }
    }
}

//! Reads the table of field numbers.
//!
//! ```text
//! package io.k8s.api.core.v1 v1     messages that follow belong here; their apiVersion
//! message Volume
//!   1 name string?, 2 + VolumeSource
//! ```
//! A field is its number, its name in JSON and its type: a scalar (see [`Scalar`]), `[T]`,
//! `{T}`, or a message of the same package or of another (`meta.T`). The name `+` stands
//! for a message whose fields are the parent's in JSON. A type ends in `?` where zero is
//! something to say: for others, Go's encoder writes a zero that nobody set.

use std::collections::HashMap;
use std::sync::LazyLock;

const NUMBERS: &str = include_str!("numbers.txt");

/// All messages.
#[derive(Debug)]
pub(super) struct Table {
    messages: Vec<Message>,
    /// By apiVersion, then by name.
    by_name: HashMap<&'static str, HashMap<&'static str, usize>>,
}

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    api_version: &'static str,
    #[cfg(test)]
    pub(super) name: &'static str,
    /// In the order of their numbers.
    pub(super) fields: Vec<Field>,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// In JSON; empty if the fields of this one stand in its place.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// Whether a zero was set by somebody.
    pub(super) keeps_zero: bool,
}

/// What a field holds.
#[derive(Debug)]
pub(super) enum Shape {
    One(Type),
    List(Type),
    Map(Type),
}

/// What a value is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    Scalar(Scalar),
    Message(MessageId),
}

/// A message of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageId(usize);

/// Leaves, and the messages that are leaves in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON text in a message of its own: `FieldsV1`, `RawExtension`.
    Json,
    /// A list of strings in a message of its own.
    Strings,
}

/// The table.
pub(super) fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| parse(NUMBERS).expect("the table is part of the program and is tested"));
    &TABLE
}

impl Table {
    /// The message of a kind.
    pub(super) fn find(&self, api_version: &str, name: &str) -> Option<&Message> {
        // Every group has these two, all the same.
        let api_version = match name {
            "Status" | "DeleteOptions" => "meta.k8s.io/v1",
            _ => api_version,
        };
        let at = self.by_name.get(api_version)?.get(name)?;
        Some(&self.messages[*at])
    }

    pub(super) fn get(&self, id: MessageId) -> &Message {
        &self.messages[id.0]
    }

    #[cfg(test)]
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }
}

/// Reads a table; the error is the line that makes no sense.
fn parse(text: &'static str) -> Result<Table, &'static str> {
    let lines = || {
        text.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    };
    let mut table = Table {
        messages: Vec::new(),
        by_name: HashMap::new(),
    };
    // Messages refer to messages further down: names first, then fields.
    let mut packages: HashMap<&str, &'static str> = HashMap::new();
    let mut api_version = "";
    for line in lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("package"), Some(package), Some(version)) => {
                api_version = version;
                let short = package.rsplit('.').nth(1).ok_or(line)?;
                packages.insert(short, version);
            }
            (Some("message"), Some(name), None) => {
                let at = table.messages.len();
                let known = table.by_name.entry(api_version).or_default();
                if known.insert(name, at).is_some() {
                    return Err(line);
                }
                table.messages.push(Message {
                    api_version,
                    #[cfg(test)]
                    name,
                    fields: Vec::new(),
                });
            }
            _ => {}
        }
    }
    let mut open = None;
    for line in lines() {
        if let Some(fields) = line.strip_prefix("  ") {
            let at: usize = open.ok_or(line)?;
            for field in fields.trim_end_matches(',').split(", ") {
                let home = table.messages[at].api_version;
                let field = parse_field(&table, &packages, home, field).ok_or(line)?;
                table.messages[at].fields.push(field);
            }
        } else if line.starts_with("message ") {
            open = Some(open.map_or(0, |at| at + 1));
        }
    }
    Ok(table)
}

fn parse_field(
    table: &Table,
    packages: &HashMap<&str, &'static str>,
    home: &'static str,
    text: &'static str,
) -> Option<Field> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let written = words.next()?;
    let keeps_zero = written.ends_with('?');
    let written = written.trim_end_matches('?');
    let type_of = |text: &str| {
        if let Some(scalar) = scalar(text) {
            return Some(Type::Scalar(scalar));
        }
        let (api_version, name) = match text.split_once('.') {
            Some((package, name)) => (*packages.get(package)?, name),
            None => (home, text),
        };
        let at = table.by_name.get(api_version)?.get(name)?;
        Some(Type::Message(MessageId(*at)))
    };
    let inner = |open, close| written.strip_prefix(open)?.strip_suffix(close);
    let shape = if let Some(items) = inner('[', ']') {
        Shape::List(type_of(items)?)
    } else if let Some(values) = inner('{', '}') {
        Shape::Map(type_of(values)?)
    } else {
        Shape::One(type_of(written)?)
    };
    Some(Field {
        number,
        name: if name == "+" { "" } else { name },
        shape,
        keeps_zero,
    })
}

fn scalar(text: &str) -> Option<Scalar> {
    Some(match text {
        "string" => Scalar::String,
        "bytes" => Scalar::Bytes,
        "bool" => Scalar::Bool,
        "i32" => Scalar::Int32,
        "i64" => Scalar::Int64,
        "double" => Scalar::Double,
        "time" => Scalar::Time,
        "micro-time" => Scalar::MicroTime,
        "quantity" => Scalar::Quantity,
        "int-or-string" => Scalar::IntOrString,
        "fields" | "raw" => Scalar::Json,
        "strings" => Scalar::Strings,
        _ => return None,
    })
}

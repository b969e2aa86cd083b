//! What is printed of objects of a defined kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table;

/// `additionalPrinterColumns`.
#[derive(Debug)]
pub(crate) struct Columns(Vec<Column>);

#[derive(Debug)]
struct Column {
    head: Value,
    path: Path,
    kind: Kind,
}

/// What a column shows of a value; of one that isn't of its type, nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Number,
    Boolean,
    String,
    Date,
}

impl Columns {
    pub(super) fn parse(columns: &Value) -> Self {
        let columns = columns.as_array().filter(|columns| !columns.is_empty());
        let age =
            json!([{ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }]);
        let columns = columns.or(age.as_array()).into_iter().flatten();
        Self(columns.filter_map(Column::parse).collect())
    }

    /// The columns after the name.
    pub(crate) fn heads(&self) -> impl Iterator<Item = Value> {
        self.0.iter().map(|column| column.head.clone())
    }

    /// An object's cells after its name.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> impl Iterator<Item = Value> {
        self.0.iter().map(move |column| {
            let found = column.path.first(object);
            found.map_or(Value::Null, |value| column.kind.cell(value, now))
        })
    }
}

impl Kind {
    fn parse(name: &str) -> Self {
        match name {
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            _ => Self::String,
        }
    }

    fn cell(self, value: &Value, now: Timestamp) -> Value {
        match (self, value) {
            (_, Value::Null) => Value::Null,
            (Self::String, Value::String(_))
            | (Self::Number, Value::Number(_))
            | (Self::Boolean, Value::Bool(_)) => value.clone(),
            (Self::String, other) => other.to_string().into(),
            (Self::Integer, Value::Number(number)) => match number.as_i64() {
                Some(whole) => whole.into(),
                None => (number.as_f64().unwrap_or(0.0) as i64).into(),
            },
            (Self::Date, Value::String(time)) => match time.parse::<Timestamp>() {
                Ok(_) => table::since(time, now).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

impl Column {
    fn parse(column: &Value) -> Option<Self> {
        let kind = column["type"].as_str().unwrap_or("string");
        let text = |name: &str| column[name].as_str().unwrap_or("");
        Some(Self {
            head: json!({
                "name": column["name"],
                "type": kind,
                "format": text("format"),
                "description": match text("description") {
                    "" => format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        text("jsonPath")
                    ),
                    given => given.to_owned(),
                },
                "priority": column["priority"].as_i64().unwrap_or(0),
            }),
            path: Path::parse(text("jsonPath"))?,
            kind: Kind::parse(kind),
        })
    }
}

/// The part of JSONPath that columns use: `.a.b`, `['a']`, `[0]`, `[*]`, `[?(@.a=="b")]`.
#[derive(Debug, PartialEq)]
pub(super) struct Path(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
    All,
    Where(Path, Value),
}

impl Path {
    /// Reads a path; none if it isn't understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        rest = rest
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(rest);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = close(after)?;
                steps.push(Step::parse(&after[..end])?);
                rest = &after[end + 1..];
            } else {
                let after = rest.strip_prefix('.')?;
                let mut name = String::new();
                let mut chars = after.char_indices();
                rest = loop {
                    match chars.next() {
                        Some((_, '\\')) => name.push(chars.next()?.1),
                        Some((at, '.' | '[')) => break &after[at..],
                        Some((_, c)) => name.push(c),
                        None => break "",
                    }
                };
                if name.is_empty() {
                    return None;
                }
                steps.push(Step::Field(name));
            }
        }
        Some(Self(steps))
    }

    fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        follow(&self.0, value)
    }
}

/// Where the bracket that was opened closes, outside of quotes.
fn close(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    None
}

impl Step {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Some(name) = quoted(text) {
            return Some(Self::Field(name.to_owned()));
        }
        let filter = text
            .strip_prefix("?(")
            .and_then(|text| text.strip_suffix(')'));
        if let Some(filter) = filter {
            let (path, value) = filter.split_once("==")?;
            let path = Path::parse(path.trim().strip_prefix('@')?)?;
            let value = match quoted(value.trim()) {
                Some(text) => text.into(),
                None => serde_json::from_str(value.trim()).ok()?,
            };
            return Some(Self::Where(path, value));
        }
        text.parse().ok().map(Self::Item)
    }
}

fn quoted(text: &str) -> Option<&str> {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"'))
}

fn follow<'v>(steps: &[Step], value: &'v Value) -> Option<&'v Value> {
    let Some((step, rest)) = steps.split_first() else {
        return (!value.is_null()).then_some(value);
    };
    match step {
        Step::Field(name) => follow(rest, value.get(name)?),
        Step::Item(at) => follow(rest, value.get(at)?),
        Step::All => value.as_array()?.iter().find_map(|item| follow(rest, item)),
        Step::Where(path, wanted) => {
            let fits = |item: &&Value| path.first(item) == Some(wanted);
            let mut items = value.as_array()?.iter().filter(fits);
            items.find_map(|item| follow(rest, item))
        }
    }
}

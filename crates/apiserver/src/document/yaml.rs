//! YAML, as far as it says what JSON can: the first document of a stream, with references
//! and merge keys, both bounded.

use std::collections::BTreeMap;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

use super::{DEEPEST, Unreadable, scalar};

/// The most bytes of JSON that references may repeat, as long as a body may be.
const MOST_REPEATED: usize = 3 << 20;
const MERGE: &str = "<<";

/// The value, and a line for each key that stands twice; the last one counts.
pub(super) fn read(text: &[u8]) -> Result<(Value, Vec<String>), Unreadable> {
    let text = std::str::from_utf8(text)
        .map_err(|_| malformed("yaml: invalid leading UTF-8 octet".to_owned()))?;
    let mut options = Options::default();
    options.emit_comments = false;
    options.flow_nesting_limit = DEEPEST + 1;
    options.block_nesting_limit = DEEPEST + 1;
    let mut reader = Reader {
        // A text may lack the end of its last line.
        unended: (!text.ends_with('\n')).then(|| text.chars().count()),
        ..Reader::default()
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
                Unreadable::Deep
            } else {
                malformed(format!(
                    "yaml: line {}: {}",
                    error.marker().line(),
                    error.info()
                ))
            }
        })?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        reader.take(event, span)?;
    }
    Ok((reader.whole.unwrap_or(Value::Null), reader.repeated))
}

fn malformed(what: String) -> Unreadable {
    Unreadable::Malformed(what)
}

/// A collection that has not ended yet.
enum Open {
    Map {
        fields: Map<String, Value>,
        key: Option<Key>,
        /// What merge keys brought: counts where nothing else was said.
        merged: Map<String, Value>,
        anchor: usize,
        line: usize,
    },
    List {
        items: Vec<Value>,
        anchor: usize,
        line: usize,
    },
}

enum Key {
    Field(String),
    Merge,
}

#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Value>,
    copied: usize,
    whole: Option<Value>,
    repeated: Vec<String>,
    /// How many characters there are, if the last line lacks its end: then a block scalar
    /// that reaches it does, too.
    unended: Option<usize>,
}

impl Reader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Unreadable> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().and_then(|tag| tag.core_suffix());
                let is_key = matches!(self.open.last(), Some(Open::Map { key: None, .. }));
                if is_key && style == ScalarStyle::Plain && text == MERGE {
                    if let Some(Open::Map { key, .. }) = self.open.last_mut() {
                        *key = Some(Key::Merge);
                    }
                    return Ok(());
                }
                let value = match (style, tag) {
                    (_, Some("str")) => Value::from(text.as_ref()),
                    (ScalarStyle::Plain, _) => scalar::plain(&text)
                        .ok_or_else(|| malformed(format!("json: unsupported value: {text}")))?,
                    (ScalarStyle::Literal | ScalarStyle::Folded, _)
                        if self.unended.is_some_and(|end| span.end.index() >= end) =>
                    {
                        Value::from(text.strip_suffix('\n').unwrap_or(&text))
                    }
                    _ => Value::from(text.as_ref()),
                };
                self.put(value, anchor, span.start.line())
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                // A collection that names itself isn't known before it has ended.
                let value = value
                    .ok_or_else(|| malformed("yaml: anchor value contains itself".to_owned()))?;
                self.copied += value.to_string().len();
                if self.copied > MOST_REPEATED {
                    return Err(Unreadable::Aliases);
                }
                if self.open.len() + super::depth(&value) > DEEPEST {
                    return Err(Unreadable::Deep);
                }
                self.put(value, 0, span.start.line())
            }
            Event::SequenceStart(_, anchor, _) => {
                let items = Vec::new();
                let line = span.start.line();
                self.enter(Open::List {
                    items,
                    anchor,
                    line,
                })
            }
            Event::MappingStart(_, anchor, _) => self.enter(Open::Map {
                fields: Map::new(),
                key: None,
                merged: Map::new(),
                anchor,
                line: span.start.line(),
            }),
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, open: Open) -> Result<(), Unreadable> {
        if self.open.len() >= DEEPEST {
            return Err(Unreadable::Deep);
        }
        self.open.push(open);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Unreadable> {
        match self.open.pop() {
            Some(Open::Map {
                mut fields,
                merged,
                anchor,
                line,
                ..
            }) => {
                for (name, value) in merged {
                    fields.entry(name).or_insert(value);
                }
                self.put(fields.into(), anchor, line)
            }
            Some(Open::List {
                items,
                anchor,
                line,
            }) => self.put(items.into(), anchor, line),
            None => Ok(()),
        }
    }

    /// Puts a value where it belongs: in the collection around it, or nowhere.
    fn put(&mut self, value: Value, anchor: usize, line: usize) -> Result<(), Unreadable> {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
            self.copied += value.to_string().len();
        }
        match self.open.last_mut() {
            None => self.whole = Some(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map {
                key: key @ None, ..
            }) => *key = Some(Key::Field(name(value)?)),
            Some(Open::Map {
                fields,
                key,
                merged,
                ..
            }) => match key.take() {
                Some(Key::Merge) => merge(merged, value)?,
                Some(Key::Field(name)) => {
                    let told = format!("line {line}: key {name:?} already set in map");
                    if fields.insert(name, value).is_some() {
                        self.repeated.push(told);
                    }
                }
                None => {}
            },
        }
        Ok(())
    }
}

/// A key as JSON can have it.
fn name(key: Value) -> Result<String, Unreadable> {
    match key {
        Value::String(name) => Ok(name),
        Value::Bool(_) | Value::Number(_) => Ok(key.to_string()),
        Value::Null => Err(malformed("yaml: a key must not be null".to_owned())),
        Value::Array(_) | Value::Object(_) => {
            Err(malformed("yaml: a key must be a scalar".to_owned()))
        }
    }
}

/// What is merged first counts.
fn merge(into: &mut Map<String, Value>, from: Value) -> Result<(), Unreadable> {
    match from {
        Value::Object(fields) => {
            for (name, value) in fields {
                into.entry(name).or_insert(value);
            }
            Ok(())
        }
        Value::Array(all) if all.iter().all(Value::is_object) => {
            all.into_iter().try_for_each(|one| merge(into, one))
        }
        _ => Err(malformed(
            "yaml: map merge requires map or sequence of maps as the value".to_owned(),
        )),
    }
}

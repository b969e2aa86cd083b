//! Bodies as they come: text that may be malformed, nested without end, or say a field twice.
//!
//! It owns the way from bytes to JSON values, with limits that hold before memory is taken.
//! What the values mean is [`crate::schema`]'s to say. Nothing here panics or recurses
//! deeper than [`DEEPEST`], whatever the bytes are.

mod json;
mod scalar;
mod surrogates;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;

use json::Mistake;

/// How deep objects and lists may be nested, in a body and in what patches make of it.
pub(crate) const DEEPEST: usize = 100;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
}

/// Why a body is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It ends too early.
    #[error("unexpected end of JSON input")]
    End,
    /// It is nested too deep.
    #[error("exceeded max depth: more than {DEEPEST} levels")]
    Deep,
    /// It breaks the grammar, in the parser's words.
    #[error("{0}")]
    Malformed(String),
    /// Its references name more than a body may hold.
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
}

/// A body that was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) source: Source,
}

/// What a value doesn't tell of the text that it was read from.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Lines on keys of a YAML text that stand twice.
    lines: Vec<String>,
    /// Paths of fields of a JSON text that stand twice.
    repeated: Vec<Mistake>,
    /// The JSON text: mistakes are told in the order of its fields.
    text: Option<Bytes>,
    /// What is wrong with the operations of a JSON patch.
    operations: Vec<String>,
    /// Whether it is a patch.
    patch: bool,
}

/// Reads a body.
pub(crate) fn read(form: Form, body: &Bytes) -> Result<Document, Unreadable> {
    let mut source = Source::default();
    let value = match form {
        Form::Json => {
            let body = surrogates::mended(body);
            let (value, repeated) = json::read(&body)?;
            source.repeated = repeated;
            source.text = Some(body);
            value
        }
        Form::Yaml => {
            let (value, lines) = yaml::read(body)?;
            source.lines = lines;
            value
        }
    };
    Ok(Document { value, source })
}

impl Source {
    /// The same text as a patch, which tells nothing of the order of an object's fields.
    pub(crate) fn of_patch(mut self) -> Self {
        self.text = None;
        self.patch = true;
        self
    }

    /// The same text as a JSON patch, whose operations have these fields.
    pub(crate) fn of_json_patch(self, operations: &Value) -> Self {
        const KNOWN: [&str; 4] = ["op", "path", "from", "value"];
        let mut unknown = BTreeSet::new();
        for (at, operation) in operations.as_array().into_iter().flatten().enumerate() {
            let fields = operation.as_object().into_iter().flatten();
            let others = fields.filter(|(name, _)| !KNOWN.contains(&name.as_str()));
            unknown.extend(others.map(|(name, _)| format!("[{at}].{name}")));
        }
        let mistakes = self.fields(&unknown).into_iter();
        let operations = mistakes
            .map(|mistake| format!("json patch {mistake}"))
            .collect();
        Self {
            operations,
            ..Self::default()
        }
        .of_patch()
    }

    /// The same text, of whose order nothing is known.
    pub(crate) fn unordered(mut self) -> Self {
        self.text = None;
        self
    }

    /// Whether the text is a patch rather than an object.
    pub(crate) fn is_patch(&self) -> bool {
        self.patch
    }

    /// Lines on keys of a YAML text that stand twice, as the original's reader has them; empty
    /// if none do.
    pub(crate) fn yaml_error(&self) -> String {
        if self.lines.is_empty() {
            return String::new();
        }
        format!("yaml: unmarshal errors:\n  {}", self.lines.join("\n  "))
    }

    /// What to warn of, given the fields that are unknown.
    pub(crate) fn warnings(&self, unknown: &BTreeSet<String>) -> Vec<String> {
        let lines = self.lines.iter().chain(&self.operations).cloned();
        lines.chain(self.fields(unknown)).collect()
    }

    /// The same as one error; empty if there is nothing to tell.
    pub(crate) fn error(&self, unknown: &BTreeSet<String>) -> String {
        let lines = Some(self.yaml_error()).filter(|text| !text.is_empty());
        let lines = lines.into_iter().chain(self.operations.iter().cloned());
        let all: Vec<String> = lines.chain(self.fields(unknown)).collect();
        all.join(", ")
    }

    fn fields(&self, unknown: &BTreeSet<String>) -> Vec<String> {
        let ordered = match &self.text {
            Some(text) if self.repeated.len() + unknown.len() > 1 => json::in_order(text, unknown),
            _ => {
                let unknown = unknown.iter().cloned().map(Mistake::Unknown);
                self.repeated.iter().cloned().chain(unknown).collect()
            }
        };
        let text = |mistake| match mistake {
            Mistake::Repeated(path) => format!("duplicate field \"{path}\""),
            Mistake::Unknown(path) => format!("unknown field \"{path}\""),
        };
        ordered.into_iter().map(text).collect()
    }
}

/// How deep a value is nested: a scalar not at all.
pub(crate) fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, at)) = open.pop() {
        deepest = deepest.max(at);
        match value {
            Value::Object(fields) => open.extend(fields.values().map(|inner| (inner, at + 1))),
            Value::Array(items) => open.extend(items.iter().map(|inner| (inner, at + 1))),
            _ => {}
        }
    }
    deepest
}

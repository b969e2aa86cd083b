//! Reads the schema tables.
//!
//! ```text
//! package io.k8s.api.core.v1        types that follow belong here
//! kind Pod                          a type with apiVersion, kind and metadata
//! type LabelSelector atomic         a type owned as a whole
//! type Volume -- A directory ...    with a description
//!   name!: string                   a required field
//!   a: i32, b: [string]             several fields on a line
//!   protocol: string = TCP          with a default
//! ```
//! A type is a scalar (`string`, `quantity`, ...), `any`, `[T]`, `{T}`, a type
//! of the same package, or `core.T` and `meta.T` from another. After it:
//! `atomic`, `granular` (despite an atomic type), `set`, `by a+b` (keyed list,
//! patched by its first key), `replaced` (keyed, but patches replace it),
//! `merged` (a set whose patches add), `merged by a` (atomic, but patches
//! merge), `retaining` (see `ListPatch::MergeBy`), `present` (a structure that the original
//! always has, if empty; the spec and status of a kind are so without saying).

use super::{Field, ListPatch, ListType, Scalar, Schema, Shape, Type, TypeId};
use std::collections::BTreeMap;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const CORE: &str = "io.k8s.api.core.v1";
const TABLES: [&str; 10] = [
    include_str!("meta.txt"),
    include_str!("volumes.txt"),
    include_str!("pods.txt"),
    include_str!("nodes.txt"),
    include_str!("core.txt"),
    include_str!("storage.txt"),
    include_str!("coordination.txt"),
    include_str!("apiextensions.txt"),
    include_str!("access.txt"),
    include_str!("workloads.txt"),
];

/// A mistake in the tables.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TableError {
    #[error("no type is open at `{0}`")]
    NoType(String),
    #[error("`{0}` is no field")]
    NotAField(String),
    #[error("`{0}` is used but not defined")]
    Undefined(String),
    #[error("`{0}` is defined twice")]
    Twice(String),
}

pub(super) fn tables() -> Result<Schema, TableError> {
    parse(&TABLES)
}

pub(super) fn parse(tables: &[&'static str]) -> Result<Schema, TableError> {
    let mut schema = Schema {
        types: Vec::new(),
        by_name: BTreeMap::new(),
    };
    // Types refer to types further down: headers first, then fields.
    for line in lines(tables) {
        if let Line::Type {
            name,
            description,
            is_kind,
            atomic,
        } = line
        {
            let id = TypeId(schema.types.len());
            if schema.by_name.insert(name.clone(), id).is_some() {
                return Err(TableError::Twice(name));
            }
            schema.types.push(Type {
                name,
                description,
                is_kind,
                fields: BTreeMap::new(),
                atomic,
            });
        }
    }
    let mut open: Option<TypeId> = None;
    for line in lines(tables) {
        match line {
            Line::Type { name, is_kind, .. } => {
                let id = schema.by_name[&name];
                open = Some(id);
                if is_kind {
                    for (name, shape) in [
                        ("apiVersion", "string"),
                        ("kind", "string"),
                        ("metadata", "meta.ObjectMeta"),
                    ] {
                        let field = Field {
                            shape: shape_of(&schema, CORE, shape, &Merging::default())?,
                            required: false,
                            default: None,
                        };
                        schema.types[id.0].fields.insert(name, field);
                    }
                }
            }
            Line::Fields { package, text } => {
                let id = open.ok_or_else(|| TableError::NoType(text.to_owned()))?;
                for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                    let (name, mut field) = field(&schema, package, part)?;
                    if let Shape::Struct { present, .. } = &mut field.shape
                        && schema.get(id).is_kind
                        && matches!(name, "spec" | "status")
                    {
                        *present = true;
                    }
                    if schema.types[id.0].fields.insert(name, field).is_some() {
                        return Err(TableError::Twice(name.to_owned()));
                    }
                }
            }
        }
    }
    Ok(schema)
}

enum Line {
    Type {
        name: String,
        description: &'static str,
        is_kind: bool,
        atomic: bool,
    },
    Fields {
        package: &'static str,
        text: &'static str,
    },
}

fn lines(tables: &[&'static str]) -> Vec<Line> {
    let mut found = Vec::new();
    for table in tables {
        let mut package = "";
        for line in table.lines() {
            let (line, description) = line.split_once(" -- ").unwrap_or((line, ""));
            let mut words = line.split_whitespace();
            match (line.starts_with(' '), words.next()) {
                (_, None) | (false, Some("#")) => {}
                (false, Some("package")) => package = words.next().unwrap_or(""),
                (false, Some(word @ ("kind" | "type"))) => found.push(Line::Type {
                    name: format!("{package}.{}", words.next().unwrap_or("")),
                    description,
                    is_kind: word == "kind",
                    atomic: words.next() == Some("atomic"),
                }),
                _ => found.push(Line::Fields {
                    package,
                    text: line.trim(),
                }),
            }
        }
    }
    found
}

#[derive(Default)]
struct Merging {
    keys: Vec<&'static str>,
    set: bool,
    replaced: bool,
    merged: Option<Option<&'static str>>,
    retain_keys: bool,
    atomic: Option<bool>,
    present: bool,
}

fn field(
    schema: &Schema,
    package: &str,
    text: &'static str,
) -> Result<(&'static str, Field), TableError> {
    let wrong = || TableError::NotAField(text.to_owned());
    let (name, rest) = text.split_once(": ").ok_or_else(wrong)?;
    let (rest, default) = match rest.split_once(" = ") {
        Some((rest, default)) => (rest, Some(default.trim())),
        None => (rest, None),
    };
    let mut words = rest.split_whitespace().peekable();
    let shape = words.next().ok_or_else(wrong)?;
    let mut merging = Merging::default();
    while let Some(word) = words.next() {
        match word {
            "by" => merging.keys = words.next().ok_or_else(wrong)?.split('+').collect(),
            "set" => merging.set = true,
            "replaced" => merging.replaced = true,
            "merged" => {
                let key = words.next_if_eq(&"by").and_then(|_| words.next());
                merging.merged = Some(key);
            }
            "retaining" => merging.retain_keys = true,
            "atomic" => merging.atomic = Some(true),
            "granular" => merging.atomic = Some(false),
            "present" => merging.present = true,
            _ => return Err(wrong()),
        }
    }
    Ok((
        name.trim_end_matches('!'),
        Field {
            shape: shape_of(schema, package, shape, &merging)?,
            required: name.ends_with('!'),
            default,
        },
    ))
}

fn shape_of(
    schema: &Schema,
    package: &str,
    text: &str,
    merging: &Merging,
) -> Result<Shape, TableError> {
    let inner = |text| shape_of(schema, package, text, &Merging::default()).map(Box::new);
    if let Some(items) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return Ok(list_shape(inner(items)?, merging));
    }
    if let Some(values) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        return Ok(Shape::Map {
            values: inner(values)?,
            atomic: merging.atomic == Some(true),
        });
    }
    if text == "any" {
        return Ok(Shape::Any);
    }
    if let Some(scalar) = scalar(text) {
        return Ok(Shape::Scalar(scalar));
    }
    let name = match text.split_once('.') {
        Some(("core", name)) => format!("{CORE}.{name}"),
        Some(("meta", name)) => format!("{META}.{name}"),
        _ => format!("{package}.{text}"),
    };
    match schema.by_name.get(&name) {
        Some(id) => Ok(Shape::Struct {
            of: *id,
            atomic: merging.atomic.unwrap_or(schema.get(*id).atomic),
            present: merging.present,
        }),
        None => Err(TableError::Undefined(name)),
    }
}

fn list_shape(items: Box<Shape>, merging: &Merging) -> Shape {
    let list = match (merging.keys.is_empty(), merging.set) {
        (false, _) => ListType::Keyed(merging.keys.clone()),
        (true, true) => ListType::Set,
        (true, false) => ListType::Atomic,
    };
    let key = match merging.merged {
        Some(key) => key,
        None if merging.replaced => None,
        None => merging.keys.first().copied(),
    };
    let patch = match (key, merging.merged) {
        (Some(key), _) => ListPatch::MergeBy {
            key,
            retain_keys: merging.retain_keys,
        },
        (None, Some(_)) => ListPatch::Union,
        (None, None) => ListPatch::Replace,
    };
    Shape::List { items, list, patch }
}

fn scalar(word: &str) -> Option<Scalar> {
    Some(match word {
        "string" => Scalar::String,
        "bytes" => Scalar::Bytes,
        "bool" => Scalar::Bool,
        "i32" => Scalar::Int32,
        "i64" => Scalar::Int64,
        "f64" => Scalar::Float,
        "time" => Scalar::Time,
        "micro-time" => Scalar::MicroTime,
        "quantity" => Scalar::Quantity,
        "int-or-string" => Scalar::IntOrString,
        _ => return None,
    })
}

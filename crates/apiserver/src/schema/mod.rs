//! The shape of every served kind: which fields it has, of what type, and how
//! its lists and maps merge.
//!
//! One table drives strategic merge patch, server-side apply, field validation
//! and OpenAPI, so they cannot disagree. It is kept as text beside this file
//! (`*.txt`, grammar in `parse.rs`) and read once, at first use.

mod check;
mod decode;
mod parse;
#[cfg(test)]
mod tests;

pub use check::{Problems, check};
pub use decode::{DecodeError, FieldValidation, decode};

use crate::kinds::KindInfo;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Every type reachable from a served kind.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    by_name: BTreeMap<String, TypeId>,
}

/// Names one type of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId(usize);

/// A structure with named fields.
#[derive(Debug)]
pub struct Type {
    /// Full name as OpenAPI spells it, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: String,
    /// One sentence on what it is for; empty where the name says it.
    pub description: &'static str,
    /// Whether it is an object of its own, with `apiVersion` and `kind`.
    pub is_kind: bool,
    /// Its fields by name.
    pub fields: BTreeMap<&'static str, Field>,
    /// Whether one manager owns all of it or none.
    pub atomic: bool,
}

/// A field of a structure.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// What it holds.
    pub shape: Shape,
    /// Whether an object without it is invalid.
    pub required: bool,
    /// What stands there when nothing was said; matters for list keys.
    pub default: Option<&'static str>,
}

/// A structure of a kind that users defined.
#[derive(Debug, PartialEq, Eq)]
pub struct Defined {
    /// Its fields by name.
    pub fields: BTreeMap<&'static str, Field>,
    /// What fields without a name hold; none if there is no place for them.
    pub rest: Option<Shape>,
    /// Whether one manager owns all of it or none.
    pub atomic: bool,
}

/// What a place in an object may hold, and how it merges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A leaf.
    Scalar(Scalar),
    /// JSON the table says nothing of: maps merge, lists are replaced.
    Any,
    /// A structure.
    Struct {
        /// Which.
        of: TypeId,
        /// Whether one manager owns all of it or none.
        atomic: bool,
        /// Whether it is always there, if empty, so that nobody sets it as such.
        present: bool,
    },
    /// A structure of a kind that users defined.
    Defined(&'static Defined),
    /// A map from strings.
    Map {
        /// What its values are.
        values: Box<Shape>,
        /// Whether one manager owns all of it or none.
        atomic: bool,
    },
    /// A list.
    List {
        /// What its elements are.
        items: Box<Shape>,
        /// How server-side apply merges it.
        list: ListType,
        /// How a strategic merge patch merges it.
        patch: ListPatch,
    },
}

/// Leaf types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after the type it is")]
pub enum Scalar {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Float,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// Distinct scalars, each owned on its own.
    Set,
    /// Structures told apart by these fields.
    Keyed(Vec<&'static str>),
}

/// `x-kubernetes-patch-strategy` and `-merge-key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListPatch {
    /// Replaced as a whole.
    Replace,
    /// Scalars are added.
    Union,
    /// Structures with the same value of `key` are merged.
    MergeBy {
        /// The merge key.
        key: &'static str,
        /// Whether fields that a patch of an element leaves out are dropped,
        /// so that a union such as a volume source holds one member.
        retain_keys: bool,
    },
}

/// What unlisted fields look like.
pub(crate) static ANY: Shape = Shape::Any;

static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| parse::tables().expect("the tables are part of the program and are tested"));

/// The schema of everything served.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    /// The type with this id.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0]
    }

    /// The type with this full name.
    pub fn named(&self, name: &str) -> Option<&Type> {
        self.by_name.get(name).map(|id| self.get(*id))
    }

    /// The shape of every object's metadata.
    pub fn metadata(&self) -> Shape {
        match self
            .by_name
            .get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        {
            Some(id) => Shape::Struct {
                of: *id,
                atomic: false,
                present: true,
            },
            None => Shape::Any,
        }
    }

    /// The shape of a served kind; [`Shape::Any`] for one the table lacks.
    pub fn of(&self, kind: &KindInfo) -> Shape {
        if let Some(custom) = kind.custom {
            return custom.shape.clone();
        }
        match self.by_name.get(&full_name(kind)) {
            Some(id) => Shape::Struct {
                of: *id,
                atomic: false,
                present: true,
            },
            None => Shape::Any,
        }
    }
}

/// The name OpenAPI gives a kind's type.
pub fn full_name(kind: &KindInfo) -> String {
    if kind.custom.is_some() {
        let domain: Vec<&str> = kind.group.rsplit('.').collect();
        return format!("{}.{}.{}", domain.join("."), kind.version, kind.kind);
    }
    let group = match kind.group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    };
    format!("io.k8s.api.{group}.{}.{}", kind.version, kind.kind)
}

impl Shape {
    /// The shape of the map entry or field `name`, and whether it is a named
    /// field rather than an entry of an open map.
    pub fn entry(&self, name: &str) -> (&Shape, bool) {
        match self {
            Self::Struct { of, .. } => schema()
                .get(*of)
                .fields
                .get(name)
                .map_or((&ANY, false), |field| (&field.shape, true)),
            Self::Defined(of) => match of.fields.get(name) {
                Some(field) => (&field.shape, true),
                None => (of.rest.as_ref().unwrap_or(&ANY), false),
            },
            Self::Map { values, .. } => (values, false),
            Self::Scalar(_) | Self::Any | Self::List { .. } => (&ANY, false),
        }
    }

    /// Whether the field `name` is a list of elements with owners of their own that every
    /// object has, if empty, so that nobody sets the list as such.
    pub fn has_list(&self, name: &str) -> bool {
        let Self::Struct { of, .. } = self else {
            return false;
        };
        let field = schema().get(*of).fields.get(name);
        field.is_some_and(|field| field.required && *field.shape.list_type() != ListType::Atomic)
    }

    /// The shape of a list's elements.
    pub fn element(&self) -> &Shape {
        match self {
            Self::List { items, .. } => items,
            Self::Scalar(_)
            | Self::Any
            | Self::Struct { .. }
            | Self::Defined(_)
            | Self::Map { .. } => &ANY,
        }
    }

    /// Whether it is always there, if empty.
    pub fn always_present(&self) -> bool {
        matches!(self, Self::Struct { present: true, .. })
    }

    /// Whether one manager owns all of a map of this shape or none of it.
    pub fn atomic_map(&self) -> bool {
        match self {
            Self::Struct { atomic, .. } | Self::Map { atomic, .. } => *atomic,
            Self::Defined(of) => of.atomic,
            Self::Scalar(_) | Self::Any | Self::List { .. } => false,
        }
    }

    /// How server-side apply merges a list of this shape.
    pub fn list_type(&self) -> &ListType {
        match self {
            Self::List { list, .. } => list,
            Self::Scalar(_)
            | Self::Any
            | Self::Struct { .. }
            | Self::Defined(_)
            | Self::Map { .. } => &ListType::Atomic,
        }
    }

    /// How a strategic merge patch merges a list of this shape.
    pub fn list_patch(&self) -> ListPatch {
        match self {
            Self::List { patch, .. } => *patch,
            Self::Scalar(_)
            | Self::Any
            | Self::Struct { .. }
            | Self::Defined(_)
            | Self::Map { .. } => ListPatch::Replace,
        }
    }

    /// What the field `name` of a structure of this shape is when left out.
    pub fn default_of(&self, name: &str) -> Option<&'static str> {
        match self {
            Self::Struct { of, .. } => schema().get(*of).fields.get(name)?.default,
            Self::Defined(of) => of.fields.get(name)?.default,
            Self::Scalar(_) | Self::Any | Self::Map { .. } | Self::List { .. } => None,
        }
    }
}

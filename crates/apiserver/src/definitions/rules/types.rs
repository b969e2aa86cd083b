//! What is known of values before there are any.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::parse::RESERVED;
use crate::definitions::structural::{Structural, Type as Json};

/// The type of an expression.
#[derive(Debug, Clone)]
pub(crate) enum Type {
    /// Anything; known only when there is a value.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// An object with named fields.
    Object(Arc<BTreeMap<String, Type>>),
    Optional(Arc<Type>),
    /// A type as a value.
    Meta,
    /// One of the types that functions bring along, by its name.
    Named(&'static str),
    /// Not known yet.
    Variable(usize),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Variable(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Meta => f.write_str("type"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Type {
    /// The type of what a schema describes; none if rules can't speak of it.
    pub(crate) fn of(schema: &Structural, is_object: bool) -> Option<Self> {
        if schema.int_or_string {
            return Some(Self::Dyn);
        }
        Some(match schema.kind? {
            Json::Boolean => Self::Bool,
            Json::Integer => Self::Int,
            Json::Number => Self::Double,
            Json::String => match schema.limits.format.as_str() {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" | "date-time" => Self::Timestamp,
                _ => Self::Text,
            },
            Json::Array => {
                let items = schema.items.as_deref()?;
                Self::List(Arc::new(Self::of(items, items.embedded)?))
            }
            Json::Object => match &schema.additional {
                Some(inner) => {
                    let inner = Self::of(inner, inner.embedded)?;
                    Self::Map(Arc::new(Self::Text), Arc::new(inner))
                }
                None => Self::Object(Arc::new(fields(schema, is_object))),
            },
        })
    }
}

fn fields(schema: &Structural, is_object: bool) -> BTreeMap<String, Type> {
    let mut fields: BTreeMap<String, Type> = schema
        .properties
        .iter()
        .filter_map(|(name, inner)| Some((escape(name)?, Type::of(inner, inner.embedded)?)))
        .collect();
    if is_object {
        let text = |name: &str| (name.to_owned(), Type::Text);
        let names = [text("name"), text("generateName")].into_iter().collect();
        fields.extend([text("apiVersion"), text("kind")]);
        fields.insert("metadata".to_owned(), Type::Object(Arc::new(names)));
    }
    fields
}

/// Words of the language itself, which no field can be called by, beside the reserved ones.
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// How the language spells a field's name; none if it can't.
pub(super) fn escape(name: &str) -> Option<String> {
    if KEYWORDS.contains(&name) || RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(plain)
    {
        return None;
    }
    let name = name.replace("__", "__underscores__");
    let name = name.replace('.', "__dot__").replace('-', "__dash__");
    Some(name.replace('/', "__slash__"))
}

/// What is known of types that weren't known at first.
#[derive(Debug, Clone, Default)]
pub(super) struct Substitutions(Vec<Option<Type>>);

impl Substitutions {
    /// A type that isn't known yet.
    pub(super) fn variable(&mut self) -> Type {
        self.0.push(None);
        Type::Variable(self.0.len() - 1)
    }

    /// A type with all that is known by now filled in.
    pub(super) fn resolve(&self, of: &Type) -> Type {
        let inner = |of: &Arc<Type>| Arc::new(self.resolve(of));
        match of {
            Type::Variable(at) => match &self.0[*at] {
                Some(known) => self.resolve(known),
                None => of.clone(),
            },
            Type::List(of) => Type::List(inner(of)),
            Type::Optional(of) => Type::Optional(inner(of)),
            Type::Map(key, value) => Type::Map(inner(key), inner(value)),
            other => other.clone(),
        }
    }

    /// Whether a value of one type can stand where the other is wanted; what that says of
    /// unknown types is kept if so.
    pub(super) fn assign(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        let mut tried = self.clone();
        let fit = pairs.iter().all(|(from, to)| tried.unify(from, to));
        if fit {
            *self = tried;
        }
        fit
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        let (from, to) = (self.resolve(from), self.resolve(to));
        match (&from, &to) {
            (Type::Variable(a), Type::Variable(b)) if a == b => true,
            (Type::Variable(at), other) | (other, Type::Variable(at)) => {
                let free = !occurs(*at, other);
                if free {
                    self.0[*at] = Some(other.clone());
                }
                free
            }
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Object(_)
                    | Type::Duration
                    | Type::Timestamp
                    | Type::Named(_)
                    | Type::Optional(_)
            ),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.unify(a, b)
            }
            (Type::Map(a, x), Type::Map(b, y)) => self.unify(a, b) && self.unify(x, y),
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || same_fields(a, b),
            (Type::Named(a), Type::Named(b)) => a == b,
            _ => std::mem::discriminant(&from) == std::mem::discriminant(&to),
        }
    }
}

/// Two readings of one schema have the same fields.
fn same_fields(a: &BTreeMap<String, Type>, b: &BTreeMap<String, Type>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((name, a), (other, b))| {
            name == other && std::mem::discriminant(a) == std::mem::discriminant(b)
        })
}

fn occurs(variable: usize, within: &Type) -> bool {
    match within {
        Type::Variable(at) => *at == variable,
        Type::List(of) | Type::Optional(of) => occurs(variable, of),
        Type::Map(key, value) => occurs(variable, key) || occurs(variable, value),
        _ => false,
    }
}

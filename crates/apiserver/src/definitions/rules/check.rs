//! Do the types of an expression fit? Found when a definition is written, not when an object
//! is.

use std::sync::Arc;

use jiff::Timestamp;

use super::fault::Fault;
use super::signatures;
use super::syntax::{Call, Fold, How, Node, Presence, What, Wrap};
use super::types::{Substitutions, Type};
use super::value::Value;
use crate::definitions::duration;

/// Types by their names, as rules may speak of them.
pub(super) const TYPE_NAMES: [&str; 13] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "dyn",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
];

/// The type of an expression with these names in scope. Names of functions are completed.
pub(super) fn check(node: &mut Node, names: &[(&str, Type)]) -> Result<Type, Vec<Fault>> {
    let mut checker = Checker {
        known: Substitutions::default(),
        names: names
            .iter()
            .map(|(name, of)| ((*name).to_owned(), of.clone()))
            .collect(),
        faults: Vec::new(),
        mixed: false,
    };
    let of = checker.node(node);
    if checker.faults.is_empty() {
        checker.literals(node);
    }
    match checker.faults {
        none if none.is_empty() => Ok(checker.known.resolve(&of)),
        mut faults => {
            faults.sort_by_key(|fault| fault.at);
            Err(faults)
        }
    }
}

struct Checker {
    known: Substitutions,
    names: Vec<(String, Type)>,
    faults: Vec<Fault>,
    /// Whether a list may hold items of several types.
    mixed: bool,
}

impl Checker {
    /// The type of a part; of one that is wrong, nothing more is asked.
    fn node(&mut self, node: &mut Node) -> Type {
        self.inner(node).unwrap_or_else(|fault| {
            self.faults.push(fault);
            Type::Dyn
        })
    }

    fn inner(&mut self, node: &mut Node) -> Result<Type, Fault> {
        let at = node.at;
        match &mut node.what {
            What::Literal(value) => Ok(literal(value)),
            What::Name(name) => {
                let name = name.clone();
                self.name(node, &name)
            }
            What::Select(of, field, presence) => {
                let (field, presence) = (field.clone(), *presence);
                if let Some(name) = qualified_type(of, &field, presence) {
                    node.what = What::Name(name);
                    return Ok(Type::Meta);
                }
                let of = self.node(of);
                self.select(at, &of, &field, presence)
            }
            What::Has(of, field) => {
                let of = self.node(of);
                self.select(at, &of, field, Presence::Expected)?;
                Ok(Type::Bool)
            }
            What::Call(call, arguments) => self.call(at, call, arguments),
            What::List(items) => {
                let mut all = None;
                for (item, optional) in items {
                    let of = self.item(item, *optional)?;
                    all = Some(self.join(item.at, all, of)?);
                }
                let of = all.unwrap_or_else(|| self.known.variable());
                Ok(Type::List(Arc::new(of)))
            }
            What::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (key, value, optional) in entries {
                    let of = self.node(key);
                    keys = Some(self.join(key.at, keys, of)?);
                    let of = self.item(value, *optional)?;
                    values = Some(self.join(value.at, values, of)?);
                }
                let key = keys.unwrap_or_else(|| self.known.variable());
                let value = values.unwrap_or_else(|| self.known.variable());
                Ok(Type::Map(Arc::new(key), Arc::new(value)))
            }
            What::And(terms) | What::Or(terms) => {
                for one in terms {
                    self.expect(one, &Type::Bool)?;
                }
                Ok(Type::Bool)
            }
            What::Choice(parts) => {
                let [condition, yes, no] = &mut **parts;
                let types = [self.node(condition), self.node(yes), self.node(no)];
                let result = self.known.variable();
                let pairs = [
                    (&types[0], &Type::Bool),
                    (&types[1], &result),
                    (&types[2], &result),
                ];
                if !self.known.assign(&pairs) {
                    return Err(self.no_overload(at, "_?_:_", &types, false));
                }
                Ok(self.known.resolve(&result))
            }
            What::Fold(fold) => self.fold(fold),
            What::Unwrapped(of, variable, body, wrap) => {
                let inner = self.known.variable();
                let wanted = Type::Optional(Arc::new(inner.clone()));
                self.expect(of, &wanted)?;
                let inner = self.known.resolve(&inner);
                let result = self.within(&[(variable.clone(), inner)], |checker| {
                    Ok(checker.node(body))
                })?;
                Ok(match wrap {
                    Wrap::Wrap => Type::Optional(Arc::new(result)),
                    Wrap::Wrapped => result,
                })
            }
        }
    }

    fn name(&mut self, node: &Node, name: &str) -> Result<Type, Fault> {
        let found = self.names.iter().rev().find(|(known, _)| known == name);
        if let Some((_, of)) = found {
            return Ok(of.clone());
        }
        if TYPE_NAMES.contains(&name) {
            return Ok(Type::Meta);
        }
        Err(undeclared(node.at, name))
    }

    fn within<T>(
        &mut self,
        names: &[(String, Type)],
        inner: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let before = self.names.len();
        self.names.extend_from_slice(names);
        let result = inner(self);
        self.names.truncate(before);
        result
    }

    fn expect(&mut self, node: &mut Node, wanted: &Type) -> Result<(), Fault> {
        let found = self.node(node);
        if self.known.assign(&[(&found, wanted)]) {
            return Ok(());
        }
        Err(self.mismatch(node.at, wanted, &found))
    }

    fn mismatch(&self, at: usize, wanted: &Type, found: &Type) -> Fault {
        let (wanted, found) = (self.known.resolve(wanted), self.known.resolve(found));
        Fault::new(at, format!("expected type '{wanted}' but found '{found}'"))
    }

    /// The type of an item, which may be left out.
    fn item(&mut self, node: &mut Node, optional: bool) -> Result<Type, Fault> {
        let found = self.node(node);
        match (optional, self.known.resolve(&found)) {
            (true, Type::Optional(of)) => Ok((*of).clone()),
            (true, Type::Dyn) => Ok(Type::Dyn),
            (true, other) => {
                let wanted = Type::Optional(Arc::new(other.clone()));
                Err(self.mismatch(node.at, &wanted, &other))
            }
            (false, other) => Ok(other),
        }
    }

    /// The type of many, all of which are alike.
    fn join(&mut self, at: usize, all: Option<Type>, one: Type) -> Result<Type, Fault> {
        let Some(all) = all else { return Ok(one) };
        if !self.known.assign(&[(&all, &one)]) {
            if self.mixed {
                return Ok(Type::Dyn);
            }
            return Err(self.mismatch(at, &all, &one));
        }
        let all = self.known.resolve(&all);
        Ok(if matches!(one, Type::Dyn) { one } else { all })
    }

    fn select(
        &mut self,
        at: usize,
        of: &Type,
        field: &str,
        presence: Presence,
    ) -> Result<Type, Fault> {
        let of = self.known.resolve(of);
        let (of, optional) = match of {
            Type::Optional(inner) => (self.known.resolve(&inner), true),
            other => (other, presence == Presence::Optional),
        };
        let found = match &of {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(fields) => match fields.get(field) {
                Some(of) => of.clone(),
                None => return Err(Fault::new(at, format!("undefined field '{field}'"))),
            },
            Type::Variable(_) => {
                self.known.assign(&[(&Type::Dyn, &of)]);
                Type::Dyn
            }
            Type::Dyn => Type::Dyn,
            other => {
                let why = format!("type '{other}' does not support field selection");
                return Err(Fault::new(at, why));
            }
        };
        Ok(if optional {
            Type::Optional(Arc::new(found))
        } else {
            found
        })
    }

    fn call(
        &mut self,
        at: usize,
        call: &mut Call,
        arguments: &mut Vec<Node>,
    ) -> Result<Type, Fault> {
        // `sets.contains(a)` is no method of `sets`.
        if call.method
            && let Some(prefix) = arguments[0].qualified()
            && !self.names.iter().any(|(known, _)| *known == prefix)
        {
            let whole = format!("{prefix}.{}", call.name);
            if !signatures::named(&whole).is_empty() {
                arguments.remove(0);
                *call = Call {
                    name: whole,
                    method: false,
                };
            }
        }
        let mixed = std::mem::replace(&mut self.mixed, call.name == "format");
        let types: Vec<Type> = arguments.iter_mut().map(|one| self.node(one)).collect();
        self.mixed = mixed;
        let ways = signatures::named(&call.name);
        if ways.is_empty() {
            return Err(undeclared(at, &call.name));
        }
        let mut result: Option<Type> = None;
        for way in ways {
            if way.method != call.method || way.count() != types.len() {
                continue;
            }
            let mut tried = self.known.clone();
            let (wanted, of) = way.instance(&mut tried);
            let pairs: Vec<(&Type, &Type)> = types.iter().zip(&wanted).collect();
            if !tried.assign(&pairs) {
                continue;
            }
            let of = tried.resolve(&of);
            self.known = tried;
            result = Some(match result {
                None => of,
                // It depends on the values.
                Some(other) if other.to_string() != of.to_string() => Type::Dyn,
                Some(other) => other,
            });
        }
        result.ok_or_else(|| self.no_overload(at, &call.name, &types, call.method))
    }

    /// Texts that are written out and must be something else can be told to be wrong.
    fn literals(&mut self, node: &Node) {
        if let What::Call(call, arguments) = &node.what
            && let Some(Node {
                at,
                what: What::Literal(Value::Text(text)),
                ..
            }) = arguments.last()
        {
            let wrong = match call.name.as_str() {
                "duration" => duration::parse(text).is_none(),
                "timestamp" => text.parse::<Timestamp>().is_err(),
                "matches" => regex::Regex::new(text).is_err(),
                _ => false,
            };
            if wrong {
                let why = format!("invalid {} argument", call.name);
                self.faults.push(Fault::new(*at, why));
            }
        }
        for part in node.parts() {
            self.literals(part);
        }
    }

    fn no_overload(&self, at: usize, name: &str, types: &[Type], method: bool) -> Fault {
        let texts: Vec<String> = types
            .iter()
            .map(|of| self.known.resolve(of).to_string())
            .collect();
        let applied = match (method, texts.split_first()) {
            (true, Some((receiver, rest))) => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", texts.join(", ")),
        };
        let why = format!("found no matching overload for '{name}' applied to '{applied}'");
        Fault::new(at, why)
    }

    fn fold(&mut self, fold: &mut Fold) -> Result<Type, Fault> {
        let of = self.node(&mut fold.of);
        let of = self.known.resolve(&of);
        let (first, second) = match &of {
            Type::List(item) => (Type::Int, (**item).clone()),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Variable(_) => (Type::Dyn, Type::Dyn),
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                return Err(Fault::new(fold.of.at, why));
            }
        };
        let names = match (&fold.names, &of) {
            ((name, None), Type::Map(..)) => vec![(name.clone(), first.clone())],
            ((name, None), _) => vec![(name.clone(), second)],
            ((name, Some(other)), _) => {
                vec![(name.clone(), first.clone()), (other.clone(), second)]
            }
        };
        let (how, at) = (fold.how, fold.body.at);
        let body = self.within(&names, |checker| {
            if let Some(filter) = &mut fold.filter {
                checker.expect(filter, &Type::Bool)?;
            }
            Ok(checker.node(&mut fold.body))
        })?;
        match how {
            How::All | How::Exists | How::ExistsOne | How::Filter => {
                if !self.known.assign(&[(&body, &Type::Bool)]) {
                    return Err(self.mismatch(at, &Type::Bool, &body));
                }
                Ok(match how {
                    How::Filter => Type::List(Arc::new(names[0].1.clone())),
                    _ => Type::Bool,
                })
            }
            How::List => Ok(Type::List(Arc::new(body))),
            How::Map => Ok(Type::Map(Arc::new(first), Arc::new(body))),
            How::SortBy => Ok(of),
            How::Entries => {
                let (key, value) = (self.known.variable(), self.known.variable());
                let wanted = Type::Map(Arc::new(key), Arc::new(value));
                if !self.known.assign(&[(&body, &wanted)]) {
                    return Err(self.mismatch(at, &wanted, &body));
                }
                Ok(self.known.resolve(&wanted))
            }
        }
    }
}

fn undeclared(at: usize, name: &str) -> Fault {
    Fault::new(
        at,
        format!("undeclared reference to '{name}' (in container '')"),
    )
}

/// `google.protobuf.Timestamp` and its like.
fn qualified_type(of: &Node, field: &str, presence: Presence) -> Option<String> {
    if presence == Presence::Optional {
        return None;
    }
    let name = format!("{}.{field}", of.qualified()?);
    TYPE_NAMES.contains(&name.as_str()).then_some(name)
}

fn literal(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::Text(_) => Type::Text,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::Dyn,
    }
}

//! The functions that rules may call, read from `functions.txt`.
//!
//! A line may name several functions that are called alike. `A` and `B` stand for any type,
//! the same one wherever they occur in a line.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::types::{Substitutions, Type};

/// One way to call a function.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    pub(super) method: bool,
    arguments: Vec<Type>,
    result: Type,
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Signature>>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, Vec<Signature>> = HashMap::new();
    let lines = include_str!("functions.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let (names, signature) =
            read(line).expect("the table is part of the program and is tested");
        for name in names {
            table.entry(name).or_default().push(signature.clone());
        }
    }
    table
});

/// The ways to call a function.
pub(super) fn named(name: &str) -> &'static [Signature] {
    TABLE.get(name).map_or(&[], Vec::as_slice)
}

impl Signature {
    /// How many arguments it takes, a method's receiver among them.
    pub(super) fn count(&self) -> usize {
        self.arguments.len()
    }

    /// Its arguments and result with types of their own for what may be anything.
    pub(super) fn instance(&self, known: &mut Substitutions) -> (Vec<Type>, Type) {
        let fresh = [known.variable(), known.variable()];
        let arguments = self.arguments.iter().map(|of| replace(of, &fresh));
        (arguments.collect(), replace(&self.result, &fresh))
    }
}

fn replace(of: &Type, fresh: &[Type; 2]) -> Type {
    let inner = |of: &Arc<Type>| Arc::new(replace(of, fresh));
    match of {
        Type::Variable(at) => fresh[*at].clone(),
        Type::List(of) => Type::List(inner(of)),
        Type::Optional(of) => Type::Optional(inner(of)),
        Type::Map(key, value) => Type::Map(inner(key), inner(value)),
        other => other.clone(),
    }
}

fn read(line: &'static str) -> Option<(Vec<&'static str>, Signature)> {
    let open = line.find('(')?;
    let (head, rest) = line.split_at(open);
    let (inside, result) = rest.get(1..)?.split_once(") ")?;
    let mut words = head.split(' ');
    let first = words.next()?;
    // A receiver is a type, and what stands before the last dot.
    let receiver = first
        .rsplit_once('.')
        .and_then(|(of, name)| Some((read_type(of)?, name)));
    let mut arguments = Vec::new();
    let method = receiver.is_some();
    let first = match receiver {
        Some((of, name)) => {
            arguments.push(of);
            name
        }
        None => first,
    };
    for argument in inside.split(", ").filter(|one| !one.is_empty()) {
        arguments.push(read_type(argument)?);
    }
    let result = read_type(result)?;
    let names = std::iter::once(first).chain(words).collect();
    let signature = Signature {
        method,
        arguments,
        result,
    };
    Some((names, signature))
}

/// Types of functions that bring their own.
const NAMED: [&str; 6] = [
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.URL",
    "kubernetes.NamedFormat",
    "net.IP",
    "net.CIDR",
];

fn read_type(text: &str) -> Option<Type> {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        return Some(match outer {
            "list" => Type::List(Arc::new(read_type(inner)?)),
            "optional" => Type::Optional(Arc::new(read_type(inner)?)),
            "map" => {
                let (key, value) = inner.split_once(',')?;
                Type::Map(Arc::new(read_type(key)?), Arc::new(read_type(value)?))
            }
            _ => return None,
        });
    }
    Some(match text {
        "A" => Type::Variable(0),
        "B" => Type::Variable(1),
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Meta,
        other => Type::Named(NAMED.into_iter().find(|name| *name == other)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        for line in include_str!("functions.txt").lines() {
            assert!(line.starts_with('#') || read(line).is_some(), "{line}");
        }
        assert_eq!(named("size").len(), 8);
        assert!(named("getHours").iter().all(|one| one.method));
        assert!(!named("ip.isCanonical")[0].method);
    }
}

//! A rule's syntax tree.

use super::value::Value;

/// A part of an expression, and where errors about it point to.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(super) at: usize,
    /// How many levels it has. Trees are walked by calls that call themselves.
    pub(super) levels: usize,
    pub(super) what: What,
}

/// What a part is.
#[derive(Debug, Clone)]
pub(super) enum What {
    Literal(Value),
    Name(String),
    /// `of.field`, `of.?field`.
    Select(Box<Node>, String, Presence),
    /// `has(of.field)`.
    Has(Box<Node>, String),
    /// A function or operator; a method's receiver is its first argument.
    Call(Call, Vec<Node>),
    /// Items, and whether each is left out when it is an optional without a value.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    /// Two or more.
    And(Vec<Node>),
    Or(Vec<Node>),
    Choice(Box<[Node; 3]>),
    Fold(Box<Fold>),
    /// `of.optMap(x, body)`, `of.optFlatMap(x, body)`.
    Unwrapped(Box<Node>, String, Box<Node>, Wrap),
}

/// Whether what isn't there is an error or an optional without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Expected,
    Optional,
}

/// Whether the result of a body is still to be wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrap {
    Wrap,
    Wrapped,
}

/// How a function is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) method: bool,
}

/// A macro over the items of a list or map.
#[derive(Debug, Clone)]
pub(super) struct Fold {
    pub(super) how: How,
    pub(super) of: Node,
    /// The item; with a second one, the index or key, and the item.
    pub(super) names: (String, Option<String>),
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}

/// What becomes of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    All,
    Exists,
    ExistsOne,
    Filter,
    List,
    Map,
    Entries,
    SortBy,
}

impl Node {
    pub(super) fn new(at: usize, what: What) -> Self {
        let levels = what.parts().iter().map(|part| part.levels).max();
        let levels = 1 + levels.unwrap_or(0);
        Self { at, levels, what }
    }

    /// An operator's or function's call.
    pub(super) fn call(at: usize, name: &str, arguments: Vec<Node>) -> Self {
        let call = Call {
            name: name.to_owned(),
            method: false,
        };
        Self::new(at, What::Call(call, arguments))
    }

    /// `a.b.c`, if it is nothing else.
    pub(super) fn qualified(&self) -> Option<String> {
        match &self.what {
            What::Name(name) => Some(name.clone()),
            What::Select(of, field, Presence::Expected) => {
                Some(format!("{}.{field}", of.qualified()?))
            }
            _ => None,
        }
    }

    /// The parts that it is made of.
    pub(super) fn parts(&self) -> Vec<&Node> {
        self.what.parts()
    }

    /// Whether this name occurs where nothing else has it.
    pub(super) fn mentions(&self, name: &str) -> bool {
        match &self.what {
            What::Name(found) => found == name,
            What::Fold(fold) => {
                let (first, second) = &fold.names;
                let hidden = first == name || second.as_deref() == Some(name);
                let filter = fold.filter.as_ref().is_some_and(|one| one.mentions(name));
                fold.of.mentions(name) || !hidden && (filter || fold.body.mentions(name))
            }
            What::Unwrapped(of, variable, body, _) => {
                of.mentions(name) || variable != name && body.mentions(name)
            }
            other => other.parts().iter().any(|part| part.mentions(name)),
        }
    }
}

impl What {
    /// The parts that it is made of.
    fn parts(&self) -> Vec<&Node> {
        match self {
            Self::Literal(_) | Self::Name(_) => Vec::new(),
            Self::Select(of, ..) | Self::Has(of, _) => vec![&**of],
            Self::Call(_, all) | Self::And(all) | Self::Or(all) => all.iter().collect(),
            Self::List(all) => all.iter().map(|(one, _)| one).collect(),
            Self::Map(all) => all
                .iter()
                .flat_map(|(key, value, _)| [key, value])
                .collect(),
            Self::Choice(all) => all.iter().collect(),
            Self::Fold(fold) => {
                let both = [&fold.of, &fold.body];
                both.into_iter().chain(&fold.filter).collect()
            }
            Self::Unwrapped(of, _, body, _) => vec![&**of, &**body],
        }
    }
}

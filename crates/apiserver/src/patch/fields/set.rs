//! A set of fields and its FieldsV1 form:
//! `{"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}}`.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One step down from a map or a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    /// An entry of a map.
    Field(String),
    /// An element of a keyed list; its keys as a JSON object.
    Key(String),
    /// An element of a set, as JSON.
    Value(String),
    /// An element by its place; never made, only read from others' records.
    Index(usize),
}

impl Step {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    pub(super) fn key(keys: &Map<String, Value>) -> Self {
        Self::Key(Value::Object(keys.clone()).to_string())
    }

    pub(super) fn value(value: &Value) -> Self {
        Self::Value(value.to_string())
    }

    pub(super) fn as_field(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            Self::Key(_) | Self::Value(_) | Self::Index(_) => None,
        }
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        // Through the parser, so that equal keys are equal text.
        let canonical = || {
            serde_json::from_str::<Value>(rest)
                .ok()
                .map(|v| v.to_string())
        };
        match kind {
            "f" => Some(Self::field(rest)),
            "k" => canonical().map(Self::Key),
            "v" => canonical().map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }
}

/// As conflict messages spell it: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// A path in the same spelling.
pub(super) fn path_text(path: &[Step]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// A tree of fields. Being inside a member does not make a field a member, nor
/// the reverse: `.spec` and `.spec.a` are owned apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    members: BTreeSet<Step>,
    /// Never holds an empty set.
    children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// A set of paths of plain fields, such as `metadata.name`.
    pub(crate) fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Step> = path.split('.').map(Step::field).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a field; the object as a whole is never owned.
    pub(crate) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(crate) fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|set| set.contains(rest)),
        }
    }

    pub(super) fn has(&self, step: &Step) -> bool {
        self.members.contains(step)
    }

    pub(super) fn below(&self, step: &Step) -> Option<&Self> {
        self.children.get(step)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.members.extend(other.members.iter().cloned());
        for (step, theirs) in &other.children {
            let ours = result.children.entry(step.clone()).or_default();
            *ours = ours.union(theirs);
        }
        result
    }

    /// The same of sets that nobody needs any more, most of which are empty.
    pub(crate) fn join(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            (false, false) => {
                let mut joined = self;
                joined.absorb(other);
                joined
            }
        }
    }

    fn absorb(&mut self, other: Self) {
        self.members.extend(other.members);
        for (step, theirs) in other.children {
            self.children.entry(step).or_default().absorb(theirs);
        }
    }

    /// Whether some member is one of a set in its FieldsV1 form, too, which is not read for that.
    pub(super) fn meets(&self, encoded: &Value) -> bool {
        let Some(map) = encoded.as_object().filter(|map| !map.is_empty()) else {
            return false;
        };
        let there = |step: &Step| map.get(&step.encode());
        let is_member = |child: &Value| {
            child
                .as_object()
                .is_none_or(|child| child.is_empty() || child.contains_key("."))
        };
        self.members
            .iter()
            .any(|step| there(step).is_some_and(is_member))
            || self
                .children
                .iter()
                .any(|(step, child)| there(step).is_some_and(|encoded| child.meets(encoded)))
    }

    /// [`FieldSet::difference`] of a set that nobody needs any more.
    pub(crate) fn minus(mut self, other: &Self) -> Self {
        self.members.retain(|step| !other.members.contains(step));
        self.children.retain(|step, ours| {
            if let Some(theirs) = other.children.get(step) {
                *ours = std::mem::take(ours).minus(theirs);
            }
            !ours.is_empty()
        });
        self
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: nonempty(self.children.iter().filter_map(|(step, ours)| {
                let theirs = other.children.get(step)?;
                Some((step, ours.intersection(theirs)))
            })),
        }
    }

    /// Without the members of `other`, member by member.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: nonempty(self.children.iter().map(|(step, ours)| {
                let left = match other.children.get(step) {
                    Some(theirs) => ours.difference(theirs),
                    None => ours.clone(),
                };
                (step, left)
            })),
        }
    }

    /// [`FieldSet::without_subtrees`] of a set that nobody needs any more.
    pub(crate) fn cut(mut self, other: &Self) -> Self {
        if other.is_empty() {
            return self;
        }
        self.members.retain(|step| !other.members.contains(step));
        self.children.retain(|step, ours| {
            if let Some(theirs) = other.children.get(step) {
                *ours = std::mem::take(ours).cut(theirs);
            }
            !other.members.contains(step) && !ours.is_empty()
        });
        self
    }

    /// Without the members of `other` and everything inside them.
    pub(crate) fn without_subtrees(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter(|(step, _)| !other.members.contains(step));
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: nonempty(children.map(|(step, ours)| {
                let left = match other.children.get(step) {
                    Some(theirs) => ours.without_subtrees(theirs),
                    None => ours.clone(),
                };
                (step, left)
            })),
        }
    }

    /// Replaces each subtree; `true` from `change` also makes its root a member.
    pub(super) fn map_children(
        &self,
        change: &mut dyn FnMut(&Step, &Self) -> (bool, Self),
    ) -> Self {
        let mut result = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            let (member, child) = change(step, child);
            if member {
                result.members.insert(step.clone());
            }
            if !child.is_empty() {
                result.children.insert(step.clone(), child);
            }
        }
        result
    }

    /// Every member's path, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.add_paths("", &mut found);
        found
    }

    fn add_paths(&self, prefix: &str, found: &mut Vec<String>) {
        found.extend(self.members.iter().map(|step| format!("{prefix}{step}")));
        for (step, child) in &self.children {
            child.add_paths(&format!("{prefix}{step}"), found);
        }
    }

    /// The FieldsV1 form.
    pub(crate) fn encode(&self) -> Value {
        let mut map = Map::new();
        for step in &self.members {
            map.insert(step.encode(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            let mut value = child.encode();
            if self.members.contains(step) {
                value["."] = Value::Object(Map::new());
            }
            map.insert(step.encode(), value);
        }
        Value::Object(map)
    }

    /// Reads the FieldsV1 form; `None` when it is not that.
    pub(crate) fn decode(value: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (text, child) in value.as_object()? {
            if text == "." {
                continue;
            }
            let step = Step::decode(text)?;
            let map = child.as_object()?;
            if map.is_empty() || map.contains_key(".") {
                set.members.insert(step.clone());
            }
            let child = Self::decode(child)?;
            if !child.is_empty() {
                set.children.insert(step, child);
            }
        }
        Some(set)
    }
}

fn nonempty<'a>(sets: impl Iterator<Item = (&'a Step, FieldSet)>) -> BTreeMap<Step, FieldSet> {
    sets.filter(|(_, set)| !set.is_empty())
        .map(|(step, set)| (step.clone(), set))
        .collect()
}

//! The order of a merged list: what the patch names stands in the patch's
//! order, the rest keeps its place relative to what it knew.

use std::collections::HashMap;

use serde_json::Value;

/// What tells the elements of a list apart: a field of theirs, or all of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity<'k> {
    Field(&'k str),
    Whole,
}

impl Identity<'_> {
    fn of(self, item: &Value) -> Option<&Value> {
        match self {
            Self::Field(key) => item.get(key),
            Self::Whole => Some(item),
        }
    }

    /// Where the first of each element stands.
    fn places(self, list: &[Value]) -> HashMap<Option<&Value>, usize> {
        let mut places = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            places.entry(self.of(item)).or_insert(at);
        }
        places
    }
}

/// Orders `merged` by `wanted` for the elements it names and by `server` for the others.
///
/// Where the two orders say nothing of each other, named elements come first.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    identity: Identity<'_>,
) -> Vec<Value> {
    let (wanted, server) = (identity.places(wanted), identity.places(server));
    let known = |item: &Value| server.get(&identity.of(item)).copied();
    let mut named = Vec::with_capacity(wanted.len());
    let mut rest = Vec::new();
    for item in merged {
        match wanted.get(&identity.of(&item)) {
            Some(at) => named.push((*at, item)),
            None => rest.push(item),
        }
    }
    named.sort_by_key(|(at, _)| *at);
    let mut result = Vec::with_capacity(named.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for (_, item) in named {
        let at = known(&item);
        while let Some(other) = rest.next_if(|other| match (known(other), at) {
            (Some(other), Some(item)) => other < item,
            _ => false,
        }) {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(rest);
    result
}

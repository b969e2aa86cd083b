//! The order of a merged list: what the patch names stands in the patch's
//! order, the rest keeps its place relative to what it knew.

use serde_json::Value;

/// Orders `merged` by `wanted` for the elements it names and by `server` for
/// the others; `same` tells when two elements stand for the same thing.
///
/// Where the two orders say nothing of each other, named elements come first.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, rest): (Vec<_>, Vec<_>) = merged
        .into_iter()
        .partition(|item| place(wanted, item).is_some());
    named.sort_by_key(|item| place(wanted, item));
    let mut result = Vec::with_capacity(named.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for item in named {
        let at = place(server, &item);
        while let Some(other) = rest.next_if(|other| match (place(server, other), at) {
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

//! How it stands with the node that a local volume is of.

use orlop_model::{Node, Volume, selector::NodeSelectorTerm, well_known};

/// How it stands with a volume's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The volume doesn't name one.
    Unknown,
    /// It is there, or another that reaches the volume.
    There,
    /// A node of its name is there, and it is another one.
    Replaced,
    /// No node of its name is there.
    Gone,
}

/// Judges by the nodes that may be the volume's: all that go by a name that it names, and all
/// that it may be reached from.
pub fn home<'a>(volume: &Volume, nodes: impl IntoIterator<Item = &'a Node>) -> Home {
    let terms = terms(volume);
    if host_names(volume).is_empty() {
        return Home::Unknown;
    }
    let mut home = Home::Gone;
    for node in nodes {
        let meta = &node.metadata;
        if volume.reachable_from(&meta.name, &meta.labels)
            || terms.iter().any(|term| is_named(term, node))
        {
            return Home::There;
        }
        if terms.iter().any(|term| goes_by_name(term, node)) {
            home = Home::Replaced;
        }
    }
    home
}

/// The names that a volume's nodes go by; sorted, each once.
pub fn host_names(volume: &Volume) -> Vec<String> {
    let mut all: Vec<String> = terms(volume)
        .iter()
        .flat_map(|term| values(term, well_known::HOSTNAME))
        .map(str::to_owned)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether volumes of a node may also be reached from nodes that they don't name.
pub fn has_others(volume: &Volume) -> bool {
    let unnamed = |term: &NodeSelectorTerm| values(term, well_known::HOSTNAME).next().is_none();
    terms(volume).iter().any(unnamed)
}

fn terms(volume: &Volume) -> &[NodeSelectorTerm] {
    let affinity = volume.spec.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.map_or(&[], |selector| &selector.node_selector_terms)
}

fn values<'a>(term: &'a NodeSelectorTerm, key: &str) -> impl Iterator<Item = &'a str> {
    let asked = term.match_expressions.iter();
    asked
        .filter(move |one| one.key == key && one.operator == "In")
        .flat_map(|one| one.values.iter().map(String::as_str))
}

/// The label is missing or wrong on some clouds; the name never is.
fn goes_by_name(term: &NodeSelectorTerm, node: &Node) -> bool {
    let meta = &node.metadata;
    let label = meta.labels.get(well_known::HOSTNAME);
    values(term, well_known::HOSTNAME)
        .any(|name| name == meta.name || label.is_some_and(|label| label == name))
}

/// By name, and by uid where one is named: whether or not the node has been given its label.
fn is_named(term: &NodeSelectorTerm, node: &Node) -> bool {
    let mut uids = values(term, well_known::LOCAL_NODE_UID).peekable();
    goes_by_name(term, node) && (uids.peek().is_none() || uids.any(|uid| uid == node.metadata.uid))
}

//! Label selectors and node selectors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

type Labels = BTreeMap<String, String>;

/// Selects objects by their labels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Each label must have this value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: Labels,
    /// Each must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether the labels satisfy everything.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels
            .iter()
            .all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

/// One thing that a label must satisfy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`.
    pub operator: String,
    /// What to compare with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether the labels satisfy it. An unknown operator is never satisfied: refusing a
    /// volume is safe, taking a wrong one isn't.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let number = |s: &String| s.parse::<i64>().ok();
        let compare = |wanted: fn(i64, i64) -> bool| {
            value
                .and_then(number)
                .zip(self.values.first().and_then(number))
                .is_some_and(|(have, bound)| wanted(have, bound))
        };
        match self.operator.as_str() {
            "In" => value.is_some_and(|v| self.values.contains(v)),
            "NotIn" => value.is_none_or(|v| !self.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(|have, bound| have > bound),
            "Lt" => compare(|have, bound| have < bound),
            _ => false,
        }
    }
}

/// Selects nodes: any of the terms must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Any of them.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All requirements of a term must hold; an empty term selects nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// On labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
    /// On fields; only `metadata.name` exists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<Requirement>,
}

impl NodeSelector {
    /// Whether a node of this name with these labels is selected.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let fields = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
        self.node_selector_terms.iter().any(|term| {
            !(term.match_expressions.is_empty() && term.match_fields.is_empty())
                && term.match_expressions.iter().all(|r| r.matches(labels))
                && term.match_fields.iter().all(|r| r.matches(&fields))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Requirement {
        Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        }
    }

    #[test]
    fn each_operator_means_what_kubernetes_means() {
        let have = labels(&[("zone", "a"), ("size", "10")]);
        for (key, operator, values, expected) in [
            ("zone", "In", &["a", "b"][..], true),
            ("zone", "In", &["b"], false),
            ("zone", "NotIn", &["b"], true),
            ("gone", "NotIn", &["b"], true),
            ("zone", "Exists", &[], true),
            ("gone", "DoesNotExist", &[], true),
            ("size", "Gt", &["9"], true),
            ("size", "Lt", &["9"], false),
            ("zone", "Gt", &["1"], false),
            ("zone", "Guess", &["a"], false),
        ] {
            let r = requirement(key, operator, values);
            assert_eq!(r.matches(&have), expected, "{r:?}");
        }
    }

    #[test]
    fn node_terms_are_alternatives_and_an_empty_term_selects_nothing() {
        let on_a = NodeSelectorTerm {
            match_expressions: vec![requirement("zone", "In", &["a"])],
            ..NodeSelectorTerm::default()
        };
        let by_name = NodeSelectorTerm {
            match_fields: vec![requirement("metadata.name", "In", &["n2"])],
            ..NodeSelectorTerm::default()
        };
        let either = NodeSelector {
            node_selector_terms: vec![on_a, by_name],
        };
        assert!(either.matches("n1", &labels(&[("zone", "a")])));
        assert!(either.matches("n2", &labels(&[("zone", "b")])));
        assert!(!either.matches("n1", &labels(&[("zone", "b")])));
        let empty = NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm::default()],
        };
        assert!(!empty.matches("n1", &labels(&[])));
    }
}

//! Label selectors and node selectors.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

mod prepared;

pub use prepared::Prepared;

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

    /// All that must hold, one by one.
    pub fn requirements(&self) -> impl Iterator<Item = Requirement> {
        let labels = self.match_labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: vec![value.clone()],
        });
        labels.chain(self.match_expressions.iter().cloned())
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

impl From<Requirement> for LabelSelector {
    fn from(only: Requirement) -> Self {
        Self {
            match_expressions: vec![only],
            ..Self::default()
        }
    }
}

/// As `kubectl get --selector` takes it.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match (self.operator.as_str(), self.values.len()) {
            ("In", 1) => write!(f, "{key}={values}"),
            ("In", _) => write!(f, "{key} in ({values})"),
            ("NotIn", 1) => write!(f, "{key}!={values}"),
            ("NotIn", _) => write!(f, "{key} notin ({values})"),
            ("Exists", _) => write!(f, "{key}"),
            ("DoesNotExist", _) => write!(f, "!{key}"),
            ("Gt", _) => write!(f, "{key}>{values}"),
            ("Lt", _) => write!(f, "{key}<{values}"),
            (unknown, _) => write!(f, "{key} {unknown} ({values})"),
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
    fn requirements_read_as_kubectl_takes_them() {
        for (key, operator, values, text) in [
            ("zone", "In", &["a"][..], "zone=a"),
            ("zone", "In", &["a", "b"], "zone in (a,b)"),
            ("zone", "NotIn", &["a"], "zone!=a"),
            ("zone", "NotIn", &["a", "b"], "zone notin (a,b)"),
            ("zone", "Exists", &[], "zone"),
            ("zone", "DoesNotExist", &[], "!zone"),
            ("size", "Gt", &["9"], "size>9"),
            ("zone", "Guess", &["a"], "zone Guess (a)"),
        ] {
            assert_eq!(requirement(key, operator, values).to_string(), text);
        }
    }

    #[test]
    fn a_selector_is_all_of_its_requirements() {
        let selector = LabelSelector {
            match_labels: labels(&[("zone", "a")]),
            match_expressions: vec![requirement("size", "Exists", &[])],
        };
        let told: Vec<String> = selector.requirements().map(|r| r.to_string()).collect();
        assert_eq!(told, ["zone=a", "size"]);
        for have in [
            labels(&[("zone", "a"), ("size", "1")]),
            labels(&[("zone", "a")]),
            labels(&[("size", "1")]),
        ] {
            let mut each = selector.requirements().map(LabelSelector::from);
            assert_eq!(selector.matches(&have), each.all(|s| s.matches(&have)));
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

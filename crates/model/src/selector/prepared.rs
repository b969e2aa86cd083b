//! A selector that many objects are compared with.
//!
//! Whoever writes a selector may write thousands of requirements, and of those that labels
//! satisfy each must be looked at. Prepared once, an object costs as much as it has labels.

use std::collections::{BTreeMap, BTreeSet};

use super::{LabelSelector, Labels, Requirement};

/// What a selector asks for, by label.
#[derive(Debug)]
pub struct Prepared<'a> {
    by_key: BTreeMap<&'a str, Wanted<'a>>,
    /// So many labels must be there.
    needed: usize,
}

/// What must hold of one label.
#[derive(Debug, Default)]
struct Wanted<'a> {
    present: bool,
    absent: bool,
    one_of: Option<BTreeSet<&'a str>>,
    none_of: BTreeSet<&'a str>,
    above: Option<i64>,
    below: Option<i64>,
    /// Nothing satisfies it.
    never: bool,
}

impl<'a> Prepared<'a> {
    /// Prepares a selector.
    pub fn new(selector: &'a LabelSelector) -> Self {
        let mut by_key: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
        for (key, value) in &selector.match_labels {
            by_key.entry(key).or_default().only([value.as_str()].into());
        }
        for requirement in &selector.match_expressions {
            by_key.entry(&requirement.key).or_default().add(requirement);
        }
        let needed = by_key.values().filter(|wanted| wanted.present).count();
        Self { by_key, needed }
    }

    /// As [`LabelSelector::matches`].
    pub fn matches(&self, labels: &Labels) -> bool {
        if self.needed > labels.len() {
            return false;
        }
        let mut found = 0;
        for (wanted, value) in self.compared_with(labels) {
            if !wanted.admits(value) {
                return false;
            }
            found += usize::from(wanted.present);
        }
        found == self.needed
    }

    /// All that labels are compared with.
    fn compared_with<'b>(
        &'b self,
        labels: &'b Labels,
    ) -> impl Iterator<Item = (&'b Wanted<'a>, &'b str)> {
        let known = labels.iter();
        known.filter_map(|(key, value)| Some((self.by_key.get(key.as_str())?, value.as_str())))
    }
}

impl<'a> Wanted<'a> {
    fn add(&mut self, requirement: &'a Requirement) {
        let values = requirement.values.iter().map(String::as_str);
        let bound = || requirement.values.first().and_then(|v| v.parse().ok());
        match requirement.operator.as_str() {
            "In" => self.only(values.collect()),
            "NotIn" => self.none_of.extend(values),
            "Exists" => self.present = true,
            "DoesNotExist" => self.absent = true,
            "Gt" => match bound() {
                Some(bound) => self.above = self.above.max(Some(bound)),
                None => self.never = true,
            },
            "Lt" => match bound() {
                Some(bound) => self.below = Some(self.below.map_or(bound, |b| b.min(bound))),
                None => self.never = true,
            },
            _ => self.never = true,
        }
        let needs = self.never || self.above.is_some() || self.below.is_some();
        self.present |= needs;
    }

    fn only(&mut self, values: BTreeSet<&'a str>) {
        self.present = true;
        self.one_of = Some(match self.one_of.take() {
            Some(before) => before.intersection(&values).copied().collect(),
            None => values,
        });
    }

    fn admits(&self, value: &str) -> bool {
        let number = || value.parse::<i64>().ok();
        !self.never
            && !self.absent
            && self.one_of.as_ref().is_none_or(|all| all.contains(value))
            && !self.none_of.contains(value)
            && self.above.is_none_or(|b| number().is_some_and(|n| n > b))
            && self.below.is_none_or(|b| number().is_some_and(|n| n < b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_selector_costs_an_object_no_more_than_its_labels() {
        let requirement = |key: String| Requirement {
            key,
            operator: "NotIn".to_owned(),
            values: vec!["x".to_owned()],
        };
        // Also many of one label.
        let keys = (0..3_000).map(|number| format!("k{}", number % 1_500));
        let selector = LabelSelector {
            match_expressions: keys.map(requirement).collect(),
            ..LabelSelector::default()
        };
        let prepared = Prepared::new(&selector);
        let labels: Labels = ["k1", "k2", "other"]
            .map(|key| (key.to_owned(), "y".to_owned()))
            .into();
        assert!(prepared.matches(&labels));
        assert_eq!(prepared.compared_with(&labels).count(), 2);
    }

    /// Every pair of requirements, against every set of labels that they can tell apart.
    #[test]
    fn a_prepared_selector_selects_what_the_selector_selects() {
        let requirement = |key: &str, operator: &str, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        let mut all = Vec::new();
        for key in ["a", "b"] {
            for (operator, values) in [
                ("In", &["1", "x"][..]),
                ("In", &["5"]),
                ("In", &[]),
                ("NotIn", &["x", "7"]),
                ("Exists", &[]),
                ("DoesNotExist", &[]),
                ("Gt", &["3"]),
                ("Gt", &["5"]),
                ("Lt", &["6"]),
                ("Lt", &["2"]),
                ("Lt", &["x"]),
                ("Gt", &[]),
                ("Guess", &["x"]),
            ] {
                all.push(requirement(key, operator, values));
            }
        }
        let values = [None, Some("1"), Some("4"), Some("5"), Some("7"), Some("x")];
        let mut objects = Vec::new();
        for a in values {
            for b in values {
                let pairs = [("a", a), ("b", b), ("c", Some("x"))];
                let pairs = pairs.into_iter();
                let labels: Labels = pairs
                    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                    .collect();
                objects.push(labels);
            }
        }
        for first in &all {
            for second in &all {
                for label in [None, Some("1"), Some("5")] {
                    let label = label.map(|value| ("a".to_owned(), value.to_owned()));
                    let selector = LabelSelector {
                        match_labels: label.into_iter().collect(),
                        match_expressions: vec![first.clone(), second.clone()],
                    };
                    let prepared = Prepared::new(&selector);
                    for labels in &objects {
                        let expected = selector.matches(labels);
                        assert_eq!(
                            prepared.matches(labels),
                            expected,
                            "{selector:?} {labels:?}"
                        );
                    }
                }
            }
        }
    }
}

//! Groups of Kubernetes itself: whoever defines a kind in one says who approved it.

use std::fmt;

use serde_json::Value;

use crate::refusal::FieldError;
use crate::registry::text;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "https://github.com/kubernetes/enhancements/pull/1111";

/// Whether a group is the community's.
pub(super) fn is_protected(group: &str) -> bool {
    let ends = ["k8s.io", "kubernetes.io"];
    ends.iter().any(|end| {
        let rest = group.strip_suffix(end);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// What a definition says of its approval.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Approval {
    Missing,
    /// It says that there is none, and so knows what it does.
    Bypassed(String),
    Approved(String),
    Invalid,
}

impl Approval {
    pub(super) fn of(definition: &Value) -> Self {
        let annotations = &definition["metadata"]["annotations"];
        let said = text(annotations, &format!("/{ANNOTATION}"));
        if said.is_empty() {
            Self::Missing
        } else if said.starts_with("unapproved") {
            Self::Bypassed(said.to_owned())
        } else if is_url(said) {
            Self::Approved(said.to_owned())
        } else {
            Self::Invalid
        }
    }

    /// The reason of the condition in the status.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "MissingAnnotation",
            Self::Bypassed(_) => "UnapprovedAnnotation",
            Self::Approved(_) => "ApprovedAnnotation",
            Self::Invalid => "InvalidAnnotation",
        }
    }

    /// What is wrong with a definition's approval, unless it was so before.
    pub(super) fn errors(before: Option<&Value>, definition: &Value) -> Option<FieldError> {
        if !is_protected(text(definition, "/spec/group")) {
            return None;
        }
        let approval = Self::of(definition);
        if before.is_some_and(|before| Self::of(before).reason() == approval.reason()) {
            return None;
        }
        let field = format!("metadata.annotations[{ANNOTATION}]");
        match approval {
            Self::Missing => Some(FieldError::required(field, approval.to_string())),
            Self::Invalid => {
                let value = &definition["metadata"]["annotations"][ANNOTATION];
                Some(FieldError::invalid(field, value, approval.to_string()))
            }
            Self::Bypassed(_) | Self::Approved(_) => None,
        }
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let must = "protected groups must have approval annotation";
        match self {
            Self::Missing => write!(f, "{must} {ANNOTATION:?}, see {SEE}"),
            Self::Bypassed(said) => write!(f, "not approved: {said:?}"),
            Self::Approved(said) => write!(f, "approved in {said}"),
            Self::Invalid => write!(
                f,
                "{must} {ANNOTATION:?} with either a URL or a reason starting with \
                 \"unapproved\", see {SEE}"
            ),
        }
    }
}

fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    !host.is_empty()
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_of_kubernetes_groups_need_a_url_or_an_excuse() {
        let definition = |group: &str, said: &str| {
            json!({
                "metadata": { "annotations": { ANNOTATION: said } }, "spec": { "group": group },
            })
        };
        for (group, said, refused) in [
            ("example.com", "", false),
            ("notk8s.io", "", false),
            (
                "snapshot.storage.k8s.io",
                "https://github.com/a/b/pull/1",
                false,
            ),
            ("x.kubernetes.io", "unapproved, experimental", false),
            ("x.kubernetes.io", "yes", true),
            ("k8s.io", "", true),
        ] {
            let found = Approval::errors(None, &definition(group, said));
            assert_eq!(found.is_some(), refused, "{group} {said}");
        }
        // What was accepted once is not refused later.
        let old = definition("k8s.io", "");
        assert_eq!(Approval::errors(Some(&old), &old), None);
    }
}

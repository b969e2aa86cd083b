//! Rules, and whether they allow an act. Pure.

use serde_json::Value;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act<'a> {
    /// To objects of a resource.
    Resource {
        /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`,
        /// or a verb of a role's own, such as `bind`.
        verb: &'a str,
        /// The API group, empty for the core group.
        group: &'a str,
        /// The resource, with its subresource: `pods`, `pods/log`.
        resource: &'a str,
        /// Empty at the cluster's scope and over all namespaces.
        namespace: &'a str,
        /// Empty where no single object is meant.
        name: &'a str,
    },
    /// To a path that names no resource.
    Path {
        /// The method in lower case.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

/// One rule of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) paths: Vec<String>,
}

impl Rule {
    /// The rules of a Role or ClusterRole.
    pub(crate) fn all_of(role: &Value) -> Vec<Self> {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.map(Self::read).collect()
    }

    pub(crate) fn read(rule: &Value) -> Self {
        let list = |field: &str| -> Vec<String> {
            let items = rule[field].as_array().into_iter().flatten();
            items
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// Whether the rule allows the act, wherever it is granted.
    pub(crate) fn allows(&self, act: &Act<'_>) -> bool {
        match *act {
            Act::Resource {
                verb,
                group,
                resource,
                name,
                ..
            } => {
                holds(&self.verbs, verb)
                    && holds(&self.groups, group)
                    && self
                        .resources
                        .iter()
                        .any(|own| covers_resource(own, resource))
                    && (self.names.is_empty() || self.names.iter().any(|own| own == name))
            }
            Act::Path { verb, path } => {
                holds(&self.verbs, verb) && self.paths.iter().any(|own| covers_path(own, path))
            }
        }
    }
}

fn holds(own: &[String], wanted: &str) -> bool {
    own.iter().any(|one| one == "*" || one == wanted)
}

/// `*` covers everything, `*/scale` that subresource of everything.
pub(super) fn covers_resource(own: &str, wanted: &str) -> bool {
    own == "*"
        || own == wanted
        || match (own.strip_prefix("*/"), wanted.split_once('/')) {
            (Some(own), Some((_, sub))) => own == sub,
            _ => false,
        }
}

/// A `*` at the end covers what begins so.
pub(super) fn covers_path(own: &str, wanted: &str) -> bool {
    own == wanted
        || own
            .strip_suffix('*')
            .is_some_and(|begin| wanted.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn act<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Act<'a> {
        Act::Resource {
            verb,
            group,
            resource,
            namespace: "",
            name,
        }
    }

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let rule = Rule::read(&json!({
            "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"],
        }));
        for (allowed, wanted) in [
            (true, act("get", "", "pods", "p")),
            (true, act("list", "", "pods", "")),
            (true, act("get", "", "pods/log", "p")),
            (false, act("get", "", "pods/status", "p")),
            (false, act("delete", "", "pods", "p")),
            (false, act("get", "storage.k8s.io", "pods", "p")),
            (false, act("get", "", "secrets", "p")),
        ] {
            assert_eq!(rule.allows(&wanted), allowed, "{wanted:?}");
        }
    }

    #[test]
    fn stars_stand_for_everything_of_their_place() {
        let all = Rule::read(&json!({
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
        }));
        assert!(all.allows(&act("bind", "x.example.com", "things/status", "")));
        let scale = Rule::read(&json!({
            "verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale"],
        }));
        assert!(scale.allows(&act("update", "apps", "deployments/scale", "d")));
        assert!(!scale.allows(&act("update", "apps", "deployments", "d")));
    }

    #[test]
    fn names_narrow_a_rule_and_a_list_has_none() {
        let rule = Rule::read(&json!({
            "verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"],
        }));
        assert!(rule.allows(&act("get", "", "secrets", "a")));
        assert!(!rule.allows(&act("get", "", "secrets", "b")));
        assert!(!rule.allows(&act("list", "", "secrets", "")));
    }

    #[test]
    fn paths_are_covered_by_prefix() {
        let rule = Rule::read(&json!({
            "verbs": ["get"], "nonResourceURLs": ["/healthz", "/openapi/*"],
        }));
        let path = |path| rule.allows(&Act::Path { verb: "get", path });
        assert!(path("/healthz") && path("/openapi/v3"));
        assert!(!path("/healthz/etcd") && !path("/metrics"));
        assert!(!rule.allows(&act("get", "", "pods", "")));
    }
}

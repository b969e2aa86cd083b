//! Nobody gives away what they don't have: a role may be written, or bound, only by
//! somebody who may already do all that it allows, or who may `escalate` or `bind`.

use serde_json::{Value, json};

use super::authenticate::Gate;
use super::rbac::{Act, Rule, covers_path, covers_resource};
use super::user::User;
use crate::kinds;
use crate::refusal::Refusal;
use crate::registry::{Target, text};

const GROUP: &str = "rbac.authorization.k8s.io";

impl Gate<'_> {
    /// Whether what a user writes here must be compared with what the user may do.
    pub(crate) fn must_watch(&self, user: &User, target: &Target) -> bool {
        target.kind.group == GROUP && !user.is_master()
    }

    /// Refuses a role or a binding that would give its author's friends more than the author
    /// has. Objects of other kinds pass.
    pub(crate) fn escalates(
        &self,
        user: &User,
        target: &Target,
        object: &Value,
    ) -> Result<(), Refusal> {
        if !self.must_watch(user, target) {
            return Ok(());
        }
        let namespace = target.namespace.as_str();
        let (verb, resource, name, rules) = match target.kind.kind {
            "Role" | "ClusterRole" => {
                let name = text(object, "/metadata/name");
                ("escalate", target.kind.plural, name, Rule::all_of(object))
            }
            _ => {
                let name = text(object, "/roleRef/name");
                let resource = if text(object, "/roleRef/kind") == "ClusterRole" {
                    "clusterroles"
                } else {
                    "roles"
                };
                let rules = self.rules_of(resource, namespace, name)?;
                ("bind", resource, name, rules)
            }
        };
        let act = Act::Resource {
            verb,
            group: GROUP,
            resource,
            namespace,
            name,
        };
        let store = &self.registry.store;
        if self.index.allows(store, user, &act).is_some() {
            return Ok(());
        }
        let held = self.index.rules(store, user, namespace);
        let own = match text(object, "/metadata/name") {
            "" => target.name.as_str(),
            own => own,
        };
        let missing = missing(&held, &rules);
        if missing.is_empty() {
            // What gathers anything gives anything.
            if !self.gathers(target, object) || holds_everything(&held) {
                return Ok(());
            }
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Refusal::forbidden(target.kind, own, why));
        }
        let why = format!(
            "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently \
             held:\n{}",
            user.name,
            user.groups,
            missing.join("\n")
        );
        Err(Refusal::forbidden(target.kind, own, why))
    }

    /// Whether a role gathers the rules of others, or did so.
    fn gathers(&self, target: &Target, role: &Value) -> bool {
        let gathers = |role: &Value| {
            let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
            selectors.is_some_and(|all| !all.is_empty())
        };
        let before = self.registry.store.get(&target.key());
        target.kind.kind == "ClusterRole"
            && (gathers(role) || before.is_some_and(|before| gathers(&before.value())))
    }

    /// The rules of the role that a binding is to.
    fn rules_of(&self, plural: &str, namespace: &str, name: &str) -> Result<Vec<Rule>, Refusal> {
        let kind = kinds::find(GROUP, "v1", plural).ok_or_else(Refusal::no_such_path)?;
        let place = if kind.namespaced { namespace } else { "" };
        let role = Target {
            kind,
            namespace: place.to_owned(),
            name: name.to_owned(),
        };
        let found = self.registry.store.get(&role.key());
        let found = found.ok_or_else(|| Refusal::not_found(kind, name))?;
        Ok(Rule::all_of(&found.value()))
    }
}

/// Whether rules allow everything there is.
fn holds_everything(held: &[Rule]) -> bool {
    let everything = Rule::all_of(&json!({ "rules": [
        { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
        { "verbs": ["*"], "nonResourceURLs": ["*"] },
    ] }));
    missing(held, &everything).is_empty()
}

/// The parts of `wanted` that `held` doesn't cover, as the original's message shows them.
pub(super) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for rule in wanted {
        for single in singles(rule) {
            if !held.iter().any(|own| covers(own, &single)) {
                let text = single.text();
                if !missing.contains(&text) {
                    missing.push(text);
                }
            }
        }
    }
    missing
}

/// A rule with one verb on one thing.
struct Single<'r> {
    verb: &'r str,
    /// The group and the resource, or none for a path.
    on: Option<(&'r str, &'r str)>,
    /// The name, or the path.
    name: Option<&'r str>,
}

impl Single<'_> {
    fn text(&self) -> String {
        let quoted = |text: &str| format!("[{text:?}]");
        match (self.on, self.name) {
            (Some((group, resource)), name) => {
                let mut text = format!(
                    "{{APIGroups:{}, Resources:{}",
                    quoted(group),
                    quoted(resource)
                );
                if let Some(name) = name {
                    text.push_str(&format!(", ResourceNames:{}", quoted(name)));
                }
                text.push_str(&format!(", Verbs:{}}}", quoted(self.verb)));
                text
            }
            (None, path) => format!(
                "{{NonResourceURLs:{}, Verbs:{}}}",
                quoted(path.unwrap_or_default()),
                quoted(self.verb)
            ),
        }
    }
}

fn singles(rule: &Rule) -> Vec<Single<'_>> {
    let mut all = Vec::new();
    for verb in &rule.verbs {
        for path in &rule.paths {
            all.push(Single {
                verb,
                on: None,
                name: Some(path),
            });
        }
        for group in &rule.groups {
            for resource in &rule.resources {
                let on = Some((group.as_str(), resource.as_str()));
                if rule.names.is_empty() {
                    all.push(Single {
                        verb,
                        on,
                        name: None,
                    });
                }
                for name in &rule.names {
                    all.push(Single {
                        verb,
                        on,
                        name: Some(name),
                    });
                }
            }
        }
    }
    all
}

fn covers(own: &Rule, wanted: &Single<'_>) -> bool {
    let has = |list: &[String], one: &str| list.iter().any(|item| item == "*" || item == one);
    has(&own.verbs, wanted.verb)
        && match wanted.on {
            None => own
                .paths
                .iter()
                .any(|path| covers_path(path, wanted.name.unwrap_or_default())),
            Some((group, resource)) => {
                has(&own.groups, group)
                    && own
                        .resources
                        .iter()
                        .any(|one| covers_resource(one, resource))
                    && (own.names.is_empty()
                        || wanted
                            .name
                            .is_some_and(|name| own.names.iter().any(|one| one == name)))
            }
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &Value) -> Vec<Rule> {
        Rule::all_of(&json!({ "rules": rules }))
    }

    #[test]
    fn what_is_held_may_be_given() {
        let held = rules(&json!([
            { "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"] },
            { "verbs": ["*"], "apiGroups": ["storage.k8s.io"], "resources": ["*"] },
            { "verbs": ["get"], "nonResourceURLs": ["/openapi/*"] },
        ]));
        let given = rules(&json!([
            { "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"] },
            { "verbs": ["delete"], "apiGroups": ["storage.k8s.io"], "resources": ["csinodes"] },
            { "verbs": ["get"], "nonResourceURLs": ["/openapi/v3"] },
        ]));
        assert_eq!(missing(&held, &given), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_held_is_told_one_by_one() {
        let held = rules(&json!([
            { "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"] },
        ]));
        let given = rules(&json!([
            { "verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"] },
            { "verbs": ["get"], "nonResourceURLs": ["/metrics"] },
        ]));
        assert_eq!(
            missing(&held, &given),
            [
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["list"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
        );
    }
}

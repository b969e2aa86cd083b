//! The roles and bindings of the store, arranged by who holds them.
//!
//! Reading the store on every request would parse every role each time. The index is made
//! anew only after a role or a binding has changed, which is rare.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::nodes;
use super::rbac::{Act, Rule};
use super::user::User;
use crate::registry::text;
use crate::store::{State, Store};

/// The resources that the index is made of.
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const RESOURCES: [&str; 4] = [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS];

/// Who holds a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    User(String),
    Group(String),
}

/// The rules of one binding, and where they hold.
#[derive(Debug, Clone)]
struct Grant {
    /// None for everywhere.
    namespace: Option<String>,
    rules: Arc<Vec<Rule>>,
    /// Which binding it is, for the reason in reviews.
    binding: Arc<str>,
}

/// All grants at one moment.
#[derive(Debug, Default)]
struct Grants {
    /// The last change of each of [`RESOURCES`].
    at: [u64; 4],
    by_holder: HashMap<Holder, Vec<Grant>>,
}

/// What every user may do; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    grants: Arc<Mutex<Option<Arc<Grants>>>>,
}

impl Index {
    /// The reason why the act is allowed; none if it isn't.
    pub(crate) fn allows(&self, store: &Store, user: &User, act: &Act<'_>) -> Option<String> {
        if user.is_master() {
            return Some(String::new());
        }
        let grants = self.current(store);
        let place = match act {
            Act::Resource { namespace, .. } => *namespace,
            Act::Path { .. } => "",
        };
        grants
            .of(user)
            .filter(|grant| grant.holds_in(place))
            .find(|grant| grant.rules.iter().any(|rule| rule.allows(act)))
            .map(|grant| format!("RBAC: allowed by {}", grant.binding))
            .or_else(|| nodes::allows(store, user, act))
    }

    /// The rules that hold for a user in a namespace.
    pub(crate) fn rules(&self, store: &Store, user: &User, namespace: &str) -> Vec<Rule> {
        let grants = self.current(store);
        let held = grants
            .of(user)
            .filter(|grant| grant.holds_in(namespace))
            .flat_map(|grant| grant.rules.iter().cloned());
        held.collect()
    }

    fn current(&self, store: &Store) -> Arc<Grants> {
        let mut kept = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let state = store.read();
        let at = RESOURCES.map(|resource| state.changed_at(resource));
        if let Some(grants) = kept.as_ref().filter(|grants| grants.at == at) {
            return Arc::clone(grants);
        }
        let grants = Arc::new(Grants::read(&state, at));
        drop(state);
        *kept = Some(Arc::clone(&grants));
        grants
    }
}

impl Grant {
    fn holds_in(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }
}

impl Grants {
    fn of<'g>(&'g self, user: &'g User) -> impl Iterator<Item = &'g Grant> {
        let groups = user.groups.iter().cloned().map(Holder::Group);
        std::iter::once(Holder::User(user.name.clone()))
            .chain(groups)
            .filter_map(|holder| self.by_holder.get(&holder))
            .flatten()
    }

    fn read(state: &State, at: [u64; 4]) -> Self {
        let mut rules: HashMap<(bool, String, String), Arc<Vec<Rule>>> = HashMap::new();
        for (clustered, resource) in [(true, CLUSTER_ROLES), (false, ROLES)] {
            for (namespace, name, role) in state.list(resource, None) {
                let key = (clustered, namespace.to_string(), name.to_string());
                rules.insert(key, Arc::new(Rule::all_of(&role.value())));
            }
        }
        let mut grants = Self {
            at,
            by_holder: HashMap::new(),
        };
        for (clustered, resource) in [(true, CLUSTER_ROLE_BINDINGS), (false, ROLE_BINDINGS)] {
            for (namespace, name, binding) in state.list(resource, None) {
                let binding = binding.value();
                let role = text(&binding, "/roleRef/name").to_owned();
                let key = if text(&binding, "/roleRef/kind") == "ClusterRole" {
                    (true, String::new(), role)
                } else {
                    (false, namespace.to_string(), role)
                };
                // A binding to a role that isn't there grants nothing until it is.
                let Some(rules) = rules.get(&key) else {
                    continue;
                };
                let role = format!("{} {:?}", text(&binding, "/roleRef/kind"), key.2);
                let (place, kind, title) = if clustered {
                    (None, "ClusterRoleBinding", format!("{name:?}"))
                } else {
                    let title = format!("\"{name}/{namespace}\"");
                    (Some(namespace.to_string()), "RoleBinding", title)
                };
                for subject in binding["subjects"].as_array().into_iter().flatten() {
                    let Some((holder, who)) = holder(subject, namespace) else {
                        continue;
                    };
                    let why = format!("{kind} {title} of {role} to {who}");
                    let grant = Grant {
                        namespace: place.clone(),
                        rules: Arc::clone(rules),
                        binding: why.into(),
                    };
                    grants.by_holder.entry(holder).or_default().push(grant);
                }
            }
        }
        grants
    }
}

/// Who a subject of a binding is, and how a reason names it.
fn holder(subject: &Value, namespace: &str) -> Option<(Holder, String)> {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => Some((Holder::User(name.to_owned()), format!("User {name:?}"))),
        "Group" => Some((Holder::Group(name.to_owned()), format!("Group {name:?}"))),
        "ServiceAccount" => {
            let place = match text(subject, "/namespace") {
                "" => namespace,
                place => place,
            };
            let user = User::service_account(place, name).name;
            let who = format!("ServiceAccount \"{name}/{place}\"");
            Some((Holder::User(user), who))
        }
        _ => None,
    }
}

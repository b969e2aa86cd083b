//! One quota, as it is asked: how much of what, of which objects. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::charges::{self, Amounts, CLAIMS, PODS};
use crate::admission::qos_class;
use crate::registry::text;

/// What pods must say of each container if a quota counts it; the original calls this a
/// mistake that it can't take back.
const MUST_BE_SAID: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];

/// A quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) name: String,
    /// How much there may be.
    pub(super) hard: Amounts,
    scopes: Vec<Scope>,
}

/// Which objects a quota is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scope {
    name: String,
    operator: String,
    values: Vec<String>,
}

impl Rules {
    pub(super) fn read(quota: &Value) -> Self {
        let spec = &quota["spec"];
        let strings = |list: &Value| -> Vec<String> {
            let all = list.as_array().into_iter().flatten();
            all.filter_map(|one| one.as_str().map(str::to_owned))
                .collect()
        };
        let plain = strings(&spec["scopes"]).into_iter().map(|name| Scope {
            name,
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selected = spec["scopeSelector"]["matchExpressions"].as_array();
        let selected = selected.into_iter().flatten().map(|one| Scope {
            name: text(one, "/scopeName").to_owned(),
            operator: text(one, "/operator").to_owned(),
            values: strings(&one["values"]),
        });
        Self {
            name: text(quota, "/metadata/name").to_owned(),
            hard: charges::amounts(&spec["hard"]),
            scopes: plain.chain(selected).collect(),
        }
    }

    /// The resources whose objects it counts.
    pub(super) fn resources(&self) -> BTreeSet<&str> {
        let names = self.hard.keys();
        names.filter_map(|name| charges::counted(name)).collect()
    }

    /// Nothing, of everything that it counts.
    pub(super) fn nothing(&self) -> Amounts {
        let names = self.hard.keys();
        names
            .filter(|name| charges::counted(name).is_some())
            .map(|name| (name.clone(), Default::default()))
            .collect()
    }

    /// What an object counts here.
    pub(super) fn charges(&self, resource: &str, object: &Value) -> Amounts {
        if !self.covers(resource, object) {
            return Amounts::new();
        }
        let mut charges = charges::charges(resource, object);
        charges.retain(|name, _| self.hard.contains_key(name));
        charges
    }

    /// Whether an object is one that the quota is about.
    pub(super) fn covers(&self, resource: &str, object: &Value) -> bool {
        self.hard
            .keys()
            .any(|name| charges::counted(name) == Some(resource))
            && self
                .scopes
                .iter()
                .all(|scope| scope.holds(resource, object))
    }

    /// What a pod doesn't say although the quota counts it, as the refusal tells it.
    pub(super) fn unsaid(&self, pod: &Value) -> Option<String> {
        if pod["spec"]["resources"]
            .as_object()
            .is_some_and(|own| !own.is_empty())
        {
            return None;
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array().into_iter().flatten() {
                let own = &container["resources"];
                let (requests, limits) = (&own["requests"], &own["limits"]);
                let said = charges::asked(&charges::amounts(requests), &charges::amounts(limits));
                let counted = MUST_BE_SAID
                    .iter()
                    .filter(|name| self.hard.contains_key(**name));
                for name in counted.filter(|name| !said.contains_key(**name)) {
                    missing
                        .entry(name)
                        .or_default()
                        .insert(text(container, "/name"));
                }
            }
        }
        let told: Vec<String> = missing
            .into_iter()
            .map(|(name, containers)| {
                let containers: Vec<&str> = containers.into_iter().collect();
                format!("{name} for: {}", containers.join(","))
            })
            .collect();
        (!told.is_empty()).then(|| format!("must specify {}", told.join("; ")))
    }
}

impl Scope {
    fn holds(&self, resource: &str, object: &Value) -> bool {
        match (resource, self.name.as_str()) {
            (PODS, "Terminating") => is_limited_in_time(object),
            (PODS, "NotTerminating") => !is_limited_in_time(object),
            (PODS, "BestEffort") => qos_class(object) == "BestEffort",
            (PODS, "NotBestEffort") => qos_class(object) != "BestEffort",
            (PODS, "PriorityClass") => self.selects(&[text(object, "/spec/priorityClassName")]),
            (PODS, "CrossNamespacePodAffinity") => looks_abroad(object),
            (CLAIMS, "VolumeAttributesClass") => self.selects(&[
                text(object, "/spec/volumeAttributesClassName"),
                text(object, "/status/currentVolumeAttributesClassName"),
                text(
                    object,
                    "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
                ),
            ]),
            _ => false,
        }
    }

    /// Whether one of the names is meant; an empty one is none.
    fn selects(&self, names: &[&str]) -> bool {
        let mut given = names.iter().filter(|name| !name.is_empty()).peekable();
        let listed = |name: &str| self.values.iter().any(|value| value == name);
        match self.operator.as_str() {
            "Exists" => given.peek().is_some(),
            "DoesNotExist" => given.peek().is_none(),
            "In" => given.any(|name| listed(name)),
            "NotIn" => given.peek().is_none() || given.any(|name| !listed(name)),
            _ => false,
        }
    }
}

fn is_limited_in_time(pod: &Value) -> bool {
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_i64();
    seconds.is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod's place depends on pods of other namespaces.
fn looks_abroad(pod: &Value) -> bool {
    let abroad = |term: &Value| {
        term["namespaces"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
            || term.get("namespaceSelector").is_some()
    };
    let affinity = &pod["spec"]["affinity"];
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let list = |name: &str| affinity[side][name].as_array().into_iter().flatten();
        list("requiredDuringSchedulingIgnoredDuringExecution").any(abroad)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|term| abroad(&term["podAffinityTerm"]))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::charges::shown;
    use super::*;

    fn rules(spec: &Value) -> Rules {
        Rules::read(&json!({ "metadata": { "name": "q" }, "spec": spec }))
    }

    #[test]
    fn only_what_is_limited_is_counted() {
        let rules = rules(&json!({ "hard": { "requests.storage": "1Gi", "example.com/x": 3 } }));
        let claim = json!({ "spec": { "resources": { "requests": { "storage": "1Mi" } } } });
        assert_eq!(
            shown(&rules.charges(CLAIMS, &claim)),
            "requests.storage=1Mi"
        );
        assert_eq!(shown(&rules.nothing()), "requests.storage=0");
        assert!(rules.charges(PODS, &json!({})).is_empty());
    }

    #[test]
    fn scopes_narrow_a_quota() {
        let quota = rules(&json!({
            "hard": { "persistentvolumeclaims": "1" },
            "scopeSelector": { "matchExpressions": [
                { "scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"] },
            ] },
        }));
        let claim = |class: &str| json!({ "spec": { "volumeAttributesClassName": class } });
        assert!(quota.covers(CLAIMS, &claim("gold")));
        assert!(!quota.covers(CLAIMS, &claim("tin")));
        assert!(!quota.covers(CLAIMS, &json!({})));
        let quota = rules(&json!({ "hard": { "pods": "1" }, "scopes": ["NotBestEffort"] }));
        assert!(!quota.covers(PODS, &json!({})));
    }

    #[test]
    fn what_is_counted_must_be_said_by_every_container() {
        let quota = rules(&json!({ "hard": { "requests.cpu": "1", "limits.memory": "1Gi" } }));
        let pod = json!({ "spec": {
            "containers": [{ "name": "b", "resources": { "requests": { "cpu": "1" } } }],
            "initContainers": [{ "name": "a" }],
        } });
        assert_eq!(
            quota.unsaid(&pod).unwrap(),
            "must specify limits.memory for: a,b; requests.cpu for: a"
        );
    }
}

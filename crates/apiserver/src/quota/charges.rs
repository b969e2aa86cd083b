//! What an object counts against quotas. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::amount::Amount;
use crate::registry::text;

/// Amounts by the name of what is counted.
pub(crate) type Amounts = BTreeMap<String, Amount>;

/// The resources that more is counted of than how many there are.
pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const PODS: &str = "pods";
pub(super) const SERVICES: &str = "services";
/// Those that are counted under their own name, too.
const NAMED: [&str; 3] = ["configmaps", "resourcequotas", "secrets"];

const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
const STORAGE: &str = "requests.storage";

/// What a pod asks for and is limited to.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The resource whose objects are counted under a name; none if nothing is counted so.
pub(super) fn counted(name: &str) -> Option<&str> {
    if let Some(resource) = name.strip_prefix("count/") {
        return Some(resource);
    }
    let claims = |what: &str| what == CLAIMS || what == STORAGE;
    if claims(name)
        || name
            .rsplit_once(OF_CLASS)
            .is_some_and(|(_, what)| claims(what))
    {
        return Some(CLAIMS);
    }
    if matches!(
        name,
        SERVICES | "services.nodeports" | "services.loadbalancers"
    ) {
        return Some(SERVICES);
    }
    if let Some(named) = NAMED.iter().find(|named| **named == name) {
        return Some(named);
    }
    let bare = name
        .strip_prefix("limits.")
        .or_else(|| name.strip_prefix("requests."));
    let compute = COMPUTE.contains(&bare.unwrap_or(name));
    let extended = name.starts_with("requests.") && name.contains('/');
    let huge = bare.unwrap_or(name).starts_with("hugepages-");
    (name == PODS || compute || extended || huge).then_some(PODS)
}

/// Everything that an object of a resource is charged for.
pub(super) fn charges(resource: &str, object: &Value) -> Amounts {
    let mut charges = Amounts::new();
    let one = Amount::count(1);
    charges.insert(format!("count/{resource}"), one);
    match resource {
        CLAIMS => {
            let class = class_of(object);
            charges.insert(CLAIMS.to_owned(), one);
            let storage = storage_of(object);
            charges.extend(storage.map(|storage| (STORAGE.to_owned(), storage)));
            if !class.is_empty() {
                charges.insert(format!("{class}{OF_CLASS}{CLAIMS}"), one);
                let name = format!("{class}{OF_CLASS}{STORAGE}");
                charges.extend(storage.map(|storage| (name, storage)));
            }
        }
        // Pods that have ended use nothing but their name.
        PODS if matches!(text(object, "/status/phase"), "Failed" | "Succeeded") => {}
        PODS => {
            charges.insert(PODS.to_owned(), one);
            charges.extend(asked(
                &pod_total(object, "requests"),
                &pod_total(object, "limits"),
            ));
        }
        SERVICES => {
            charges.insert(SERVICES.to_owned(), one);
            charges.extend(ports(object));
        }
        named if NAMED.contains(&named) => {
            charges.insert(named.to_owned(), one);
        }
        _ => {}
    }
    charges
}

/// The class of a claim; the old annotation wins over the field.
fn class_of(claim: &Value) -> &str {
    let annotations = &claim["metadata"]["annotations"];
    let old = annotations[orlop_model::well_known::BETA_STORAGE_CLASS].as_str();
    old.unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

/// What a claim asks for, or what is being made for it if that is more.
fn storage_of(claim: &Value) -> Option<Amount> {
    let asked = Amount::of(&claim["spec"]["resources"]["requests"]["storage"])?;
    let made = Amount::of(&claim["status"]["allocatedResources"]["storage"]);
    Some(made.map_or(asked, |made| made.max(asked)).rounded_up())
}

fn ports(service: &Value) -> Amounts {
    let ports = service["spec"]["ports"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let explicit = || {
        ports
            .iter()
            .filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0)
    };
    let (node_ports, balancers) = match text(service, "/spec/type") {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if service["spec"]["allocateLoadBalancerNodePorts"] == false => {
            (explicit().count(), 1)
        }
        "LoadBalancer" => (ports.len(), 1),
        _ => (0, 0),
    };
    Amounts::from([
        ("services.nodeports".to_owned(), Amount::count(node_ports)),
        (
            "services.loadbalancers".to_owned(),
            Amount::count(balancers),
        ),
    ])
}

/// Requests and limits under the names that quotas have for them.
pub(super) fn asked(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut charges = Amounts::new();
    for (name, amount) in requests {
        let plain = COMPUTE.contains(&name.as_str()) || name.starts_with("hugepages-");
        if plain {
            charges.insert(name.clone(), *amount);
        }
        if plain || name.contains('/') {
            charges.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits
        .iter()
        .filter(|(name, _)| COMPUTE.contains(&name.as_str()))
    {
        charges.insert(format!("limits.{name}"), *amount);
    }
    charges
}

/// The amounts of one of the maps of `resources`.
pub(crate) fn amounts(map: &Value) -> Amounts {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), Amount::of(value)?)))
        .collect()
}

/// What a pod asks for, or is limited to: the sum of what runs at once, or the most that one
/// of the containers before them needs with those that stay.
pub(crate) fn pod_total(pod: &Value, list: &str) -> Amounts {
    let spec = &pod["spec"];
    let containers = |which: &str| spec[which].as_array().map_or(&[][..], Vec::as_slice).iter();
    let mut total = Amounts::new();
    for container in containers("containers") {
        add(&mut total, &amounts(&container["resources"][list]));
    }
    let (mut staying, mut before) = (Amounts::new(), Amounts::new());
    for container in containers("initContainers") {
        let own = amounts(&container["resources"][list]);
        let mut needed = staying.clone();
        add(&mut needed, &own);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut total, &own);
            staying.clone_from(&needed);
        }
        raise(&mut before, &needed);
    }
    raise(&mut total, &before);
    // What is said of the pod as a whole counts instead.
    for (name, amount) in amounts(&spec["resources"][list]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    // Limits grow by it only where there are any.
    let mut overhead = amounts(&spec["overhead"]);
    overhead.retain(|name, _| list == "requests" || total.contains_key(name));
    add(&mut total, &overhead);
    total
}

/// Adds each amount to that of its name.
pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).copied().unwrap_or_default().plus(*amount);
        to.insert(name.clone(), sum);
    }
}

/// Takes each amount from that of its name.
pub(super) fn subtract(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        let rest = from.get(name).copied().unwrap_or_default().minus(*amount);
        from.insert(name.clone(), rest);
    }
}

fn raise(to: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        let most = to.get(name).map_or(*amount, |own| (*own).max(*amount));
        to.insert(name.clone(), most);
    }
}

/// `name=amount` of each, as refusals show them.
pub(super) fn shown(amounts: &Amounts) -> String {
    let shown: Vec<String> = amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_counts_for_itself_and_for_its_class() {
        let claim = json!({
            "spec": {
                "storageClassName": "fast",
                "resources": { "requests": { "storage": "1.5Gi" } },
            },
        });
        assert_eq!(
            shown(&charges(CLAIMS, &claim)),
            "count/persistentvolumeclaims=1,\
             fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             fast.storageclass.storage.k8s.io/requests.storage=1536Mi,\
             persistentvolumeclaims=1,requests.storage=1536Mi"
        );
        let mut growing = claim;
        growing["status"] = json!({ "allocatedResources": { "storage": "2Gi" } });
        assert_eq!(charges(CLAIMS, &growing)[STORAGE].to_string(), "2Gi");
    }

    #[test]
    fn a_pod_that_has_ended_counts_as_an_object_only() {
        let mut pod = json!({ "spec": { "containers": [{
            "resources": { "requests": { "ephemeral-storage": "1Gi" } },
        }] } });
        assert_eq!(
            shown(&charges(PODS, &pod)),
            "count/pods=1,ephemeral-storage=1Gi,pods=1,requests.ephemeral-storage=1Gi"
        );
        pod["status"] = json!({ "phase": "Succeeded" });
        assert_eq!(shown(&charges(PODS, &pod)), "count/pods=1");
    }

    #[test]
    fn containers_that_come_first_need_no_room_of_their_own() {
        let with = |cpu: &str| json!({ "requests": { "cpu": cpu } });
        let pod = json!({ "spec": {
            "containers": [{ "resources": with("1") }, { "resources": with("500m") }],
            "initContainers": [
                { "resources": with("200m"), "restartPolicy": "Always" },
                { "resources": with("2") },
            ],
        } });
        assert_eq!(pod_total(&pod, "requests")["cpu"].to_string(), "2200m");
    }

    #[test]
    fn every_name_leads_to_what_is_counted() {
        for (name, resource) in [
            ("requests.storage", Some(CLAIMS)),
            ("persistentvolumeclaims", Some(CLAIMS)),
            (
                "a.b.storageclass.storage.k8s.io/requests.storage",
                Some(CLAIMS),
            ),
            ("count/deployments.apps", Some("deployments.apps")),
            ("pods", Some(PODS)),
            ("requests.ephemeral-storage", Some(PODS)),
            ("limits.cpu", Some(PODS)),
            ("requests.example.com/gpu", Some(PODS)),
            ("services.nodeports", Some(SERVICES)),
            ("secrets", Some("secrets")),
            ("replicationcontrollers", None),
            ("example.com/other", None),
        ] {
            assert_eq!(counted(name), resource, "{name}");
        }
    }
}

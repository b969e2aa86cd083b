//! Rows of the kinds around storage: nodes, namespaces, events and the rest.

use super::{AGE, Column, NAME, age, at, at_or, flag, list, name, text, wide};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const NODE: &[Column] = &[
    NAME,
    text("Status"),
    text("Roles"),
    AGE,
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];

pub(super) fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |field: &str| at(node, &format!("/status/nodeInfo/{field}"));
    let known = |field: &str| at_or(node, &format!("/status/nodeInfo/{field}"), "<unknown>");
    let mut kernel = known("kernelVersion").to_owned();
    if !info("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info("architecture"));
    }
    vec![
        name(node),
        node_status(node).into(),
        node_roles(node).into(),
        age::of(node, now),
        info("kubeletVersion").into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        known("osImage").into(),
        kernel.into(),
        known("containerRuntimeVersion").into(),
    ]
}

fn node_status(node: &Value) -> String {
    let ready = list(node, "/status/conditions")
        .iter()
        .rfind(|c| c["type"] == "Ready");
    let mut status = match ready {
        None => "Unknown",
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if flag(node, "/spec/unschedulable") == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    list(node, "/status/addresses")
        .iter()
        .find(|address| address["type"] == kind)
        .map_or("<none>", |address| at(address, "/address"))
}

pub(super) const NAMESPACE: &[Column] = &[NAME, text("Status"), AGE];

pub(super) fn namespace(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(namespace),
        at(namespace, "/status/phase").into(),
        age::of(namespace, now),
    ]
}

pub(super) const EVENT: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    Column {
        format: "name",
        ..wide("Name")
    },
];

/// Events come in two spellings, core's and `events.k8s.io`'s.
pub(super) fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let either = |core: &str, new: &str| match at(event, core) {
        "" => at(event, new).to_owned(),
        text => text.to_owned(),
    };
    let time = |core, new| match either(core, new).as_str() {
        "" => None,
        time => Some(age::since(time, now)),
    };
    let first = time("/firstTimestamp", "/deprecatedFirstTimestamp")
        .unwrap_or_else(|| age::since(at(event, "/eventTime"), now));
    let mut last =
        time("/lastTimestamp", "/deprecatedLastTimestamp").unwrap_or_else(|| first.clone());
    let count = event.get("count").or_else(|| event.get("deprecatedCount"));
    let mut count = count
        .and_then(Value::as_i64)
        .filter(|n| *n != 0)
        .unwrap_or(1);
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        last = age::since(at(series, "/lastObservedTime"), now);
        count = series["count"].as_i64().unwrap_or(0);
    }
    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let object = match either("/involvedObject/name", "/regarding/name") {
        name if name.is_empty() => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        at(event, "/type").into(),
        at(event, "/reason").into(),
        object.into(),
        either("/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        event_source(event).into(),
        either("/message", "/note").trim().into(),
        first.into(),
        json!(count),
        name(event),
    ]
}

fn event_source(event: &Value) -> String {
    let first = |paths: &[&str]| {
        let mut found = paths.iter().map(|path| at(event, path));
        found.find(|text| !text.is_empty()).unwrap_or("").to_owned()
    };
    let component = first(&[
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]);
    match first(&[
        "/source/host",
        "/deprecatedSource/host",
        "/reportingInstance",
    ]) {
        host if host.is_empty() => component,
        host => format!("{component}, {host}"),
    }
}

pub(super) const SECRET: &[Column] = &[NAME, text("Type"), text("Data"), AGE];

pub(super) fn secret(secret: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(secret),
        at(secret, "/type").into(),
        json!(entries(secret, "/data")),
        age::of(secret, now),
    ]
}

pub(super) const CONFIG_MAP: &[Column] = &[NAME, text("Data"), AGE];

pub(super) fn config_map(map: &Value, now: Timestamp) -> Vec<Value> {
    let data = entries(map, "/data") + entries(map, "/binaryData");
    vec![name(map), json!(data), age::of(map, now)]
}

fn entries(object: &Value, path: &str) -> usize {
    let map = object.pointer(path).and_then(Value::as_object);
    map.map_or(0, serde_json::Map::len)
}

pub(super) const DEFINITION: &[Column] = &[NAME, text("Created At")];

pub(super) fn definition(definition: &Value, _: Timestamp) -> Vec<Value> {
    let created = at(definition, "/metadata/creationTimestamp");
    vec![name(definition), created.into()]
}

pub(super) const LEASE: &[Column] = &[NAME, text("Holder"), AGE];

pub(super) fn lease(lease: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(lease),
        at(lease, "/spec/holderIdentity").into(),
        age::of(lease, now),
    ]
}

pub(super) const SERVICE: &[Column] = &[
    NAME,
    text("Type"),
    text("Cluster-IP"),
    text("External-IP"),
    text("Port(s)"),
    AGE,
    wide("Selector"),
];

pub(super) fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let none = |text: String| {
        if text.is_empty() {
            "<none>".to_owned()
        } else {
            text
        }
    };
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let protocol = at_or(port, "/protocol", "TCP");
        match port["nodePort"].as_i64().unwrap_or(0) {
            0 => format!("{}/{protocol}", port["port"]),
            node_port => format!("{}:{node_port}/{protocol}", port["port"]),
        }
    });
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    let selector = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    vec![
        name(service),
        at(service, "/spec/type").into(),
        at_or(service, "/spec/clusterIPs/0", "<none>").into(),
        external_ip(service).into(),
        none(ports.collect::<Vec<_>>().join(",")).into(),
        age::of(service, now),
        none(selector.collect::<Vec<_>>().join(",")).into(),
    ]
}

fn external_ip(service: &Value) -> String {
    let mut addresses: Vec<&str> = Vec::new();
    let kind = at(service, "/spec/type");
    match kind {
        "ExternalName" => return at(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => addresses.extend(
            list(service, "/status/loadBalancer/ingress")
                .iter()
                .map(|ingress| at_or(ingress, "/ip", at(ingress, "/hostname"))),
        ),
        "ClusterIP" | "NodePort" => {}
        _ => return "<unknown>".to_owned(),
    }
    addresses.extend(
        list(service, "/spec/externalIPs")
            .iter()
            .filter_map(Value::as_str),
    );
    match (addresses.is_empty(), kind) {
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, _) => "<none>".to_owned(),
        (false, _) => addresses.join(","),
    }
}

pub(super) const ENDPOINTS: &[Column] = &[NAME, text("Endpoints"), AGE];

pub(super) fn endpoints(endpoints: &Value, now: Timestamp) -> Vec<Value> {
    /// As many are spelled out; the rest is counted.
    const SHOWN: usize = 3;
    let mut all = Vec::new();
    for subset in list(endpoints, "/subsets") {
        let ports = list(subset, "/ports");
        for address in list(subset, "/addresses") {
            let ip = at(address, "/ip");
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{ip}:{}", port["port"])));
        }
    }
    let text = match all.len() {
        0 => "<none>".to_owned(),
        n if n > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), n - SHOWN),
        _ => all.join(","),
    };
    vec![name(endpoints), text.into(), age::of(endpoints, now)]
}

pub(super) const QUOTA: &[Column] = &[NAME, text("Request"), text("Limit"), AGE];

pub(super) fn quota(quota: &Value, now: Timestamp) -> Vec<Value> {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, most) in hard.into_iter().flatten() {
        let used = quota["status"]["used"][name].as_str().unwrap_or("0");
        let side = match name.starts_with("limits.") {
            true => &mut limits,
            false => &mut requests,
        };
        side.push(format!("{name}: {used}/{}", most.as_str().unwrap_or("0")));
    }
    vec![
        name(quota),
        requests.join(", ").into(),
        limits.join(", ").into(),
        age::of(quota, now),
    ]
}

pub(super) const PRIORITY_CLASS: &[Column] = &[
    NAME,
    Column {
        kind: "integer",
        ..text("Value")
    },
    Column {
        kind: "boolean",
        ..text("Global-Default")
    },
    AGE,
    text("PreemptionPolicy"),
];

pub(super) fn priority_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        class["value"].as_i64().unwrap_or(0).into(),
        flag(class, "/globalDefault").unwrap_or(false).into(),
        age::of(class, now),
        at(class, "/preemptionPolicy").into(),
    ]
}

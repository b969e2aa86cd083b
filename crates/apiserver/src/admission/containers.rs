//! Rules for the containers of a pod: their environment, their mounts and their resources.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::Quantity;
use serde_json::{Value, json};

use super::fields::{field_ref_errors, resource_ref_errors};
use super::selectors::items;
use crate::refusal::{Fault, FieldError};
use crate::registry::text;

const PROPAGATION: &[&str] = &["Bidirectional", "HostToContainer", "None"];
/// What of a pod a variable can say.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What is wrong with a container of a pod whose volumes have these names.
pub(super) fn validate(
    path: &str,
    container: &Value,
    (spec, volumes): (&Value, &BTreeSet<&str>),
) -> Vec<FieldError> {
    let mut errors = environment_errors(path, container);
    errors.extend(mount_errors(path, container, volumes));
    errors.extend(device_errors(path, container, (spec, volumes)));
    errors.extend(resource_errors(
        &format!("{path}.resources"),
        &container["resources"],
    ));
    errors
}

fn environment_errors(path: &str, container: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, variable) in items(container, "env") {
        let path = format!("{path}.env[{at}]");
        let name = text(variable, "/name");
        let field = format!("{path}.name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if name.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
            let detail = "a valid environment variable name must consist only of printable \
                          ASCII characters other than '='";
            errors.push(FieldError::invalid(field, &variable["name"], detail));
        }
        if let Some(source) = variable.get("valueFrom") {
            let path = format!("{path}.valueFrom");
            if let Some(field) = source.get("fieldRef") {
                let path = format!("{path}.fieldRef");
                errors.extend(field_ref_errors(&path, field, VARIABLE_FIELDS));
            }
            if let Some(amount) = source.get("resourceFieldRef") {
                let path = format!("{path}.resourceFieldRef");
                errors.extend(resource_ref_errors(&path, amount));
            }
            let sources = source.as_object().map_or(0, serde_json::Map::len);
            let detail = match sources {
                0 => {
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
                     `secretKeyRef` or `fileKeyRef`"
                }
                _ if !text(variable, "/value").is_empty() => {
                    "may not be specified when `value` is not empty"
                }
                1 => continue,
                _ => "may not have more than one field specified at a time",
            };
            errors.push(FieldError::invalid(path, &json!(""), detail));
        }
    }
    errors
}

/// The last path of every name in a list of mounts or devices.
fn places<'c>(container: &'c Value, list: &str, path: &str) -> BTreeMap<&'c str, &'c str> {
    items(container, list)
        .map(|(_, one)| (text(one, "/name"), text(one, path)))
        .collect()
}

fn mount_errors(path: &str, container: &Value, volumes: &BTreeSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut paths = BTreeSet::new();
    let devices = places(container, "volumeDevices", "/devicePath");
    for (at, mount) in items(container, "volumeMounts") {
        let own = format!("{path}.volumeMounts[{at}]");
        let (name, target) = (text(mount, "/name"), text(mount, "/mountPath"));
        let name_field = format!("{own}.name");
        let path_field = format!("{own}.mountPath");
        if name.is_empty() {
            errors.push(FieldError::required(&name_field, ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::new(&name_field, Fault::NotFound(json!(name))));
        }
        if target.is_empty() {
            errors.push(FieldError::required(&path_field, ""));
        } else if !paths.insert(target) {
            let detail = "must be unique";
            errors.push(FieldError::invalid(&path_field, &json!(target), detail));
        }
        if devices.contains_key(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(name_field, &json!(name), detail));
        }
        if devices.values().any(|device| *device == target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(path_field, &json!(target), detail));
        }
        errors.extend(placement_errors(path, container, mount));
    }
    errors
}

/// Where in its volume a mount begins, and whether mounts below it are shared. The original
/// names the list here, not the mount.
fn placement_errors(path: &str, container: &Value, mount: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in ["subPath", "subPathExpr"] {
        let field = format!("{path}.volumeMounts.{name}");
        let below = text(mount, &format!("/{name}"));
        if below.starts_with('/') {
            let detail = "must be a relative path";
            errors.push(FieldError::invalid(&field, &mount[name], detail));
        }
        if below.split('/').any(|part| part == "..") {
            let detail = "must not contain '..'";
            errors.push(FieldError::invalid(field, &mount[name], detail));
        }
    }
    let field = format!("{path}.volumeMounts.mountPropagation");
    match mount["mountPropagation"].as_str() {
        Some("Bidirectional") if container["securityContext"]["privileged"] != true => {
            let detail =
                "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(field, detail));
        }
        Some(mode) if !PROPAGATION.contains(&mode) => {
            let mode = &mount["mountPropagation"];
            errors.push(FieldError::not_supported(field, mode, PROPAGATION));
        }
        _ => {}
    }
    errors
}

/// Only claims come as devices.
fn device_errors(
    path: &str,
    container: &Value,
    (spec, volumes): (&Value, &BTreeSet<&str>),
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let mounts = places(container, "volumeMounts", "/mountPath");
    for (at, device) in items(container, "volumeDevices") {
        let (name, target) = (text(device, "/name"), text(device, "/devicePath"));
        let name_field = format!("{path}.volumeDevices[{at}].name");
        let path_field = format!("{path}.volumeDevices[{at}].devicePath");
        let mut name_is = |detail: &str| {
            errors.push(FieldError::invalid(&name_field, &json!(name), detail));
        };
        if !name.is_empty() && !names.insert(name) {
            name_is("must be unique");
        }
        let volume = items(spec, "volumes").find(|(_, volume)| volume["name"] == *name);
        match volume.filter(|_| volumes.contains(name)) {
            Some((_, volume))
                if volume.get("persistentVolumeClaim").is_none()
                    && volume.get("ephemeral").is_none() =>
            {
                name_is(
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for \
                     block mode",
                );
            }
            Some(_) => {}
            None if name.is_empty() => errors.push(FieldError::required(&name_field, "")),
            None => errors.push(FieldError::new(&name_field, Fault::NotFound(json!(name)))),
        }
        let mut wrong = Vec::new();
        if target.is_empty() {
            errors.push(FieldError::required(&path_field, ""));
        } else if paths.contains(target) {
            wrong.push("must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            wrong.push("can not contain backsteps ('..')");
        } else {
            paths.insert(target);
        }
        if mounts.contains_key(name) {
            let detail = "must not already exist in volumeMounts";
            errors.push(FieldError::invalid(&name_field, &json!(name), detail));
        }
        if mounts.values().any(|mount| *mount == target) {
            wrong.push("must not already exist as a path in volumeMounts");
        }
        let target = json!(target);
        let error = |detail| FieldError::invalid(&path_field, &target, detail);
        errors.extend(wrong.into_iter().map(error));
    }
    errors
}

fn resource_errors(path: &str, resources: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["limits", "requests"] {
        for (name, given) in resources[list].as_object().into_iter().flatten() {
            let Some(amount) = parse(given) else {
                continue;
            };
            if amount.milli() < 0 {
                let field = format!("{path}.{list}[{name}]");
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(field, given, detail));
            }
            if list == "requests" {
                errors.extend(excess_error(
                    path,
                    name,
                    (given, amount),
                    &resources["limits"],
                ));
            }
        }
    }
    errors
}

/// No more than the limit may be asked for; of what can't be shared, no less either.
fn excess_error(
    path: &str,
    name: &str,
    (given, amount): (&Value, Quantity),
    limits: &Value,
) -> Option<FieldError> {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    let shared = native && !name.starts_with("hugepages-");
    let limit = match limits.get(name) {
        Some(limit) => limit,
        None if shared => return None,
        None => {
            let detail = "Limit must be set for non overcommitable resources";
            return Some(FieldError::required(format!("{path}.limits"), detail));
        }
    };
    let most = parse(limit)?;
    let exact = |amount: &Quantity| (amount.value(), amount.milli());
    let (amount, most) = (exact(&amount), exact(&most));
    let bound = match shared {
        true if amount > most => "less than or equal to",
        false if amount != most => "equal to",
        _ => return None,
    };
    let limit = limit.as_str().unwrap_or_default();
    let detail = format!("must be {bound} {name} limit of {limit}");
    Some(FieldError::invalid(
        format!("{path}.requests"),
        given,
        detail,
    ))
}

fn parse(amount: &Value) -> Option<Quantity> {
    amount.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(container: &Value) -> Vec<String> {
        let spec = json!({ "volumes": [
            { "name": "claim", "persistentVolumeClaim": { "claimName": "c" } },
            { "name": "empty", "emptyDir": {} },
        ] });
        let volumes = BTreeSet::from(["claim", "empty"]);
        let errors = validate("c", container, (&spec, &volumes));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_mount_needs_its_volume() {
        let mount = |name: &str| json!({ "volumeMounts": [{ "name": name, "mountPath": "/d" }] });
        assert_eq!(told(&mount("empty")), [""; 0]);
        assert_eq!(
            told(&mount("other")),
            ["c.volumeMounts[0].name: Not found: \"other\""]
        );
    }

    #[test]
    fn a_claim_is_either_mounted_or_a_device() {
        let both = json!({
            "volumeMounts": [{ "name": "claim", "mountPath": "/d" }],
            "volumeDevices": [{ "name": "claim", "devicePath": "/dev/d" }],
        });
        assert_eq!(
            told(&both),
            [
                "c.volumeMounts[0].name: Invalid value: \"claim\": must not already exist in \
                 volumeDevices",
                "c.volumeDevices[0].name: Invalid value: \"claim\": must not already exist in \
                 volumeMounts",
            ]
        );
        let empty = json!({ "volumeDevices": [{ "name": "empty", "devicePath": "/dev/d" }] });
        assert_eq!(
            told(&empty),
            [
                "c.volumeDevices[0].name: Invalid value: \"empty\": can only use volume source \
                 type of PersistentVolumeClaim or Ephemeral for block mode"
            ]
        );
    }

    #[test]
    fn no_more_is_asked_for_than_the_limit_and_never_less_than_nothing() {
        let resources = |requests: Value, limits: Value| {
            told(&json!({ "resources": { "requests": requests, "limits": limits } }))
        };
        assert_eq!(
            resources(json!({ "cpu": "500m" }), json!({ "cpu": "1" })),
            [""; 0]
        );
        assert_eq!(
            resources(json!({ "cpu": "900m" }), json!({ "cpu": "500m" })),
            [
                "c.resources.requests: Invalid value: \"900m\": must be less than or equal to cpu \
                 limit of 500m"
            ]
        );
        assert_eq!(
            resources(json!({ "memory": "2Gi" }), json!({ "memory": "1Gi" })),
            [
                "c.resources.requests: Invalid value: \"2Gi\": must be less than or equal to \
                 memory limit of 1Gi"
            ]
        );
        assert_eq!(
            resources(json!({ "memory": "-1" }), json!({})),
            [
                "c.resources.requests[memory]: Invalid value: \"-1\": must be greater than or \
                 equal to 0"
            ]
        );
        assert_eq!(
            resources(json!({ "a.b/gpu": "1" }), json!({ "a.b/gpu": "2" })),
            ["c.resources.requests: Invalid value: \"1\": must be equal to a.b/gpu limit of 2"]
        );
    }

    #[test]
    fn variables_have_names_and_one_source() {
        assert_eq!(
            told(
                &json!({ "env": [{ "name": "" }, { "name": "a=b" }, { "name": "A", "value": "x" }] })
            ),
            [
                "c.env[0].name: Required value",
                "c.env[1].name: Invalid value: \"a=b\": a valid environment variable name must \
                 consist only of printable ASCII characters other than '='",
            ]
        );
        let from = |field: &str| {
            told(
                &json!({ "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": field } } }] }),
            )
        };
        assert_eq!(from("spec.nodeName"), [""; 0]);
        assert_eq!(from("metadata.annotations['a']"), [""; 0]);
        assert_eq!(
            from("spec.nothing"),
            [
                "c.env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.nothing\": error \
                 converting fieldPath: field label not supported: spec.nothing"
            ]
        );
    }
}

//! Rules for pods.

use std::collections::BTreeSet;

use orlop_model::Quantity;
use serde_json::{Value, json};

use super::selectors::items;
use super::{containers, pod_volumes};
use crate::refusal::{Fault, FieldError};
use crate::registry::{DNS_LABEL, section, text};

/// How long a pod stays on a node that has gone.
const EVICTION_DELAY: i64 = 300;

/// DefaultTolerationSeconds: a pod outlasts a short absence of its node.
pub(super) fn tolerate_absence(pod: &mut Value) {
    let tolerations = section(pod, "spec")
        .entry("tolerations")
        .or_insert_with(|| json!([]));
    let Some(all) = tolerations.as_array_mut() else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let told = all.iter().any(|one| {
            (text(one, "/key").is_empty() || text(one, "/key") == key)
                && matches!(text(one, "/effect"), "" | "NoExecute")
        });
        if !told {
            all.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": EVICTION_DELAY,
            }));
        }
    }
}

/// The quality-of-service class, from the resources of all containers.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers: Vec<&Value> = lists
        .iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
        .collect();
    let amount = |container: &Value, list: &str, resource: &str| {
        let amount = container["resources"][list][resource]
            .as_str()?
            .parse::<Quantity>()
            .ok()?;
        (amount.value() > 0).then_some(amount)
    };
    let resources = ["cpu", "memory"];
    let any = |list: &str| {
        let has = |container: &&Value| {
            resources
                .iter()
                .any(|name| amount(container, list, name).is_some())
        };
        containers.iter().any(has)
    };
    if !any("requests") && !any("limits") {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|container| {
        resources.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some()
                && (amount(container, "requests", name).is_none_or(|r| Some(r) == limit))
        })
    });
    if guaranteed {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

const RESTART: &[&str] = &["Always", "Never", "OnFailure"];

pub(super) fn validate(pod: &Value) -> Vec<FieldError> {
    let spec = &pod["spec"];
    let (mut errors, volumes) = pod_volumes::validate(spec);
    errors.extend(pod_volumes::claim_name_errors(pod));
    if items(spec, "containers").next().is_none() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (at, container) in items(spec, list) {
            let path = format!("spec.{list}[{at}]");
            let field = format!("{path}.name");
            errors.extend(label_error(&field, &container["name"]));
            if !names.insert(text(container, "/name")) {
                errors.push(duplicate(field, &container["name"]));
            }
            if text(container, "/image").is_empty() {
                errors.push(FieldError::required(format!("{path}.image"), ""));
            }
            errors.extend(containers::validate(&path, container, (spec, &volumes)));
        }
    }
    let policy = &spec["restartPolicy"];
    if !policy
        .as_str()
        .is_some_and(|policy| RESTART.contains(&policy))
    {
        errors.push(FieldError::not_supported(
            "spec.restartPolicy",
            policy,
            RESTART,
        ));
    }
    errors
}

pub(super) fn label_error(field: &str, name: &Value) -> Option<FieldError> {
    match name.as_str() {
        None | Some("") => Some(FieldError::required(field, "")),
        Some(given) => DNS_LABEL
            .fault(given)
            .map(|fault| FieldError::invalid(field, name, fault)),
    }
}

pub(super) fn duplicate(field: String, value: &Value) -> FieldError {
    FieldError {
        field,
        fault: Fault::Duplicate(value.clone()),
        detail: String::new(),
    }
}

/// A pod's spec is fixed but for its images, its deadline and added tolerations.
pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut frozen = after["spec"].clone();
    let old = &before["spec"];
    for list in ["containers", "initContainers"] {
        let count = old[list].as_array().map_or(0, Vec::len);
        if frozen[list].as_array().map_or(0, Vec::len) != count {
            continue;
        }
        for at in 0..count {
            frozen[list][at]["image"] = old[list][at]["image"].clone();
        }
    }
    for field in [
        "activeDeadlineSeconds",
        "ephemeralContainers",
        "schedulingGates",
    ] {
        put(&mut frozen, field, old.get(field));
    }
    let kept = |toleration: &Value| {
        frozen["tolerations"]
            .as_array()
            .is_some_and(|all| all.contains(toleration))
    };
    if old["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .all(kept)
    {
        put(&mut frozen, "tolerations", old.get("tolerations"));
    }
    if old["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0)
        && frozen["terminationGracePeriodSeconds"] == 1
    {
        put(
            &mut frozen,
            "terminationGracePeriodSeconds",
            old.get("terminationGracePeriodSeconds"),
        );
    }
    if frozen == *old {
        return Vec::new();
    }
    vec![FieldError::forbidden(
        "spec",
        "pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
         additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
         set to 1 if it was previously negative)",
    )]
}

fn put(spec: &mut Value, field: &str, value: Option<&Value>) {
    let Some(fields) = spec.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({ "spec": {
            "restartPolicy": "Always",
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }],
            "containers": [{
                "name": "main", "image": "i",
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
        } })
    }

    #[test]
    fn a_pod_is_judged_with_its_volumes_and_containers() {
        assert_eq!(validate(&pod()), []);
        let mut wrong = pod();
        wrong["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("");
        let errors: Vec<String> = validate(&wrong).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "spec.volumes[0].persistentVolumeClaim.claimName: Required value",
                "spec.containers[0].volumeMounts[0].name: Not found: \"data\"",
            ]
        );
    }

    #[test]
    fn only_images_change() {
        let mut after = pod();
        after["spec"]["containers"][0]["image"] = json!("j");
        assert_eq!(validate_change(&pod(), &after), []);
        after["spec"]["nodeName"] = json!("n");
        assert_eq!(validate_change(&pod(), &after)[0].field, "spec");
    }

    #[test]
    fn quality_of_service_follows_the_resources() {
        assert_eq!(qos_class(&pod()), "BestEffort");
        let mut some = pod();
        some["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "1Mi" } });
        assert_eq!(qos_class(&some), "Burstable");
        some["spec"]["containers"][0]["resources"] =
            json!({ "limits": { "memory": "1Mi", "cpu": "1" } });
        assert_eq!(qos_class(&some), "Guaranteed");
    }
}

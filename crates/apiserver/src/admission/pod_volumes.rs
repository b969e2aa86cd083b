//! Rules for the volumes of a pod.

use std::collections::BTreeSet;

use orlop_model::Quantity;
use serde_json::{Value, json};

use super::fields::{descent_errors, field_ref_errors, mode_error, resource_ref_errors};
use super::pods::{duplicate, label_error};
use super::selectors::items;
use super::{claims, drivers};
use crate::refusal::FieldError;
use crate::registry::{DNS_SUBDOMAIN, text};

/// The types of a volume in the order in which the original looks for them, with the names
/// that it calls a second one by.
const TYPES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];
const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
/// What of a pod can be read from a file of a volume.
const FILE_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// A token lives this long at least, in seconds.
const SHORTEST_TOKEN: i64 = 10 * 60;

/// What is wrong with a pod's volumes, and the names of those that are right: only they can
/// be mounted.
pub(super) fn validate(spec: &Value) -> (Vec<FieldError>, BTreeSet<&str>) {
    let mut errors = Vec::new();
    let mut right = BTreeSet::new();
    for (at, volume) in items(spec, "volumes") {
        let path = format!("spec.volumes[{at}]");
        let name = text(volume, "/name");
        let field = format!("{path}.name");
        let mut own = source_errors(&path, volume);
        own.extend(label_error(&field, &volume["name"]));
        if right.contains(name) {
            own.push(duplicate(field, &volume["name"]));
        }
        if own.is_empty() {
            right.insert(name);
        }
        errors.extend(own);
    }
    (errors, right)
}

/// What is wrong with the names of the claims that are made for a pod's own volumes: they are those of
/// pod and volume together.
pub(super) fn claim_name_errors(pod: &Value) -> Vec<FieldError> {
    let of = text(pod, "/metadata/name");
    let own = items(&pod["spec"], "volumes").filter(|(_, v)| v.get("ephemeral").is_some());
    let faults = own.filter_map(|(at, volume)| {
        let claim = format!("{of}-{}", text(volume, "/name"));
        let fault = DNS_SUBDOMAIN.fault(&claim).filter(|_| !of.is_empty())?;
        let detail = format!("PVC name \"{claim}\": {fault}");
        let field = format!("spec.volumes[{at}].name");
        Some(FieldError::invalid(field, &volume["name"], &detail))
    });
    faults.collect()
}

fn source_errors(path: &str, volume: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut found = TYPES.iter().filter(|(name, _)| volume.get(name).is_some());
    match found.next() {
        Some((name, _)) => errors.extend(type_errors(name, &format!("{path}.{name}"), volume)),
        None => errors.push(FieldError::required(path, "must specify a volume type")),
    }
    errors.extend(found.map(|(_, called)| {
        let detail = "may not specify more than 1 volume type";
        FieldError::forbidden(format!("{path}.{called}"), detail)
    }));
    errors
}

fn type_errors(name: &str, path: &str, volume: &Value) -> Vec<FieldError> {
    let source = &volume[name];
    match name {
        "emptyDir" => {
            let limit = text(source, "/sizeLimit").parse::<Quantity>();
            let negative = limit.is_ok_and(|limit| limit.milli() < 0);
            let detail = "SizeLimit field must be a valid resource quantity";
            let error = || FieldError::forbidden(format!("{path}.sizeLimit"), detail);
            negative.then(error).into_iter().collect()
        }
        "hostPath" => host_path_errors(path, source),
        "secret" | "configMap" => {
            let called = if name == "secret" {
                "secretName"
            } else {
                "name"
            };
            let mut errors = required(path, source, called);
            errors.extend(mode_error(path, source, "defaultMode"));
            errors.extend(key_errors(path, source));
            errors
        }
        "nfs" => {
            let mut errors = required(path, source, "server");
            errors.extend(required(path, source, "path"));
            let folder = text(source, "/path");
            if !folder.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(
                    format!("{path}.path"),
                    &json!(folder),
                    detail,
                ));
            }
            errors
        }
        "persistentVolumeClaim" => required(path, source, "claimName"),
        "downwardAPI" => {
            let mut errors: Vec<_> = mode_error(path, source, "defaultMode")
                .into_iter()
                .collect();
            for (_, file) in items(source, "items") {
                errors.extend(file_errors(path, file));
            }
            errors
        }
        "projected" => {
            let mut errors: Vec<_> = mode_error(path, source, "defaultMode")
                .into_iter()
                .collect();
            errors.extend(projection_errors(path, source));
            errors
        }
        "csi" => csi_errors(path, source),
        "ephemeral" => {
            let path = format!("{path}.volumeClaimTemplate");
            match source.get("volumeClaimTemplate") {
                None => vec![FieldError::required(path, "")],
                Some(template) => template_errors(&path, template),
            }
        }
        _ => Vec::new(),
    }
}

fn required(path: &str, source: &Value, field: &str) -> Vec<FieldError> {
    if text(source, &format!("/{field}")).is_empty() {
        vec![FieldError::required(format!("{path}.{field}"), "")]
    } else {
        Vec::new()
    }
}

fn host_path_errors(path: &str, source: &Value) -> Vec<FieldError> {
    let mut errors = required(path, source, "path");
    if !errors.is_empty() {
        return errors;
    }
    if text(source, "/path").split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(
            format!("{path}.path"),
            &source["path"],
            "must not contain '..'",
        ));
    }
    if let Some(kind) = source["type"].as_str()
        && !HOST_PATH_TYPES.contains(&kind)
    {
        errors.push(FieldError::not_supported(
            format!("{path}.type"),
            &source["type"],
            HOST_PATH_TYPES,
        ));
    }
    errors
}

fn csi_errors(path: &str, csi: &Value) -> Vec<FieldError> {
    let mut errors = drivers::name_errors(&format!("{path}.driver"), text(csi, "/driver"));
    if let Some(secret) = csi.get("nodePublishSecretRef") {
        let name = text(secret, "/name");
        if name.is_empty() {
            let field = format!("{path}.nodePublishSecretRef.name");
            errors.push(FieldError::required(field, ""));
        } else if let Some(fault) = DNS_SUBDOMAIN.fault(name) {
            // The original leaves out the reference here.
            let field = format!("{path}.name");
            errors.push(FieldError::invalid(field, &json!(name), fault));
        }
    }
    errors
}

/// A claim that is yet to be made is judged as one.
fn template_errors(path: &str, template: &Value) -> Vec<FieldError> {
    let mut errors = claims::validate(template);
    for error in &mut errors {
        error.field = format!("{path}.{}", error.field);
    }
    errors
}

/// Which keys of a map or secret become which files.
fn key_errors(path: &str, source: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, item) in items(source, "items") {
        let path = format!("{path}.items[{at}]");
        errors.extend(required(&path, item, "key"));
        errors.extend(required(&path, item, "path"));
        errors.extend(descent_errors(&format!("{path}.path"), text(item, "/path")));
        errors.extend(mode_error(&path, item, "mode"));
    }
    errors
}

/// A file with a field of the pod. The original names the list, not the file.
fn file_errors(path: &str, file: &Value) -> Vec<FieldError> {
    let mut errors = required(path, file, "path");
    errors.extend(descent_errors(&format!("{path}.path"), text(file, "/path")));
    match (file.get("fieldRef"), file.get("resourceFieldRef")) {
        (Some(field), amount) => {
            let own = format!("{path}.fieldRef");
            errors.extend(field_ref_errors(&own, field, FILE_FIELDS));
            if amount.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, &json!("resource"), detail));
            }
        }
        (None, Some(amount)) => {
            let own = format!("{path}.resourceFieldRef");
            if text(amount, "/containerName").is_empty() {
                let field = format!("{own}.containerName");
                errors.push(FieldError::required(field, ""));
            } else {
                errors.extend(resource_ref_errors(&own, amount));
            }
        }
        (None, None) => {
            let detail = "one of fieldRef and resourceFieldRef is required";
            errors.push(FieldError::required(path, detail));
        }
    }
    errors.extend(mode_error(path, file, "mode"));
    errors
}

fn projection_errors(path: &str, projected: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, source) in items(projected, "sources") {
        let own = format!("{path}.sources[{at}]");
        for name in ["secret", "configMap"] {
            let Some(list) = source.get(name) else {
                continue;
            };
            let part = format!("{own}.{name}");
            errors.extend(required(&part, list, "name"));
            errors.extend(key_errors(&part, list));
            for (_, item) in items(list, "items") {
                let file = text(item, "/path");
                if !file.is_empty() && !taken.insert(file) {
                    errors.push(conflict(path, &list["name"]));
                }
            }
        }
        if let Some(files) = source.get("downwardAPI") {
            for (_, item) in items(files, "items") {
                errors.extend(file_errors(&format!("{own}.downwardAPI"), item));
                let file = text(item, "/path");
                if !file.is_empty() && !taken.insert(file) {
                    errors.push(conflict(path, &item["path"]));
                }
            }
        }
        if let Some(token) = source.get("serviceAccountToken") {
            errors.extend(token_errors(path, &own, token));
        }
        if source.as_object().is_some_and(|types| types.len() > 1) {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(own, detail));
        }
    }
    errors
}

fn conflict(path: &str, value: &Value) -> FieldError {
    FieldError::invalid(path, value, "conflicting duplicate paths")
}

fn token_errors(path: &str, source: &str, token: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = format!("{source}.serviceAccountToken.expirationSeconds");
    let seconds = &token["expirationSeconds"];
    let wrong = match seconds.as_i64() {
        Some(short) if short < SHORTEST_TOKEN => {
            Some("may not specify a duration less than 10 minutes")
        }
        Some(long) if long > 1 << 32 => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    errors.extend(wrong.map(|detail| FieldError::invalid(field, seconds, detail)));
    // The original names the volume here, not the source.
    errors.extend(required(path, token, "path"));
    errors.extend(descent_errors(
        &format!("{path}.path"),
        text(token, "/path"),
    ));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: Value) -> Vec<String> {
        let mut volume = source;
        volume["name"] = json!("v");
        let spec = json!({ "volumes": [volume] });
        let (errors, right) = validate(&spec);
        assert_eq!(right.contains("v"), errors.is_empty());
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn volumes_as_people_write_them_are_right() {
        for source in [
            json!({ "emptyDir": { "sizeLimit": "1Gi" } }),
            json!({ "hostPath": { "path": "/a", "type": "DirectoryOrCreate" } }),
            json!({ "csi": { "driver": "Example.com", "nodePublishSecretRef": { "name": "s" } } }),
            json!({ "configMap": { "name": "m", "defaultMode": 0o777,
                "items": [{ "key": "k", "path": "a/b..c" }] } }),
            json!({ "downwardAPI": { "items": [
                { "path": "l", "fieldRef": { "fieldPath": "metadata.labels['a.b/c']" } },
                { "path": "c", "resourceFieldRef": { "containerName": "c", "resource": "limits.cpu" } },
            ] } }),
            json!({ "projected": { "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 600 } },
                { "secret": { "name": "s" } },
            ] } }),
            json!({ "nfs": { "server": "s", "path": "/p" } }),
        ] {
            assert_eq!(told(source), [""; 0]);
        }
    }

    #[test]
    fn what_is_wrong_with_a_volume_is_told_in_the_originals_words() {
        let mode = "must be a number between 0 and 0777 (octal), both inclusive";
        let cases = [
            (
                json!({ "csi": { "driver": "" } }),
                "csi.driver: Required value".to_owned(),
            ),
            (
                json!({ "csi": { "driver": "d", "nodePublishSecretRef": { "name": "" } } }),
                "csi.nodePublishSecretRef.name: Required value".to_owned(),
            ),
            (
                json!({ "emptyDir": {}, "hostPath": { "path": "/" } }),
                "hostPath: Forbidden: may not specify more than 1 volume type".to_owned(),
            ),
            (
                json!({ "hostPath": { "path": "/a/../b" } }),
                "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'".to_owned(),
            ),
            (
                json!({ "hostPath": { "path": "/a", "type": "Odd" } }),
                "hostPath.type: Unsupported value: \"Odd\": supported values: \"\", \
                 \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \
                 \"FileOrCreate\", \"Socket\""
                    .to_owned(),
            ),
            (
                json!({ "secret": { "secretName": "s", "items": [{ "key": "k", "path": "/a" }] } }),
                "secret.items[0].path: Invalid value: \"/a\": must be a relative path".to_owned(),
            ),
            (
                json!({ "configMap": { "name": "m", "items": [{ "key": "k", "path": "..a" }] } }),
                "configMap.items[0].path: Invalid value: \"..a\": must not start with '..'"
                    .to_owned(),
            ),
            (
                json!({ "configMap": { "name": "m", "defaultMode": 512 } }),
                format!("configMap.defaultMode: Invalid value: 512: {mode}"),
            ),
            (
                json!({ "nfs": { "server": "s", "path": "p" } }),
                "nfs.path: Invalid value: \"p\": must be an absolute path".to_owned(),
            ),
            (
                json!({ "projected": { "sources": [{ "secret": { "name": "s" },
                    "configMap": { "name": "m" } }] } }),
                "projected.sources[0]: Forbidden: may not specify more than 1 volume type per \
                 source"
                    .to_owned(),
            ),
            (
                json!({ "projected": { "sources": [{ "serviceAccountToken":
                    { "path": "t", "expirationSeconds": 599 } }] } }),
                "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: \
                 may not specify a duration less than 10 minutes"
                    .to_owned(),
            ),
            (
                json!({ "downwardAPI": { "items": [{ "path": "p",
                    "fieldRef": { "fieldPath": "spec.nodeName" } }] } }),
                "downwardAPI.fieldRef.fieldPath: Unsupported value: \"spec.nodeName\": supported \
                 values: \"metadata.annotations\", \"metadata.labels\", \"metadata.name\", \
                 \"metadata.namespace\", \"metadata.uid\""
                    .to_owned(),
            ),
        ];
        for (source, wanted) in cases {
            assert_eq!(told(source), [format!("spec.volumes[0].{wanted}")]);
        }
    }

    #[test]
    fn a_pod_whose_volumes_claim_could_have_no_name_is_refused() {
        let pod = |name: String, own: &str| {
            json!({"metadata": {"name": name}, "spec": {
                "volumes": [{"name": "vol", own: {}}],
            }})
        };
        assert!(claim_name_errors(&pod("a".repeat(249), "ephemeral")).is_empty());
        assert!(claim_name_errors(&pod("a".repeat(253), "emptyDir")).is_empty());
        let long = "a".repeat(250);
        let told = claim_name_errors(&pod(long.clone(), "ephemeral"));
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        let wanted = format!(
            "spec.volumes[0].name: Invalid value: \"vol\": PVC name \"{long}-vol\": must be no more \
             than 253 characters"
        );
        assert_eq!(told, [wanted]);
    }
}

//! What fields mean when they are left out, written down at creation as the original does.

use serde_json::{Value, json};

use crate::definitions;
use crate::kinds::KindInfo;
use crate::registry::{metadata, section};

type Fields = serde_json::Map<String, Value>;

/// Fills in the defaults of a kind.
pub(crate) fn defaults(kind: &KindInfo, object: &mut Value) {
    if let Some(custom) = kind.custom {
        return custom.fill(object);
    }
    match (kind.group, kind.kind) {
        ("apiextensions.k8s.io", _) => definitions::defaults(object),
        ("", "PersistentVolumeClaim") => {
            set(section(object, "spec"), "volumeMode", "Filesystem");
        }
        ("", "PersistentVolume") => {
            let spec = section(object, "spec");
            set(spec, "volumeMode", "Filesystem");
            set(spec, "persistentVolumeReclaimPolicy", "Retain");
        }
        ("storage.k8s.io", "StorageClass") => {
            if let Some(fields) = object.as_object_mut() {
                set(fields, "reclaimPolicy", "Delete");
                set(fields, "volumeBindingMode", "Immediate");
            }
        }
        ("storage.k8s.io", "CSIDriver") => driver(section(object, "spec")),
        ("", "Secret") => secret(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            super::roles::set_groups(object);
        }
        ("", "Namespace") => {
            let name = object["metadata"]["name"].clone();
            let labels = metadata(object)
                .entry("labels")
                .or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name;
        }
        ("", "Pod") => pod(section(object, "spec")),
        ("apps" | "batch", other) => super::workloads::set_defaults(other, object),
        ("scheduling.k8s.io", _) => {
            if let Some(fields) = object.as_object_mut() {
                set(fields, "value", 0);
                set(fields, "preemptionPolicy", "PreemptLowerPriority");
            }
        }
        ("", "LimitRange") => super::limits::set_defaults(object),
        ("", "Service") => {
            let spec = section(object, "spec");
            set(spec, "type", "ClusterIP");
            set(spec, "sessionAffinity", "None");
            let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                set(port, "protocol", "TCP");
                let own = port.get("port").cloned().unwrap_or_default();
                set(port, "targetPort", own);
            }
        }
        _ => {}
    }
}

pub(super) fn set(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if !fields.contains_key(name) {
        fields.insert(name.to_owned(), value.into());
    }
}

fn driver(spec: &mut Fields) {
    set(spec, "attachRequired", true);
    set(spec, "podInfoOnMount", false);
    set(spec, "storageCapacity", false);
    set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set(spec, "volumeLifecycleModes", json!(["Persistent"]));
    set(spec, "requiresRepublish", false);
    set(spec, "seLinuxMount", false);
    set(spec, "preventPodSchedulingIfMissing", false);
}

/// `stringData` is a way to write `data` and isn't kept.
fn secret(object: &mut Value) {
    use base64::Engine as _;
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    set(fields, "type", "Opaque");
    let Some(Value::Object(plain)) = fields.remove("stringData") else {
        return;
    };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    for (key, value) in plain {
        let text = value.as_str().unwrap_or("");
        data[key] = base64::engine::general_purpose::STANDARD
            .encode(text)
            .into();
    }
}

fn pod(spec: &mut Fields) {
    pod_spec(spec);
    set(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            ask_for_limits(container);
        }
    }
}

/// The defaults of a pod and of a template for pods.
pub(super) fn pod_spec(spec: &mut Fields) {
    set(spec, "restartPolicy", "Always");
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "schedulerName", "default-scheduler");
    set(spec, "securityContext", json!({}));
    // Two names of one field; the newer one counts.
    for field in ["serviceAccountName", "serviceAccount"] {
        let name = spec.get(field).and_then(Value::as_str).unwrap_or("");
        if !name.is_empty() {
            let name = Value::from(name);
            spec.insert("serviceAccountName".to_owned(), name.clone());
            spec.insert("serviceAccount".to_owned(), name);
            break;
        }
    }
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            self::container(container);
        }
    }
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        self::volume(volume);
    }
}

fn container(container: &mut Fields) {
    set(container, "resources", json!({}));
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    let image = container.get("image").and_then(Value::as_str).unwrap_or("");
    // No tag, or the tag `latest`, means that the image may have changed.
    let name = image.rsplit('/').next().unwrap_or("");
    let moving = !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    set(
        container,
        "imagePullPolicy",
        if moving { "Always" } else { "IfNotPresent" },
    );
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        set(port, "protocol", "TCP");
    }
}

/// What is limited is asked for, unless less is asked for.
fn ask_for_limits(container: &mut Fields) {
    let resources = container
        .get_mut("resources")
        .and_then(Value::as_object_mut);
    if let Some(resources) = resources
        && let Some(Value::Object(limits)) = resources.get("limits").cloned()
    {
        let requests = resources.entry("requests").or_insert_with(|| json!({}));
        if let Some(requests) = requests.as_object_mut() {
            for (name, limit) in limits {
                set(requests, &name, limit);
            }
        }
    }
}

/// The mode of projected files.
const FILE_MODE: i32 = 0o644;

fn volume(volume: &mut Fields) {
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
            set(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        set(path, "type", "");
    }
    let template = volume
        .get_mut("ephemeral")
        .and_then(|ephemeral| ephemeral.pointer_mut("/volumeClaimTemplate/spec"));
    if let Some(spec) = template.and_then(Value::as_object_mut) {
        set(spec, "volumeMode", "Filesystem");
    }
    let sources = volume
        .get_mut("projected")
        .and_then(|projected| projected.get_mut("sources"));
    for source in sources.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(token) = source
            .get_mut("serviceAccountToken")
            .and_then(Value::as_object_mut)
        {
            set(token, "expirationSeconds", 3600);
        }
    }
    // A volume without a source is an empty directory.
    if volume.len() == 1 && volume.contains_key("name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
}

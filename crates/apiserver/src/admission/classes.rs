//! Storage classes: their own rules, the default class and who may grow a claim.

use orlop_model::{Quantity, well_known};
use serde_json::{Value, json};

use super::metadata::key_fault;
use super::selectors::topology_errors;
use crate::refusal::{FieldError, Refusal};
use crate::registry::{Target, text};
use crate::store::{Key, State};

const RESOURCE: &str = "storageclasses.storage.k8s.io";
const IS_DEFAULT: [&str; 2] = [
    well_known::IS_DEFAULT_CLASS,
    well_known::BETA_IS_DEFAULT_CLASS,
];

/// DefaultStorageClass: a claim without a class gets the newest default one.
pub(super) fn set_default_class(state: &State, claim: &mut Value) {
    if claim["spec"].get("storageClassName").is_some() || beta_class(claim).is_some() {
        return;
    }
    let newest = state
        .list(RESOURCE, None)
        .map(|(_, name, class)| (name, class.value()))
        .filter(|(_, class)| is_default(class))
        .max_by(|(left_name, left), (right_name, right)| {
            let created = |class| text(class, "/metadata/creationTimestamp").to_owned();
            // Of two of the same second, the first by name is taken.
            created(left)
                .cmp(&created(right))
                .then(right_name.cmp(left_name))
        });
    if let Some((name, _)) = newest {
        claim["spec"]["storageClassName"] = (&**name).into();
    }
}

fn is_default(class: &Value) -> bool {
    let annotations = &class["metadata"]["annotations"];
    IS_DEFAULT.iter().any(|name| annotations[name] == "true")
}

/// The class of a claim; the old annotation wins over the field.
fn class_of(claim: &Value) -> &str {
    beta_class(claim).unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

fn beta_class(claim: &Value) -> Option<&str> {
    claim["metadata"]["annotations"][well_known::BETA_STORAGE_CLASS].as_str()
}

/// PersistentVolumeClaimResize: only bound claims of a class that allows it may grow.
pub(super) fn admit_resize(
    state: &State,
    target: &Target,
    before: &Value,
    after: &Value,
) -> Result<(), Refusal> {
    let size = |claim: &Value| text(claim, "/spec/resources/requests/storage").parse::<Quantity>();
    let grows = match (size(before), size(after)) {
        (Ok(old), Ok(new)) => new > old,
        _ => false,
    };
    if !grows {
        return Ok(());
    }
    let refuse = |why: &str| Err(Refusal::forbidden(target.kind, &target.name, why));
    // Validation says that the size of an unbound claim stays.
    if text(before, "/status/phase") != "Bound" {
        return Ok(());
    }
    let class = class_of(after);
    let allowed = !class.is_empty()
        && class == class_of(before)
        && state
            .get(&Key::new(RESOURCE, "", class))
            .is_some_and(|class| class.value()["allowVolumeExpansion"] == true);
    if allowed {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions \
         the pvc must support resize",
    )
}

const RECLAIM: &[&str] = &["Delete", "Retain"];
const BINDING: &[&str] = &["Immediate", "WaitForFirstConsumer"];

pub(super) fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(provisioner_error(class, "provisioner"));
    let reclaim = &class["reclaimPolicy"];
    if !reclaim
        .as_str()
        .is_some_and(|policy| RECLAIM.contains(&policy))
    {
        errors.push(FieldError::not_supported("reclaimPolicy", reclaim, RECLAIM));
    }
    let binding = &class["volumeBindingMode"];
    if !binding.as_str().is_some_and(|mode| BINDING.contains(&mode)) {
        errors.push(FieldError::not_supported(
            "volumeBindingMode",
            binding,
            BINDING,
        ));
    }
    for (key, value) in class["parameters"].as_object().into_iter().flatten() {
        if key.is_empty() {
            errors.push(FieldError::invalid(
                "parameters",
                &json!(key),
                "field can not be empty.",
            ));
        }
        if !value.is_string() {
            errors.push(FieldError::invalid("parameters", value, "must be a string"));
        }
    }
    errors.extend(topology_errors(class, "allowedTopologies"));
    errors
}

fn provisioner_error(class: &Value, field: &str) -> Option<FieldError> {
    let name = text(class, &format!("/{field}")).to_lowercase();
    if name.is_empty() {
        return Some(FieldError::required(field, ""));
    }
    key_fault(&name).map(|fault| FieldError::invalid(field, &json!(name), fault))
}

/// A VolumeAttributesClass is for one driver, and says something to it.
pub(super) fn validate_attributes(class: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = provisioner_error(class, "driverName").into_iter().collect();
    let parameters = class["parameters"].as_object();
    if parameters.is_some_and(|all| all.contains_key("")) {
        let detail = "field can not be empty.";
        errors.push(FieldError::invalid("parameters", &json!(""), detail));
    }
    if parameters.is_none_or(serde_json::Map::is_empty) {
        let detail = "must contain at least one key/value pair";
        errors.push(FieldError::required("parameters", detail));
    }
    errors
}

pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The value that is shown is none, as the original's.
    for field in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        if before[field] != after[field] {
            let none = &Value::Null;
            errors.push(FieldError::invalid(field, none, "field is immutable"));
        }
    }
    errors
}

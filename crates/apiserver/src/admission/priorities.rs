//! Priority classes, and the priority that a pod gets from its class.

use serde_json::{Value, json};

use crate::refusal::{FieldError, Refusal};
use crate::registry::{Target, section, text};
use crate::store::{Key, State};

const RESOURCE: &str = "priorityclasses.scheduling.k8s.io";
const PREEMPT: &str = "PreemptLowerPriority";
const POLICIES: &[&str] = &[PREEMPT, "Never"];
/// What names of the cluster's own classes begin with.
const SYSTEM: &str = "system-";
/// The highest priority that is anybody's to give.
const HIGHEST: i64 = 1_000_000_000;

/// The classes of the cluster's own pods: name, value, and what they are for.
const CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2 * HIGHEST + 1000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2 * HIGHEST,
        "Used for system critical pods that must run in the cluster, but can be moved to another \
         node if necessary.",
    ),
];

/// The classes that every cluster has.
pub(crate) fn system() -> impl Iterator<Item = Value> {
    CLASSES.into_iter().map(|(name, value, description)| {
        json!({ "metadata": { "name": name }, "value": value, "description": description })
    })
}

/// Gives a new pod the priority of its class; of the default class if it names none, and none
/// without one.
pub(super) fn admit_pod(state: &State, target: &Target, pod: &mut Value) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::forbidden(target.kind, &target.name, why));
    let asked = text(pod, "/spec/priorityClassName").to_owned();
    let class = if asked.is_empty() {
        default_class(state)
    } else {
        let found = state.get(&Key::new(RESOURCE, "", &asked));
        let Some(found) = found else {
            return refuse(format!("no PriorityClass with name {asked} was found"));
        };
        Some(found.value())
    };
    let class = class.unwrap_or_else(|| json!({ "value": 0, "preemptionPolicy": PREEMPT }));
    let value = class["value"].as_i64().unwrap_or(0);
    let policy = class["preemptionPolicy"].as_str().unwrap_or(PREEMPT);
    let spec = section(pod, "spec");
    if let Some(own) = spec.get("priority").and_then(Value::as_i64)
        && own != value
    {
        return refuse(format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority \
             admission controller computed {value} from the given PriorityClass name"
        ));
    }
    if let Some(own) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && own != policy
    {
        return refuse(format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    let name = text(&class, "/metadata/name");
    if !name.is_empty() {
        spec.insert("priorityClassName".to_owned(), name.into());
    }
    spec.insert("priority".to_owned(), value.into());
    spec.insert("preemptionPolicy".to_owned(), policy.into());
    Ok(())
}

/// The class of pods that name none: of several, the least important.
fn default_class(state: &State) -> Option<Value> {
    let classes = state
        .list(RESOURCE, None)
        .map(|(_, _, class)| class.value());
    classes
        .filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| class["value"].as_i64().unwrap_or(0))
}

/// Refuses a second default.
pub(super) fn admit_class(state: &State, target: &Target, class: &Value) -> Result<(), Refusal> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    let other = default_class(state);
    let other = other.as_ref().map(|other| text(other, "/metadata/name"));
    match other.filter(|other| *other != text(class, "/metadata/name")) {
        None => Ok(()),
        Some(other) => {
            let why = format!(
                "PriorityClass {other} is already marked as default. Only one default can exist"
            );
            Err(Refusal::forbidden(target.kind, &target.name, why))
        }
    }
}

pub(super) fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(class, "/metadata/name");
    let value = class["value"].as_i64().unwrap_or(0);
    if name.starts_with(SYSTEM) {
        let known = CLASSES.iter().find(|(own, _, _)| *own == name);
        let why = match known {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, own, _)) if *own != value => {
                Some(format!("value of {name} PriorityClass must be {own}"))
            }
            Some(_) if class["globalDefault"] == true => Some(format!(
                "globalDefault of {name} PriorityClass must be false"
            )),
            Some(_) => None,
        };
        errors.extend(why.map(|why| {
            let detail = format!(
                "priority class names with '{SYSTEM}' prefix are reserved for system use only. \
                 error: {why}"
            );
            FieldError::forbidden("metadata.name", detail)
        }));
    } else if value > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policy = &class["preemptionPolicy"];
    if !policy
        .as_str()
        .is_some_and(|policy| POLICIES.contains(&policy))
    {
        errors.push(FieldError::not_supported(
            "preemptionPolicy",
            policy,
            POLICIES,
        ));
    }
    errors
}

/// Pods keep what they were given, so their class keeps it, too.
pub(super) fn validate_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if before["value"] != after["value"] {
        errors.push(FieldError::forbidden(
            "value",
            "may not be changed in an update.",
        ));
    }
    let policy = &after["preemptionPolicy"];
    if before["preemptionPolicy"] != *policy {
        let detail = "field is immutable";
        errors.push(FieldError::invalid("preemptionPolicy", policy, detail));
    }
    errors
}

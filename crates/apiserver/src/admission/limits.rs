//! LimitRange: how large a single claim, pod or container may be, and what containers that
//! say nothing are given.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::metadata::key_fault;
use super::selectors::items;
use crate::amount::Amount;
use crate::quota::{Amounts, amounts, pod_total};
use crate::refusal::{Fault, FieldError, Refusal};
use crate::registry::{Target, metadata, text};
use crate::store::State;

const RESOURCE: &str = "limitranges";
/// What a pod is told of what it was given.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINERS: [(&str, &str); 2] = [
    ("containers", "container"),
    ("initContainers", "init container"),
];

fn ranges<'s>(state: &'s State, namespace: &'s str) -> impl Iterator<Item = Value> + use<'s> {
    let ranges = state.list(RESOURCE, Some(namespace));
    ranges.map(|(_, _, range)| range.value())
}

/// The limits of a range that are about things of one type.
fn limits<'r>(range: &'r Value, of: &'static str) -> impl Iterator<Item = &'r Value> {
    let all = items(&range["spec"], "limits").map(|(_, limit)| limit);
    all.filter(move |limit| text(limit, "/type") == of)
}

/// Gives the containers of a new pod what they don't say themselves.
pub(super) fn fill(state: &State, target: &Target, pod: &mut Value) {
    for range in ranges(state, &target.namespace) {
        let mut told = Vec::new();
        for (list, title) in CONTAINERS {
            let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let name = text(container, "/name").to_owned();
                for (from, to, what) in [
                    ("defaultRequest", "requests", "request"),
                    ("default", "limits", "limit"),
                ] {
                    let set = fill_in(container, to, &given(&range, from));
                    if !set.is_empty() {
                        told.push(format!("{} {what} for {title} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !told.is_empty() {
            let annotations = metadata(pod)
                .entry("annotations")
                .or_insert_with(|| json!({}));
            let told = format!("LimitRanger plugin set: {}", told.join("; "));
            annotations[ANNOTATION] = told.into();
        }
    }
}

/// What a range gives to containers.
fn given(range: &Value, field: &str) -> Map<String, Value> {
    let maps = limits(range, "Container").filter_map(|limit| limit[field].as_object());
    maps.flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Puts in what is missing; answers with its names.
fn fill_in(container: &mut Value, list: &str, given: &Map<String, Value>) -> Vec<String> {
    if given.is_empty() || !container.is_object() {
        return Vec::new();
    }
    let own = &mut container["resources"][list];
    if !own.is_object() {
        *own = json!({});
    }
    let missing: Vec<String> = given
        .keys()
        .filter(|name| own.get(name.as_str()).is_none())
        .cloned()
        .collect();
    for name in &missing {
        own[name] = given[name].clone();
    }
    missing
}

/// Refuses what is smaller or larger than the ranges of its namespace say. Of a pod, that is
/// decided once: what its containers ask for doesn't change.
pub(crate) fn admit(
    state: &State,
    target: &Target,
    is_new: bool,
    object: &Value,
) -> Result<(), Refusal> {
    if !target.kind.group.is_empty() {
        return Ok(());
    }
    let judge = match (target.kind.kind, is_new) {
        ("PersistentVolumeClaim", _) => claim_faults,
        ("Pod", true) => pod_faults,
        _ => return Ok(()),
    };
    for range in ranges(state, &target.namespace) {
        let mut faults = judge(&range, object);
        let mut seen = BTreeSet::new();
        faults.retain(|fault| seen.insert(fault.clone()));
        let why = match faults.as_slice() {
            [] => continue,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(Refusal::forbidden(target.kind, &target.name, why));
    }
    Ok(())
}

/// A claim has requests only.
fn claim_faults(range: &Value, claim: &Value) -> Vec<String> {
    let of = "PersistentVolumeClaim";
    let asked = amounts(&claim["spec"]["resources"]["requests"]);
    let mut faults = Vec::new();
    for limit in limits(range, of) {
        for (name, least) in amounts(&limit["min"]) {
            faults.extend(below(of, &name, least, (&asked, &Amounts::new())));
        }
        for (name, most) in amounts(&limit["max"]) {
            let begin = format!("maximum {name} usage per {of} is {most}");
            faults.extend(match asked.get(&name) {
                None => Some(format!("{begin}.  No request is specified")),
                Some(own) if *own > most => Some(format!("{begin}, but request is {own}")),
                Some(_) => None,
            });
        }
    }
    faults
}

fn pod_faults(range: &Value, pod: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in limits(range, "Container") {
        for (list, _) in CONTAINERS {
            for (_, container) in items(&pod["spec"], list) {
                let own = &container["resources"];
                let own = (&amounts(&own["requests"]), &amounts(&own["limits"]));
                faults.extend(bounds("Container", limit, own));
            }
        }
    }
    for limit in limits(range, "Pod") {
        let own = (&pod_total(pod, "requests"), &pod_total(pod, "limits"));
        faults.extend(bounds("Pod", limit, own));
    }
    faults
}

fn bounds(of: &str, limit: &Value, own: (&Amounts, &Amounts)) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, least) in amounts(&limit["min"]) {
        faults.extend(below(of, &name, least, own));
    }
    for (name, most) in amounts(&limit["max"]) {
        faults.extend(above(of, &name, most, own));
    }
    for (name, most) in amounts(&limit["maxLimitRequestRatio"]) {
        faults.extend(uneven(of, &name, most, own));
    }
    faults
}

fn below(
    of: &str,
    name: &str,
    least: Amount,
    (requests, limits): (&Amounts, &Amounts),
) -> Option<String> {
    let begin = format!("minimum {name} usage per {of} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{begin}.  No request is specified")),
        (Some(own), _) if *own < least => Some(format!("{begin}, but request is {own}")),
        (_, Some(own)) if *own < least => Some(format!("{begin}, but limit is {own}")),
        _ => None,
    }
}

fn above(
    of: &str,
    name: &str,
    most: Amount,
    (requests, limits): (&Amounts, &Amounts),
) -> Option<String> {
    let begin = format!("maximum {name} usage per {of} is {most}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{begin}.  No limit is specified")),
        (_, Some(own)) if *own > most => Some(format!("{begin}, but limit is {own}")),
        (Some(own), _) if *own > most => Some(format!("{begin}, but request is {own}")),
        _ => None,
    }
}

fn uneven(
    of: &str,
    name: &str,
    most: Amount,
    (requests, limits): (&Amounts, &Amounts),
) -> Option<String> {
    let begin = format!("{name} max limit to request ratio per {of} is {most}");
    let some = |amounts: &Amounts| amounts.get(name).copied().filter(|own| !own.is_zero());
    let Some(request) = some(requests) else {
        return Some(format!(
            "{begin}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = some(limits) else {
        return Some(format!("{begin}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.ratio(request);
    let too_much = ratio > most.ratio(Amount::count(1));
    too_much.then(|| format!("{begin}, but provided ratio is {ratio:.6}"))
}

/// What a range leaves out follows from what it says: limits from the largest, requests from
/// limits or else from the smallest.
pub(super) fn set_defaults(range: &mut Value) {
    let limits = range
        .pointer_mut("/spec/limits")
        .and_then(Value::as_array_mut);
    for limit in limits.into_iter().flatten() {
        if text(limit, "/type") != "Container" {
            continue;
        }
        for (to, from) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            let source = limit[from].as_object().cloned().unwrap_or_default();
            for (name, value) in source {
                if limit[to].get(&name).is_none() {
                    limit[to][name] = value;
                }
            }
        }
    }
}

const TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];
const MAPS: [&str; 5] = [
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];

pub(super) fn validate(range: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut types = BTreeSet::new();
    for (at, limit) in items(&range["spec"], "limits") {
        let path = format!("spec.limits[{at}]");
        let of = text(limit, "/type");
        let field = format!("{path}.type");
        if let Some(fault) = key_fault(of) {
            errors.push(FieldError::invalid(&field, &json!(of), fault));
        } else if !of.contains('/') && !TYPES.contains(&of) {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(&field, &json!(of), detail));
        }
        if !types.insert(of) {
            errors.push(FieldError::new(&field, Fault::Duplicate(json!(of))));
        }
        for map in MAPS {
            let given = limit[map].as_object().filter(|given| !given.is_empty());
            if of == "Pod" && map.starts_with("default") && given.is_some() {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(format!("{path}.{map}"), detail));
                continue;
            }
            for (name, _) in given.into_iter().flatten() {
                errors.extend(name_error(&format!("{path}.{map}[{name}]"), of, name));
            }
        }
        let says = |map: &str| limit[map].get("storage").is_some();
        if of == "PersistentVolumeClaim" && !says("min") && !says("max") {
            let detail = "either minimum or maximum storage value is required, but neither was \
                provided";
            errors.push(FieldError::required(format!("{path}.limits"), detail));
        }
        errors.extend(order_errors(&path, limit));
    }
    errors
}

fn name_error(field: &str, of: &str, name: &str) -> Option<FieldError> {
    let shown = json!(name);
    if let Some(fault) = key_fault(name) {
        return Some(FieldError::invalid(field, &shown, fault));
    }
    let compute = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    let known = compute || name.starts_with("hugepages-") || name.contains('/');
    match of {
        "Pod" | "Container" if !known => {
            let detail = "must be a standard resource for containers";
            Some(FieldError::invalid(field, &shown, detail))
        }
        "Pod" | "Container" => None,
        _ if known || name == "storage" => None,
        _ => {
            let detail = "must be a standard resource type or fully qualified";
            Some(FieldError::invalid(field, &shown, detail))
        }
    }
}

/// From the smallest to the largest, each must not be larger than the next.
fn order_errors(path: &str, limit: &Value) -> Vec<FieldError> {
    let of = MAPS.map(|map| amounts(&limit[map]));
    let [max, min, default, request, ratio] = &of;
    let names: BTreeSet<&String> = of.iter().flat_map(|map| map.keys()).collect();
    let mut errors = Vec::new();
    for name in names {
        let mut wrong = |map: &str, shown: Amount, why: String| {
            let (field, shown) = (format!("{path}.{map}[{name}]"), json!(shown.to_string()));
            errors.push(FieldError::invalid(field, &shown, why));
        };
        let get = |map: &Amounts| map.get(name).copied();
        let (max, min) = (get(max), get(min));
        let (default, request, ratio) = (get(default), get(request), get(ratio));
        let over =
            |left: Option<Amount>, right: Option<Amount>| left.zip(right).filter(|(l, r)| l > r);
        if let Some((min, max)) = over(min, max) {
            let why = format!("min value {min} is greater than max value {max}");
            wrong("min", min, why);
        }
        if let Some((min, own)) = over(min, request) {
            let why = format!("min value {min} is greater than default request value {own}");
            wrong("defaultRequest", own, why);
        }
        if let Some((own, max)) = over(request, max) {
            let why = format!("default request value {own} is greater than max value {max}");
            wrong("defaultRequest", own, why);
        }
        if let Some((own, limit)) = over(request, default) {
            let why =
                format!("default request value {own} is greater than default limit value {limit}");
            wrong("defaultRequest", own, why);
        }
        if let Some((min, own)) = over(min, default) {
            let why = format!("min value {min} is greater than default value {own}");
            wrong("default", min, why);
        }
        if let Some((own, max)) = over(default, max) {
            let why = format!("default value {own} is greater than max value {max}");
            wrong("default", max, why);
        }
        let Some(ratio) = ratio else {
            continue;
        };
        if ratio < Amount::count(1) {
            wrong(
                "maxLimitRequestRatio",
                ratio,
                format!("ratio {ratio} is less than 1"),
            );
        }
        if let (Some(min), Some(max)) = (min, max)
            && ratio.ratio(Amount::count(1)) > max.ratio(min)
        {
            let why = format!(
                "ratio {ratio} is greater than max/min = {:.6}",
                max.ratio(min)
            );
            wrong("maxLimitRequestRatio", ratio, why);
        }
    }
    errors
}

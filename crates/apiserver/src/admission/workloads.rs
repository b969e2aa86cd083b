//! Rules for the kinds that make pods: Deployments, ReplicaSets, StatefulSets, DaemonSets and
//! Jobs.

use orlop_model::{selector::LabelSelector, well_known};
use serde_json::{Map, Value, json};

use super::{claims, defaults, pods};
use crate::kinds::KindInfo;
use crate::refusal::FieldError;
use crate::registry::{DNS_LABEL, metadata, section, text};

type Fields = Map<String, Value>;

const HISTORY: i64 = 10;
/// How long a deployment may stand still before that is called a failure.
const PROGRESS_DEADLINE: i64 = 600;
const BACKOFF_LIMIT: i64 = 6;

/// What fields mean when they are left out.
pub(super) fn set_defaults(kind: &str, object: &mut Value) {
    if kind == "Job" {
        job_labels(object);
    }
    let spec = section(object, "spec");
    match kind {
        "Deployment" => {
            defaults::set(spec, "replicas", 1);
            let strategy = part(spec, "strategy");
            if rolling(strategy) {
                let rolling = part(strategy, "rollingUpdate");
                defaults::set(rolling, "maxUnavailable", "25%");
                defaults::set(rolling, "maxSurge", "25%");
            }
            defaults::set(spec, "revisionHistoryLimit", HISTORY);
            defaults::set(spec, "progressDeadlineSeconds", PROGRESS_DEADLINE);
        }
        "ReplicaSet" => defaults::set(spec, "replicas", 1),
        "StatefulSet" => stateful_set(spec),
        "DaemonSet" => {
            let strategy = part(spec, "updateStrategy");
            if rolling(strategy) {
                let rolling = part(strategy, "rollingUpdate");
                defaults::set(rolling, "maxUnavailable", 1);
                defaults::set(rolling, "maxSurge", 0);
            }
            defaults::set(spec, "revisionHistoryLimit", HISTORY);
        }
        "Job" => job(spec),
        _ => return,
    }
    defaults::pod_spec(part(part(spec, "template"), "spec"));
}

/// A map of a map, made if absent.
fn part<'f>(fields: &'f mut Fields, name: &str) -> &'f mut Fields {
    let entry = fields.entry(name).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = json!({});
    }
    entry.as_object_mut().expect("it was made an object above")
}

/// Whether a strategy is to roll, which it is unless it says otherwise.
fn rolling(strategy: &mut Fields) -> bool {
    defaults::set(strategy, "type", "RollingUpdate");
    strategy["type"] == "RollingUpdate"
}

fn stateful_set(spec: &mut Fields) {
    defaults::set(spec, "podManagementPolicy", "OrderedReady");
    let strategy = part(spec, "updateStrategy");
    // Who names the strategy has said all about it.
    if !strategy.contains_key("type") {
        part(strategy, "rollingUpdate");
    }
    if rolling(strategy)
        && let Some(rolling) = strategy
            .get_mut("rollingUpdate")
            .and_then(Value::as_object_mut)
    {
        defaults::set(rolling, "partition", 0);
        defaults::set(rolling, "maxUnavailable", 1);
    }
    let policy = part(spec, "persistentVolumeClaimRetentionPolicy");
    defaults::set(policy, "whenDeleted", "Retain");
    defaults::set(policy, "whenScaled", "Retain");
    defaults::set(spec, "replicas", 1);
    defaults::set(spec, "revisionHistoryLimit", HISTORY);
    let templates = spec.get_mut("volumeClaimTemplates");
    for template in templates
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        defaults::set(section(template, "spec"), "volumeMode", "Filesystem");
        if let Some(fields) = template.as_object_mut() {
            defaults::set(fields, "apiVersion", "v1");
            defaults::set(fields, "kind", "PersistentVolumeClaim");
            fields.insert("status".to_owned(), json!({ "phase": "Pending" }));
        }
    }
}

fn job(spec: &mut Fields) {
    if !spec.contains_key("parallelism") {
        defaults::set(spec, "completions", 1);
    }
    defaults::set(spec, "parallelism", 1);
    let limit = match spec.contains_key("backoffLimitPerIndex") {
        true => i64::from(i32::MAX),
        false => BACKOFF_LIMIT,
    };
    defaults::set(spec, "backoffLimit", limit);
    defaults::set(spec, "completionMode", "NonIndexed");
    defaults::set(spec, "suspend", false);
    let replaced = match spec.contains_key("podFailurePolicy") {
        true => "Failed",
        false => "TerminatingOrFailed",
    };
    defaults::set(spec, "podReplacementPolicy", replaced);
    defaults::set(spec, "manualSelector", false);
}

/// A job without labels has those of its pods.
fn job_labels(job: &mut Value) {
    let labels = job.pointer("/spec/template/metadata/labels").cloned();
    let own = job["metadata"]["labels"].as_object();
    if let Some(labels) = labels
        && own.is_none_or(Map::is_empty)
    {
        metadata(job).insert("labels".to_owned(), labels);
    }
}

/// A job's pods are told from all others by the job's uid, unless it has its own selector.
pub(crate) fn select_by_uid(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let uid = job["metadata"]["uid"].clone();
    let name = job["metadata"]["name"].clone();
    let spec = section(job, "spec");
    let labels = part(part(part(spec, "template"), "metadata"), "labels");
    for (label, value) in [
        ("job-name", &name),
        (well_known::JOB_NAME, &name),
        ("controller-uid", &uid),
        (well_known::JOB_UID, &uid),
    ] {
        defaults::set(labels, label, value.clone());
    }
    let selected = part(part(spec, "selector"), "matchLabels");
    defaults::set(selected, well_known::JOB_UID, uid);
}

/// The status of an object that no controller has seen.
pub(crate) fn first_status(kind: &str) -> Value {
    match kind {
        "ReplicaSet" => json!({ "replicas": 0 }),
        "StatefulSet" => json!({ "replicas": 0, "availableReplicas": 0 }),
        "DaemonSet" => json!({
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
        }),
        _ => json!({}),
    }
}

/// What is wrong with a workload.
pub(super) fn validate(kind: &KindInfo, object: &Value) -> Vec<FieldError> {
    if kind.kind == "ControllerRevision" {
        return revision_errors(object);
    }
    let spec = &object["spec"];
    let mut errors = Vec::new();
    for field in [
        "replicas",
        "minReadySeconds",
        "parallelism",
        "completions",
        "backoffLimit",
    ] {
        errors.extend(negative(format!("spec.{field}"), &spec[field]));
    }
    errors.extend(negative(
        "spec.revisionHistoryLimit",
        &spec["revisionHistoryLimit"],
    ));
    errors.extend(selector_errors(kind, spec));
    match kind.kind {
        "Deployment" => errors.extend(deployment_errors(spec)),
        "StatefulSet" => errors.extend(stateful_set_errors(spec)),
        "DaemonSet" => errors.extend(rolling_errors(spec, "updateStrategy")),
        _ => {}
    }
    errors.extend(template_errors(kind, spec));
    errors
}

fn negative(field: impl Into<String>, value: &Value) -> Option<FieldError> {
    let below = value.as_i64().is_some_and(|number| number < 0);
    below.then(|| FieldError::invalid(field, value, "must be greater than or equal to 0"))
}

fn selector_errors(kind: &KindInfo, spec: &Value) -> Vec<FieldError> {
    let selector = &spec["selector"];
    let field = "spec.selector";
    if selector.is_null() {
        return vec![FieldError::required(field, "")];
    }
    let Ok(parsed) = serde_json::from_value::<LabelSelector>(selector.clone()) else {
        return vec![FieldError::invalid(
            field,
            selector,
            "invalid label selector",
        )];
    };
    let mut errors = Vec::new();
    let name = match kind.kind {
        "ReplicaSet" => "deployment".to_owned(),
        other => other.to_lowercase(),
    };
    if crate::selector::written(selector).is_empty() {
        let why = format!("empty selector is invalid for {name}");
        errors.push(FieldError::invalid(field, selector, why));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let own = serde_json::from_value(labels.clone()).unwrap_or_default();
    if !parsed.matches(&own) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    errors
}

/// A template is judged as the pod that it makes, with the volumes of a set's claims.
fn template_errors(kind: &KindInfo, spec: &Value) -> Vec<FieldError> {
    let mut pod = json!({ "spec": spec["template"]["spec"] });
    let claims = spec["volumeClaimTemplates"].as_array();
    for claim in claims.into_iter().flatten() {
        let name = text(claim, "/metadata/name");
        let volume = json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
        let volumes = section(&mut pod, "spec")
            .entry("volumes")
            .or_insert(json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.retain(|other| other["name"] != name);
            volumes.push(volume);
        }
    }
    let mut errors = pods::validate(&pod);
    for error in &mut errors {
        error.field = format!("spec.template.{}", error.field);
    }
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let field = "spec.template.spec.restartPolicy";
    match (kind.kind, policy.as_str()) {
        ("Job", Some("Never" | "OnFailure")) => {}
        ("Job", _) => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(field, why));
        }
        (_, Some("Always")) => {}
        _ => errors.push(FieldError::not_supported(field, policy, &["Always"])),
    }
    let deadline = &spec["template"]["spec"]["activeDeadlineSeconds"];
    if kind.kind != "Job" && !deadline.is_null() {
        let owner = match kind.kind {
            "Deployment" => "ReplicaSet",
            other => other,
        };
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            format!("activeDeadlineSeconds in {owner} is not Supported"),
        ));
    }
    errors
}

fn deployment_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = rolling_errors(spec, "strategy");
    let strategy = &spec["strategy"];
    match text(strategy, "/type") {
        "Recreate" if !strategy["rollingUpdate"].is_null() => errors.push(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "Recreate" | "RollingUpdate" => {}
        _ => errors.push(FieldError::not_supported(
            "spec.strategy",
            strategy,
            &["Recreate", "RollingUpdate"],
        )),
    }
    let deadline = &spec["progressDeadlineSeconds"];
    errors.extend(negative("spec.progressDeadlineSeconds", deadline));
    let settle = spec["minReadySeconds"].as_i64().unwrap_or(0);
    if deadline.as_i64().is_some_and(|seconds| seconds <= settle) {
        let why = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            why,
        ));
    }
    errors
}

/// What is wrong with how many pods may be missing and how many more there may be.
fn rolling_errors(spec: &Value, strategy: &str) -> Vec<FieldError> {
    let rolling = &spec[strategy]["rollingUpdate"];
    if rolling.is_null() {
        return Vec::new();
    }
    let path = format!("spec.{strategy}.rollingUpdate");
    let mut errors = Vec::new();
    let mut amounts = [Some(0), Some(0)];
    for (at, field) in ["maxUnavailable", "maxSurge"].into_iter().enumerate() {
        let value = &rolling[field];
        let checked = amount(&format!("{path}.{field}"), value);
        match checked {
            Ok(number) => amounts[at] = Some(number),
            Err(error) => {
                amounts[at] = None;
                errors.push(error);
            }
        }
    }
    match (strategy, amounts) {
        ("strategy", [Some(0), Some(0)]) => errors.push(FieldError::invalid(
            format!("{path}.maxUnavailable"),
            &rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0",
        )),
        ("updateStrategy", [Some(0), Some(0)]) => errors.push(FieldError::required(
            format!("{path}.maxUnavailable"),
            "cannot be 0 when maxSurge is 0",
        )),
        ("updateStrategy", [Some(missing), Some(more)]) if missing > 0 && more > 0 => {
            errors.push(FieldError::invalid(
                format!("{path}.maxSurge"),
                &rolling["maxSurge"],
                "may not be set when maxUnavailable is non-zero",
            ));
        }
        _ => {}
    }
    errors
}

/// A number, or a percentage that isn't more than all.
fn amount(field: &str, value: &Value) -> Result<i64, FieldError> {
    match value {
        Value::Null => Ok(0),
        Value::String(written) => {
            let percent = written
                .strip_suffix('%')
                .and_then(|n| n.parse::<u32>().ok());
            match percent {
                Some(percent) if percent > 100 && field.ends_with("maxUnavailable") => Err(
                    FieldError::invalid(field, value, "must not be greater than 100%"),
                ),
                Some(percent) => Ok(percent.into()),
                None => Err(FieldError::invalid(
                    field,
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' \
                     (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )),
            }
        }
        number => match negative(field, number) {
            Some(error) => Err(error),
            None => Ok(number.as_i64().unwrap_or(0)),
        },
    }
}

fn stateful_set_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let management = &spec["podManagementPolicy"];
    if !matches!(management.as_str(), Some("OrderedReady" | "Parallel")) {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(
            "spec.podManagementPolicy",
            management,
            why,
        ));
    }
    let strategy = &spec["updateStrategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "/type") {
        "OnDelete" if !rolling.is_null() => errors.push(FieldError::invalid(
            "spec.updateStrategy.rollingUpdate",
            rolling,
            "only allowed for updateStrategy 'RollingUpdate'",
        )),
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = "spec.updateStrategy.rollingUpdate";
            errors.extend(negative(format!("{path}.partition"), &rolling["partition"]));
            let field = format!("{path}.maxUnavailable");
            let value = &rolling["maxUnavailable"];
            match amount(&field, value) {
                Ok(0) if !value.is_null() => {
                    errors.push(FieldError::invalid(field, value, "cannot be 0"));
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        _ => errors.push(FieldError::invalid(
            "spec.updateStrategy",
            strategy,
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    for when in ["whenDeleted", "whenScaled"] {
        let policy = &spec["persistentVolumeClaimRetentionPolicy"][when];
        if !matches!(policy.as_str(), Some("Retain" | "Delete")) {
            let field = format!("spec.persistentVolumeClaimRetentionPolicy.{when}");
            errors.push(FieldError::not_supported(
                field,
                policy,
                &["Retain", "Delete"],
            ));
        }
    }
    errors.extend(negative("spec.ordinals.start", &spec["ordinals"]["start"]));
    let service = &spec["serviceName"];
    if let Some(given) = service.as_str().filter(|given| !given.is_empty())
        && let Some(fault) = DNS_LABEL.fault(given)
    {
        errors.push(FieldError::invalid("spec.serviceName", service, fault));
    }
    let templates = spec["volumeClaimTemplates"].as_array();
    for (at, template) in templates.into_iter().flatten().enumerate() {
        for mut error in claims::validate(template) {
            error.field = format!("spec.volumeClaimTemplates[{at}].{}", error.field);
            errors.push(error);
        }
    }
    errors
}

fn revision_errors(revision: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = negative("revision", &revision["revision"])
        .into_iter()
        .collect();
    match &revision["data"] {
        Value::Null => errors.push(FieldError::required("data", "data is mandatory")),
        Value::Object(_) => {}
        _ => errors.push(FieldError::required(
            "data",
            "data must be a valid JSON object",
        )),
    }
    errors
}

/// What may not change.
pub(super) fn validate_change(kind: &str, before: &Value, after: &Value) -> Vec<FieldError> {
    let fixed: &[&str] = match kind {
        "ControllerRevision" => &["/data"],
        "StatefulSet" => &[
            "/spec/selector",
            "/spec/volumeClaimTemplates",
            "/spec/serviceName",
            "/spec/podManagementPolicy",
        ],
        "Job" => &[
            "/spec/selector",
            "/spec/completions",
            "/spec/completionMode",
            "/spec/template",
        ],
        _ => &["/spec/selector"],
    };
    let mut errors = Vec::new();
    for path in fixed {
        let value = after.pointer(path);
        if before.pointer(path) != value {
            let field = path[1..].replace('/', ".");
            let value = value.unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(field, value, "field is immutable"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn set() -> Value {
        let mut set = json!({ "metadata": { "name": "web" }, "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "serviceName": "web",
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{
                    "name": "main", "image": "i",
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }] },
            },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            } }],
        } });
        set_defaults("StatefulSet", &mut set);
        set
    }

    fn errors(kind: &str, object: &Value) -> Vec<String> {
        let kind = kinds::by_kind("apps/v1", kind).expect("served");
        let errors = validate(kind, object);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_set_may_mount_what_its_claim_templates_promise() {
        assert_eq!(errors("StatefulSet", &set()), [""; 0]);
        let mut wrong = set();
        wrong["spec"]["volumeClaimTemplates"] = json!([]);
        assert_eq!(
            errors("StatefulSet", &wrong),
            ["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\""]
        );
    }

    #[test]
    fn a_selector_selects_the_own_pods() {
        let mut wrong = set();
        wrong["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
        assert_eq!(
            errors("StatefulSet", &wrong),
            [
                "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does \
              not match template `labels`"
            ]
        );
        wrong["spec"]["selector"] = json!({});
        assert!(
            errors("StatefulSet", &wrong)[0].ends_with("empty selector is invalid for statefulset")
        );
    }

    #[test]
    fn a_set_keeps_its_claims_and_its_selector() {
        let mut after = set();
        after["spec"]["replicas"] = json!(3);
        after["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Delete");
        assert_eq!(validate_change("StatefulSet", &set(), &after), []);
        after["spec"]["serviceName"] = json!("other");
        let errors = validate_change("StatefulSet", &set(), &after);
        assert_eq!(
            errors[0].to_string(),
            "spec.serviceName: Invalid value: \"other\": field is immutable"
        );
    }

    #[test]
    fn a_rolling_update_can_move() {
        let mut deployment = set();
        deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([]);
        set_defaults("Deployment", &mut deployment);
        assert_eq!(errors("Deployment", &deployment), [""; 0]);
        assert_eq!(
            deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"],
            "25%"
        );
        deployment["spec"]["strategy"]["rollingUpdate"] =
            json!({ "maxSurge": "0%", "maxUnavailable": 0 });
        assert_eq!(
            errors("Deployment", &deployment),
            [
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when \
              `maxSurge` is 0"
            ]
        );
    }

    #[test]
    fn a_job_selects_its_pods_by_its_uid() {
        let mut job = json!({
            "metadata": { "name": "once", "uid": "u" },
            "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }],
            } } },
        });
        set_defaults("Job", &mut job);
        select_by_uid(&mut job);
        let kind = kinds::by_kind("batch/v1", "Job").expect("served");
        assert_eq!(validate(kind, &job), []);
        assert_eq!(
            job["spec"]["selector"]["matchLabels"][well_known::JOB_UID],
            "u"
        );
        assert_eq!(job["spec"]["completions"], 1);
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        assert_eq!(validate(kind, &job).len(), 1);
    }
}

//! How an object goes: at once, after its finalizers, or, for pods, after a grace period.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Registry, Target, metadata, section, stamp, strategy, text};
use crate::definitions;
use crate::kinds::KindInfo;
use crate::refusal::{FieldError, PreconditionMismatch, Refusal};
use crate::store::{Change, Draft, Expect, Stored, Write, WriteError};

/// The grace period of a pod that doesn't say.
const POD_GRACE: i64 = 30;

/// The finalizer under which dependents go before their owner.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer under which dependents lose their owner before it goes.
pub(crate) const ORPHAN: &str = "orphan";

/// What a client asks of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Go through everything and store nothing.
    pub dry_run: bool,
    /// Seconds to leave the object's processes; pods only.
    pub grace: Option<i64>,
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version of the object.
    pub resource_version: Option<String>,
    /// What happens to the objects it owns.
    pub propagation: Propagation,
}

/// What happens to the objects that a deleted object owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    #[default]
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

impl DeleteOptions {
    /// Reads a `DeleteOptions` object.
    pub fn parse(object: &Value) -> Result<Self, Refusal> {
        let owned = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let mut options = Self {
            dry_run: object["dryRun"]
                .as_array()
                .is_some_and(|runs| !runs.is_empty()),
            grace: object["gracePeriodSeconds"].as_i64(),
            uid: owned("/preconditions/uid"),
            resource_version: owned("/preconditions/resourceVersion"),
            propagation: Propagation::Background,
        };
        if object["orphanDependents"] == true {
            options.propagation = Propagation::Orphan;
        }
        if let Some(policy) = object["propagationPolicy"].as_str() {
            if !object["orphanDependents"].is_null() {
                return Err(wrong_options(FieldError::invalid(
                    "propagationPolicy",
                    &policy.into(),
                    "orphanDependents and deletionPropagation cannot be both set",
                )));
            }
            options.propagation = Propagation::parse(policy)?;
        }
        Ok(options)
    }
}

fn wrong_options(error: FieldError) -> Refusal {
    Refusal::invalid_named("DeleteOptions.meta.k8s.io", &[error])
}

impl Propagation {
    /// Reads a `propagationPolicy`.
    pub fn parse(policy: &str) -> Result<Self, Refusal> {
        match policy {
            "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            "Orphan" => Ok(Self::Orphan),
            other => Err(wrong_options(FieldError::not_supported(
                "propagationPolicy",
                &other.into(),
                &["Foreground", "Background", "Orphan", "nil"],
            ))),
        }
    }

    fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Orphan => Some(ORPHAN),
        }
    }
}

/// What a deletion led to.
#[derive(Debug, Clone)]
pub enum Deletion {
    /// The object is gone; this was its last state.
    Removed(Arc<Stored>),
    /// The object waits for its finalizers or its grace period.
    Pending(Arc<Stored>),
}

/// The next step of a deletion.
#[derive(Debug, PartialEq)]
enum Step {
    Remove,
    Mark(Value),
    /// It is on its way already.
    Wait,
}

/// Decides what a deletion does to an object in this state.
fn decide(kind: &KindInfo, object: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let marked = !text(object, "/metadata/deletionTimestamp").is_empty();
    let grace = grace_of(kind, object, options.grace);
    let mut next = object.clone();
    if let Some(finalizer) = options.propagation.finalizer() {
        add_finalizer(&mut next, finalizer);
    }
    let pending = object["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0);
    let shorter = marked && grace < pending;
    if !marked || shorter {
        // A second deletion only ever brings the end closer.
        let start = match text(object, "/metadata/deletionTimestamp").parse::<Timestamp>() {
            Ok(end) if marked => end
                .checked_sub(SignedDuration::from_secs(pending))
                .unwrap_or(now),
            _ => now,
        };
        let end = start
            .checked_add(SignedDuration::from_secs(grace))
            .unwrap_or(start);
        let is_definition = definitions::is_definition(kind);
        let fields = metadata(&mut next);
        fields.insert("deletionTimestamp".to_owned(), stamp(end).into());
        if !is_definition {
            fields.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        }
        if !is_definition && let Some(generation) = fields.get("generation").and_then(Value::as_i64)
        {
            fields.insert("generation".to_owned(), (generation + 1).into());
        }
        if is_definition {
            definitions::terminate(&mut next, &stamp(now));
        }
        if kind.kind == "Namespace" {
            section(&mut next, "status").insert("phase".to_owned(), "Terminating".into());
        }
    }
    if strategy::is_finished(kind, &next) {
        Step::Remove
    } else if next == *object {
        Step::Wait
    } else {
        Step::Mark(next)
    }
}

fn grace_of(kind: &KindInfo, object: &Value, asked: Option<i64>) -> i64 {
    if kind.kind != "Pod" || !kind.group.is_empty() {
        return 0;
    }
    // Nothing runs for a pod that has no node or whose containers have all ended.
    let over = matches!(text(object, "/status/phase"), "Failed" | "Succeeded");
    if over || text(object, "/spec/nodeName").is_empty() {
        return 0;
    }
    let marked = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let own = object["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(POD_GRACE);
    match asked.or(marked).unwrap_or(own) {
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = metadata(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Some(all) = finalizers.as_array_mut()
        && !all.iter().any(|one| one == finalizer)
    {
        all.push(finalizer.into());
    }
}

impl Registry {
    /// Deletes an object.
    pub async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deletion, Refusal> {
        let key = target.key();
        loop {
            let Some(stored) = self.store.get(&key) else {
                return Err(Refusal::not_found(target.kind, &target.name));
            };
            check_preconditions(target, &stored, options)?;
            let change = match decide(target.kind, &stored.value(), options, self.clock.now()) {
                Step::Wait => return Ok(Deletion::Pending(stored)),
                Step::Remove if options.dry_run => return Ok(Deletion::Removed(stored)),
                Step::Mark(next) if options.dry_run => {
                    return Ok(Deletion::Pending(super::unstored(&next, stored.revision)));
                }
                Step::Remove => Change::Delete,
                Step::Mark(next) => Change::Put(Draft::new(&next)),
            };
            let removes = matches!(change, Change::Delete);
            let expect = Expect::Revision(stored.revision);
            let write = Write {
                key: key.clone(),
                change,
                expect,
                requires: None,
            };
            match self.store.write(write).await {
                Ok(object) if removes => return Ok(Deletion::Removed(object)),
                Ok(object) => return Ok(Deletion::Pending(object)),
                Err(WriteError::Changed(_) | WriteError::Gone(_)) => {}
                Err(error) => return Err(Refusal::store(&error)),
            }
        }
    }
}

fn check_preconditions(
    target: &Target,
    stored: &Stored,
    options: &DeleteOptions,
) -> Result<(), Refusal> {
    let refuse = |mismatch| Err(Refusal::precondition(target.kind, &target.name, &mismatch));
    let found = stored.meta.uid().to_owned();
    if let Some(wanted) = options.uid.clone().filter(|wanted| *wanted != found) {
        return refuse(PreconditionMismatch::Uid { wanted, found });
    }
    let found = stored.revision.to_string();
    if let Some(wanted) = options
        .resource_version
        .clone()
        .filter(|wanted| *wanted != found)
    {
        return refuse(PreconditionMismatch::ResourceVersion { wanted, found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn pod(node: &str) -> Value {
        json!({ "metadata": { "name": "p" }, "spec": { "nodeName": node, "terminationGracePeriodSeconds": 20 } })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn graced(grace: i64) -> DeleteOptions {
        DeleteOptions {
            grace: Some(grace),
            ..Default::default()
        }
    }

    fn marked(step: Step) -> (String, i64) {
        let Step::Mark(next) = step else {
            panic!("expected a mark, got {step:?}")
        };
        let grace = next["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap();
        (text(&next, "/metadata/deletionTimestamp").to_owned(), grace)
    }

    fn decided(object: &Value, options: &DeleteOptions) -> Step {
        decide(
            kinds::find("", "v1", "pods").unwrap(),
            object,
            options,
            at(1000),
        )
    }

    #[test]
    fn a_pod_without_a_node_goes_at_once() {
        assert_eq!(decided(&pod(""), &DeleteOptions::default()), Step::Remove);
    }

    #[test]
    fn a_placed_pod_gets_its_own_grace_period() {
        let step = decided(&pod("n"), &DeleteOptions::default());
        assert_eq!(marked(step), ("1970-01-01T00:17:00Z".to_owned(), 20));
    }

    #[test]
    fn grace_zero_removes_a_pod_that_waits() {
        let Step::Mark(waiting) = decided(&pod("n"), &DeleteOptions::default()) else {
            panic!()
        };
        assert_eq!(decided(&waiting, &graced(0)), Step::Remove);
    }

    #[test]
    fn a_second_deletion_may_shorten_the_grace_but_not_lengthen_it() {
        let Step::Mark(waiting) = decided(&pod("n"), &DeleteOptions::default()) else {
            panic!()
        };
        assert_eq!(
            marked(decided(&waiting, &graced(5))),
            ("1970-01-01T00:16:45Z".to_owned(), 5)
        );
        assert_eq!(decided(&waiting, &graced(60)), Step::Wait);
        assert_eq!(decided(&waiting, &DeleteOptions::default()), Step::Wait);
    }

    #[test]
    fn finalizers_hold_an_object_even_without_grace() {
        let kind = kinds::find("", "v1", "persistentvolumeclaims").unwrap();
        let claim = json!({ "metadata": { "finalizers": ["kubernetes.io/pvc-protection"] } });
        let step = decide(kind, &claim, &DeleteOptions::default(), at(0));
        assert_eq!(marked(step).1, 0);
    }

    #[test]
    fn foreground_deletion_waits_for_the_collector() {
        let kind = kinds::find("", "v1", "configmaps").unwrap();
        let options = DeleteOptions {
            propagation: Propagation::Foreground,
            ..Default::default()
        };
        let Step::Mark(next) = decide(kind, &json!({ "metadata": {} }), &options, at(0)) else {
            panic!()
        };
        assert_eq!(next["metadata"]["finalizers"], json!([FOREGROUND]));
    }
}

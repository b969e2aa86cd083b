//! What moves a job towards its end: pure decisions.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use orlop_model::{
    Job, Pod, PodPhase,
    workload::{JobStatus, Uncounted},
};
use serde_json::{Value, json};

use super::TRACKING;
use crate::conditions::{self, found};
use crate::{names, pods};

/// How long the first pod that failed is waited for; each further one doubles it.
const FIRST_WAIT: i64 = 10;
const LONGEST_WAIT: i64 = 600;
/// How many pods may fail unless it is said.
const LIMIT: i32 = 6;

/// What is known of a job.
pub struct View<'v> {
    /// The job.
    pub job: &'v Job,
    /// Its pods.
    pub pods: &'v [Arc<Pod>],
    /// Whether a pod of this name is there, whosever it is.
    pub taken: &'v dyn Fn(&str) -> bool,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do, after the status is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A pod too few.
    CreatePod(Value),
    /// A pod that isn't needed any more.
    DeletePod(Arc<Pod>),
    /// A pod that stands in the status is held no longer.
    LetGo(Arc<Pod>),
    /// The job's time after its end is over.
    DeleteJob,
}

/// What to do, what to say, and when to look again.
#[derive(Debug)]
pub struct Decision {
    /// In this order; what follows one that failed is not done.
    pub steps: Vec<Step>,
    /// The job's status.
    pub status: JobStatus,
    /// What has just come of it, as reason and message.
    pub news: Option<(&'static str, &'static str)>,
    /// When time alone changes something.
    pub again: Option<Duration>,
}

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Failed(&'static str, &'static str),
}

fn succeeded(pod: &Pod) -> bool {
    pod.phase() == PodPhase::Succeeded
}

/// A pod that is deleted before its end has failed.
fn failed(pod: &Pod) -> bool {
    pod.phase() == PodPhase::Failed || pod.metadata.is_deleting() && !succeeded(pod)
}

fn is_active(pod: &Pod) -> bool {
    !succeeded(pod) && !failed(pod)
}

/// Whether a job has come to its end.
pub(super) fn is_over(job: &Job) -> bool {
    let over = |kind| conditions::get(&job.status.conditions, kind);
    let over = over("Complete").or(over("Failed"));
    over.is_some_and(|condition| condition.status == "True")
}

/// Decides about a job.
pub fn decide(view: &View<'_>) -> Decision {
    let mut status = view.job.status.clone();
    let mut steps = count(view, &mut status);
    if is_over(view.job) {
        let (over, again) = afterwards(view);
        steps.extend(over);
        return Decision {
            steps,
            status,
            news: None,
            again,
        };
    }
    let job = view.job;
    let active: Vec<&Arc<Pod>> = view.pods.iter().filter(|pod| is_active(pod)).collect();
    let suspended = job.spec.suspend == Some(true);
    if status.start_time.is_none() && !suspended {
        status.start_time = Some(view.now);
    }
    let (end, mut again) = end(view, &status, &active);
    let mut news = None;
    if end.is_some() || suspended {
        steps.extend(active.iter().map(|pod| Step::DeletePod((*pod).clone())));
    } else {
        let (more, wait) = keep(view, &status, &active);
        steps.extend(more);
        again = crate::turn::sooner(again, wait);
    }
    status.active = i32::try_from(active.len()).unwrap_or(i32::MAX);
    let ready = active.iter().filter(|pod| pods::is_ready(pod)).count();
    status.ready = Some(i32::try_from(ready).unwrap_or(i32::MAX));
    let going = view
        .pods
        .iter()
        .filter(|pod| pod.metadata.is_deleting() && !pod.is_finished());
    status.terminating = Some(i32::try_from(going.count()).unwrap_or(i32::MAX));
    let counted = status.uncounted_terminated_pods == Uncounted::default();
    if let Some(end) = end.filter(|_| active.is_empty() && counted) {
        news = Some(finish(&mut status, end, view.now));
    } else if suspended {
        let said = ("JobSuspended", "Job suspended");
        conditions::set(
            &mut status.conditions,
            found("Suspended", "True", said, view.now),
        );
        status.start_time = None;
    } else if conditions::get(&status.conditions, "Suspended").is_some() {
        let said = ("JobResumed", "Job resumed");
        conditions::set(
            &mut status.conditions,
            found("Suspended", "False", said, view.now),
        );
    }
    Decision {
        steps,
        status,
        news,
        again,
    }
}

fn finish(status: &mut JobStatus, end: End, now: Timestamp) -> (&'static str, &'static str) {
    let all = &mut status.conditions;
    match end {
        End::Complete => {
            let said = (
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            );
            for kind in ["SuccessCriteriaMet", "Complete"] {
                conditions::set(all, found(kind, "True", said, now));
            }
            status.completion_time = Some(now);
            ("Completed", "Job completed")
        }
        End::Failed(reason, message) => {
            for kind in ["FailureTarget", "Failed"] {
                conditions::set(all, found(kind, "True", (reason, message), now));
            }
            (reason, message)
        }
    }
}

/// Counts the pods that ended: first their uids are noted, then they are let go, then they are
/// numbers.
fn count(view: &View<'_>, status: &mut JobStatus) -> Vec<Step> {
    let held = |uid: &String| {
        let pod = view.pods.iter().find(|pod| pod.metadata.uid == *uid);
        pod.filter(|pod| pod.metadata.has_finalizer(TRACKING))
    };
    let noted = &mut status.uncounted_terminated_pods;
    let mut steps = Vec::new();
    for (list, number) in [
        (&mut noted.succeeded, &mut status.succeeded),
        (&mut noted.failed, &mut status.failed),
    ] {
        list.retain(|uid| match held(uid) {
            Some(pod) => {
                steps.push(Step::LetGo(pod.clone()));
                true
            }
            None => {
                *number += 1;
                false
            }
        });
    }
    for pod in view
        .pods
        .iter()
        .filter(|pod| pod.metadata.has_finalizer(TRACKING))
    {
        let uid = &pod.metadata.uid;
        if noted.succeeded.contains(uid) || noted.failed.contains(uid) {
            continue;
        }
        if succeeded(pod) {
            noted.succeeded.push(uid.clone());
        } else if failed(pod) {
            noted.failed.push(uid.clone());
        } else {
            continue;
        }
        // The status is written before any step is taken.
        steps.push(Step::LetGo(pod.clone()));
    }
    steps
}

/// How many pods have succeeded and failed, noted ones included.
fn totals(status: &JobStatus) -> (i32, i32) {
    let noted = &status.uncounted_terminated_pods;
    let more = |list: &Vec<String>| i32::try_from(list.len()).unwrap_or(i32::MAX);
    (
        status.succeeded + more(&noted.succeeded),
        status.failed + more(&noted.failed),
    )
}

fn end(
    view: &View<'_>,
    status: &JobStatus,
    active: &[&Arc<Pod>],
) -> (Option<End>, Option<Duration>) {
    let spec = &view.job.spec;
    let (successes, failures) = totals(status);
    let limit = spec.backoff_limit.unwrap_or(LIMIT);
    let restarts = |pod: &&Arc<Pod>| {
        let containers = pod.status.container_statuses.iter();
        containers
            .map(|container| container.restart_count)
            .sum::<i32>()
    };
    let restarts: i32 = active.iter().map(restarts).sum();
    let in_place = spec.template["spec"]["restartPolicy"] == "OnFailure";
    if failures > limit || in_place && restarts > 0 && restarts >= limit {
        let message = "Job has reached the specified backoff limit";
        return (Some(End::Failed("BackoffLimitExceeded", message)), None);
    }
    let done = match spec.completions {
        Some(completions) => successes >= completions,
        None => successes > 0 && active.is_empty(),
    };
    if done {
        return (Some(End::Complete), None);
    }
    let (Some(seconds), Some(start)) = (spec.active_deadline_seconds, status.start_time) else {
        return (None, None);
    };
    let left = seconds - view.now.duration_since(start).as_secs();
    if left <= 0 {
        let message = "Job was active longer than specified deadline";
        return (Some(End::Failed("DeadlineExceeded", message)), None);
    }
    (None, Some(Duration::from_secs(left.unsigned_abs())))
}

/// Keeps as many pods running as are needed.
fn keep(
    view: &View<'_>,
    status: &JobStatus,
    active: &[&Arc<Pod>],
) -> (Vec<Step>, Option<Duration>) {
    let job = view.job;
    let (successes, failures) = totals(status);
    let at_once = job.spec.parallelism.unwrap_or(1);
    let wanted = match job.spec.completions {
        Some(completions) => at_once.min(completions - successes),
        // One of a crowd is done: the others finish, and none follows.
        None if successes > 0 => return (Vec::new(), None),
        None => at_once,
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if active.len() >= wanted {
        let spare = active
            .iter()
            .skip(wanted)
            .map(|pod| Step::DeletePod((*pod).clone()));
        return (spare.collect(), None);
    }
    if let Some(wait) = pause(view, failures) {
        return (Vec::new(), Some(wait));
    }
    let owner = (job.metadata.name.as_str(), job.metadata.uid.as_str());
    let names = names::free(owner, wanted - active.len(), view.taken);
    let steps = names.into_iter().map(|name| {
        let mut pod = pods::from_template(job, &name, &job.spec.template);
        let finalizers = pod["metadata"]["finalizers"].as_array().cloned();
        let mut finalizers = finalizers.unwrap_or_default();
        finalizers.push(TRACKING.into());
        pod["metadata"]["finalizers"] = json!(finalizers);
        Step::CreatePod(pod)
    });
    (steps.collect(), None)
}

/// How long to wait after the last failure.
fn pause(view: &View<'_>, failures: i32) -> Option<Duration> {
    let ended = |pod: &Arc<Pod>| {
        let containers = pod.status.container_statuses.iter();
        containers
            .filter_map(|container| container.state.terminated.as_ref()?.finished_at)
            .max()
    };
    let last = view
        .pods
        .iter()
        .filter(|pod| failed(pod))
        .filter_map(ended)
        .max()?;
    let doublings = u32::try_from(failures - 1).unwrap_or(0).min(6);
    let wait = (FIRST_WAIT << doublings).min(LONGEST_WAIT);
    let left = SignedDuration::from_secs(wait) - view.now.duration_since(last);
    left.is_positive().then(|| left.unsigned_abs())
}

/// A job that is over goes when its time is.
fn afterwards(view: &View<'_>) -> (Option<Step>, Option<Duration>) {
    let Some(seconds) = view.job.spec.ttl_seconds_after_finished else {
        return (None, None);
    };
    let over = |kind| conditions::get(&view.job.status.conditions, kind);
    let since = over("Complete").or(over("Failed"));
    let Some(since) = since.and_then(|condition| condition.last_transition_time) else {
        return (None, None);
    };
    let left = i64::from(seconds) - view.now.duration_since(since).as_secs();
    match u64::try_from(left) {
        Ok(left) if left > 0 => (None, Some(Duration::from_secs(left))),
        _ => (Some(Step::DeleteJob), None),
    }
}

use std::{sync::Arc, time::Duration};

use orlop_model::{Job, Pod, PodPhase};
use serde_json::json;

use super::*;
use crate::fixtures::{deleting, now, object, spec};
use crate::pods::controller_reference;

fn job(completions: i32, parallelism: i32) -> Job {
    let mut body = json!({
        "metadata": {"name": "once", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": spec("once", "one"),
    });
    body["spec"]["completions"] = json!(completions);
    body["spec"]["parallelism"] = json!(parallelism);
    body["spec"]["backoffLimit"] = json!(1);
    object(body)
}

fn pod(name: &str, phase: PodPhase) -> Arc<Pod> {
    let mut pod: Pod = object(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "finalizers": [TRACKING], "ownerReferences": [controller_reference(&job(1, 1))],
        },
        "spec": {"containers": []},
    }));
    pod.status.phase = Some(phase);
    Arc::new(pod)
}

fn free(pod: &Arc<Pod>) -> Arc<Pod> {
    let mut pod = (**pod).clone();
    pod.metadata.finalizers.clear();
    Arc::new(pod)
}

fn run(job: &Job, pods: &[Arc<Pod>]) -> Decision {
    let taken = |name: &str| pods.iter().any(|pod| pod.metadata.name == name);
    decide(&View {
        job,
        pods,
        taken: &taken,
        now: now(),
    })
}

fn made(decision: &Decision) -> usize {
    let made = |step: &&Step| matches!(step, Step::CreatePod(_));
    decision.steps.iter().filter(made).count()
}

fn condition(decision: &Decision) -> Vec<&str> {
    let conditions = decision.status.conditions.iter();
    conditions
        .map(|condition| condition.type_.as_str())
        .collect()
}

#[test]
fn as_many_run_as_may_and_as_are_needed() {
    assert_eq!(made(&run(&job(5, 2), &[])), 2);
    let mut nearly = job(5, 2);
    nearly.status.succeeded = 4;
    assert_eq!(made(&run(&nearly, &[])), 1);
    let there = [pod("a", PodPhase::Running), pod("b", PodPhase::Pending)];
    assert_eq!(run(&job(5, 2), &there).steps, []);
    let first = run(&job(1, 1), &[]);
    assert_eq!(first.steps, run(&job(1, 1), &[]).steps, "the same names");
}

#[test]
fn a_pod_is_noted_then_let_go_then_counted() {
    let mut once = job(1, 1);
    let ended = pod("a", PodPhase::Succeeded);
    let noted = run(&once, std::slice::from_ref(&ended));
    assert_eq!(noted.steps, [Step::LetGo(ended.clone())]);
    assert_eq!(noted.status.succeeded, 0);
    assert_eq!(condition(&noted), [""; 0]);
    once.status = noted.status;
    // A crash before it was let go: that is repeated, and nothing is counted twice.
    let again = run(&once, std::slice::from_ref(&ended));
    assert_eq!(again.steps, [Step::LetGo(ended.clone())]);
    assert_eq!(again.status.succeeded, 0);
    let counted = run(&once, &[free(&ended)]);
    assert_eq!(counted.status.succeeded, 1);
    assert_eq!(condition(&counted), ["SuccessCriteriaMet", "Complete"]);
    // Also if it is gone by then.
    assert_eq!(run(&once, &[]).status.succeeded, 1);
    once.status = counted.status;
    assert_eq!(run(&once, &[]).steps, []);
    assert_eq!(run(&once, &[]).status, once.status);
}

#[test]
fn a_pod_that_is_deleted_before_its_end_has_failed() {
    let going = Arc::new(deleting((*pod("a", PodPhase::Running)).clone()));
    let decision = run(&job(1, 1), &[going]);
    assert_eq!(decision.status.uncounted_terminated_pods.failed, ["uid-a"]);
    assert_eq!(made(&decision), 1);
}

#[test]
fn too_many_failures_fail_the_job_and_end_its_pods() {
    let mut once = job(3, 2);
    once.status.failed = 2;
    let running = pod("a", PodPhase::Running);
    let decision = run(&once, std::slice::from_ref(&running));
    assert_eq!(decision.steps, [Step::DeletePod(running)]);
    assert_eq!(condition(&decision), [""; 0], "not before they are gone");
    assert_eq!(condition(&run(&once, &[])), ["FailureTarget", "Failed"]);
    let news = (
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    );
    assert_eq!(run(&once, &[]).news, Some(news));
}

#[test]
fn a_failure_is_waited_for_ever_longer() {
    let mut ended = (*pod("a", PodPhase::Failed)).clone();
    let container = json!([{"name": "main", "state": {"terminated": {
        "exitCode": 1, "finishedAt": "2026-01-01T00:00:55Z",
    }}}]);
    ended.status.container_statuses = serde_json::from_value(container).unwrap();
    let decision = run(&job(1, 1), &[Arc::new(ended)]);
    assert_eq!(made(&decision), 0);
    assert_eq!(decision.again, Some(Duration::from_secs(5)));
}

#[test]
fn a_job_goes_when_its_time_after_the_end_is_over() {
    let mut once = job(1, 1);
    once.spec.ttl_seconds_after_finished = Some(60);
    once.status.succeeded = 1;
    once.status = run(&once, &[]).status;
    assert_eq!(run(&once, &[]).again, Some(Duration::from_secs(60)));
    once.spec.ttl_seconds_after_finished = Some(0);
    assert_eq!(run(&once, &[]).steps, [Step::DeleteJob]);
}

#[test]
fn a_suspended_job_has_no_pods() {
    let mut once = job(1, 1);
    once.spec.suspend = Some(true);
    let running = pod("a", PodPhase::Running);
    let decision = run(&once, std::slice::from_ref(&running));
    assert_eq!(decision.steps, [Step::DeletePod(running)]);
    assert_eq!(condition(&decision), ["Suspended"]);
    assert_eq!(decision.status.start_time, None);
}

//! The roles against the embedded API server, killed at every call and deprived of every
//! answer: never two claims of one name, never more pods of one owner than it was told to have,
//! and everything settles.

mod cluster;

use orlop_trials::{Fault, Reach};
use serde_json::{Value, json};

use self::cluster::{Cluster, Story, run};
use crate::fixtures::spec;

/// A set is made, scaled, rolled, and scaled down with its claims.
fn set_story() -> Story {
    let mut set = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec("web", "one"),
    });
    set["spec"]["replicas"] = json!(2);
    set["spec"]["serviceName"] = json!("web");
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": "Delete"});
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }]);
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let image = json!([{"name": "main", "image": "two"}]);
    Story {
        path,
        object: set,
        most: 3,
        chapters: vec![
            (json!({}), |seen| seen.is_settled(2)),
            (
                json!({"spec": {"replicas": 3, "template": {"spec": {"containers": image}}}}),
                |seen| {
                    seen.is_settled(3)
                        && seen.object["status"]["updatedReplicas"] == 3
                        && seen.object["status"]["currentRevision"]
                            == seen.object["status"]["updateRevision"]
                        && seen.pods.iter().all(is_two)
                },
            ),
            (json!({"spec": {"replicas": 1}}), |seen| {
                let going = |claim: &&Value| !claim["metadata"]["deletionTimestamp"].is_null();
                seen.is_settled(1) && seen.claims.iter().filter(going).count() == 2
            }),
        ],
    }
}

fn is_two(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["image"] == "two"
}

/// A deployment is made, rolled, and scaled down.
fn deployment_story() -> Story {
    let mut deployment = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec("web", "one"),
    });
    deployment["spec"]["replicas"] = json!(2);
    deployment["spec"]["strategy"] = json!({
        "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    });
    let image = json!([{"name": "main", "image": "two"}]);
    Story {
        path: "/apis/apps/v1/namespaces/default/deployments",
        object: deployment,
        most: 2,
        chapters: vec![
            (json!({}), |seen| seen.is_settled(2)),
            (
                json!({"spec": {"template": {"spec": {"containers": image}}}}),
                |seen| {
                    seen.is_settled(2)
                        && seen.object["status"]["updatedReplicas"] == 2
                        && seen.object["status"]["replicas"] == 2
                        && seen.pods.iter().all(is_two)
                },
            ),
            (json!({"spec": {"replicas": 1}}), |seen| seen.is_settled(1)),
        ],
    }
}

/// A job of three pods, two at a time.
fn job_story() -> Story {
    let mut job = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 2, "template": spec("web", "one")["template"]},
    });
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    Story {
        path: "/apis/batch/v1/namespaces/default/jobs",
        object: job,
        most: 2,
        chapters: vec![(json!({}), |seen| {
            let status = &seen.object["status"];
            // No pod was made for nothing, none was counted twice, and all are let go.
            status["succeeded"] == 3
                && status["completionTime"].is_string()
                && seen.pods.len() == 3
                && seen
                    .pods
                    .iter()
                    .all(|pod| pod["metadata"]["finalizers"].is_null())
        })],
    }
}

/// Tells a story once for each call of an undisturbed run that a fault may strike.
async fn at_every_call(story: fn() -> Story, fault: Fault) {
    let reach = match fault {
        Fault::Die => Reach::Writes,
        Fault::LoseAnswer => Reach::Creations,
    };
    orlop_trials::at_every_call(fault, reach, async |strikes| {
        run(&story(), Cluster::open(strikes).await).await;
    })
    .await;
}

#[tokio::test]
async fn a_set_survives_a_crash_at_every_call() {
    at_every_call(set_story, Fault::Die).await;
}

#[tokio::test]
async fn a_set_survives_every_lost_answer() {
    at_every_call(set_story, Fault::LoseAnswer).await;
}

#[tokio::test]
async fn a_deployment_survives_a_crash_at_every_call() {
    at_every_call(deployment_story, Fault::Die).await;
}

#[tokio::test]
async fn a_deployment_survives_every_lost_answer() {
    at_every_call(deployment_story, Fault::LoseAnswer).await;
}

#[tokio::test]
async fn a_job_counts_each_pod_once_through_a_crash_at_every_call() {
    at_every_call(job_story, Fault::Die).await;
}

#[tokio::test]
async fn a_job_makes_no_pod_for_nothing_when_answers_are_lost() {
    at_every_call(job_story, Fault::LoseAnswer).await;
}

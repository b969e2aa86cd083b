use std::{sync::Arc, time::Duration};

use orlop_model::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::*;
use crate::conditions;
use crate::fixtures::{now, object, spec};

fn deployment(replicas: i32, image: &str) -> Deployment {
    let mut body = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": spec("web", image),
    });
    body["spec"]["replicas"] = json!(replicas);
    body["spec"]["progressDeadlineSeconds"] = json!(600);
    body["spec"]["revisionHistoryLimit"] = json!(1);
    body["spec"]["strategy"] = json!({
        "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1},
    });
    object(body)
}

/// The ReplicaSet that a deployment makes, of this size and with so many pods that work.
fn set(of: &Deployment, revision: i64, (size, works): (i32, i32)) -> Arc<ReplicaSet> {
    let Some(Step::Create { set, .. }) = run(of, &[]).steps.into_iter().next() else {
        panic!("none is made");
    };
    let mut set: ReplicaSet = object(set);
    set.metadata.uid = format!("uid-{}", set.metadata.name);
    set.metadata.creation_timestamp = Some(now() + jiff::SignedDuration::from_secs(revision));
    let annotation = "deployment.kubernetes.io/revision".to_owned();
    set.metadata
        .annotations
        .insert(annotation, revision.to_string());
    set.spec.replicas = Some(size);
    set.status.replicas = size;
    set.status.ready_replicas = works;
    set.status.available_replicas = works;
    Arc::new(set)
}

fn run(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Decision {
    decide(&View {
        deployment,
        sets,
        running: &[],
        now: now(),
    })
}

/// The steps in short: which revision gets which size.
fn steps(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Vec<String> {
    let revision = |set: &ReplicaSet| {
        let revision = set.metadata.annotation("deployment.kubernetes.io/revision");
        revision.unwrap_or("?").to_owned()
    };
    let short = |step: Step| match step {
        Step::Create { set, size } => {
            let revision = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            format!("new {}={size}", revision.as_str().unwrap())
        }
        Step::Refresh { set, annotations } => {
            let to = annotations.get("deployment.kubernetes.io/revision");
            format!("{}->{}", revision(&set), to.map_or("", String::as_str))
        }
        Step::Scale { set, to, .. } => format!("{}={to}", revision(&set)),
        Step::Delete(set) => format!("-{}", revision(&set)),
    };
    run(deployment, sets).steps.into_iter().map(short).collect()
}

#[test]
fn a_new_template_gets_a_set_of_its_own_with_a_name_that_follows_from_it() {
    let one = deployment(3, "one");
    assert_eq!(steps(&one, &[]), ["new 1=3"]);
    let first = set(&one, 1, (3, 3));
    let two = deployment(3, "two");
    assert_eq!(steps(&two, std::slice::from_ref(&first)), ["new 2=1"]);
    assert_eq!(set(&one, 1, (0, 0)).metadata.name, first.metadata.name);
    assert_ne!(set(&two, 1, (0, 0)).metadata.name, first.metadata.name);
    let selected = &first.spec.selector.match_labels;
    assert_eq!(
        first.metadata.name,
        format!("web-{}", selected["pod-template-hash"])
    );
    assert_eq!(first.spec.template["metadata"]["labels"], json!(selected));
}

#[test]
fn pods_move_as_far_as_some_may_be_missing_or_more() {
    let (one, two) = (deployment(4, "one"), deployment(4, "two"));
    // (old size and works), (new size and works), what follows
    for (old, new, wanted) in [
        ((4, 4), (1, 0), "1=3"),
        ((3, 3), (1, 0), "2=2"),
        ((3, 3), (2, 0), ""),
        ((3, 3), (2, 1), "1=2"),
        ((3, 2), (2, 2), "1=1"),
        ((2, 2), (2, 2), "2=3"),
        ((1, 1), (4, 3), "1=0"),
        ((0, 0), (4, 3), ""),
        ((4, 0), (1, 0), "1=3"),
    ] {
        let sets = [set(&one, 1, old), set(&two, 2, new)];
        assert_eq!(steps(&two, &sets).join(" "), wanted, "{old:?} {new:?}");
    }
}

#[test]
fn never_more_pods_than_allowed_and_never_fewer_that_work() {
    let (one, two) = (deployment(4, "one"), deployment(4, "two"));
    for old in 0..=5 {
        for new in 0..=5 {
            for (old_works, new_works) in (0..=old).flat_map(|o| (0..=new).map(move |n| (o, n))) {
                let sets = [
                    set(&one, 1, (old, old_works)),
                    set(&two, 2, (new, new_works)),
                ];
                let mut sizes = [(old, old_works), (new, new_works)];
                for step in run(&two, &sets).steps {
                    let Step::Scale { set, to, .. } = step else {
                        continue;
                    };
                    let at = usize::from(set.metadata.uid == sets[1].metadata.uid);
                    // The worst case: those that work go first.
                    let fewer = (sizes[at].0 - to).max(0);
                    let broken = sizes[at].0 - sizes[at].1;
                    sizes[at] = (to, sizes[at].1 - (fewer - broken).max(0));
                }
                let before = old_works + new_works;
                let works = sizes[0].1 + sizes[1].1;
                assert!(
                    works >= 3.min(before),
                    "{old}/{old_works} {new}/{new_works}"
                );
                let all = sizes[0].0 + sizes[1].0;
                assert!(all <= 5.max(old + new), "{old} {new} became {sizes:?}");
            }
        }
    }
}

#[test]
fn an_undo_makes_the_old_set_the_newest() {
    let (one, two) = (deployment(3, "one"), deployment(3, "two"));
    let sets = [set(&one, 1, (0, 0)), set(&two, 2, (3, 3))];
    assert_eq!(steps(&one, &sets), ["1->3"]);
    let Some(Step::Refresh { annotations, .. }) = run(&one, &sets).steps.into_iter().next() else {
        panic!()
    };
    assert_eq!(
        annotations["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let one = deployment(3, "one");
    let mut two = deployment(3, "two");
    two.spec.strategy.type_ = "Recreate".into();
    two.spec.strategy.rolling_update = None;
    assert_eq!(steps(&two, &[set(&one, 1, (3, 3))]), ["1=0"]);
    let old = set(&one, 1, (0, 0));
    let waits = decide(&View {
        deployment: &two,
        sets: std::slice::from_ref(&old),
        running: std::slice::from_ref(&old.metadata.uid),
        now: now(),
    });
    assert_eq!(waits.steps, []);
    assert_eq!(steps(&two, &[old]), ["new 2=3"]);
}

#[test]
fn a_change_of_number_is_shared_in_proportion() {
    let (one, two) = (deployment(10, "one"), deployment(10, "two"));
    let sets = [set(&one, 1, (8, 8)), set(&two, 2, (3, 1))];
    let more = deployment(20, "two");
    assert_eq!(steps(&more, &sets), ["1=15", "2=6"]);
    let fewer = deployment(5, "two");
    assert_eq!(steps(&fewer, &sets), ["1=4", "2=2"]);
    let alone = [set(&one, 1, (10, 10))];
    assert_eq!(steps(&deployment(3, "one"), &alone), ["1=3"]);
}

#[test]
fn a_paused_deployment_scales_and_nothing_else() {
    let one = deployment(3, "one");
    let mut two = deployment(5, "two");
    two.spec.paused = true;
    assert_eq!(steps(&two, &[set(&one, 1, (3, 3))]), ["1=5"]);
    let status = run(&two, &[set(&one, 1, (3, 3))]).status;
    let progressing = conditions::get(&status.conditions, "Progressing").unwrap();
    assert_eq!(progressing.reason, "DeploymentPaused");
}

#[test]
fn history_is_as_long_as_was_asked() {
    let [one, two, three] = ["one", "two", "three"].map(|image| deployment(1, image));
    let sets = [
        set(&one, 1, (0, 0)),
        set(&two, 2, (0, 0)),
        set(&three, 3, (1, 1)),
    ];
    let mut sets = sets.map(|set| {
        let mut set = (*set).clone();
        set.status.observed_generation = set.metadata.generation;
        Arc::new(set)
    });
    assert_eq!(steps(&three, &sets), ["-1"]);
    let mut busy = (*sets[0]).clone();
    busy.status.replicas = 1;
    sets[0] = Arc::new(busy);
    assert_eq!(steps(&three, &sets), [""; 0]);
}

fn reason(status: &Value) -> (&str, &str) {
    let conditions = status["conditions"].as_array().unwrap();
    let progressing = conditions
        .iter()
        .find(|c| c["type"] == "Progressing")
        .unwrap();
    (
        progressing["status"].as_str().unwrap(),
        progressing["reason"].as_str().unwrap(),
    )
}

#[test]
fn a_deployment_that_stands_still_for_too_long_says_so() {
    let mut one = deployment(1, "one");
    one.status = run(&one, &[]).status;
    assert_eq!(reason(&json!(one.status)), ("True", "NewReplicaSetCreated"));
    let sets = [set(&one, 1, (1, 0))];
    let moved = run(&one, &sets);
    assert_eq!(reason(&json!(moved.status)), ("True", "ReplicaSetUpdated"));
    one.status = moved.status;
    let at = |seconds| {
        decide(&View {
            deployment: &one,
            sets: &sets,
            running: &[],
            now: now() + jiff::SignedDuration::from_secs(seconds),
        })
    };
    assert_eq!(at(100).again, Some(Duration::from_secs(501)));
    assert_eq!(
        reason(&json!(at(601).status)),
        ("False", "ProgressDeadlineExceeded")
    );
    let done = run(&one, &[set(&one, 1, (1, 1))]).status;
    assert_eq!(reason(&json!(done)), ("True", "NewReplicaSetAvailable"));
}

use super::*;
use crate::fixtures::{bound, deleting, object};

fn released() -> Volume {
    let (_, mut volume) = bound("data", "vol");
    volume.spec.csi = None;
    volume.spec.host_path = Some(orlop_model::volume::HostPathSource {
        path: "/srv/vol".into(),
        type_: None,
    });
    volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
    volume.status.phase = Some(VolumePhase::Released);
    volume
}

fn pod(uid: &str, phase: &str) -> Pod {
    object(json!({
        "metadata": {"name": "recycler-for-vol", "namespace": "default", "uid": uid},
        "spec": {"containers": []},
        "status": {"phase": phase},
    }))
}

fn view(volume: Volume, pod: Option<Pod>) -> View {
    View {
        volume: Arc::new(volume),
        users: Vec::new(),
        pod: pod.map(Arc::new),
        age: Duration::ZERO,
        rest: None,
        config: Arc::default(),
    }
}

fn recorded(uid: &str) -> Volume {
    let mut volume = released();
    let annotations = &mut volume.metadata.annotations;
    annotations.insert(well_known::RECYCLER.into(), uid.into());
    volume
}

fn failure(step: Step) -> String {
    match step {
        Step::Fail(news) | Step::FailAndDelete(news) => {
            assert!(news.warning);
            assert_eq!(news.reason, "VolumeFailedRecycle");
            news.message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_is_scrubbed_by_a_pod_that_is_on_record() {
    assert_eq!(decide(&view(released(), None)), Step::Scrub);
    // Made before a crash, or by somebody else: its success says nothing.
    for phase in ["Pending", "Running", "Succeeded", "Failed"] {
        let step = decide(&view(released(), Some(pod("stranger", phase))));
        assert_eq!(step, Step::Dismiss, "{phase}");
        let step = decide(&view(recorded("u1"), Some(pod("stranger", phase))));
        assert_eq!(step, Step::Dismiss, "{phase}");
    }
    let wait = Step::Wait(Duration::from_secs(360));
    for phase in ["Pending", "Running"] {
        let step = decide(&view(recorded("u1"), Some(pod("u1", phase))));
        assert_eq!(step, wait, "{phase}");
    }
    let step = decide(&view(recorded("u1"), Some(pod("u1", "Succeeded"))));
    assert_eq!(step, Step::Done);
    // The pod went with a crash between its deletion and the volume's release.
    assert_eq!(decide(&view(recorded("u1"), None)), Step::Scrub);
}

#[test]
fn a_pod_is_placed_only_once_it_is_on_record() {
    let body = scrubber(&released(), &Config::default()).unwrap();
    let gates = &body["spec"]["schedulingGates"];
    let mut gated = pod("u1", "Pending");
    gated.spec.scheduling_gates = gates.as_array().unwrap().clone();
    assert_eq!(gated.spec.scheduling_gates.len(), 1);
    assert_eq!(
        decide(&view(released(), Some(gated.clone()))),
        Step::Dismiss
    );
    let step = decide(&view(recorded("u1"), Some(gated.clone())));
    assert_eq!(step, Step::OpenGate);
    // A binder that was replaced made it, when the volume had long been given on.
    assert!(is_stray(&gated, None));
    assert!(is_stray(&gated, Some(&released())));
    assert!(!is_stray(&gated, Some(&recorded("u1"))));
    assert!(!is_stray(&pod("u1", "Running"), None), "somebody else's");
}

/// The recycler's pod, at work.
fn scrubbing() -> Pod {
    let mut pod = pod("u1", "Running");
    let annotations = &mut pod.metadata.annotations;
    annotations.insert(well_known::RECYCLER.into(), "vol".into());
    pod
}

#[test]
fn a_pod_at_a_volume_that_was_taken_back_goes_first() {
    let made: Pod = object(scrubber(&released(), &Config::default()).unwrap());
    assert!(is_ours(&made) && !is_at_work(&made), "nobody has placed it");
    let pod = scrubbing();
    assert!(is_at_work(&pod));
    assert!(!is_stray(&pod, Some(&recorded("u1"))), "it is wanted");
    let mut freed = recorded("u1");
    freed.spec.claim_ref = None;
    let mut kept = recorded("u1");
    kept.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Retain);
    let mut taken = recorded("u1");
    taken.status.phase = Some(VolumePhase::Bound);
    for volume in [Some(&freed), Some(&kept), Some(&taken), None] {
        assert!(is_stray(&pod, volume), "{volume:?}");
    }
    assert!(may_be_emptied(&freed, None), "its record is there");
    assert!(
        may_be_emptied(&released(), Some(&pod)),
        "made anew under its name"
    );
    let mut ended = scrubbing();
    ended.status.phase = Some(PodPhase::Succeeded);
    assert!(!may_be_emptied(&released(), Some(&ended)));
    assert!(!may_be_emptied(&released(), None));
}

#[test]
fn a_pod_that_goes_is_waited_for() {
    let going = deleting(pod("u1", "Succeeded"));
    let step = decide(&view(recorded("u1"), Some(going)));
    assert_eq!(step, Step::LetGo);
}

#[test]
fn a_failure_is_told_and_rested_after() {
    let mut failed = pod("u1", "Failed");
    let step = decide(&view(recorded("u1"), Some(failed.clone())));
    assert_eq!(
        failure(step),
        "Recycle failed: failed to recycle volume: pod failed, pod.Status.Message unknown"
    );
    failed.status.message = "Pod was active on the node longer than the specified deadline".into();
    let step = decide(&view(recorded("u1"), Some(failed)));
    assert!(failure(step).ends_with("longer than the specified deadline"));
    let mut stuck = view(recorded("u1"), Some(pod("u1", "Running")));
    stuck.age = Duration::from_secs(361);
    assert!(failure(decide(&stuck)).ends_with("did not end in time"));
    let mut resting = view(released(), None);
    resting.rest = Some(Duration::from_secs(3));
    assert_eq!(decide(&resting), Step::Rest(Duration::from_secs(3)));
}

#[test]
fn a_volume_that_pods_may_write_to_is_left_alone() {
    let mut used = view(released(), None);
    used.users = vec!["ns/a".into(), "ns/b".into()];
    let Step::InUse(news) = decide(&used) else {
        panic!("it is scrubbed");
    };
    assert!(!news.warning);
    assert_eq!(news.reason, "VolumeFailedRecycle");
    assert_eq!(news.message, "Volume is used by pods: ns/a,ns/b");
}

#[test]
fn only_folders_of_hosts_and_nfs_servers_can_be_scrubbed() {
    let mut volume = released();
    volume.spec.host_path = None;
    let step = decide(&view(volume.clone(), None));
    assert_eq!(failure(step), "No recycler plugin found for the volume!");
    assert_eq!(scrubber(&volume, &Config::default()), None);
    volume.spec.nfs = Some(orlop_model::volume::NfsSource {
        server: "s".into(),
        path: "/exports/vol".into(),
        read_only: false,
    });
    assert_eq!(decide(&view(volume.clone(), None)), Step::Scrub);
    let pod = scrubber(&volume, &Config::default()).unwrap();
    let nfs = json!({"server": "s", "path": "/exports/vol"});
    assert_eq!(
        pod["spec"]["volumes"][0],
        json!({"name": "vol", "nfs": nfs})
    );
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 300);
}

#[test]
fn the_pod_runs_where_the_volume_is_and_longer_for_a_larger_one() {
    let mut volume = released();
    let pod = scrubber(&volume, &Config::default()).unwrap();
    assert_eq!(pod["metadata"]["name"], "recycler-for-vol");
    assert_eq!(pod["metadata"]["namespace"], "default");
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 60);
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert_eq!(pod["spec"]["volumes"][0]["hostPath"]["path"], "/srv/vol");
    assert_eq!(pod["spec"].get("affinity"), None);
    let terms = json!([{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
    ]}]);
    volume.spec.capacity = serde_json::from_value(json!({"storage": "10Gi"})).unwrap();
    volume.spec.node_affinity =
        serde_json::from_value(json!({"required": {"nodeSelectorTerms": terms}})).unwrap();
    let pod = scrubber(&volume, &Config::default()).unwrap();
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 300);
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["nodeSelectorTerms"], terms);
}

#[test]
fn a_pods_name_tells_its_volume_in_its_namespace_alone() {
    let mut pod = pod("u1", "Running");
    assert_eq!(volume_of(&pod), Some("vol"));
    assert_eq!(pod_key("vol").to_string(), "default/recycler-for-vol");
    pod.metadata.namespace = "elsewhere".into();
    assert_eq!(volume_of(&pod), None);
}

#[test]
fn a_pattern_of_a_persons_is_filled_in_and_one_that_can_not_work_is_refused() {
    let own = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "mine-", "labels": {"app": "scrub"}},
        "spec": {
            "affinity": {"podAffinity": {}}, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "mine", "command": ["scrub"]}],
            "volumes": [{"name": "there", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        },
    });
    let config = Config {
        host_path: Scrubbing {
            pod: pattern(&own).unwrap(),
            least: 7,
            per_gibibyte: 9,
        },
        ..Config::default()
    };
    let mut volume = released();
    volume.spec.capacity = serde_json::from_value(json!({"storage": "2Gi"})).unwrap();
    let pod = scrubber(&volume, &config).unwrap();
    assert_eq!(pod["metadata"]["name"], "recycler-for-vol");
    assert_eq!(pod["metadata"].get("generateName"), None);
    assert_eq!(pod["metadata"]["labels"]["app"], "scrub");
    assert_eq!(pod["spec"]["containers"][0]["image"], "mine");
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 18);
    let volumes = &pod["spec"]["volumes"];
    assert_eq!(
        volumes[0],
        json!({"name": "there", "hostPath": {"path": "/srv/vol"}})
    );
    assert_eq!(volumes[1]["name"], "tmp");
    for (pointer, wrong, why) in [
        ("/kind", json!("Deployment"), "no Pod"),
        ("/spec/volumes", json!([]), "spec.volumes"),
        (
            "/metadata",
            json!({"namespace": "kube-system"}),
            "\"kube-system\"",
        ),
    ] {
        let mut own = own.clone();
        *own.pointer_mut(pointer).unwrap() = wrong;
        let refused = pattern(&own).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn what_is_mounted_inside_a_volume_is_not_scrubbed() {
    use std::process::Command;
    let root = Command::new("id").arg("-u").output().unwrap();
    if root.stdout != b"0\n" {
        eprintln!("skipped: needs root");
        return;
    }
    let pod = default_pod();
    let script = pod["spec"]["containers"][0]["args"][1].as_str().unwrap();
    // Busybox has both options, but not as Debian builds it.
    let help = Command::new("busybox").args(["find", "--help"]).output();
    let deletes = help.is_ok_and(|said| {
        let words = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&words).contains("-delete")
    });
    let finds = ["find", "busybox find"];
    for find in &finds[..1 + usize::from(deletes)] {
        let folder = std::env::temp_dir().join(format!("scrub-{}", std::process::id()));
        let script = script.replace("find /", &format!("{find} /"));
        let script = script.replace("/scrub", folder.to_str().unwrap());
        // The mounts are gone with the shell.
        let around = format!(
            "mkdir -p {at}/a/b {at}/c && touch {at}/c/gone && mount -t tmpfs none {at}/a/b && \
             touch {at}/a/b/kept && ( {script} ); echo $?; ls {at}/a/b; test -e {at}/c; echo $?; \
             umount {at}/a/b && ( {script} ); echo $?; ls -A {at}",
            at = folder.display(),
        );
        let mut unshare = Command::new("unshare");
        let said = unshare.args(["-m", "sh", "-c", &around]).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let words = String::from_utf8(said.stdout).unwrap();
        // It fails, by a code of its own, and is clean once nothing is mounted there.
        let errors = String::from_utf8_lossy(&said.stderr);
        let expected = format!("{MOUNTED_INSIDE}\nkept\n1\n0\n");
        assert_eq!(words, expected, "{find}: {errors}");
    }
}

#[test]
fn the_api_server_takes_the_pod_of_any_volume() {
    let mut volume = released();
    volume.spec.capacity = serde_json::from_value(json!({"storage": "7Ei"})).unwrap();
    let body = scrubber(&volume, &Config::default()).unwrap();
    assert_eq!(body["spec"]["activeDeadlineSeconds"], i32::MAX);
    let dotted = format!("{}.-tail-{}", "x".repeat(222), "y".repeat(20));
    let mut names = std::collections::BTreeSet::new();
    for name in ["a".repeat(240), "a".repeat(241), "a".repeat(253), dotted] {
        volume.metadata.name.clone_from(&name);
        let body = scrubber(&volume, &Config::default()).unwrap();
        let own: Pod = object(body);
        let made = &own.metadata.name;
        assert!(made.len() <= 253, "{made}");
        assert!(!made.contains(".-") && !made.contains("--"), "{made}");
        assert_eq!(
            orlop_model::Kind::key(&own),
            pod_key(&name),
            "it is found again"
        );
        assert_eq!(volume_of(&own), Some(name.as_str()), "and its volume");
        assert!(names.insert(made.clone()), "{made}");
    }
    // What somebody else writes on a pod leads to no other volume.
    let mut strange = pod("u1", "Running");
    let annotations = &mut strange.metadata.annotations;
    annotations.insert(well_known::RECYCLER.into(), "other".into());
    assert_eq!(volume_of(&strange), Some("vol"));
}

#[test]
fn a_scrubbing_that_failed_is_told_with_its_cause() {
    let ended = |message: &str, exit_code: i32| {
        let mut failed = pod("u1", "Failed");
        let status = json!({"name": "c", "state": {"terminated": {
            "exitCode": exit_code, "message": message,
        }}});
        failed.status.container_statuses = vec![serde_json::from_value(status).unwrap()];
        view(recorded("u1"), Some(failed))
    };
    let start = "Recycle failed: failed to recycle volume: ";
    let told = |view: &View| {
        failure(decide(view))
            .strip_prefix(start)
            .unwrap()
            .to_owned()
    };
    let busy = "db is mounted inside the volume; unmount it";
    assert_eq!(told(&ended(&format!("{busy}\n"), MOUNTED_INSIDE)), busy);
    let some = "something is mounted inside the volume; unmount it";
    assert_eq!(told(&ended("", MOUNTED_INSIDE)), some);
    assert_eq!(
        told(&ended("", 1)),
        "the recycler pod ended with exit code 1"
    );
    // What the code of another pod means is its own affair.
    let mut other = ended("", MOUNTED_INSIDE);
    let mut config = Config::default();
    config.host_path.pod["spec"]["hostNetwork"] = json!(true);
    other.config = Arc::new(config);
    assert_eq!(told(&other), "the recycler pod ended with exit code 32");
}

#[test]
fn why_a_scrubber_has_no_node_is_read_off_the_pod() {
    let with = |reason: &str| {
        let mut waiting = pod("u1", "Pending");
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason,
                               "message": "0/1 nodes are available"});
        waiting.status.conditions = vec![serde_json::from_value(condition).unwrap()];
        waiting
    };
    let unplaced = with("Unschedulable");
    assert_eq!(why_unplaced(&unplaced), Some("0/1 nodes are available"));
    assert_eq!(why_unplaced(&with("SchedulingGated")), None);
    assert_eq!(why_unplaced(&pod("u1", "Pending")), None);
}

//! What pods can have as volumes, as a user sees it: `orlop up` and kubectl.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[allow(dead_code, reason = "the node's tests use more of it")]
#[path = "../../node/tests/real_node/containerd.rs"]
mod containerd;
#[path = "../../node/tests/real_node/image.rs"]
mod image;

use std::{
    thread,
    time::{Duration, Instant},
};

use containerd::Containerd;
use serde_json::Value;
use support::{Machine, PATIENCE};

/// Asks again until the answer is as wanted, and tells how long that took.
fn eventually(
    machine: &Machine,
    arguments: &[&str],
    wanted: impl Fn(&str) -> bool,
) -> (String, Duration) {
    let started = Instant::now();
    loop {
        // It may be too early to ask.
        let said = machine.try_kubectl(arguments).stdout;
        let said = String::from_utf8(said).unwrap();
        if wanted(&said) {
            return (said, started.elapsed());
        }
        let transcript = machine.transcript();
        assert!(
            started.elapsed() < PATIENCE,
            "{arguments:?} says {said}\n{transcript}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn ready(machine: &Machine, pod: &str) {
    let pod = format!("pod/{pod}");
    machine.kubectl(&["wait", "--for=condition=Ready", &pod, "--timeout=60s"]);
}

const FOLLOWING: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {key: one}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {key: one}
---
apiVersion: v1
kind: Pod
metadata:
  name: follows
  labels: {app: one}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      command:
        - sh
        - -c
        - |
          touch /part/here
          before=
          while :; do
            now=\"$(cat /config/key) $(cat /secret/key) $(cat /all/secret) $(cat /all/labels)\"
            [ \"$now\" = \"$before\" ] || { echo \"$now\"; before=$now; }
            sleep 0.01
          done
      volumeMounts:
        - {name: config, mountPath: /config}
        - {name: secret, mountPath: /secret}
        - {name: all, mountPath: /all}
        - {name: scratch, mountPath: /scratch}
        - {name: scratch, mountPath: /part, subPathExpr: parts/$(POD)}
  volumes:
    - {name: config, configMap: {name: config}}
    - {name: secret, secret: {secretName: secret}}
    - {name: scratch, emptyDir: {}}
    - name: all
      projected:
        sources:
          - secret: {name: secret, items: [{key: key, path: secret}]}
          - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: \"metadata.labels['app']\"}}]}
          - serviceAccountToken: {path: token, expirationSeconds: 600}
";

#[test]
fn what_running_pods_show_follows_its_sources_at_once() {
    needs_a_machine!();
    let mut machine = Machine::up(&["--nodes", "2"]);
    machine.apply(FOLLOWING);
    ready(&machine, "follows");
    let logs = ["logs", "follows"];
    eventually(&machine, &logs, |said| said.contains("one one one one"));
    let change = r#"{"stringData": {"key": "two"}}"#;
    machine.kubectl(&["patch", "secret", "secret", "-p", change]);
    let (_, took) = eventually(&machine, &logs, |said| said.contains("one two two one"));
    eprintln!("a secret's change was seen after {took:?}");
    assert!(
        took < Duration::from_secs(10),
        "{took:?}: it was not followed"
    );
    machine.kubectl(&[
        "patch",
        "configmap",
        "config",
        "-p",
        r#"{"data": {"key": "two"}}"#,
    ]);
    machine.kubectl(&["label", "pod", "follows", "--overwrite", "app=two"]);
    eventually(&machine, &logs, |said| said.contains("two two two two"));

    // What the folders take, and metrics that a reader takes.
    let node = machine.kubectl(&["get", "pod", "follows", "-o", "jsonpath={.spec.nodeName}"]);
    let path = format!("/api/v1/nodes/{node}/proxy/stats/summary");
    let (said, _) = eventually(&machine, &["get", "--raw", &path], |said| {
        said.contains("scratch")
    });
    let said: Value = serde_json::from_str(&said).unwrap();
    let volumes = said["pods"][0]["volume"].as_array().unwrap();
    let scratch = volumes.iter().find(|v| v["name"] == "scratch").unwrap();
    assert_eq!(scratch["inodesUsed"], 4, "{scratch}");
    for node in ["node-1", "node-2"] {
        let path = format!("/api/v1/nodes/{node}/proxy/metrics");
        let metrics = machine.kubectl(&["get", "--raw", &path]);
        let mut types: Vec<&str> = metrics
            .lines()
            .filter(|l| l.starts_with("# TYPE"))
            .collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), all, "{metrics}");
        assert!(metrics.contains("orlop_node_hung_volumes"), "{metrics}");
    }
    // Nodes follow what their own pods show, and nothing else.
    let may = |node: &str, what: &[&str]| {
        let who = format!("--as=system:node:{node}");
        let arguments = [
            &["auth", "can-i", &who, "--as-group=system:nodes"][..],
            what,
        ]
        .concat();
        String::from_utf8(machine.try_kubectl(&arguments).stdout)
            .unwrap()
            .trim()
            == "yes"
    };
    let other = if node == "node-1" { "node-2" } else { "node-1" };
    assert!(may(&node, &["watch", "secret/secret"]));
    assert!(!may(other, &["watch", "secret/secret"]));
    assert!(!may(&node, &["watch", "secrets"]));
    assert!(!may(&node, &["list", "secrets"]));
    machine.kubectl(&["delete", "pod", "follows", "--timeout=60s"]);
    assert!(!may(&node, &["watch", "secret/secret"]), "its pod is gone");
    machine.stop();
}

#[test]
fn limits_and_checks_of_volumes_are_kept_and_told() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let host = machine.path().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("file"), "x").unwrap();
    let pod = |name: &str, script: &str, mount: &str, volume: &str| {
        machine.apply(&format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command: [sh, -c, '{script}']
      volumeMounts: [{{name: v, mountPath: /v{mount}}}]
  volumes: [{{name: v, {volume}}}]
"
        ));
    };
    let host_path = |type_: &str, name: &str| {
        format!(
            "hostPath: {{path: {}/{name}, type: {type_}}}",
            host.display()
        )
    };
    pod(
        "large",
        "cat /dev/zero | head -c 8000000 > /v/x; exec sleep 600",
        "",
        "emptyDir: {sizeLimit: 1Mi}",
    );
    pod(
        "memory",
        "cat /dev/zero | head -c 8000000 > /v/x; ls -l /v/x; exec sleep 600",
        "",
        "emptyDir: {medium: Memory, sizeLimit: 1Mi}",
    );
    pod(
        "folder",
        "exec sleep 600",
        "",
        &host_path("Directory", "file"),
    );
    pod(
        "missing",
        "exec sleep 600",
        "",
        &host_path("File", "missing"),
    );
    pod(
        "made",
        "echo made > /v/x; exec sleep 600",
        "",
        &host_path("DirectoryOrCreate", "made"),
    );
    pod(
        "read-only",
        "touch /v/x; echo $?; exec sleep 600",
        ", readOnly: true, recursiveReadOnly: Enabled",
        "emptyDir: {}",
    );
    let (said, _) = eventually(
        &machine,
        &[
            "get",
            "pod",
            "large",
            "-o",
            "jsonpath={.status.phase} {.status.reason} {.status.message}",
        ],
        |said| said.starts_with("Failed"),
    );
    assert!(
        said.contains("Evicted") && said.contains("exceeds the limit \"1Mi\""),
        "{said}"
    );
    let (said, _) = eventually(&machine, &["logs", "memory"], |said| said.contains("/v/x"));
    assert!(said.contains(" 1048576 "), "{said}");
    for (name, words) in [
        ("folder", "hostPath type check failed"),
        ("missing", "is not a file"),
    ] {
        let field = format!("--field-selector=involvedObject.name={name},reason=FailedMount");
        eventually(
            &machine,
            &[
                "get",
                "events",
                &field,
                "-o",
                "jsonpath={.items[*].message}",
            ],
            |said| said.contains(words),
        );
    }
    ready(&machine, "made");
    eventually(
        &machine,
        &["get", "pod", "made", "-o", "jsonpath={.status.phase}"],
        |said| said == "Running",
    );
    let until = Instant::now();
    while !host.join("made/x").exists() {
        assert!(until.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(10));
    }
    eventually(&machine, &["logs", "read-only"], |said| said.contains('1'));
    machine.kubectl(&["delete", "pod", "--all", "--timeout=60s"]);
    machine.stop();
    assert!(host.join("made/x").exists(), "what is the host's stays");
}

#[test]
fn pods_of_up_are_containers_of_a_container_runtime() {
    needs_a_machine!();
    let Some(containerd) = Containerd::start() else {
        return;
    };
    let mut machine = Machine::up(&["--cri", &containerd.endpoint()]);
    machine.apply(&format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 32Mi}}}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: secret}}
stringData: {{key: one}}
---
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: {image}
      imagePullPolicy: Never
      command: [sh, -c, 'echo $(date) >> /v/boots; cat /v/boots /part/x /secret/key; while sleep 0.05; do date > /v/tick; echo $(cat /secret/key); done']
      volumeMounts:
        - {{name: v, mountPath: /v}}
        - {{name: v, mountPath: /part, subPath: deep/part}}
        - {{name: secret, mountPath: /secret}}
  volumes:
    - {{name: v, persistentVolumeClaim: {{claimName: data}}}}
    - {{name: secret, secret: {{secretName: secret}}}}
",
        image = image::BUSYBOX
    ));
    ready(&machine, "web");
    assert_eq!(
        containerd.containers(),
        2,
        "the pod's sandbox and its container"
    );
    let id = [
        "get",
        "pod",
        "web",
        "-o",
        "jsonpath={.status.containerStatuses[0].containerID}",
    ];
    let before = machine.kubectl(&id);
    machine.crash();
    machine.start();
    ready(&machine, "web");
    assert_eq!(machine.kubectl(&id), before, "the pod has outlived it");
    machine.kubectl(&[
        "patch",
        "secret",
        "secret",
        "-p",
        r#"{"stringData": {"key": "two"}}"#,
    ]);
    eventually(&machine, &["logs", "web", "--tail=3"], |said| {
        said.contains("two")
    });
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=60s"]);
    machine.wait_none("pods,pvc,pv");
    let started = Instant::now();
    while !machine.leftovers().is_empty() || containerd.containers() > 0 {
        assert!(started.elapsed() < PATIENCE, "{:?}", machine.leftovers());
        thread::sleep(Duration::from_millis(50));
    }
    machine.stop();
}

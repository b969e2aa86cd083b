//! Who is who in `orlop up`: its roles, and the pods that call the API server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE, life};

/// What kubectl says at last, once it is as wanted.
fn eventually(machine: &Machine, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        let said = machine.kubectl(arguments);
        if wanted(&said) {
            return said;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{arguments:?} says {said}\n{}",
            machine.transcript()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// A pod that asks the API server as itself, by curl and by kubectl, which find all that they
/// need in the container.
const ASKING: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: asking}
spec:
  serviceAccountName: reader
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command:
        - sh
        - -c
        - |
          cd /var/run/secrets/kubernetes.io/serviceaccount
          url=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces
          ask() { curl -s --cacert ca.crt -H "Authorization: Bearer $(cat token)" "$url/$1"; }
          ask "$(cat namespace)/pods/asking" | grep -m 1 -o '"nodeName": *"[^"]*"'
          ask "$(cat namespace)/secrets" | grep -o 'cannot list resource .*secrets'
          kubectl auth whoami -o jsonpath='{.status.userInfo.username}'; echo
          kubectl get pod asking -o name
          stat -L -c '%a' token ca.crt | tr '\n' ' '; readlink token
          exec sleep infinity
"#;

#[test]
fn a_pod_calls_the_api_server_with_its_token() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    machine.kubectl(&["create", "serviceaccount", "reader"]);
    machine.kubectl(&["create", "role", "reader", "--verb=get", "--resource=pods"]);
    machine.kubectl(&[
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        "--serviceaccount=default:reader",
    ]);
    machine.apply(ASKING);
    let said = |machine: &Machine| {
        machine.kubectl(&[
            "wait",
            "--for=condition=Ready",
            "pod/asking",
            "--timeout=60s",
        ]);
        eventually(machine, &["logs", "asking"], |said| {
            said.lines().count() >= 5
        })
    };
    let heard = said(&machine);
    let lines: Vec<&str> = heard.lines().collect();
    assert!(lines[0].contains("node-1"), "{heard}");
    assert!(lines[1].contains("cannot list resource"), "{heard}");
    assert_eq!(
        lines[2..],
        [
            "system:serviceaccount:default:reader",
            "pod/asking",
            "644 644 ..data/token"
        ],
        "{heard}"
    );

    // The same after a restart: the key, the certificate and the address are still right.
    machine.stop();
    machine.start();
    let again = eventually(&machine, &["logs", "asking"], |said| {
        said.lines().count() >= 5 && said.contains("pod/asking")
    });
    assert!(
        again.contains("system:serviceaccount:default:reader"),
        "{again}"
    );

    // A token that a pod was given ends with the pod.
    let token = machine.kubectl(&[
        "create",
        "token",
        "reader",
        "--bound-object-kind=Pod",
        "--bound-object-name=asking",
    ]);
    let server = machine.kubectl(&[
        "config",
        "view",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]);
    let ask = || {
        let output = std::process::Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H"])
            .arg(format!("Authorization: Bearer {}", token.trim()))
            .arg(format!("{server}/api/v1/namespaces/default/pods/asking"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(), "200");
    machine.kubectl(&["delete", "pod", "asking", "--timeout=60s"]);
    assert_eq!(ask(), "401");
    assert_eq!(machine.leftovers(), Vec::<String>::new());
    machine.stop();
}

#[test]
fn a_role_without_a_rule_is_refused_and_gets_it_back_at_the_next_start() {
    needs_a_machine!();
    let mut machine = Machine::up(&[]);
    let may = |who: &str, what: &[&str]| {
        let who = format!("--as=system:serviceaccount:kube-system:orlop-{who}");
        let arguments = [&["auth", "can-i", who.as_str()], what].concat();
        let said = machine.try_kubectl(&arguments).stdout;
        String::from_utf8(said).unwrap().trim() == "yes"
    };
    assert!(may("controller", &["create", "persistentvolumes"]));
    assert!(!may("scheduler", &["create", "persistentvolumes"]));
    assert!(may(
        "node",
        &["create", "serviceaccounts", "--subresource=token"]
    ));
    assert!(!may("node", &["list", "secrets"]));

    let rules = machine.kubectl(&[
        "get",
        "clusterrole",
        "orlop-controller",
        "-o",
        "jsonpath={.rules}",
    ]);
    let without = rules
        .replace(r#""create","#, "")
        .replace(r#","create""#, "");
    assert_ne!(without, rules);
    machine.kubectl(&[
        "patch",
        "clusterrole",
        "orlop-controller",
        "--type=merge",
        "-p",
        &format!(r#"{{"rules": {without}}}"#),
    ]);
    machine.apply(&life("held", "exec sleep infinity", ""));
    let started = Instant::now();
    while !machine.printed("orlop-controller\" cannot create resource \"persistentvolumes\"")
        && !machine.printed("orlop-controller\\\" cannot create resource \\\"persistentvolumes\\\"")
    {
        assert!(started.elapsed() < PATIENCE, "{}", machine.transcript());
        thread::sleep(Duration::from_millis(20));
    }
    let phase = ["get", "pvc", "held", "-o", "jsonpath={.status.phase}"];
    assert_eq!(machine.kubectl(&phase), "Pending");

    machine.stop();
    machine.start();
    machine.kubectl(&["wait", "--for=condition=Ready", "pod/held", "--timeout=60s"]);
    assert_eq!(machine.kubectl(&phase), "Bound");
    machine.kubectl(&["delete", "pod,pvc", "held", "--timeout=60s"]);
    machine.wait_none("pv");
    machine.stop();
}

#[test]
fn without_the_admission_pods_get_no_token() {
    needs_a_machine!();
    let mut machine = Machine::command(
        "apiserver",
        &["--disable-admission-plugins", "ServiceAccount"],
    );
    machine.start();
    machine.kubectl(&["run", "plain", "--image=host"]);
    let volumes = machine.kubectl(&["get", "pod", "plain", "-o", "jsonpath={.spec.volumes}"]);
    assert_eq!(volumes, "");
    machine.stop();
}

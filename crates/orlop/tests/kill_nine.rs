//! `kill -9` at random moments: after a restart everything converges, what was
//! acknowledged is there, and nothing leaks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use support::{Machine, PATIENCE, life};

const LIVES: u64 = 10;

/// Has a pod write a line into the ledger, and its end acknowledged: the line must never be lost.
fn book(machine: &Machine, n: u64) {
    machine.apply(&format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: ledger
spec:
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 32Mi}}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: clerk-{n}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: host
      command: [sh, -c, 'echo {n} >> /v/ledger && sync && cat /v/ledger']
      volumeMounts: [{{name: v, mountPath: /v}}]
  volumes:
    - name: v
      persistentVolumeClaim: {{claimName: ledger}}
"
    ));
    let pod = format!("pod/clerk-{n}");
    machine.kubectl(&[
        "wait",
        "--for=jsonpath={.status.phase}=Succeeded",
        &pod,
        "--timeout=60s",
    ]);
    let lines: String = (0..=n).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        machine.kubectl(&["logs", &pod]),
        lines,
        "every acknowledged line is there"
    );
}

#[test]
fn ten_lives_survive_ten_kills_at_random_moments() {
    needs_a_machine!();
    let seed = std::env::var("ORLOP_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64
        });
    eprintln!("replay with ORLOP_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut machine = Machine::up(&[]);
    for n in 0..LIVES {
        let name = format!("life-{n}");
        let script = format!("echo {name} > /v/mark && sync && exec sleep infinity");
        book(&machine, n);
        machine.apply(&life(&name, &script, ""));
        // On the way up, on the way down, or somewhere between.
        let going_down = random.bool();
        if going_down {
            let (claim, pod) = (format!("pvc/{name}"), format!("pod/{name}"));
            machine.kubectl(&["wait", "--for=condition=Ready", &pod, "--timeout=60s"]);
            machine.kubectl(&["delete", "--wait=false", &pod, &claim]);
        }
        thread::sleep(Duration::from_millis(random.u64(0..250)));
        machine.crash();
        machine.start();
        if going_down {
            // The deletion was acknowledged: it holds.
            machine.wait_none_of("pod", &name);
            machine.wait_none_of("pvc", &name);
        } else {
            // The creation was acknowledged: it holds.
            machine.kubectl(&[
                "wait",
                "--for=condition=Ready",
                &format!("pod/{name}"),
                "--timeout=60s",
            ]);
        }
    }
    machine.kubectl(&["delete", "pod,pvc", "--all", "--timeout=60s"]);
    machine.wait_none("pods,pvc,pv,volumeattachments");
    let started = Instant::now();
    while !machine.leftovers().is_empty() {
        assert!(
            started.elapsed() < PATIENCE,
            "{:?}\n{}",
            machine.leftovers(),
            machine.transcript()
        );
        thread::sleep(Duration::from_millis(50));
    }
    machine.stop();
}

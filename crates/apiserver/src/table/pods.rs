//! A pod's row: the one word that sums up what its containers are at.

use super::{AGE, Column, NAME, age, at, at_or, deleting, flag, list, name, text, wide};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) const POD: &[Column] = &[
    NAME,
    text("Ready"),
    text("Status"),
    text("Restarts"),
    AGE,
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];

pub(super) fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarize(pod);
    let restarts = match (summary.restarts.count, summary.restarts.last) {
        (0, _) | (_, "") => summary.restarts.count.to_string(),
        (count, last) => format!("{count} ({} ago)", age::since(last, now)),
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.status.into(),
        restarts.into(),
        age::of(pod, now),
        at_or(pod, "/status/podIPs/0/ip", "<none>").into(),
        at_or(pod, "/spec/nodeName", "<none>").into(),
        at_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

pub(super) fn completed(pod: &Value) -> Option<Value> {
    let (reason, message) = match at(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

struct Summary<'a> {
    status: String,
    ready: usize,
    containers: usize,
    restarts: Restarts<'a>,
}

#[derive(Clone, Copy, Default)]
struct Restarts<'a> {
    count: i64,
    /// When the newest of them happened; RFC 3339 times of one zone sort as text.
    last: &'a str,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, status: &'a Value) {
        self.count += status["restartCount"].as_i64().unwrap_or(0);
        self.last = self
            .last
            .max(at(status, "/lastState/terminated/finishedAt"));
    }
}

/// What the init containers say.
struct Initialization<'a> {
    /// The status word while they are not done.
    pending: Option<String>,
    ready_sidecars: usize,
    all: Restarts<'a>,
    sidecars: Restarts<'a>,
}

fn summarize(pod: &Value) -> Summary<'_> {
    let mut status = at_or(pod, "/status/reason", at(pod, "/status/phase")).to_owned();
    if list(pod, "/status/conditions")
        .iter()
        .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated")
    {
        status = "SchedulingGated".to_owned();
    }
    let sidecars = list(pod, "/spec/initContainers")
        .iter()
        .filter(|c| is_sidecar(c));
    let containers = list(pod, "/spec/containers").len() + sidecars.count();

    let init = initialization(pod);
    let mut ready = init.ready_sidecars;
    let mut restarts = init.all;
    let initialized = init.pending.is_none() || condition(pod, "Initialized");
    if let Some(pending) = init.pending {
        status = pending;
    }
    if initialized {
        restarts = init.sidecars;
        let running = containers_status(pod, &mut status, &mut restarts);
        ready += running;
    }
    if deleting(pod) {
        let phase = at(pod, "/status/phase");
        if at(pod, "/status/reason") == "NodeLost" {
            status = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            status = "Terminating".to_owned();
        }
    }
    Summary {
        status,
        ready,
        containers,
        restarts,
    }
}

fn is_sidecar(container: &Value) -> bool {
    at(container, "/restartPolicy") == "Always"
}

fn initialization(pod: &Value) -> Initialization<'_> {
    let specs = list(pod, "/spec/initContainers");
    let mut found = Initialization {
        pending: None,
        ready_sidecars: 0,
        all: Restarts::default(),
        sidecars: Restarts::default(),
    };
    for (done, status) in list(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        let sidecar = specs
            .iter()
            .any(|spec| spec["name"] == status["name"] && is_sidecar(spec));
        found.all.add(status);
        if sidecar {
            found.sidecars.add(status);
        }
        let terminated = status.pointer("/state/terminated");
        if terminated.is_some_and(|t| t["exitCode"] == 0) {
            continue;
        }
        if sidecar && flag(status, "/started") == Some(true) {
            found.ready_sidecars += usize::from(flag(status, "/ready") == Some(true));
            continue;
        }
        let waiting = at(status, "/state/waiting/reason");
        let word = match terminated {
            Some(terminated) => end_of(terminated),
            None if !matches!(waiting, "" | "PodInitializing") => waiting.to_owned(),
            None => format!("{done}/{}", specs.len()),
        };
        found.pending = Some(format!("Init:{word}"));
        break;
    }
    found
}

/// Lets the containers speak, the first having the last word; counts the
/// ready ones.
fn containers_status<'a>(pod: &'a Value, word: &mut String, restarts: &mut Restarts<'a>) -> usize {
    let mut running = 0;
    let mut failure = None;
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        restarts.add(status);
        let waiting = at(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            *word = waiting.to_owned();
        } else if let Some(terminated) = status.pointer("/state/terminated") {
            *word = end_of(terminated);
            if terminated["exitCode"] != 0 {
                failure = Some(word.clone());
            }
        } else if flag(status, "/ready") == Some(true) && status.pointer("/state/running").is_some()
        {
            running += 1;
        }
    }
    // One finished container does not make a pod with running ones finished.
    if word == "Completed" {
        if running > 0 && condition(pod, "Ready") {
            *word = "Running".to_owned();
        } else if let Some(failure) = failure {
            *word = failure;
        } else if running > 0 {
            *word = "NotReady".to_owned();
        }
    }
    running
}

fn end_of(terminated: &Value) -> String {
    match (at(terminated, "/reason"), terminated["signal"].as_i64()) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        (reason, _) => reason.to_owned(),
    }
}

fn condition(pod: &Value, kind: &str) -> bool {
    list(pod, "/status/conditions")
        .iter()
        .any(|c| c["type"] == kind && c["status"] == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| condition(pod, at(gate, "/conditionType")))
        .count();
    format!("{open}/{}", gates.len())
}

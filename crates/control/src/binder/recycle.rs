//! How a volume whose claim is gone is scrubbed for whoever asks next.
//!
//! ```text
//! released -> pod made, gated -> its uid is on the volume -> gate opened -> it succeeds
//!          -> pod deleted -> available
//! ```
//!
//! The pod runs on a node that can reach the volume and empties its folder. Only the pod
//! whose uid stands on the volume counts: a pod of that name that somebody else made, or that
//! was made before a crash and never recorded, is deleted unheard. A crash at any point leads
//! to another scrub at worst, never to a volume that is given on unscrubbed.
//!
//! The gate is against a binder that was replaced and doesn't know it: it may still make a pod
//! when the volume has long been given to another claim. It can't record that pod, since the
//! volume isn't what it saw, and so the pod is never placed.
//!
//! A person may take the volume back while a pod is at it. Then the pod goes first: until it has
//! ended nobody gets the volume, and the record of it stays.

use std::{borrow::Cow, sync::Arc, time::Duration};

use orlop_model::{Key, Kind, Pod, PodPhase, ReclaimPolicy, Volume, VolumePhase, well_known};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Config, News, Scrubbing};

/// Where recyclers run.
const NAMESPACE: &str = "default";
const PREFIX: &str = "recycler-for-";
/// So long may a pod's name be.
const LONGEST_NAME: usize = 253;
/// So many seconds may a pod be given: the API server takes no more.
const LONGEST_RUN: i64 = 0x7fff_ffff;

/// Everything that the next step of a recycling looks at.
#[derive(Debug, Clone)]
pub struct View {
    /// The volume, whose claim is gone.
    pub volume: Arc<Volume>,
    /// Unfinished pods that use the claim that is gone.
    pub users: Vec<String>,
    /// The pod of a recycler's name.
    pub pod: Option<Arc<Pod>>,
    /// For how long that has existed.
    pub age: Duration,
    /// How long to rest after a failure.
    pub rest: Option<Duration>,
    /// How volumes are scrubbed.
    pub config: Arc<Config>,
}

/// The next step of a recycling.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The volume can't be scrubbed, or that went wrong: it is marked as failed.
    Fail(News),
    /// It went wrong, and the pod is still there: the pod goes first.
    FailAndDelete(News),
    /// Nothing yet, since pods may still write to it.
    InUse(News),
    /// Nothing before this long.
    Rest(Duration),
    /// A pod is made, and its uid put on the volume.
    Scrub,
    /// The pod is on record, and may be placed.
    OpenGate,
    /// A pod that is not known goes.
    Dismiss,
    /// The pod is at it; it must have ended after this long.
    Wait(Duration),
    /// The pod goes, and is waited for.
    LetGo,
    /// All is clean: the pod goes, and the volume is there for anybody.
    Done,
}

/// The recycler's pod of a volume.
pub fn pod_key(volume: &str) -> Key {
    Key::namespaced(NAMESPACE, format!("{PREFIX}{}", short(volume)))
}

/// The name of a volume, or as much of it as a pod's name has room for, and a hash.
fn short(volume: &str) -> Cow<'_, str> {
    const DIGITS: usize = 16;
    let room = LONGEST_NAME - PREFIX.len();
    if volume.len() <= room {
        return volume.into();
    }
    let hash = Sha256::digest(volume);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let begin: String = volume.chars().take(room - DIGITS - 1).collect();
    // A part of a name ends as it begins, with a letter or a digit.
    let begin = begin.trim_end_matches(['.', '-']);
    format!("{begin}-{}", &hex[..DIGITS]).into()
}

/// The volume of a recycler's pod, if it is one by its name.
pub fn volume_of(pod: &Pod) -> Option<&str> {
    let meta = &pod.metadata;
    let name = meta.name.strip_prefix(PREFIX);
    let name = name.filter(|_| meta.namespace == NAMESPACE)?;
    // The name of a long one is on the pod.
    Some(noted_volume(pod).unwrap_or(name))
}

/// What a recycler's pod says of its volume; one that somebody else made says nothing, or lies.
fn noted_volume(pod: &Pod) -> Option<&str> {
    let noted = pod.metadata.annotation(well_known::RECYCLER)?;
    (pod_key(noted) == pod.key()).then_some(noted)
}

fn is_gated(pod: &Pod) -> bool {
    let mut gates = pod.spec.scheduling_gates.iter();
    gates.any(|gate| gate["name"] == well_known::RECYCLER)
}

/// Whether a pod was made for a recycling that isn't, or is no more.
pub fn is_stray(pod: &Pod, volume: Option<&Volume>) -> bool {
    let wanted = volume.filter(|volume| is_wanted(volume));
    let recorded = wanted.and_then(|v| v.metadata.annotation(well_known::RECYCLER));
    is_ours(pod) && recorded != Some(pod.metadata.uid.as_str())
}

/// Whether a pod was made here, or by a forerunner.
pub fn is_ours(pod: &Pod) -> bool {
    is_gated(pod) || noted_volume(pod).is_some()
}

/// Whether a volume is one to be scrubbed: its claim is gone, and its policy says so.
fn is_wanted(volume: &Volume) -> bool {
    let claim = volume.spec.claim_ref.as_ref();
    volume.reclaim_policy() == ReclaimPolicy::Recycle
        && matches!(volume.phase(), VolumePhase::Released | VolumePhase::Failed)
        && claim.is_some_and(|claim| !claim.uid.is_empty())
}

/// Whether a pod of the recycler's may be emptying its volume.
pub fn is_at_work(pod: &Pod) -> bool {
    noted_volume(pod).is_some() && !is_gated(pod) && !pod.is_finished()
}

/// Whether a volume may be emptied by somebody: so it is until it says otherwise, since what was
/// placed before it was taken back is on record, and it may be new under the name of one that is.
pub fn may_be_emptied(volume: &Volume, pod: Option<&Pod>) -> bool {
    volume.metadata.annotation(well_known::RECYCLER).is_some() || pod.is_some_and(is_at_work)
}

/// Decides what a recycling needs next.
pub fn decide(view: &View) -> Step {
    let volume = &*view.volume;
    let Some(source) = source(volume, &view.config) else {
        let why = "No recycler plugin found for the volume!";
        return Step::Fail(News::warning("VolumeFailedRecycle", why));
    };
    let recorded = volume.metadata.annotation(well_known::RECYCLER);
    let Some(pod) = &view.pod else {
        return match view.rest {
            _ if !view.users.is_empty() => in_use(&view.users),
            Some(rest) => Step::Rest(rest),
            None => Step::Scrub,
        };
    };
    if pod.metadata.is_deleting() {
        // Its name must be free, and what it does must have ended.
        return Step::LetGo;
    }
    if recorded != Some(pod.metadata.uid.as_str()) {
        // Whoever made it a moment ago records it; nobody else does.
        return Step::Dismiss;
    }
    if is_gated(pod) {
        return Step::OpenGate;
    }
    match pod.phase() {
        PodPhase::Succeeded => Step::Done,
        PodPhase::Failed => Step::FailAndDelete(failed(&why_it_failed(pod, source.scrubbing))),
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => {
            let most = source.patience(volume);
            match most.checked_sub(view.age) {
                Some(rest) if !rest.is_zero() => Step::Wait(rest),
                _ => Step::FailAndDelete(failed("recycler pod did not end in time")),
            }
        }
    }
}

fn why_it_failed(pod: &Pod, scrubbing: &Scrubbing) -> String {
    if !pod.status.message.is_empty() {
        return pod.status.message.clone();
    }
    let containers = pod.status.container_statuses.iter();
    let ended = containers
        .filter_map(|c| c.state.terminated.as_ref())
        .next();
    match ended {
        Some(end) if !end.message.trim().is_empty() => end.message.trim().to_owned(),
        // Of a pod of somebody else's we don't know what it means by that.
        Some(end) if end.exit_code == MOUNTED_INSIDE && scrubbing.pod == default_pod() => {
            "something is mounted inside the volume; unmount it".to_owned()
        }
        Some(end) => format!("the recycler pod ended with exit code {}", end.exit_code),
        None => "pod failed, pod.Status.Message unknown".to_owned(),
    }
}

/// Why a recycler's pod has no node yet, as its scheduler says it on the pod.
pub fn why_unplaced(pod: &Pod) -> Option<&str> {
    let mut conditions = pod.status.conditions.iter();
    let placed = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    // A gate is ours, and about to be opened.
    let told = placed.reason == "Unschedulable" && !placed.message.is_empty();
    told.then_some(placed.message.as_str())
}

fn in_use(users: &[String]) -> Step {
    let why = format!("Volume is used by pods: {}", users.join(","));
    Step::InUse(News::normal("VolumeFailedRecycle", why))
}

fn failed(why: &str) -> News {
    let why = format!("Recycle failed: failed to recycle volume: {why}");
    News::warning("VolumeFailedRecycle", why)
}

/// What a pod sees of something that can be scrubbed, and how that is done.
struct Source<'c> {
    volume: Value,
    scrubbing: &'c Scrubbing,
}

fn source<'c>(volume: &Volume, config: &'c Config) -> Option<Source<'c>> {
    let spec = &volume.spec;
    let (volume, scrubbing) = match (&spec.host_path, &spec.nfs) {
        (Some(folder), _) => (
            json!({"hostPath": {"path": folder.path}}),
            &config.host_path,
        ),
        (None, Some(nfs)) => {
            let source = json!({"server": nfs.server, "path": nfs.path});
            (json!({ "nfs": source }), &config.nfs)
        }
        (None, None) => return None,
    };
    Some(Source { volume, scrubbing })
}

impl Source<'_> {
    /// Seconds that a pod may run: so many for each gibibyte, and never less than the least.
    fn deadline(&self, volume: &Volume) -> i64 {
        let gibibytes = volume.capacity_bytes() >> 30;
        let all = gibibytes.saturating_mul(self.scrubbing.per_gibibyte.into());
        all.max(self.scrubbing.least.into()).clamp(1, LONGEST_RUN)
    }

    /// How long the pod is waited for: what it may run, and a while to be placed and started. The
    /// node ends it at its deadline; this is for one that nobody ends, or nobody starts.
    fn patience(&self, volume: &Volume) -> Duration {
        const STARTING: u64 = 300;
        Duration::from_secs(self.deadline(volume).unsigned_abs() + STARTING)
    }
}

/// How the script of [`default_pod`] ends where something is mounted inside the volume.
const MOUNTED_INSIDE: i32 = 32;

/// The pod that scrubs where nothing else was said: any image with `sh`, `find`, `ls` and `test`.
/// What is mounted inside the volume is not the volume: it is left alone, and told as a failure,
/// by the termination message where the node reads that, and by the exit code.
pub fn default_pod() -> Value {
    let script = format!(
        r#"test -e /scrub && find /scrub -xdev -mindepth 1 -delete && test -z "$(ls -A /scrub)" && exit 0
while read -r _ _ _ _ at _; do case "$at" in /scrub/*)
  if test -e /dev/termination-log; then
    echo "${{at#/scrub/}} is mounted inside the volume; unmount it" > /dev/termination-log
  fi
  exit {MOUNTED_INSIDE};;
esac; done < /proc/self/mountinfo
exit 1"#
    );
    json!({"spec": {
        "restartPolicy": "Never",
        "volumes": [{"name": "vol"}],
        "containers": [{
            "name": "pv-recycler",
            "image": "debian:stable-slim",
            "command": ["/bin/sh"],
            "args": ["-c", script],
            "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
        }],
    }})
}

/// A pod of a person's, as a pattern for those that scrub; or what is wrong with it.
pub fn pattern(pod: &Value) -> Result<Value, String> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    if text("/kind") != Some("Pod") || text("/apiVersion") != Some("v1") {
        return Err("it is no Pod of v1".to_owned());
    }
    if let Some(other) = text("/metadata/namespace").filter(|name| *name != NAMESPACE) {
        return Err(format!(
            "its namespace is {other:?}; recyclers run in {NAMESPACE:?}: leave it out"
        ));
    }
    if text("/spec/volumes/0/name").is_none() {
        return Err(
            "spec.volumes must have one volume at least: the first is replaced by the one that is \
             scrubbed"
                .to_owned(),
        );
    }
    let kept = |name: &str| pod["metadata"].get(name).cloned().unwrap_or_default();
    Ok(json!({
        "metadata": {"labels": kept("labels"), "annotations": kept("annotations")},
        "spec": pod["spec"],
    }))
}

/// The pod that scrubs a volume, if it can be scrubbed.
pub fn scrubber(volume: &Volume, config: &Config) -> Option<Value> {
    let source = source(volume, config)?;
    let key = pod_key(&volume.metadata.name);
    let mut pod = source.scrubbing.pod.clone();
    pod["metadata"]["name"] = json!(key.name);
    pod["metadata"]["namespace"] = json!(key.namespace);
    pod["metadata"]["annotations"][well_known::RECYCLER] = json!(volume.metadata.name);
    let deadline = source.deadline(volume);
    let spec = &mut pod["spec"];
    spec["schedulingGates"] = json!([{"name": well_known::RECYCLER}]);
    spec["activeDeadlineSeconds"] = json!(deadline);
    let name = spec["volumes"][0]["name"].take();
    spec["volumes"][0] = source.volume;
    spec["volumes"][0]["name"] = name;
    // A folder of another node is another folder.
    let reach = volume.spec.node_affinity.as_ref();
    if let Some(required) = reach.and_then(|reach| reach.required.as_ref()) {
        spec["affinity"]["nodeAffinity"] = json!({
            "requiredDuringSchedulingIgnoredDuringExecution": required,
        });
    }
    Some(pod)
}

#[cfg(test)]
mod tests;

//! How full the node's volumes are: the kubelet's `/stats/summary` and `kubelet_volume_stats_*`.
//!
//! Nothing is measured unless somebody asks, and no volume more often than [`FRESH`]. Volumes are
//! asked all at once, each where it can hang by itself: whoever asks gets an answer in time, with
//! what was last known of a volume that does not reply.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orlop_host::tree::{Taken, disk_usage};
use orlop_host::{Occupant, Place};
use orlop_model::Pod;
use orlop_runtime::{Clock, EventType, Recorder};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::layout::PodUid;
use crate::pods::{Place as PodPlace, Pods};
use crate::volumes::Volumes;
use crate::workers::{Errand, Workers};

/// What is younger is not measured again.
const FRESH: SignedDuration = SignedDuration::from_secs(15);
/// Measuring takes no more than this part of anybody's time.
const SHARE: i32 = 50;
/// Whoever asks waits no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often drivers that tell of their volumes' health are asked.
const HEALTH: Duration = Duration::from_secs(60);

/// How full a volume is, in the kubelet's words; what nobody knows is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes_used: Option<u64>,
}

/// How well a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) abnormal: bool,
    pub(crate) message: String,
}

/// What is known of a volume at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) usage: Usage,
    pub(crate) condition: Option<Condition>,
}

/// What the measuring needs.
pub(crate) struct Parts {
    pub(crate) node_name: String,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) workers: Workers,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) pods: Arc<Pods>,
}

/// What is known of all volumes.
pub(crate) struct Stats {
    parts: Parts,
    started: Timestamp,
    known: Mutex<BTreeMap<Which, Known>>,
}

/// A volume of a pod, by its name there.
type Which = (PodUid, String);

#[derive(Default)]
struct Known {
    last: Option<(Timestamp, Measured)>,
    /// When it was last asked; an answer may be outstanding.
    asked: Option<Timestamp>,
    busy: bool,
    /// How long the last answer took.
    took: SignedDuration,
}

impl Stats {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            started: parts.clock.now(),
            parts,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Which, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks drivers that tell of it how well their volumes are, for as long as there are such.
    pub(crate) async fn watch_health(self: Arc<Self>) {
        loop {
            while !self.parts.volumes.any_tells_health().await {
                self.parts.volumes.arrival.notified().await;
            }
            self.refresh().await;
            tokio::time::sleep(HEALTH).await;
        }
    }

    /// Measures what is not known well enough.
    async fn refresh(self: &Arc<Self>) {
        let now = self.parts.clock.now();
        let mut asked = JoinSet::new();
        let mut present = BTreeSet::new();
        for placed in self.parts.pods.placed() {
            for (name, place) in placed.volumes {
                let which = (placed.uid.clone(), name);
                present.insert(which.clone());
                if self.takes(&which, now) {
                    let (stats, pod) = (self.clone(), placed.pod.clone());
                    asked.spawn(async move { stats.ask(which, &pod, &place).await });
                }
            }
        }
        self.known()
            .retain(|which, known| present.contains(which) || known.busy);
        let all = async { while asked.join_next().await.is_some() {} };
        let _late_ones_are_known_next_time = tokio::time::timeout(PATIENCE, all).await;
        asked.detach_all();
    }

    /// Whether a volume is to be asked now; then it counts as asked.
    fn takes(&self, which: &Which, now: Timestamp) -> bool {
        let mut known = self.known();
        let known = known.entry(which.clone()).or_default();
        // What takes long to measure is measured rarely.
        let fresh = FRESH.max(known.took.saturating_mul(SHARE));
        let fresh = known.asked.is_some_and(|at| now.duration_since(at) < fresh);
        if known.busy || fresh {
            return false;
        }
        (known.busy, known.asked) = (true, Some(now));
        true
    }

    async fn ask(&self, which: Which, pod: &Pod, place: &PodPlace) {
        let (uid, name) = &which;
        let now = self.parts.clock.now();
        let measured = match place {
            PodPlace::Csi { key, .. } => self.parts.volumes.measure(key, uid).await,
            PodPlace::At(path) => self.look_at(uid, path).await,
        };
        let (began, now) = (now, self.parts.clock.now());
        let mut all = self.known();
        let known = all.entry(which.clone()).or_default();
        known.busy = false;
        known.took = now.duration_since(began);
        let Some(measured) = measured else { return };
        let abnormal = |measured: &Measured| {
            let condition = measured.condition.clone();
            condition.filter(|condition| condition.abnormal)
        };
        let (before, after) = (
            known.last.as_ref().and_then(|(_, last)| abnormal(last)),
            abnormal(&measured),
        );
        known.last = Some((now, measured));
        if let Some(condition) = after.filter(|after| Some(after) != before.as_ref()) {
            let message = format!("Volume {name}: {}", condition.message);
            let reason = "VolumeConditionAbnormal";
            self.parts
                .recorder
                .say(pod, EventType::Warning, reason, message);
        }
    }

    async fn look_at(&self, pod: &PodUid, path: &Path) -> Option<Measured> {
        let seen = Arc::new(AtomicU64::new(0));
        let errand = Errand {
            volume: path.to_string_lossy().into_owned(),
            doing: "ask for its usage",
            patience: PATIENCE,
            pulse: {
                let seen = seen.clone();
                Some(Arc::new(move || seen.load(Ordering::Relaxed)))
            },
            back: Box::new(|| {}),
        };
        // Not what lies elsewhere on the host, however large that is.
        let ours = self.parts.pods.folder(pod);
        let (path, walks) = (path.to_owned(), path.starts_with(ours));
        let work = move || look(&path, walks.then_some(&*seen));
        let looked = self.parts.workers.run(errand, work).await;
        let usage = looked.ok()?.ok()?;
        Some(Measured {
            usage,
            condition: None,
        })
    }

    /// The kubelet's `/stats/summary`, as far as it is about volumes.
    pub(crate) async fn summary(self: &Arc<Self>) -> Value {
        self.refresh().await;
        let mut pods = Vec::new();
        for placed in self.parts.pods.placed() {
            let known = self.known();
            let volumes = placed.volumes.iter().filter_map(|(name, _)| {
                let known = known.get(&(placed.uid.clone(), name.clone()))?;
                let (at, measured) = known.last.as_ref()?;
                let mut entry = serde_json::to_value(&measured.usage).ok()?;
                entry["time"] = json!(at.to_string());
                entry["name"] = json!(name);
                if let Some((namespace, claim)) = claim_of(&placed.pod, name) {
                    entry["pvcRef"] = json!({"name": claim, "namespace": namespace});
                }
                if let Some(condition) = &measured.condition {
                    entry["volumeHealthStats"] = json!({"abnormal": condition.abnormal});
                }
                Some(entry)
            });
            let meta = &placed.pod.metadata;
            pods.push(json!({
                "podRef": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
                "startTime": placed.pod.status.start_time.map(|at| at.to_string()),
                "volume": volumes.collect::<Vec<_>>(),
            }));
        }
        let node = &self.parts.node_name;
        json!({
            "node": {"nodeName": node, "startTime": self.started.to_string()},
            "pods": pods,
        })
    }

    /// The kubelet's `kubelet_volume_stats_*`, in Prometheus' text form.
    pub(crate) async fn metrics(self: &Arc<Self>) -> String {
        self.refresh().await;
        let mut claims = BTreeMap::new();
        for placed in self.parts.pods.placed() {
            for (name, _) in &placed.volumes {
                let known = self.known();
                let known = known.get(&(placed.uid.clone(), name.clone()));
                if let Some((_, measured)) = known.and_then(|known| known.last.clone())
                    && let Some(claim) = claim_of(&placed.pod, name)
                {
                    claims.insert(claim, measured);
                }
            }
        }
        text(&claims)
    }
}

/// The room where a folder is, and how much of it the folder takes: all that is taken, if it is a
/// mount of its own, or what a walk finds, if there may be one.
fn look(path: &Path, walk: Option<&AtomicU64>) -> io::Result<Usage> {
    let own = matches!(Place::at(path)?.look()?, Occupant::Mounted { .. });
    let room = orlop_host::filesystem::usage(path)?;
    let taken = match walk {
        _ if own => Some(Taken {
            bytes: room.used_bytes,
            inodes: room.total_inodes.saturating_sub(room.free_inodes),
        }),
        Some(seen) => Some(disk_usage(path, seen)?),
        None => None,
    };
    Ok(Usage {
        available_bytes: Some(room.available_bytes),
        capacity_bytes: Some(room.total_bytes),
        used_bytes: taken.map(|taken| taken.bytes),
        inodes_free: Some(room.free_inodes),
        inodes: Some(room.total_inodes),
        inodes_used: taken.map(|taken| taken.inodes),
    })
}

/// The claim behind a pod's volume, as namespace and name.
fn claim_of(pod: &Pod, volume: &str) -> Option<(String, String)> {
    let mut claims = pod.claims();
    let (_, key) = claims.find(|(of, _)| of.name == volume)?;
    Some((key.namespace, key.name))
}

/// The metrics of claims.
fn text(claims: &BTreeMap<(String, String), Measured>) -> String {
    type Get = fn(&Measured) -> Option<u64>;
    const ALL: [(&str, &str, Get); 7] = [
        (
            "available_bytes",
            "Number of available bytes in the volume",
            |m| m.usage.available_bytes,
        ),
        ("capacity_bytes", "Capacity in bytes of the volume", |m| {
            m.usage.capacity_bytes
        }),
        (
            "health_status_abnormal",
            "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
            |m| m.condition.as_ref().map(|c| u64::from(c.abnormal)),
        ),
        ("inodes", "Maximum number of inodes in the volume", |m| {
            m.usage.inodes
        }),
        ("inodes_free", "Number of free inodes in the volume", |m| {
            m.usage.inodes_free
        }),
        ("inodes_used", "Number of used inodes in the volume", |m| {
            m.usage.inodes_used
        }),
        ("used_bytes", "Number of used bytes in the volume", |m| {
            m.usage.used_bytes
        }),
    ];
    let mut text = String::new();
    for (name, help, get) in ALL {
        let mut samples = claims
            .iter()
            .filter_map(|(claim, measured)| Some((claim, get(measured)?)))
            .peekable();
        if samples.peek().is_none() {
            continue;
        }
        let name = format!("kubelet_volume_stats_{name}");
        // Writing into a string can't fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for ((namespace, claim), value) in samples {
            // Names of objects need no escapes.
            let _ = writeln!(
                text,
                "{name}{{namespace=\"{namespace}\",persistentvolumeclaim=\"{claim}\"}} {value}"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_kubelets_names_and_only_what_is_known() {
        let measured = Measured {
            usage: Usage {
                capacity_bytes: Some(1000),
                ..Usage::default()
            },
            condition: Some(Condition {
                abnormal: true,
                message: "disk on fire".into(),
            }),
        };
        let claims = BTreeMap::from([(("ns".to_owned(), "data".to_owned()), measured)]);
        let text = text(&claims);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let labels = "{namespace=\"ns\",persistentvolumeclaim=\"data\"}";
        assert_eq!(
            lines,
            [
                format!("kubelet_volume_stats_capacity_bytes{labels} 1000"),
                format!("kubelet_volume_stats_health_status_abnormal{labels} 1"),
            ]
        );
        assert!(text.contains("# TYPE kubelet_volume_stats_capacity_bytes gauge\n"));
    }
}

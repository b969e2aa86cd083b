//! Holds a pod's emptyDirs on disk to their limits. One in memory is held to it by the kernel.
//!
//! A file system can't tell when a folder has grown, so it is measured from time to time: rarely
//! where that takes long, so that it is never more than a small part of anybody's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use orlop_model::{Pod, Quantity};
use orlop_runtime::EventType;
use tracing::warn;

use super::Pods;
use super::record::Record;
use crate::layout::PodUid;
use crate::plugins::Source;
use crate::words::chain;
use crate::workers::Errand;

/// How soon a folder is measured again: no sooner, and no later.
const SOONEST: Duration = Duration::from_secs(2);
const LATEST: Duration = Duration::from_mins(1);
/// And so many times as long as it took.
const SHARE: u32 = 200;

/// The emptyDirs of a pod that are to be measured, with their limits.
fn limited(pod: &Pod) -> Vec<(&str, &Quantity)> {
    let limit = |volume| match Source::of(volume) {
        Source::EmptyDir(source) if source.medium.is_empty() => {
            let limit = source.size_limit.as_ref();
            limit.filter(|limit| limit.value() > 0)
        }
        _ => None,
    };
    let volumes = pod.spec.volumes.iter();
    volumes
        .filter_map(|volume| Some((volume.name.as_str(), limit(volume)?)))
        .collect()
}

impl Pods {
    /// Begins to measure, where there is something to measure.
    pub(super) fn begin_measuring(&self, record: &mut Record, pod: &Pod) {
        if record.measure_at.is_none() && !limited(pod).is_empty() {
            let soon = SignedDuration::try_from(SOONEST).unwrap_or_default();
            record.measure_at = self.parts.clock.now().checked_add(soon).ok();
        }
    }

    /// Measures a pod's emptyDirs; one that is too large is the end of the pod.
    pub(super) async fn measure(&self, uid: &PodUid, pod: &Pod) {
        let began = Instant::now();
        let mut over = None;
        for (name, limit) in limited(pod) {
            let folder = self.parts.layout.volume(uid, "empty-dir", name);
            let seen = Arc::new(AtomicU64::new(0));
            let errand = Errand {
                volume: folder.to_string_lossy().into_owned(),
                doing: "measure an emptyDir",
                patience: self.parts.patience,
                pulse: {
                    let seen = seen.clone();
                    Some(Arc::new(move || seen.load(Ordering::Relaxed)))
                },
                back: Box::new(|| {}),
            };
            let work = move || orlop_host::tree::disk_usage(&folder, &seen);
            match self.parts.workers.run(errand, work).await {
                Ok(Ok(used)) if i64::try_from(used.bytes).unwrap_or(i64::MAX) > limit.value() => {
                    // The kubelet's words.
                    over = Some(format!(
                        "Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "
                    ));
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    warn!(pod_uid = %uid, volume = name, error = chain(&error), "could not measure a volume");
                }
                Err(error) => {
                    warn!(pod_uid = %uid, volume = name, %error, "could not measure a volume")
                }
            }
        }
        let pause = (began.elapsed() * SHARE).clamp(SOONEST, LATEST);
        let pause = SignedDuration::try_from(pause).unwrap_or_default();
        if let Some(message) = &over {
            let (warning, reason) = (EventType::Warning, "Evicted");
            self.parts
                .recorder
                .say(pod, warning, reason, message.clone());
        }
        if let Some(record) = self.records().get_mut(uid) {
            record.measure_at = self.parts.clock.now().checked_add(pause).ok();
            record.evicted = over;
        }
    }
}

//! What is timed and what is not: the original's cases 5-5 to 5-8 and 12-1 to 12-4.

use std::{sync::Arc, time::Duration};

use orlop_model::ReclaimPolicy;
use orlop_runtime::Process;

use super::*;
use crate::fixtures::{bound, class, unanswered};

struct Scene {
    process: Process,
    classes: Cache<StorageClass>,
    metrics: BinderMetrics,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.process.kill();
    }
}

impl Scene {
    fn set() -> Self {
        let process = unanswered();
        let classes = process.cache::<StorageClass>();
        let mut made_by = class("c", "Immediate");
        made_by.provisioner = "example.com/vendor-csi".into();
        made_by.metadata.resource_version = "1".into();
        classes.absorb(made_by);
        Self {
            metrics: BinderMetrics::register(&process.metrics, process.cache(), process.cache()),
            classes,
            process,
        }
    }

    fn claim(&self, because: claim::Because, result: &Result<(), ApiError>) {
        let decision = claim::Decision {
            because,
            volume: None,
            steps: Vec::new(),
        };
        self.metrics.claim_turn(&key(), &decision, result);
    }

    fn volume(&self, volume: &Volume, because: volume::Because) {
        let decision = volume::Decision {
            because,
            steps: Vec::new(),
        };
        self.metrics.volume_turn(volume, &decision, &self.classes);
    }

    /// How many operations of a kind were timed, and how many failed.
    fn counted(&self, operation: &str) -> (u64, u64) {
        let text = self.process.metrics.render();
        let labels =
            format!("{{plugin_name=\"example.com/vendor-csi\",operation_name=\"{operation}\"}} ");
        let read = |name: &str| {
            let line = format!("{name}{labels}");
            let found = text.lines().find_map(|l| l.strip_prefix(&line));
            found.map_or(0, |count| count.parse().unwrap())
        };
        let failed = read("volume_operation_errors_total");
        assert_eq!(failed, read("volume_operation_total_errors"));
        (read("volume_operation_total_seconds_count"), failed)
    }
}

fn key() -> Key {
    Key::namespaced("ns", "data")
}

fn provisioning() -> claim::Because {
    claim::Because::Provisioning("example.com/vendor-csi".into())
}

fn refused() -> Result<(), ApiError> {
    Err(ApiError {
        verb: "patch",
        what: key().to_string(),
        refusal: orlop_runtime::Refusal::Conflict("changed".into()),
    })
}

/// A volume that was made for a claim, to be deleted after it.
fn made() -> Volume {
    let (_, mut volume) = bound("data", "vol");
    volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
    volume
}

#[tokio::test(start_paused = true)]
async fn a_provisioning_is_timed_from_the_first_wish_until_the_claim_is_bound() {
    let scene = Scene::set();
    scene.claim(provisioning(), &Ok(()));
    tokio::time::advance(Duration::from_secs(7)).await;
    scene.claim(provisioning(), &Ok(()));
    assert_eq!(scene.counted("provision"), (0, 0));
    // The bind fails once, and is under way still.
    scene.claim(claim::Because::Fits, &refused());
    assert_eq!(scene.counted("provision"), (0, 1));
    scene.claim(claim::Because::Fits, &Ok(()));
    assert_eq!(scene.counted("provision"), (1, 1));
    let text = scene.process.metrics.render();
    let sum = "volume_operation_total_seconds_sum{plugin_name=\"example.com/vendor-csi\",\
               operation_name=\"provision\"} 7";
    assert!(text.contains(sum), "{text}");
    // A bound claim's later turns are nothing new.
    scene.claim(claim::Because::Fits, &Ok(()));
    assert_eq!(scene.counted("provision"), (1, 1));
}

#[tokio::test]
async fn a_claim_that_goes_while_it_waits_is_timed_no_more() {
    // 5-8: the next of its name begins anew, and one that finds a volume was never provisioned.
    let scene = Scene::set();
    scene.claim(provisioning(), &Ok(()));
    scene.metrics.claim_gone(&key());
    scene.claim(claim::Because::Fits, &Ok(()));
    scene.claim(claim::Because::NothingFits, &refused());
    assert_eq!(scene.counted("provision"), (0, 0));
}

#[tokio::test]
async fn a_deletion_is_timed_from_the_release_until_the_volume_is_gone() {
    // 5-6, then 5-5.
    let scene = Scene::set();
    scene.volume(&made(), volume::Because::Abandoned);
    assert_eq!(scene.counted("delete"), (0, 0));
    let gone = Arc::new(made());
    scene.metrics.volume_changed(&Change::Deleted(&gone));
    assert_eq!(scene.counted("delete"), (1, 0));
}

#[tokio::test]
async fn a_volume_that_a_person_deletes_or_keeps_is_not_timed() {
    // 5-7, and a volume that is retained.
    let scene = Scene::set();
    scene.volume(&made(), volume::Because::Owned);
    let gone = Arc::new(made());
    scene.metrics.volume_changed(&Change::Deleted(&gone));
    let mut kept = made();
    kept.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Retain);
    scene.volume(&kept, volume::Because::Abandoned);
    let gone = Arc::new(kept);
    scene.metrics.volume_changed(&Change::Deleted(&gone));
    assert_eq!(scene.counted("delete"), (0, 0));
}

//! A claim that grows, with a fault at every call of every process in turn.

use std::time::Duration;

use orlop_csi::{Driver, Method, proto};
use orlop_model::{Claim, Key, Kind as _, Quantity, Volume};
use orlop_runtime::{Backoff, Outcome, Patch, Process, Queue, work};
use orlop_sim::driver::Trouble;
use orlop_sim::faults::Plan;
use orlop_sim::run::{Extent, Scenario, run, sweep};
use orlop_sim::strikes::{crashes_at_effects, errors};
use serde_json::json;
use tonic::Code;

const SEED: u64 = 21;

/// Grows under a pod, and once more; the claim stays.
fn online() -> Scenario {
    Scenario::new("growth under a pod", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.resize("data", "2Gi").await;
            user.until_size("data", "2Gi").await?;
            user.resize("data", "3Gi").await;
            user.until_size("data", "3Gi").await?;
            user.delete_pod("web").await;
            user.until_nothing_attached().await
        })
    })
}

/// Grows while nobody uses it; the node's part waits for a pod.
fn offline() -> Scenario {
    Scenario::new("growth before a pod", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.resize("data", "2Gi").await;
            user.pod("web", "data").await;
            user.until_size("data", "2Gi").await?;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_nothing_attached().await
        })
    })
}

#[test]
fn growth_under_a_pod_survives_a_crash_at_every_effect() {
    let sweep = sweep(&online(), SEED, crashes_at_effects, Extent::Sample(32));
    sweep.must_hold();
    let end = &sweep.reference.end;
    let bytes = (3i64 << 30).to_string();
    assert!(
        end.contains(&format!("{bytes} bytes, {bytes} of files")),
        "{end}"
    );
    assert!(end.contains(&format!("({bytes}, None)")), "{end}");
}

#[test]
fn growth_before_a_pod_survives_a_crash_at_every_effect() {
    sweep(&offline(), SEED, crashes_at_effects, Extent::Sample(16)).must_hold();
}

#[test]
fn growth_survives_an_error_at_every_call() {
    sweep(&online(), SEED + 1, errors, Extent::Sample(12)).must_hold();
}

#[test]
fn every_answer_to_growth_may_be_lost() {
    let calm = run(&online(), &Plan::calm(), SEED);
    for method in [Method::ControllerExpandVolume, Method::NodeExpandVolume] {
        for trouble in [
            Trouble::DoneButAnswered(Code::DeadlineExceeded),
            Trouble::DoneButAnswered(Code::Internal),
            Trouble::Refused(Code::Internal),
            Trouble::Refused(Code::Unavailable),
            Trouble::Refused(Code::OutOfRange),
            Trouble::DoneLate(Duration::from_secs(200)),
        ] {
            let scenario = online().trouble(method, 1, trouble);
            let report = run(&scenario, &Plan::calm(), SEED);
            let complaints = report.complaints(&calm.end);
            assert!(
                complaints.is_empty(),
                "{method} {trouble:?}: {complaints:#?}\n{}",
                report.trace
            );
        }
    }
}

#[test]
fn a_size_that_can_not_be_is_taken_back() {
    let mut scenario = Scenario::new("second thought", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.resize("data", "9Gi").await;
            let key = Key::namespaced("default", "data");
            user.until("it is told", move |objects| {
                let status = objects.claims.get(&key).and_then(Claim::resize_status);
                status == Some(orlop_model::ResizeStatus::ControllerResizeInfeasible)
            })
            .await?;
            user.resize("data", "2Gi").await;
            user.until_size("data", "2Gi").await?;
            user.delete_pod("web").await;
            user.until_nothing_attached().await
        })
    });
    scenario = scenario.trouble(
        Method::ControllerExpandVolume,
        1,
        Trouble::Refused(Code::OutOfRange),
    );
    let report = run(&scenario, &Plan::calm(), SEED);
    assert_eq!(
        report.complaints(&report.end),
        Vec::<String>::new(),
        "{}",
        report.trace
    );
    let bytes = (2i64 << 30).to_string();
    assert!(
        report.end.contains(&format!("{bytes} bytes")),
        "{}",
        report.end
    );
}

#[test]
fn a_resizer_that_records_nothing_and_believes_too_early_is_found() {
    let report = run(&online().resizer(careless), &Plan::calm(), SEED);
    let rules: Vec<&str> = report.breaches.iter().map(|breach| breach.rule).collect();
    assert!(rules.contains(&"I14"), "no intent: {rules:?}");
    assert!(rules.contains(&"I13"), "no node's part: {rules:?}");
}

/// A resizer that asks first, and says that all is done before the node did its part.
fn careless(process: &Process, driver: Driver) {
    let on = process.clone();
    process.spawn("careless", async move {
        let queue = Queue::new(Backoff::default());
        let (claims, volumes) = (on.cache::<Claim>(), on.cache::<Volume>());
        let wake = queue.clone();
        claims.subscribe(move |change| wake.add(change.object().key()));
        let turn = async |key: Key| {
            let claim = claims
                .get(&key)
                .filter(|c| c.requested_bytes() > c.capacity_bytes());
            let Some(claim) = claim else {
                return Outcome::Done;
            };
            let Some(volume) = volumes.named(&claim.spec.volume_name) else {
                return Outcome::Done;
            };
            let handle = volume
                .spec
                .csi
                .as_ref()
                .map(|csi| csi.volume_handle.clone());
            let request = proto::ControllerExpandVolumeRequest {
                volume_id: handle.unwrap_or_default(),
                capacity_range: Some(proto::CapacityRange {
                    required_bytes: claim.requested_bytes(),
                    limit_bytes: 0,
                }),
                ..Default::default()
            };
            if driver.controller_expand_volume(request).await.is_err() {
                return Outcome::Retry;
            }
            let size = json!({"storage": Quantity::bytes(claim.requested_bytes())});
            let done = Patch::Merge(json!({"status": {"capacity": size}}));
            match on.cluster.patch_status::<Claim>(&key, &done).await {
                Ok(_) => Outcome::Done,
                Err(_) => Outcome::Retry,
            }
        };
        work(queue, 1, turn).await;
    });
}

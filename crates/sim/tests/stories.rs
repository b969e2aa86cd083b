//! Other stories, with a crash on either side of every effect.

use std::time::Duration;

use orlop_csi::Method;
use orlop_model::Key;
use orlop_sim::driver::Trouble;
use orlop_sim::faults::Plan;
use orlop_sim::run::{Extent, Scenario, run, sweep};
use orlop_sim::strikes::crashes_at_effects;
use tonic::Code;

const SEED: u64 = 11;
/// Runs per story by default.
const SOME: Extent = Extent::Sample(12);

#[test]
fn a_kept_volume_stays_released_with_its_data() {
    let scenario = Scenario::new("retain", |user| {
        Box::pin(async move {
            user.class("Immediate", "Retain").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.delete_claim("data").await;
            user.until("the volume is released", |objects| {
                let mut volumes = objects.volumes.values();
                objects.claims.is_empty()
                    && volumes.all(|v| v.phase() == orlop_model::VolumePhase::Released)
            })
            .await
        })
    });
    let sweep = sweep(&scenario, SEED, crashes_at_effects, SOME);
    sweep.must_hold();
    let end = &sweep.reference.end;
    assert!(end.contains("Released"), "{end}");
    assert!(end.contains("backend vol-pvc-"), "{end}");
}

#[test]
fn a_second_pod_finds_the_same_volume() {
    let scenario = Scenario::new("pod again", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_pod_gone("web").await?;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            assert_eq!(user.backend_volumes(), 1, "the same volume");
            user.delete_pod("web").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    });
    sweep(&scenario, SEED, crashes_at_effects, SOME).must_hold();
}

#[test]
fn two_pods_on_two_nodes_do_not_get_in_each_others_way() {
    let scenario = Scenario::new("two pods", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            for (pod, claim) in [("one", "first"), ("two", "second")] {
                user.claim(claim).await;
                user.pod(pod, claim).await;
            }
            user.until_running("one").await?;
            user.until_running("two").await?;
            for (pod, claim) in [("one", "first"), ("two", "second")] {
                user.delete_claim(claim).await;
                user.delete_pod(pod).await;
            }
            user.until_all_gone().await
        })
    })
    .nodes(2);
    sweep(&scenario, SEED, crashes_at_effects, SOME).must_hold();
}

/// The claim is deleted as soon as the provisioner has put its intent on record.
fn deleted_meanwhile(name: &'static str) -> Scenario {
    Scenario::new(name, |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until("provisioning begins", |objects| {
                let claim = objects.claims.get(&Key::namespaced("default", "data"));
                claim.is_some_and(|claim| {
                    claim
                        .metadata
                        .has_finalizer(orlop_model::well_known::PROVISIONING)
                })
            })
            .await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

#[test]
fn a_claim_deleted_while_its_volume_is_made_leaves_nothing() {
    let scenario = deleted_meanwhile("deleted meanwhile");
    let sweep = sweep(&scenario, SEED, crashes_at_effects, SOME);
    sweep.must_hold();
    assert_eq!(sweep.reference.end, "");
}

#[test]
fn a_claim_deleted_while_the_answer_is_lost_leaves_nothing() {
    for code in [Code::DeadlineExceeded, Code::Unavailable] {
        let scenario = deleted_meanwhile("answer lost").trouble(
            Method::CreateVolume,
            1,
            Trouble::DoneButAnswered(code),
        );
        let sweep = sweep(&scenario, SEED, crashes_at_effects, SOME);
        sweep.must_hold();
        assert_eq!(sweep.reference.end, "");
    }
}

#[test]
fn a_claim_deleted_before_the_volume_is_made_late_leaves_nothing() {
    let late = Trouble::DoneLate(Duration::from_secs(15));
    let scenario = deleted_meanwhile("made late").trouble(Method::CreateVolume, 1, late);
    let sweep = sweep(&scenario, SEED, crashes_at_effects, SOME);
    sweep.must_hold();
    assert_eq!(sweep.reference.end, "");
}

#[test]
fn every_answer_of_the_driver_may_be_lost_once() {
    let whole_life = Scenario::new("lost answers", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.delete_claim("data").await;
            user.delete_pod("web").await;
            user.until_all_gone().await
        })
    });
    for method in [
        Method::CreateVolume,
        Method::ControllerPublishVolume,
        Method::NodeStageVolume,
        Method::NodePublishVolume,
        Method::NodeUnpublishVolume,
        Method::NodeUnstageVolume,
        Method::ControllerUnpublishVolume,
        Method::DeleteVolume,
    ] {
        for trouble in [
            Trouble::DoneButAnswered(Code::DeadlineExceeded),
            Trouble::DoneButAnswered(Code::Internal),
            Trouble::Refused(Code::Internal),
            Trouble::DoneLate(Duration::from_secs(200)),
        ] {
            let scenario = whole_life.clone().trouble(method, 1, trouble);
            let report = run(&scenario, &Plan::calm(), SEED);
            let complaints = report.complaints("");
            assert!(
                complaints.is_empty(),
                "{method} {trouble:?}: {complaints:#?}\n{}",
                report.trace
            );
        }
    }
}

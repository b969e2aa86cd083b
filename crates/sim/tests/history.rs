//! What went wrong in the originals' history between several processes, each as a story that
//! must never be again. Those of one role alone stand in that role's crate.

use std::time::Duration;

use orlop_csi::Method;
use orlop_sim::driver::Trouble;
use orlop_sim::faults::{Answer, Fault, Member, Phase, Plan};
use orlop_sim::run::{Report, Scenario, run};
use orlop_sim::wire::{Call, Nature};
use tonic::Code;

const SEED: u64 = 91;

fn must_be(report: &Report, end: &str) {
    let complaints = report.complaints(end);
    assert!(
        complaints.is_empty(),
        "{}: {complaints:#?}\n{}",
        report.replay,
        report.trace
    );
}

fn calls_of<'a>(report: &'a Report, member: Member, what: &'a str) -> Vec<&'a Call> {
    let calls = report.calls[&member].iter();
    calls.filter(|call| call.what.contains(what)).collect()
}

/// A pod moves from one node to the other, and all goes.
fn moving() -> Scenario {
    Scenario::new("a pod moves", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod_on("first", "data", "node-1").await;
            user.wait(Duration::from_secs(5)).await;
            user.delete_pod("first").await;
            user.pod_on("second", "data", "node-2").await;
            user.until_running("second").await?;
            user.delete_pod("second").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
    .nodes(2)
    .anywhere()
}

/// kubernetes#32727, PR 124334: nobody knows whether the first node has the volume. It is
/// taken off there, and only then goes to the second.
#[test]
fn a_volume_whose_attachment_is_uncertain_comes_off_before_it_goes_elsewhere() {
    let later = Duration::from_secs(30);
    for trouble in [
        Trouble::DoneButAnswered(Code::DeadlineExceeded),
        Trouble::AnsweredThenDone(Code::DeadlineExceeded, later),
        Trouble::DoneLate(later),
    ] {
        let scenario = moving().trouble(Method::ControllerPublishVolume, 1, trouble);
        let report = run(&scenario, &Plan::calm(), SEED);
        must_be(&report, "");
        let taken_off = calls_of(&report, Member::Attacher, "ControllerUnpublishVolume");
        assert!(taken_off.len() > 1, "it was on the first node, too");
    }
}

fn attached() -> Scenario {
    Scenario::new("attached and detached", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_pod_gone("web").await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

/// kubernetes PR 130516: the node was told that the volume leaves, and the controller died
/// before it deleted the attachment.
#[test]
fn a_volume_that_its_node_was_told_to_lose_is_detached_after_a_crash() {
    let calm = run(&attached(), &Plan::calm(), SEED);
    let told = calls_of(&calm, Member::Control, "/nodes/node-1/status");
    let last = told.last().expect("the node is told").number;
    let deleted = calls_of(&calm, Member::Control, "DELETE /apis/storage.k8s.io");
    assert!(deleted.iter().any(|call| call.number > last), "in order");
    for phase in Phase::ALL {
        let plan = Plan::one(Member::Control, last, Fault::Crash(phase));
        must_be(&run(&attached(), &plan, SEED), "");
    }
}

/// kubernetes#124749: who deletes an attachment has not seen yet that the attacher has put its
/// finalizer there and is at work.
#[test]
fn an_attachment_that_is_deleted_on_an_old_view_of_it_is_not_lost() {
    let hasty = Scenario::new("a pod goes at once", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod("web", "data").await;
            user.until("it is being attached", |objects| {
                let mut attachments = objects.attachments.values();
                attachments.any(|attachment| !attachment.metadata.finalizers.is_empty())
            })
            .await?;
            user.delete_pod("web").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    });
    let calm = run(&hasty, &Plan::calm(), SEED);
    must_be(&calm, "");
    let watch = calls_of(&calm, Member::Control, "WATCH /apis/storage.k8s.io");
    let watch = watch
        .iter()
        .find(|call| call.what.ends_with("volumeattachments"));
    let watch = watch.expect("it watches attachments").number;
    for fault in [
        Fault::Late(Duration::from_secs(5)),
        Fault::Blind(Duration::from_secs(5)),
    ] {
        let report = run(&hasty, &Plan::one(Member::Control, watch, fault), SEED);
        must_be(&report, "");
    }
}

/// external-attacher PR 304: an attachment came and went while nobody told of it.
#[test]
fn an_attacher_that_missed_the_end_of_an_attachment_goes_on() {
    let calm = run(&attached(), &Plan::calm(), SEED);
    for what in ["volumeattachments", "persistentvolumes"] {
        let watches = calls_of(&calm, Member::Attacher, "WATCH");
        let watch = watches.iter().find(|call| call.what.ends_with(what));
        let watch = watch.expect("it watches").number;
        for seconds in [1, 30] {
            let blind = Fault::Blind(Duration::from_secs(seconds));
            let plan = Plan::one(Member::Attacher, watch, blind);
            must_be(&run(&attached(), &plan, SEED), "");
        }
    }
}

fn growing() -> Scenario {
    Scenario::new("growing under a pod", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.resize("data", "2Gi").await;
            user.until_size("data", "2Gi").await?;
            user.delete_pod("web").await;
            user.until_nothing_attached().await
        })
    })
}

/// external-resizer PR 246: the resizer can't say that it begins, or what came of it.
#[test]
fn growth_that_can_not_be_written_down_is_tried_again() {
    let calm = run(&growing(), &Plan::calm(), SEED);
    let mut writes: Vec<&Call> = calm.calls[&Member::Resizer].iter().collect();
    writes.retain(|call| call.nature == Nature::Effect && !call.is_to_driver());
    assert!(writes.len() >= 3, "intent, volume, claim: {writes:?}");
    for call in writes {
        for answer in [Answer::Error, Answer::Conflict] {
            for phase in Phase::ALL {
                let fault = Fault::Refused(phase, answer);
                let plan = Plan::one(Member::Resizer, call.number, fault);
                must_be(&run(&growing(), &plan, SEED), &calm.end);
            }
        }
    }
}

/// kubernetes#115294, #117871, PR 123055: the volume's object is larger already, the claim
/// doesn't say yet that the node is to do its part.
#[test]
fn a_node_grows_a_file_system_once_and_only_when_the_claim_says_so() {
    // The resizer dies in between, and a pod comes to the node just then.
    let meanwhile = Scenario::new("growing as a pod comes", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.resize("data", "2Gi").await;
            user.until("the volume's object is larger", |objects| {
                let mut volumes = objects.volumes.values();
                volumes.any(|volume| volume.capacity_bytes() == 2 << 30)
            })
            .await?;
            user.pod("web", "data").await;
            user.until_size("data", "2Gi").await?;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_nothing_attached().await
        })
    });
    for story in [meanwhile, growing()] {
        let calm = run(&story, &Plan::calm(), SEED);
        let told = calls_of(&calm, Member::Resizer, "PATCH /api/v1/persistentvolumes/");
        let enlarged = told.first().expect("the volume is enlarged").number;
        let plan = Plan::one(Member::Resizer, enlarged, Fault::Crash(Phase::After));
        let report = run(&story, &plan, SEED);
        must_be(&report, &calm.end);
        let grown = calls_of(&report, Member::Node(1), "NodeExpandVolume");
        assert_eq!(grown.len(), 1, "{}", report.trace);
    }
}

/// Found by the matrix: a resizer that had been deposed changed the volume after its successor
/// had gone on to other attributes, and nobody noticed.
#[test]
fn attributes_that_a_deposed_resizer_set_late_are_changed_back() {
    let changing = Scenario::new("attributes twice", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.attributes("gold").await;
            user.attributes("silver").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.choose("data", "gold").await;
            user.until_modified("data", "gold").await?;
            user.choose("data", "silver").await;
            user.until_modified("data", "silver").await
        })
    })
    .tolerating_of_deposed(&["I14"]);
    let calm = run(&changing, &Plan::calm(), SEED);
    must_be(&calm, &calm.end);
    assert!(
        calm.end.contains(r#"with {"iops": "silver"}"#),
        "{}",
        calm.end
    );
    let recorded = calls_of(&calm, Member::Resizer, "persistentvolumeclaims/data/status");
    let asked = calls_of(&calm, Member::Resizer, "ControllerModifyVolume");
    for (call, phase) in [
        (recorded[0], Phase::After),
        (asked[0], Phase::Before),
        (asked[0], Phase::After),
        (asked[1], Phase::Before),
    ] {
        let plan = Plan::one(Member::Resizer, call.number, Fault::Deposed(phase));
        must_be(&run(&changing, &plan, SEED), &calm.end);
    }
}

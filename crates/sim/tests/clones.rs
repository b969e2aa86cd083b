//! A claim that is filled from another one, with a fault at every call of every process.

use std::time::Duration;

use orlop_csi::Method;
use orlop_model::well_known::CLONE_PROTECTION;
use orlop_sim::driver::Trouble;
use orlop_sim::faults::{Fault, Member, Plan};
use orlop_sim::run::{Extent, Scenario, run, sweep};
use orlop_sim::strikes::{crashes_at_effects, errors};
use orlop_sim::wire::Call;
use tonic::Code;

const SEED: u64 = 31;

/// Clones a claim, then lets source and clone go.
fn clone_and_go() -> Scenario {
    Scenario::new("clone", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.clone_of("copy", "data").await;
            user.until_bound("copy").await?;
            user.delete_claim("data").await;
            user.until("the source is gone", |objects| objects.claims.len() == 1)
                .await?;
            user.delete_claim("copy").await;
            user.until_all_gone().await
        })
    })
}

/// The source is there after its clone, and both are deleted while the clone is being made.
fn deleted_meanwhile() -> Scenario {
    Scenario::new("clone deleted meanwhile", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.clone_of("copy", "data").await;
            user.claim("data").await;
            user.until("the clone is asked for", |objects| {
                let claims = objects.claims.values();
                claims
                    .into_iter()
                    .any(|claim| claim.metadata.has_finalizer(CLONE_PROTECTION))
            })
            .await?;
            user.delete_claim("data").await;
            user.delete_claim("copy").await;
            user.until_all_gone().await
        })
    })
}

#[test]
fn a_clone_survives_a_crash_at_every_effect() {
    let sweep = sweep(
        &clone_and_go(),
        SEED,
        crashes_at_effects,
        Extent::Sample(16),
    );
    sweep.must_hold();
    assert_eq!(sweep.reference.end, "", "nothing is left");
}

#[test]
fn a_clone_that_is_deleted_while_it_is_made_survives_a_crash_at_every_effect() {
    let sweep = sweep(
        &deleted_meanwhile(),
        SEED,
        crashes_at_effects,
        Extent::Sample(16),
    );
    sweep.must_hold();
    assert_eq!(sweep.reference.end, "", "nothing is left");
}

#[test]
fn a_clone_survives_an_error_at_every_call() {
    sweep(&clone_and_go(), SEED + 1, errors, Extent::Sample(6)).must_hold();
}

/// The call comes through late or its answer is lost, while both claims are deleted: the
/// call is repeated from what is on record, and the copy is deleted.
#[test]
fn a_clone_whose_answer_is_lost_is_found_and_undone() {
    for trouble in [
        Trouble::DoneButAnswered(Code::DeadlineExceeded),
        Trouble::DoneLate(Duration::from_secs(200)),
        Trouble::Refused(Code::Unavailable),
        Trouble::Refused(Code::ResourceExhausted),
    ] {
        let scenario = deleted_meanwhile().trouble(Method::CreateVolume, 2, trouble);
        let report = run(&scenario, &Plan::calm(), SEED);
        let complaints = report.complaints("");
        assert!(
            complaints.is_empty(),
            "{trouble:?}: {complaints:#?}\n{}",
            report.trace
        );
    }
}

/// The copy goes while its source is being kept for it: whoever lets the source go may have looked
/// just before.
#[test]
fn a_source_is_free_again_whenever_its_copy_is_forgotten() {
    let scenario = Scenario::new("a copy that is forgotten", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.clone_of("copy", "data").await;
            user.wait(Duration::from_secs(40)).await;
            user.clear().await;
            user.until_all_gone().await
        })
    })
    .meddling(|user| {
        Box::pin(async move {
            user.delete_claim("copy").await;
            Ok(())
        })
    });
    let meddled = |member, _: &Call| match member {
        Member::Provisioner => vec![Fault::Meddled],
        _ => Vec::new(),
    };
    // One of the seeds with which the two meet.
    sweep(&scenario, 71, meddled, Extent::Whole).must_hold();
}

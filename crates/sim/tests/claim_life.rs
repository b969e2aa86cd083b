//! A claim's whole life, with a fault at every call of every process in turn.

use std::collections::BTreeSet;

use orlop_sim::faults::{Answer, Fault, Member, Phase, Plan};
use orlop_sim::run::{Extent, Scenario, Sweep, run, sweep};
use orlop_sim::strikes::{crashes, crashes_at_effects, errors, poor_watches};

const SEED: u64 = 1;

fn whole_life() -> Scenario {
    Scenario::new("whole life", |user| {
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

fn immediate() -> Scenario {
    Scenario::new("immediate claim", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

fn report(sweep: &Sweep) {
    sweep.must_hold();
    let reference = &sweep.reference;
    let calls: Vec<String> = reference
        .calls
        .iter()
        .map(|(member, calls)| format!("{member} {}", calls.len()))
        .collect();
    println!(
        "{}: {} runs; calls: {}",
        reference.replay,
        sweep.runs,
        calls.join(", ")
    );
}

#[test]
fn one_seed_gives_one_trace() {
    let scenario = whole_life();
    let mut courses = BTreeSet::new();
    for seed in SEED..SEED + 4 {
        let first = run(&scenario, &Plan::calm(), seed);
        let second = run(&scenario, &Plan::calm(), seed);
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.hash, second.hash);
        let new = courses.insert(first.hash);
        assert!(new, "another seed gives another course");
    }
}

#[test]
fn a_whole_life_survives_a_crash_at_every_call() {
    let sweep = sweep(&whole_life(), SEED, crashes, Extent::Whole);
    report(&sweep);
    assert_eq!(sweep.reference.end, "", "nothing is left");
}

#[test]
fn a_whole_life_survives_an_error_at_every_call() {
    report(&sweep(&whole_life(), SEED + 2, errors, Extent::Sample(16)));
}

#[test]
fn a_whole_life_survives_the_end_of_every_watch() {
    report(&sweep(
        &whole_life(),
        SEED + 3,
        poor_watches,
        Extent::Sample(8),
    ));
}

#[test]
fn an_immediate_claim_survives_a_crash_at_every_effect() {
    let sweep = sweep(&immediate(), SEED, crashes_at_effects, Extent::Sample(16));
    report(&sweep);
    assert_eq!(sweep.reference.end, "", "nothing is left");
}

/// Found by the sweep of errors: a node that failed to report a volume as no longer in use
/// took the report for made, and the volume stayed attached for ever.
#[test]
fn a_report_of_volumes_in_use_that_fails_is_made_again() {
    let calm = run(&whole_life(), &Plan::calm(), SEED);
    let node = Member::Node(1);
    let mut reports = calm.calls[&node]
        .iter()
        .filter(|call| call.what.ends_with("/node-1/status"));
    let last = reports.next_back().expect("the node reports").number;
    for phase in Phase::ALL {
        let plan = Plan::one(node, last, Fault::Refused(phase, Answer::Error));
        let report = run(&whole_life(), &plan, SEED);
        assert_eq!(
            report.complaints(""),
            Vec::<String>::new(),
            "{}",
            report.replay
        );
    }
}

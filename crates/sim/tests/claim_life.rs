//! A claim's whole life, with a fault at every call of every process in turn.

use orlop_sim::driver::Troubles;
use orlop_sim::faults::Plan;
use orlop_sim::run::{Scenario, crashes, run, sweep};

const SEED: u64 = 1;

fn immediate_claim() -> Scenario {
    Scenario {
        name: "immediate claim",
        script: |user| {
            Box::pin(async move {
                user.class("Immediate", "Delete").await;
                user.claim("data").await;
                user.until_bound("data").await?;
                user.delete_claim("data").await;
                user.until_all_gone().await
            })
        },
        troubles: Troubles::new(),
        nodes: 1,
    }
}

#[test]
fn one_seed_gives_one_trace() {
    let scenario = immediate_claim();
    let first = run(&scenario, &Plan::calm(), SEED);
    let second = run(&scenario, &Plan::calm(), SEED);
    assert_eq!(first.trace, second.trace);
    assert_eq!(first.hash, second.hash);
    let other = run(&scenario, &Plan::calm(), SEED + 1);
    assert_ne!(first.hash, other.hash, "another seed gives another course");
}

#[test]
fn an_immediate_claim_survives_a_crash_at_every_call() {
    let sweep = sweep(&immediate_claim(), SEED, crashes);
    sweep.must_hold();
    println!("{} runs, calls {:?}", sweep.runs, sweep.reference.calls);
}

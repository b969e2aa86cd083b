//! Every operation of the sidecars under every kind of fault.
//!
//! Each cell is a sample of its possible runs, chosen by the seed. All of them, and more
//! seeds:
//!
//! ```sh
//! ORLOP_SIM=whole ORLOP_SIM_SEEDS=3 cargo test --release -p orlop-sim --test matrix
//! ```

mod operations;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use operations::{ALL, Operation, changed_minds};
use orlop_csi::Method;
use orlop_sim::driver::Trouble;
use orlop_sim::faults::Plan;
use orlop_sim::run::{Extent, Report, Scenario, run, sweep_beside};
use orlop_sim::strikes::{self, Strikes};
use tonic::Code;

const SEED: u64 = 71;

/// The seeds to go through.
fn seeds() -> impl Iterator<Item = u64> {
    let said = std::env::var("ORLOP_SIM_SEEDS").ok();
    let many = said.and_then(|many| many.parse().ok()).unwrap_or(1);
    SEED..SEED + many
}

/// Whether the environment asks for this story, by a part of its name.
fn is_asked_for(scenario: &Scenario) -> bool {
    let only = std::env::var("ORLOP_SIM_ONLY");
    only.map_or(true, |only| scenario.name.contains(&only))
}

/// The run of a story without a fault; one will do for all tests.
fn calm(scenario: &Scenario, seed: u64) -> Arc<Report> {
    type Known = BTreeMap<(&'static str, u64), Arc<OnceLock<Arc<Report>>>>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let known = {
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((scenario.name, seed)).or_default())
    };
    Arc::clone(known.get_or_init(|| Arc::new(run(scenario, &Plan::calm(), seed))))
}

fn each(scenarios: impl IntoIterator<Item = Scenario>, strikes: Strikes, some: usize) {
    let mut wrong = Vec::new();
    for scenario in scenarios.into_iter().filter(is_asked_for) {
        for seed in seeds() {
            let calm = calm(&scenario, seed);
            let sweep = sweep_beside(calm, &scenario, seed, strikes, Extent::Sample(some));
            println!("{}: {} runs", sweep.reference.replay, sweep.runs);
            wrong.extend(sweep.wrong());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn all() -> impl Iterator<Item = Scenario> {
    ALL.iter().map(|operation| operation())
}

#[test]
fn every_operation_survives_a_crash_at_every_call() {
    each(all(), strikes::crashes, 1);
}

#[test]
fn every_operation_survives_an_error_at_every_call() {
    each(all(), strikes::errors, 1);
}

#[test]
fn every_operation_survives_conflicts_and_pleas_to_come_later() {
    each(all(), strikes::conflicts, 1);
}

#[test]
fn every_operation_survives_watches_that_break_off_or_tell_late() {
    each(all(), strikes::poor_watches, 1);
}

#[test]
fn every_operation_survives_being_shown_the_past() {
    each(all(), strikes::travels, 1);
}

#[test]
fn every_operation_survives_a_leader_that_does_not_know_it_is_none() {
    // Nobody can be stopped between their last look and their call: what the old one makes
    // of what is gone by then, or while its record goes, it or its successor must undo. It may also
    // ask for a copy of what is gone: the driver says no, and nothing is made.
    let all = all().map(|operation| {
        let operation = operation.tolerating(&["I05"]);
        operation.tolerating_of_deposed(&["I12", "I14"])
    });
    each(all, strikes::successions, 1);
}

#[test]
fn a_user_may_change_their_mind_at_any_moment() {
    each(changed_minds(), strikes::meddlings, 1);
}

/// The calls by which an operation changes the backend, with the count that is the operation's
/// own.
const ANSWERS: [(Operation, &[(Method, u64)]); 6] = [
    (
        operations::create,
        &[(Method::CreateVolume, 1), (Method::DeleteVolume, 1)],
    ),
    (
        operations::attach,
        &[
            (Method::ControllerPublishVolume, 1),
            (Method::ControllerUnpublishVolume, 1),
        ],
    ),
    (operations::clone, &[(Method::CreateVolume, 2)]),
    (
        operations::restore,
        &[
            (Method::CreateSnapshot, 1),
            (Method::CreateVolume, 2),
            (Method::DeleteSnapshot, 1),
        ],
    ),
    (
        operations::group,
        &[
            (Method::CreateVolumeGroupSnapshot, 1),
            (Method::DeleteVolumeGroupSnapshot, 1),
        ],
    ),
    (operations::modify, &[(Method::ControllerModifyVolume, 1)]),
];

#[test]
fn every_answer_may_be_lost_and_every_effect_may_come_late() {
    let later = Duration::from_secs(60);
    for (operation, calls) in ANSWERS {
        if !is_asked_for(&operation()) {
            continue;
        }
        let calm = calm(&operation(), SEED);
        for (method, count) in calls {
            for trouble in [
                Trouble::DoneButAnswered(Code::Aborted),
                Trouble::AnsweredThenDone(Code::DeadlineExceeded, later),
            ] {
                let scenario = operation().trouble(*method, *count, trouble);
                let report = run(&scenario, &Plan::calm(), SEED);
                let complaints = report.complaints_beside(&calm);
                assert!(
                    complaints.is_empty(),
                    "{method} {trouble:?}: {complaints:#?}\n{}",
                    report.trace
                );
            }
        }
    }
}

//! Runs scenarios inside the cluster, some at once, and tells how they went.

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use futures::FutureExt as _;
use tokio::{
    sync::{RwLock, Semaphore},
    task::JoinSet,
};

use super::{Company, Scenario, choose};
use crate::{kube::folder::Folder, stage::Stage};

/// How long one scenario may take.
const BOUND: Duration = Duration::from_secs(600);

/// What became of one.
enum Outcome {
    Passed(Duration),
    Failed(Duration, String),
    Skipped(String),
}

/// Runs the scenarios of these names; all without a name.
pub(crate) async fn run(cluster: &Folder, names: &[String], jobs: usize) -> Result<ExitCode> {
    let (alone, together): (Vec<_>, Vec<_>) = choose(names)?
        .into_iter()
        .partition(|one| one.company == Company::None);
    let (mut passed, mut skipped, mut again) = (0, 0, Vec::new());
    let mut count = |scenario: &'static Scenario, outcome: Outcome| match outcome {
        Outcome::Passed(took) => {
            passed += 1;
            println!(
                "PASSED   {:<14}{:>6.1} s  {}",
                scenario.name,
                took.as_secs_f64(),
                scenario.law
            );
        }
        Outcome::Skipped(why) => {
            skipped += 1;
            println!("SKIPPED  {:<14}          {why}", scenario.name);
        }
        Outcome::Failed(took, why) => {
            println!(
                "FAILED   {:<14}{:>6.1} s  first try, will be tried by itself\n{why}",
                scenario.name,
                took.as_secs_f64()
            );
            again.push(scenario);
        }
    };

    let turns = Arc::new(Semaphore::new(jobs.max(1)));
    let snapshots = Arc::new(RwLock::new(()));
    let mut running = JoinSet::new();
    for scenario in together {
        let (turns, cluster) = (Arc::clone(&turns), cluster.clone());
        let snapshots = Arc::clone(&snapshots);
        running.spawn(async move {
            // Before the turn, so that none is taken by one that waits.
            let (_shared, _own) = match scenario.company {
                Company::Any | Company::None => (None, None),
                Company::SharedSnapshots => (Some(snapshots.read_owned().await), None),
                Company::OwnSnapshots => (None, Some(snapshots.write_owned().await)),
            };
            let _turn = turns.acquire_owned().await;
            (scenario, play(&cluster, scenario, scenario.name).await)
        });
    }
    while let Some(done) = running.join_next().await {
        let (scenario, outcome) = done?;
        count(scenario, outcome);
    }
    for scenario in alone {
        count(scenario, play(cluster, scenario, scenario.name).await);
    }

    let mut failed = 0;
    for scenario in again {
        match play(cluster, scenario, &format!("{}-2", scenario.name)).await {
            Outcome::Passed(took) => {
                passed += 1;
                println!(
                    "PASSED (second try)  {} {:.1} s  its first failure stands above",
                    scenario.name,
                    took.as_secs_f64()
                );
            }
            Outcome::Failed(took, why) => {
                failed += 1;
                println!(
                    "FAILED   {:<14}{:>6.1} s  {}\n{why}",
                    scenario.name,
                    took.as_secs_f64(),
                    scenario.law
                );
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                println!("SKIPPED  {:<14}          {why}", scenario.name);
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs one, on a stage of this name.
async fn play(cluster: &Folder, scenario: &'static Scenario, name: &str) -> Outcome {
    if let Some(absent) = scenario
        .brought
        .iter()
        .find(|name| !cluster.binary(name).exists())
    {
        return Outcome::Skipped(format!(
            "{absent} is not there; docs/development/real-kubernetes.md tells why and how to bring it"
        ));
    }
    let begin = Instant::now();
    let stage = match Stage::open(cluster, name).await {
        Ok(stage) => stage,
        Err(error) => return Outcome::Failed(begin.elapsed(), format!("{error:#}")),
    };
    let whole = async {
        (scenario.run)(&stage).await?;
        stage.close().await
    };
    let whole =
        tokio::time::timeout(BOUND, std::panic::AssertUnwindSafe(whole).catch_unwind()).await;
    let result = match whole {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(anyhow!("the scenario panicked")),
        Err(_) => Err(anyhow!("the scenario took more than {} s", BOUND.as_secs())),
    };
    match result {
        Ok(()) => Outcome::Passed(begin.elapsed()),
        Err(error) => {
            let took = begin.elapsed();
            let report = stage.report().await;
            stage.abandon().await;
            Outcome::Failed(took, format!("{error:#}\n{report}--- {name}: {error:#}"))
        }
    }
}

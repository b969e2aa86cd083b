//! The suite's own test: it finds nothing wrong with a model driver that keeps the contract, and
//! finds each of the faults that the model can be given.
//!
//! Every fault names the case that is there for it. `every_fault_is_caught_by_the_case_named_for_it`
//! runs just that case; the ignored test runs everything on every fault and prints the table:
//!
//! ```text
//! FAULTS='Stage Unstage' FOCUS='stage. paths.' \
//!     cargo test -p orlop-conformance --test faults -- --ignored --nocapture
//! ```
//!
//! `FAULTS` are beginnings of faults' names, `FOCUS` parts of cases' names; without them it is all
//! of them, which takes an hour.

mod model;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use orlop_conformance::{
    CannotRun, CaseReport, Event, Pattern, Report, Restart, Settings, Suite, Verdict, room,
};
use tokio_util::sync::CancellationToken;

use model::{Fault, OTHER_NODE, Profile, Running, Valve, unmount_all};

/// Variants that are examined at once; they wait for each other's mounts more than they compute.
const AT_ONCE: usize = 6;

/// Large enough to be grown, halved and filled, small enough to be copied in no time.
const VOLUME: i64 = 8 << 20;

/// A folder whose mounts go with it, however the test ends.
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        unmount_all(self.path());
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: the model mounts, which takes root");
    }
    root
}

/// Runs a suite over a model.
async fn examine(
    suite: &Suite,
    fault: Option<Fault>,
    profile: Profile,
) -> Result<Report, CannotRun> {
    let ground = Ground::new();
    let running = Running::start(ground.path(), fault, profile);
    let paths = ground.path().join("paths");
    std::fs::create_dir(&paths).expect("a folder");
    let mut settings = Settings::new(running.driver(), paths);
    settings.socket = Some(running.socket().to_owned());
    settings.volume_size = VOLUME;
    settings.timeout = Duration::from_secs(10);
    settings.driver_log = Some(running.log().to_owned());
    if profile != Profile::Least {
        settings.mutable_parameters = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        settings.other_node_id = Some(OTHER_NODE.to_owned());
    }
    let again = Arc::clone(&running);
    settings.restart = Some(Restart::by(move || {
        let running = Arc::clone(&again);
        async move {
            running.restart().await;
            Ok(())
        }
    }));
    let report = suite.run(settings, &CancellationToken::new(), |_| {}).await;
    running.stop().await;
    report
}

/// A driver that the suite cannot even begin with is told so, which is a finding, too.
const CANNOT_RUN: &str = "cannot.run";

/// What a run says against the driver: the names of the cases. The model as such has no warnings, so
/// that a warning finds a fault as well as a failure does.
fn against(report: &Result<Report, CannotRun>) -> Vec<String> {
    match report {
        Ok(report) => report
            .cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Failed(_) | Verdict::Warned(_)))
            .map(|case| case.id.clone())
            .collect(),
        Err(_) => vec![CANNOT_RUN.to_owned()],
    }
}

/// The suite with these cases, or groups of them, alone.
fn only(parts: &[&str]) -> Suite {
    let patterns: Vec<_> = parts.iter().copied().map(Pattern::new).collect();
    Suite::new().select(&patterns, &[])
}

fn profile_for(fault: Fault) -> Profile {
    match fault {
        Fault::UnadvertisedWorks | Fault::UnadvertisedIsInternal => Profile::Least,
        _ => Profile::Full,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_driver_that_keeps_the_contract_conforms() {
    if !is_root() {
        return;
    }
    for profile in [Profile::Full, Profile::Least] {
        let report = examine(&Suite::new(), None, profile).await.expect("runs");
        for case in &report.cases {
            if let Verdict::Failed(reason) | Verdict::Warned(reason) = &case.verdict {
                eprintln!(
                    "{profile:?} {}: {reason}\n{}",
                    case.id,
                    case.transcript.join("\n")
                );
            }
            // It has everything, so that only what is about lacking something may be skipped.
            if let (Verdict::Skipped(reason), Profile::Full) = (&case.verdict, profile) {
                let lacking = ["without", "OFFLINE and not ONLINE", "restarted on purpose"];
                assert!(
                    lacking.iter().any(|words| reason.contains(words)),
                    "{} is skipped: {reason}",
                    case.id
                );
            }
        }
        let counts = report.counts();
        eprintln!("{profile:?}: {counts:?} in {:?}", report.took);
        assert_eq!((counts.failed, counts.warned), (0, 0), "{profile:?}");
        let (most, needed) = (report.most_bytes, room::needed(VOLUME));
        eprintln!("{profile:?}: at most {} volumes' worth", most / VOLUME);
        assert!(most <= needed, "{profile:?} took {most} of {needed} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_driver_that_cuts_only_volumes_at_rest_conforms() {
    if !is_root() {
        return;
    }
    let suite = only(&["data.", "metadata.", "snapshot.", "sources.", "groups."]);
    let report = examine(&suite, None, Profile::AtRest).await.expect("runs");
    let failed: Vec<_> = report
        .failed()
        .map(|case| (&case.id, &case.verdict))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let was_skipped = |case: &&CaseReport| matches!(case.verdict, Verdict::Skipped(_));
    let data = report
        .cases
        .iter()
        .filter(|case| case.id.starts_with("data."));
    assert_eq!(data.filter(was_skipped).count(), 0, "data is looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_fault_is_caught_by_the_case_named_for_it() {
    if !is_root() {
        return;
    }
    let all = Fault::ALL.len();
    assert!(all >= 80, "{all} faults are too few to say something");
    let missed: Vec<String> = stream::iter(Fault::ALL.iter().copied())
        .map(|fault| async move {
            let cases = fault.caught_by();
            let found = against(&examine(&only(&cases), Some(fault), profile_for(fault)).await);
            let last = cases.last().copied().unwrap_or_default();
            (!found.iter().any(|case| case.contains(last))).then(|| {
                format!(
                    "{fault:?} ({}) is not found by {last}, but by {found:?}",
                    fault.told()
                )
            })
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "runs the whole suite on every fault, which takes minutes"]
async fn table_of_all_faults() {
    let listed = |name: &str| -> Vec<String> {
        let text = std::env::var(name).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let some = listed("FAULTS");
    let focus: Vec<_> = listed("FOCUS").into_iter().map(Pattern::new).collect();
    let suite = Suite::new().select(&focus, &[]);
    let suite = &suite;
    let table: BTreeMap<Fault, Vec<String>> = stream::iter(Fault::ALL.iter().copied())
        .filter(|fault| {
            let name = format!("{fault:?}");
            let wanted = some.is_empty() || some.iter().any(|some| name.starts_with(some.as_str()));
            async move { wanted }
        })
        .map(|fault| async move {
            let found = against(&examine(suite, Some(fault), profile_for(fault)).await);
            println!("{fault:?}\t{}\t{}", found.len(), found.join(" "));
            (fault, found)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let missed: Vec<_> = table.iter().filter(|(_, cases)| cases.is_empty()).collect();
    println!("{} of {} are not caught:", missed.len(), table.len());
    for (fault, _) in missed {
        println!("  {fault:?}: {}", fault.told());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_hangs_is_given_up_and_the_rest_is_not_run() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let running = Running::start(ground.path(), None, Profile::Full);
    let valve = Valve::before(running.socket(), ground.path().join("valve.sock"));
    let paths = ground.path().join("paths");
    std::fs::create_dir(&paths).expect("a folder");
    let mut settings = Settings::new(valve.driver(), paths);
    settings.volume_size = VOLUME;
    settings.timeout = Duration::from_secs(1);
    let suite = only(&["create."]);
    let began = std::time::Instant::now();
    let stop = CancellationToken::new();
    let run = suite.run(settings, &stop, |event| {
        if let Event::Begins(_) = event {
            valve.shut();
        }
    });
    let report = run.await.expect("a report");
    running.stop().await;
    let (first, rest) = report.cases.split_first().expect("cases");
    assert!(
        matches!(&first.verdict, Verdict::Failed(words) if words.contains("the driver hangs")),
        "{:?}",
        first.verdict
    );
    assert!(!rest.is_empty());
    for case in rest {
        assert!(matches!(case.verdict, Verdict::NotRun(_)), "{}", case.id);
    }
    // The call's time and the probe's, far from a case's.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_command_that_restarts_nothing_is_told() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let running = Running::start(ground.path(), None, Profile::Full);
    let paths = ground.path().join("paths");
    std::fs::create_dir(&paths).expect("a folder");
    let mut settings = Settings::new(running.driver(), paths);
    settings.volume_size = VOLUME;
    settings.timeout = Duration::from_secs(10);
    settings.restart = Some(Restart::command("true".to_owned(), settings.timeout));
    let suite = only(&["restart.name_is_known"]);
    let report = suite.run(settings, &CancellationToken::new(), |_| {}).await;
    running.stop().await;
    let report = report.expect("a report");
    assert!(
        matches!(&report.cases[0].verdict, Verdict::Failed(words) if words.contains("restarts nothing")),
        "{:?}",
        report.cases[0].verdict
    );
}

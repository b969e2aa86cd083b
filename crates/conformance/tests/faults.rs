//! The suite's own test: it finds nothing wrong with a model driver that keeps the contract, and
//! finds each of the faults that the model can be given.
//!
//! Every fault names the case that is there for it. `every_fault_is_caught_by_the_case_named_for_it`
//! runs just that case; the ignored test runs everything on every fault and prints the table:
//!
//! ```text
//! cargo test -p orlop-conformance --test faults -- --ignored --nocapture
//! ```

mod model;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use orlop_conformance::{CannotRun, Report, Restart, Settings, Suite, Verdict};
use tokio_util::sync::CancellationToken;

use model::{Fault, OTHER_NODE, Profile, Running, unmount_all};

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
    if profile == Profile::Full {
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

/// What a run says against the driver: the names of the cases, or that it could not even begin.
fn against(report: &Result<Report, CannotRun>) -> Vec<String> {
    match report {
        Ok(report) => report.failed().map(|case| case.id.clone()).collect(),
        Err(error) => vec![format!("cannot run: {error}")],
    }
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
            if let (Verdict::Skipped(reason), Profile::Full) = (&case.verdict, profile) {
                eprintln!("{profile:?} {} skipped: {reason}", case.id);
            }
        }
        let counts = report.counts();
        eprintln!("{profile:?}: {counts:?} in {:?}", report.took);
        assert_eq!((counts.failed, counts.warned), (0, 0), "{profile:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "runs the whole suite on every fault, which takes minutes"]
async fn table_of_all_faults() {
    let suite = Suite::new();
    let suite = &suite;
    let only = std::env::var("FAULT").ok();
    let table: BTreeMap<Fault, Vec<String>> = stream::iter(Fault::ALL.iter().copied())
        .filter(|fault| {
            let name = format!("{fault:?}");
            let wanted = only
                .as_ref()
                .is_none_or(|only| name.starts_with(only.as_str()));
            async move { wanted }
        })
        .map(|fault| async move {
            let report = examine(suite, Some(fault), profile_for(fault)).await;
            (fault, against(&report))
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for (fault, cases) in &table {
        println!("{fault:?}\t{}\t{}", cases.len(), cases.join(" "));
    }
    let missed: Vec<_> = table.iter().filter(|(_, cases)| cases.is_empty()).collect();
    println!("{} of {} are not caught:", missed.len(), table.len());
    for (fault, _) in missed {
        println!("  {fault:?}: {}", fault.told());
    }
}

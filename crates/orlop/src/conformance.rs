//! `orlop conformance`: judges any CSI driver.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use orlop_conformance::report::Detail;
use orlop_conformance::{
    Event, Pattern, Report, Restart, Settings, Suite, Verdict, report, settings,
};
use orlop_csi::Driver;
use orlop_csi::client::socket_path;
use orlop_drivers::local::size;
use tokio_util::sync::CancellationToken;

use crate::voice::say;

/// The driver does not conform.
const DOES_NOT_CONFORM: u8 = 1;
/// It could not be found out.
const COULD_NOT_RUN: u8 = 2;
/// The run was stopped by a signal, as a shell says it.
const STOPPED: u8 = 130;

/// How a run ended.
enum End {
    Conforms,
    DoesNot,
    Stopped,
}

/// `orlop conformance`.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// The driver's socket; the node's, if the controller has its own.
    #[arg(long, value_name = "unix://SOCKET", required_unless_present = "list")]
    endpoint: Option<String>,
    /// The controller's socket, if it has its own.
    #[arg(long, value_name = "unix://SOCKET")]
    controller_endpoint: Option<String>,
    /// Run only cases with this in their name; `*` and `?` make it a glob. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    focus: Vec<String>,
    /// Leave out cases with this in their name. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// List the cases and run none.
    #[arg(long)]
    list: bool,
    /// Print the failures and the verdict alone.
    #[arg(long, short)]
    quiet: bool,
    /// Print every call of a case that failed, and all of it.
    #[arg(long, short)]
    verbose: bool,
    /// Write a JUnit report.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a web page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a JSON report.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// CreateVolume's parameters: a file of `key: value` lines or JSON.
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// CreateSnapshot's parameters.
    #[arg(long, value_name = "FILE")]
    snapshot_parameters: Option<PathBuf>,
    /// Mutable parameters that the driver takes.
    #[arg(long, value_name = "FILE")]
    mutable_parameters: Option<PathBuf>,
    /// Secrets by call, in csi-sanity's form: `CreateVolumeSecret:` and indented lines.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// The file system to ask for; by default it is the driver's choice.
    #[arg(long, value_name = "TYPE", default_value = "")]
    fs_type: String,
    /// Make test volumes raw block ones, for a driver without file systems.
    #[arg(long)]
    block: bool,
    /// The size of test volumes: bytes, or a quantity such as 64Mi. Up to 28 times that is needed at once.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = volume_size)]
    test_volume_size: i64,
    /// Where staging paths are made; must be a place that the driver sees under the same name.
    #[arg(long, value_name = "DIR")]
    staging_dir: Option<PathBuf>,
    /// Where target paths are made; must be a place that the driver sees under the same name.
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// How long a call may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// A command that kills the driver and starts it again, for the cases about crashes.
    #[arg(long, value_name = "COMMAND")]
    restart_command: Option<String>,
    /// The driver's log, to be searched for secrets.
    #[arg(long, value_name = "FILE")]
    driver_log: Option<PathBuf>,
    /// A second node id that ControllerPublishVolume knows.
    #[arg(long, value_name = "ID")]
    other_node_id: Option<String>,
}

fn volume_size(text: &str) -> Result<i64, String> {
    /// Cases grow volumes and sum them up.
    const LARGEST: i64 = 1 << 50;
    let bytes = size::bytes(text).and_then(|bytes| i64::try_from(bytes).ok());
    bytes
        .filter(|bytes| (1..=LARGEST).contains(bytes))
        .ok_or_else(|| "use bytes, or a quantity such as 64Mi, up to 1Pi".to_owned())
}

/// Bytes in words.
fn in_words(bytes: i64) -> String {
    const UNITS: [(&str, i64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= 10 * unit) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

/// What to say about the room that a run needs; nothing to those who want to hear of failures alone,
/// unless it will be one.
fn about_room(needed: i64, left: Option<i64>, quiet: bool) -> Option<String> {
    let needs = format!("needs up to {} at once", in_words(needed));
    match left {
        Some(left) if left < needed => Some(format!(
            "{needs}, and the driver says that {} are left: cases may fail for that; free some, or \
             use a smaller --test-volume-size",
            in_words(left)
        )),
        _ if quiet => None,
        Some(left) => Some(format!("{needs}; {} are left", in_words(left))),
        None => Some(format!("{needs}; the driver doesn't tell how much is left")),
    }
}

pub(crate) fn main(args: Conformance) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .context("could not start")
        .and_then(|runtime| runtime.block_on(run(args)));
    match outcome {
        Ok(End::Conforms) => ExitCode::SUCCESS,
        Ok(End::DoesNot) => ExitCode::from(DOES_NOT_CONFORM),
        Ok(End::Stopped) => ExitCode::from(STOPPED),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

async fn run(args: Conformance) -> Result<End> {
    let patterns = |texts: &[String]| texts.iter().map(Pattern::new).collect::<Vec<_>>();
    let suite = Suite::new().select(&patterns(&args.focus), &patterns(&args.skip));
    anyhow::ensure!(
        !suite.cases().is_empty(),
        "--focus and --skip leave no case; see --list"
    );
    if args.list {
        list(&suite);
        return Ok(End::Conforms);
    }
    let settings = settings(&args)?;
    for report in [&args.junit, &args.html, &args.json].into_iter().flatten() {
        // Minutes later would be late to learn it.
        save(report, "")?;
    }
    let stop = CancellationToken::new();
    let quiet = args.quiet;
    let detail = match args.verbose {
        true => Detail::Full,
        false => Detail::Short,
    };
    let outcome = suite.run(settings, &stop, |event| match event {
        Event::Met { needed, left } => {
            if let Some(words) = about_room(needed, left, quiet) {
                say(&words);
            }
        }
        Event::Ended(case) if !quiet => say(&report::line(case, detail)),
        Event::Ended(_) | Event::Begins(_) => {}
    });
    let signals = async {
        crate::up::terminated().await;
        eprintln!("stopping: cleaning up after the case that runs");
        stop.cancel();
        // Whoever asks twice doesn't want to wait for a driver that hangs.
        crate::up::terminated().await;
        eprintln!("stopped: what the suite made may be left behind");
        std::process::exit(i32::from(STOPPED))
    };
    // The handlers are there before anything is made that a signal could leave behind.
    let report = tokio::select! {
        biased;
        never = signals => never,
        report = outcome => report,
    };
    let report = report?;
    let written = write(&args, &report);
    let judged = |verdict: &Verdict| !matches!(verdict, Verdict::Skipped(_) | Verdict::NotRun(_));
    if report.stopped || report.cases.iter().any(|case| judged(&case.verdict)) {
        say(report::summary(&report, detail).trim_end());
    }
    written?;
    if report.stopped {
        return Ok(End::Stopped);
    }
    anyhow::ensure!(
        report.cases.iter().any(|case| judged(&case.verdict)),
        "every case was skipped: nothing is known about the driver"
    );
    Ok(match report.conforms() {
        true => End::Conforms,
        false => End::DoesNot,
    })
}

fn list(suite: &Suite) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    for case in suite.cases() {
        let needs: Vec<_> = case.needs.iter().map(ToString::to_string).collect();
        let needs = match needs.as_slice() {
            [] => String::new(),
            needs => format!(" (needs {})", needs.join(", ")),
        };
        let line = writeln!(out, "{:<50} {} [{}]{needs}", case.id, case.title, case.spec);
        if line.is_err() {
            break; // whoever read it has seen enough
        }
    }
}

fn settings(args: &Conformance) -> Result<Settings> {
    let endpoint = args.endpoint.as_deref().context("--endpoint is missing")?;
    let node = Driver::connect(endpoint)?;
    let controller = match args.controller_endpoint.as_deref() {
        Some(endpoint) => Driver::connect(endpoint)?,
        None => node.clone(),
    };
    let map = |path: &Option<PathBuf>| match path {
        Some(path) => settings::read_parameters(path),
        None => Ok(Default::default()),
    };
    let timeout = Duration::from_secs(args.timeout);
    let mut made = Settings::new(node, std::env::temp_dir());
    made.controller = controller;
    made.socket = Some(socket_path(endpoint)?);
    made.parameters = map(&args.parameters)?;
    made.snapshot_parameters = map(&args.snapshot_parameters)?;
    made.mutable_parameters = map(&args.mutable_parameters)?;
    if let Some(path) = &args.secrets {
        made.secrets = settings::read_secrets(path)?;
    }
    made.fs_type.clone_from(&args.fs_type);
    made.block = args.block;
    made.volume_size = args.test_volume_size;
    if let Some(path) = &args.staging_dir {
        made.staging_folder.clone_from(path);
    }
    if let Some(path) = &args.target_dir {
        made.target_folder.clone_from(path);
    }
    made.timeout = timeout;
    let restart = args.restart_command.clone();
    made.restart = restart.map(|line| Restart::command(line, timeout));
    if let Some(path) = &args.driver_log {
        std::fs::metadata(path)
            .with_context(|| format!("--driver-log {} can't be read", path.display()))?;
    }
    made.driver_log.clone_from(&args.driver_log);
    made.other_node_id.clone_from(&args.other_node_id);
    Ok(made)
}

fn write(args: &Conformance, made: &Report) -> Result<()> {
    let save = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
        Some(path) => save(path, &text()),
        None => Ok(()),
    };
    save(&args.junit, &|| report::junit(made))?;
    save(&args.html, &|| report::html(made))?;
    save(&args.json, &|| made.json())
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_quantities() {
        for (text, bytes) in [("1048576", 1 << 20), ("64Mi", 64 << 20), ("1Gi", 1 << 30)] {
            assert_eq!(volume_size(text), Ok(bytes), "{text}");
        }
        for text in ["0", "-1", "big", "", "2Pi", "5%"] {
            assert!(volume_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn too_little_room_is_told_even_to_the_quiet() {
        let (small, large) = (1 << 30, 100 << 30);
        for quiet in [true, false] {
            let told = about_room(large, Some(small), quiet).unwrap();
            assert!(
                told.contains("100 GiB") && told.contains("1024 MiB"),
                "{told}"
            );
        }
        assert_eq!(about_room(small, Some(large), true), None);
        assert!(
            about_room(small, None, false)
                .unwrap()
                .contains("doesn't tell")
        );
    }
}

//! The sidecars and the binder beside the Go ones: the same API server, driver, client and work, one set
//! after the other, each on an empty store.

mod cast;
mod tables;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Result;
use clap::Args;

use self::tables::Requests;
use super::{
    IDLE, Side,
    audit::{Audit, Sort, Who},
    build,
    figures::Figures,
    lives::Step,
    mebibytes,
    report::{self, Ratio, Row},
    servers::{self, Running},
};
use crate::kube;

/// What is to be measured.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// A tenth of everything, for a first look.
    #[arg(long)]
    brief: bool,
    /// Only ours, or only the Go ones.
    #[arg(long)]
    only: Option<Side>,
    /// How many claims at once, one number after the other. The Go set with its own limits takes
    /// those up to 100 only: it is as slow with more.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    claims: Vec<usize>,
    /// Take orlop and xtask from this folder instead of building them for release. Of a debug build
    /// requests are the same; rates, processor time and memory are not.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// A set of programs that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    /// The Go sidecars and kube-controller-manager as they are.
    GoDefault,
    /// The same without their limits.
    GoTuned,
    /// Our sidecars as they are, with kube-controller-manager without its limits.
    OursTheirBinder,
    /// Our sidecars and our binder, as they are.
    Ours,
}

const ALL: [Set; 4] = [
    Set::GoDefault,
    Set::GoTuned,
    Set::OursTheirBinder,
    Set::Ours,
];

impl Set {
    fn heading(self) -> &'static str {
        match self {
            Self::GoDefault => "Go, defaults",
            Self::GoTuned => "Go, tuned",
            Self::OursTheirBinder => "orlop, kcm's binder",
            Self::Ours => "orlop",
        }
    }

    fn side(self) -> Side {
        match self {
            Self::GoDefault | Self::GoTuned => Side::Theirs,
            Self::OursTheirBinder | Self::Ours => Side::Ours,
        }
    }
}

/// How much of everything.
#[derive(Debug, Clone)]
struct Size {
    claims: Vec<usize>,
    attachments: usize,
    snapshots: usize,
}

impl Size {
    fn of(set: Set, wanted: &Wanted) -> Self {
        let mut claims = match (&wanted.claims[..], wanted.brief) {
            ([], true) => vec![100],
            // The largest says most of memory and of the two that shall be compared.
            ([], false) if set == Set::OursTheirBinder => vec![100, 1000],
            ([], false) => vec![100, 1000, 5000],
            (given, _) => given.to_vec(),
        };
        let (mut attachments, mut snapshots) = if wanted.brief { (50, 20) } else { (500, 100) };
        if set == Set::GoDefault {
            claims.retain(|count| *count <= 100);
            (attachments, snapshots) = (attachments.min(25), snapshots.min(10));
        }
        Self {
            claims,
            attachments,
            snapshots,
        }
    }
}

/// Runs the benchmark and prints its tables.
pub(super) async fn run(wanted: &Wanted) -> Result<ExitCode> {
    let begin = Instant::now();
    let programs = match &wanted.programs {
        Some(folder) => std::path::absolute(folder)?,
        None => build()?,
    };
    let Some(binaries) = kube::build_all()? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (mut sets, mut columns, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for set in ALL {
        if wanted.only.is_some_and(|only| only != set.side()) {
            continue;
        }
        eprintln!("{}", set.heading());
        let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
        let (audit, flags) = Audit::prepare(folder.path())?;
        let mut running = servers::theirs(folder.path(), &binaries, &flags).await?;
        let mut bench = Bench {
            set,
            folder: folder.path(),
            programs: &programs,
            binaries: &binaries,
            running: &mut running,
            audit,
            figures: Figures::default(),
            requests: BTreeMap::new(),
        };
        let measured = bench.measure(&Size::of(set, wanted)).await;
        let (figures, counted) = (bench.figures, bench.requests);
        running.end().await?;
        measured?;
        sets.push(set);
        columns.push((set.heading(), figures));
        requests.push(counted);
    }
    let at = |set| sets.iter().position(|one| *one == set);
    let mut ratios: Vec<Ratio<'_>> = Vec::new();
    if let Some(tuned) = at(Set::GoTuned) {
        let beside = at(Set::OursTheirBinder).map(|ours| ("kcm's binder : tuned", ours, tuned));
        let alone = at(Set::Ours).map(|ours| ("orlop : tuned", ours, tuned));
        ratios.extend(beside.into_iter().chain(alone));
    }
    let rows = tables::rows(&tables::steps(&requests));
    let rows: Vec<Row<'_>> = rows
        .iter()
        .map(|(label, unit, name, better)| (label.as_str(), *unit, name.as_str(), *better))
        .collect();
    println!("\n{}", report::table(&columns, &ratios, &rows));
    println!("{}", tables::requests(&columns, &requests));
    let took = begin.elapsed().as_secs();
    println!("{}, {took} s", report::machine());
    Ok(ExitCode::SUCCESS)
}

/// One set, being measured.
struct Bench<'r> {
    set: Set,
    folder: &'r Path,
    programs: &'r Path,
    binaries: &'r [PathBuf],
    running: &'r mut Running,
    audit: Audit,
    figures: Figures,
    requests: Requests,
}

/// Whose processor time is told.
const GROUPS: [&str; 3] = ["sidecars", "control", "server"];

fn group(process: &str) -> &'static str {
    match process {
        "etcd" | "kube-apiserver" => "server",
        "kube-controller-manager" | "control" => "control",
        "driver" => "driver",
        _ => "sidecars",
    }
}

impl Bench<'_> {
    async fn measure(&mut self, size: &Size) -> Result<()> {
        self.furnish().await?;
        self.start_driver()?;
        self.start_control()?;
        self.start_sidecars()?;
        self.audit.settled().await?;
        tokio::time::sleep(IDLE).await;
        self.memory("idle").await?;
        // Everything has been done once before it is measured.
        for step in [Step::Bind, Step::Reclaim] {
            self.client(step, "warm", 5).await?;
        }
        self.audit.settled().await?;

        let middle = size.claims.iter().copied().filter(|count| *count <= 1000);
        let middle = middle.max();
        for count in size.claims.clone() {
            let prefix = format!("c{count}");
            self.step(Step::Bind, &prefix, count).await?;
            self.memory(&count.to_string()).await?;
            if Some(count) == middle {
                let attachments = size.attachments.min(count);
                let snapshots = size.snapshots.min(count);
                for (step, count) in [
                    (Step::Attach, attachments),
                    (Step::Detach, attachments),
                    (Step::Cut, snapshots),
                    (Step::Drop, snapshots),
                ] {
                    self.step(step, &prefix, count).await?;
                }
            }
            // What is left goes with the store.
            if count <= 1000 {
                self.step(Step::Reclaim, &prefix, count).await?;
            }
        }
        Ok(())
    }

    /// Leads objects through a step; takes down what it took.
    async fn step(&mut self, step: Step, prefix: &str, count: usize) -> Result<()> {
        let name = match step {
            Step::Bind | Step::Reclaim => format!("{} {count}", step.word()),
            _ => step.word().to_owned(),
        };
        let before = self.processor()?;
        let mut told = self.client(step, prefix, count).await?;
        let counts = self.audit.settled().await?;
        for ((group, before), (_, after)) in before.into_iter().zip(self.processor()?) {
            let used = (after - before) / count as f64 * 1e3;
            told.set(&format!("processor {group}"), used);
        }
        let per = |chosen: &dyn Fn(&Sort) -> bool| {
            let chosen = counts.iter().filter(|(sort, _)| chosen(sort));
            chosen.map(|(_, count)| *count).sum::<usize>() as f64 / count as f64
        };
        told.set("requests", per(&|_| true));
        for who in [Who::Sidecars, Who::Control] {
            let name = format!("requests {}", who.word());
            told.set(&name, per(&|sort| sort.who == who));
        }
        for code in [404, 409] {
            told.set(&format!("requests {code}"), per(&|sort| sort.code == code));
        }
        self.figures.add(&format!("{name}: "), &told);
        self.requests.insert(name, (count, counts));
        Ok(())
    }

    async fn client(&mut self, step: Step, prefix: &str, count: usize) -> Result<Figures> {
        let work = ["lead", step.word(), prefix, &count.to_string()];
        super::client(&self.programs.join("xtask"), self.running, &work).await
    }

    fn processor(&self) -> Result<Vec<(&'static str, f64)>> {
        let mut used = Vec::new();
        for name in GROUPS {
            let usage = self.running.usage_of(|process| group(process) == name)?;
            used.push((name, usage.processor.as_secs_f64()));
        }
        Ok(used)
    }

    async fn memory(&mut self, when: &str) -> Result<()> {
        let usage = self
            .running
            .usage_of(|process| group(process) == "sidecars")?;
        self.figures
            .set(&format!("memory {when}"), mebibytes(usage.memory));
        let mut each = Vec::new();
        for name in self.running.names() {
            let usage = self.running.usage_of(|process| process == name)?;
            each.push(format!("{name} {}", report::round(mebibytes(usage.memory))));
        }
        eprintln!("  memory, MiB ({when}): {}", each.join(", "));
        Ok(())
    }
}

//! Binder and attach-detach beside kube-controller-manager's: the same API server, client and work, one
//! set after the other, each on an empty store; then ours over the embedded server, all in one process.
//! Nodes are objects only, and an attacher that costs the same for all stands in for drivers.

mod cast;
mod work;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Result;
use clap::{Args, ValueEnum};

pub(super) use self::work::{Extent, Phase, lead};
use super::{
    IDLE, REST,
    audit::{Audit, Counts, Who},
    build,
    figures::Figures,
    mebibytes,
    report::{self, Better, Ratio, Row},
    servers::{self, Running},
};
use crate::kube;

/// What is to be measured.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// A tenth of everything, for a first look.
    #[arg(long)]
    brief: bool,
    /// Only ours, only the originals, or only `orlop up`, which needs no Go.
    #[arg(long)]
    only: Option<Only>,
    /// How many volumes and claims are bound, one number after the other.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    claims: Vec<usize>,
    /// How many volumes are attached and moved.
    #[arg(long, value_name = "COUNT")]
    attachments: Option<usize>,
    /// To how many nodes.
    #[arg(long, value_name = "COUNT")]
    nodes: Option<usize>,
    /// How many further volumes lie on the embedded server when the last claims are bound.
    #[arg(long, value_name = "COUNT")]
    stock: Option<usize>,
    /// Besides, attach and move by no controller at all: the client itself sends the requests that
    /// nobody can leave out. No controller is quicker on this server.
    #[arg(long)]
    floor: bool,
    /// Take orlop and xtask from this folder instead of building them for release. Of a debug build
    /// requests are the same; rates, processor time and memory are not.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// What may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// `orlop control` and `orlop up`.
    Ours,
    /// kube-controller-manager.
    Theirs,
    /// `orlop up` alone.
    Up,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    /// kube-controller-manager without its client's limits.
    Manager,
    /// Ours as it is.
    Ours,
    /// Ours and the embedded API server, as `orlop up` runs them.
    Embedded,
    /// No attach-detach: the client knows beforehand what one would ask for.
    Floor,
}

impl Set {
    fn heading(self) -> &'static str {
        match self {
            Self::Manager => "kube-controller-manager, tuned",
            Self::Ours => "orlop control",
            Self::Embedded => "orlop up",
            Self::Floor => "the fewest requests",
        }
    }

    fn is_among(self, wanted: &Wanted) -> bool {
        if self == Self::Floor {
            return wanted.floor;
        }
        match wanted.only {
            None => true,
            Some(Only::Ours) => self != Self::Manager,
            Some(Only::Theirs) => self == Self::Manager,
            Some(Only::Up) => self == Self::Embedded,
        }
    }
}

/// How much of everything.
struct Size {
    claims: Vec<usize>,
    attachments: usize,
    nodes: usize,
    stock: usize,
}

impl Size {
    fn of(wanted: &Wanted) -> Self {
        let claims = match (&wanted.claims[..], wanted.brief) {
            ([], true) => vec![100],
            ([], false) => vec![1000, 5000],
            (given, _) => given.to_vec(),
        };
        let (attachments, nodes, stock) = match wanted.brief {
            true => (50, 5, 10_000),
            false => (500, 50, 100_000),
        };
        Self {
            claims,
            attachments: wanted.attachments.unwrap_or(attachments),
            nodes: wanted.nodes.unwrap_or(nodes),
            stock: wanted.stock.unwrap_or(stock),
        }
    }

    /// How many claims are bound once the stock is there: as many as at first, to compare.
    fn among(&self) -> usize {
        self.claims.first().copied().unwrap_or_default()
    }
}

/// Runs the benchmark and prints its table.
pub(super) async fn run(wanted: &Wanted) -> Result<ExitCode> {
    let begin = Instant::now();
    let programs = match &wanted.programs {
        Some(folder) => std::path::absolute(folder)?,
        None => build()?,
    };
    let binaries = match wanted.only {
        Some(Only::Up) => Vec::new(),
        _ => match kube::build_all()? {
            Some(binaries) => binaries,
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    let size = Size::of(wanted);
    let mut columns = Vec::new();
    for set in [Set::Manager, Set::Ours, Set::Embedded, Set::Floor] {
        if !set.is_among(wanted) {
            continue;
        }
        eprintln!("{}", set.heading());
        let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
        let (audit, mut running) = match set {
            Set::Embedded => {
                let program = programs.join("orlop");
                (None, servers::everything(folder.path(), &program).await?)
            }
            Set::Manager | Set::Ours | Set::Floor => {
                let (audit, flags) = Audit::prepare(folder.path())?;
                let theirs = servers::theirs(folder.path(), &binaries, &flags).await?;
                (Some(audit), theirs)
            }
        };
        let mut bench = Bench {
            set,
            folder: folder.path(),
            programs: &programs,
            binaries: &binaries,
            running: &mut running,
            audit,
            figures: Figures::default(),
        };
        let measured = bench.measure(&size).await;
        let figures = bench.figures;
        running.end().await?;
        measured?;
        columns.push((set.heading(), figures));
    }
    let ratios: &[Ratio<'_>] = match (wanted.only, columns.len()) {
        (None, 4) => &[
            ("better by", 1, 0),
            ("all in one by", 2, 0),
            ("at most by", 3, 0),
        ],
        (None, _) => &[("better by", 1, 0), ("all in one by", 2, 0)],
        (Some(Only::Ours), 2..) => &[("all in one by", 1, 0)],
        _ => &[],
    };
    let rows = rows(&size);
    let rows: Vec<Row<'_>> = rows
        .iter()
        .map(|(label, unit, name, better)| (label.as_str(), *unit, name.as_str(), *better))
        .collect();
    println!("\n{}", report::table(&columns, ratios, &rows));
    let took = begin.elapsed().as_secs();
    println!("{}, {took} s", report::machine());
    Ok(ExitCode::SUCCESS)
}

fn rows(size: &Size) -> Vec<(String, &'static str, String, Better)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for count in &size.claims {
        steps.push((format!("bind {count}"), format!("{count} claims to Bound")));
    }
    let (count, nodes) = (size.attachments, size.nodes);
    for (step, label) in [
        ("attach", format!("{count} volumes to {nodes} nodes")),
        ("move", "… all to other nodes".to_owned()),
    ] {
        steps.push((step.to_owned(), label));
    }
    let (stock, among) = (size.stock, size.among());
    steps.push(("stock".to_owned(), format!("{stock} volumes to Available")));
    steps.push((
        "among".to_owned(),
        format!("{among} claims to Bound among these"),
    ));
    let mut rows = vec![(
        "memory, after 20 s at rest".to_owned(),
        "MiB",
        "memory idle".to_owned(),
        Better::Less,
    )];
    for (step, label) in steps {
        rows.push((label, "/s", format!("{step}: rate"), Better::More));
        for (label, unit, name) in [
            ("… p50", "ms", "time p50"),
            ("… p99", "ms", "time p99"),
            ("… its requests", "each", "requests"),
            ("… answered 409", "each", "requests 409"),
            ("… its processor", "s/1000", "processor control"),
            ("… API server's and etcd's", "s/1000", "processor server"),
            ("… its memory then", "MiB", "memory"),
        ] {
            rows.push((
                label.to_owned(),
                unit,
                format!("{step}: {name}"),
                Better::Less,
            ));
        }
    }
    rows
}

/// One set, being measured.
struct Bench<'r> {
    set: Set,
    folder: &'r Path,
    programs: &'r Path,
    binaries: &'r [PathBuf],
    running: &'r mut Running,
    /// The embedded server writes none.
    audit: Option<Audit>,
    figures: Figures,
}

fn is_server(process: &str) -> bool {
    ["etcd", "kube-apiserver"].contains(&process)
}

impl Bench<'_> {
    async fn measure(&mut self, size: &Size) -> Result<()> {
        self.furnish(size.nodes).await?;
        self.start_control()?;
        self.settled().await?;
        tokio::time::sleep(IDLE).await;
        let idle = self.memory()?;
        self.figures.set("memory idle", idle);
        // Everything has been done once before it is measured.
        for phase in [Phase::Bind, Phase::Attach, Phase::Move] {
            let warm = ("", phase, "warm");
            self.lead(warm, 5, size.nodes).await?;
        }
        self.settled().await?;
        if self.set == Set::Floor {
            let prepared = ("", Phase::Bind, "floor");
            self.lead(prepared, size.attachments, size.nodes).await?;
            self.settled().await?;
            for (name, phase) in [("attach", Phase::Attach), ("move", Phase::Move)] {
                let step = (name, phase, "floor");
                self.step(step, size.attachments, size.nodes).await?;
            }
            return Ok(());
        }
        let largest = size.claims.iter().max().copied().unwrap_or_default();
        for count in size.claims.clone() {
            let (name, prefix) = (format!("bind {count}"), format!("c{count}"));
            let step = (name.as_str(), Phase::Bind, prefix.as_str());
            self.step(step, count, size.nodes).await?;
        }
        let (prefix, count) = (format!("c{largest}"), size.attachments.min(largest));
        for (name, phase) in [("attach", Phase::Attach), ("move", Phase::Move)] {
            self.step((name, phase, &prefix), count, size.nodes).await?;
        }
        if self.set == Set::Embedded {
            self.step(("stock", Phase::Stock, "stock"), size.stock, size.nodes)
                .await?;
            self.step(("among", Phase::Bind, "among"), size.among(), size.nodes)
                .await?;
        }
        Ok(())
    }

    /// Waits until nothing is asked any more; tells what was, where that is known.
    async fn settled(&mut self) -> Result<Option<Counts>> {
        Ok(match &mut self.audit {
            Some(audit) => Some(audit.settled().await?),
            None => {
                tokio::time::sleep(REST).await;
                None
            }
        })
    }

    /// Leads objects through a phase; takes down what it took.
    async fn step(&mut self, step: (&str, Phase, &str), count: usize, nodes: usize) -> Result<()> {
        let before = self.processor()?;
        let mut told = self.lead(step, count, nodes).await?;
        let counts = self.settled().await?;
        for ((name, before), (_, after)) in before.into_iter().zip(self.processor()?) {
            let used = (after - before) / count as f64 * 1e3;
            // All in one process there is no telling them apart.
            if name == "control" || self.audit.is_some() {
                told.set(&format!("processor {name}"), used);
            }
        }
        if let Some(counts) = counts {
            let ours = counts.iter().filter(|(sort, _)| sort.who == Who::Control);
            let per = |chosen: usize| chosen as f64 / count as f64;
            told.set("requests", per(ours.clone().map(|(_, n)| n).sum()));
            let refused = ours.filter(|(sort, _)| sort.code == 409);
            told.set("requests 409", per(refused.map(|(_, n)| n).sum()));
        }
        told.set("memory", self.memory()?);
        self.figures.add(&format!("{}: ", step.0), &told);
        Ok(())
    }

    async fn lead(
        &mut self,
        (_, phase, prefix): (&str, Phase, &str),
        count: usize,
        nodes: usize,
    ) -> Result<Figures> {
        let (count, nodes) = (count.to_string(), nodes.to_string());
        let mut work = vec!["control", phase.word(), prefix, &count, &nodes];
        if self.set == Set::Floor {
            work.push("--floor");
        }
        super::client(&self.programs.join("xtask"), self.running, &work).await
    }

    fn processor(&self) -> Result<[(&'static str, f64); 2]> {
        let of = |server: bool| -> Result<f64> {
            let usage = self
                .running
                .usage_of(|process| is_server(process) == server)?;
            Ok(usage.processor.as_secs_f64())
        };
        Ok([("control", of(false)?), ("server", of(true)?)])
    }

    fn memory(&self) -> Result<f64> {
        let usage = self.running.usage_of(|process| !is_server(process))?;
        Ok(mebibytes(usage.memory))
    }
}

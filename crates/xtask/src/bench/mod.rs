//! Benchmarks of ours beside the original, in one run with one client. `docs/benchmarks.md` says how
//! to read them.
//!
//! ```text
//! command    starts a server, then one client per measurement, and reads what the server used
//!   server   orlop apiserver; or etcd and kube-apiserver
//!   client   `bench-client`, in a process of its own so that its share is known
//! ```

mod audit;
mod client;
mod control;
mod figures;
mod follow;
mod lives;
mod load;
mod node;
mod objects;
mod report;
mod servers;
mod sidecars;
mod usage;
mod watchers;

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use tokio::process::Command;

pub(crate) use self::node::{Inside, measure as measure_nodes};
use self::{client::Server, figures::Figures, objects::Kind, servers::Running};
use crate::kube;

/// How long a server rests before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// How long roles rest before the memory that they take when there is nothing to do is read.
const IDLE: Duration = Duration::from_secs(20);
/// How long one measurement may take. Those that can tell what they wait for give up before.
const BOUND: Duration = Duration::from_secs(1200);

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// The embedded API server beside etcd and kube-apiserver.
    Apiserver {
        /// A tenth of everything, for a first look.
        #[arg(long)]
        brief: bool,
        /// Only one of the two.
        #[arg(long)]
        only: Option<Side>,
        /// Add 10,000 idle and 100 stuck watchers, and say what they do to others.
        #[arg(long)]
        crowd: bool,
    },
    /// The sidecars and the binder beside the Go ones, on one API server with one driver.
    Sidecars(sidecars::Wanted),
    /// Binder and attach-detach beside kube-controller-manager's, on one API server.
    Control(control::Wanted),
    /// Our node beside the kubelet, with one driver on one API server.
    Node(node::Wanted),
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// orlop.
    Ours,
    /// The original in Go.
    Theirs,
}

/// A client of a benchmark.
#[derive(Debug, Args)]
pub(crate) struct Client {
    /// Whom to talk to, and as whom.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// What to do.
    #[command(subcommand)]
    work: Work,
}

impl Client {
    /// Whether it has one thing to do at a time.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.work, Work::Latency { .. })
    }
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Create objects.
    Create {
        kind: Kind,
        prefix: String,
        count: usize,
        clients: usize,
    },
    /// Get objects that were created.
    Get {
        kind: Kind,
        prefix: String,
        objects: usize,
        count: usize,
        clients: usize,
    },
    /// List a collection.
    List {
        kind: Kind,
        times: usize,
        limit: Option<usize>,
    },
    /// Time creates and their events.
    Latency { count: usize },
    /// Deliver events to many.
    FanOut {
        watchers: usize,
        singles: usize,
        burst: usize,
    },
    /// Lead objects through a step of their lives.
    Lead {
        step: lives::Step,
        prefix: String,
        count: usize,
    },
    /// Lead claims and pods through a phase of what binder and attach-detach do.
    Control {
        phase: control::Phase,
        prefix: String,
        count: usize,
        nodes: usize,
        #[arg(long)]
        floor: bool,
    },
    /// Time creates and their events with and without a crowd of watchers.
    Crowd {
        idle: usize,
        stuck: usize,
        rounds: usize,
        count: usize,
    },
}

/// How much of everything.
#[derive(Debug, Clone, Copy)]
struct Size {
    objects: usize,
    gets: usize,
    lists: usize,
    events: usize,
    watchers: usize,
    singles: usize,
    burst: usize,
}

const FULL: Size = Size {
    objects: 10_000,
    gets: 40_000,
    lists: 10,
    events: 1_000,
    watchers: 1_000,
    singles: 20,
    burst: 300,
};
const BRIEF: Size = Size {
    objects: 1_000,
    gets: 4_000,
    lists: 5,
    events: 200,
    watchers: 100,
    singles: 10,
    burst: 100,
};

/// Does the work of a client and tells its figures in one line.
pub(crate) async fn be_client(client: Client) -> Result<ExitCode> {
    let server = Server::of(&client.kubeconfig).await?;
    let mut figures = match client.work {
        Work::Create {
            kind,
            prefix,
            count,
            clients,
        } => load::create(&server, kind, &prefix, (count, clients)).await?,
        Work::Get {
            kind,
            prefix,
            objects,
            count,
            clients,
        } => load::get(&server, kind, (&prefix, objects), (count, clients)).await?,
        Work::List { kind, times, limit } => load::list(&server, kind, times, limit).await?,
        Work::Latency { count } => watchers::latency(&server, "latency", count).await?,
        Work::FanOut {
            watchers,
            singles,
            burst,
        } => watchers::fan_out(&server, watchers, (singles, burst)).await?,
        Work::Lead {
            step,
            prefix,
            count,
        } => lives::lead(&server, step, &prefix, count).await?,
        Work::Control {
            phase,
            prefix,
            count,
            nodes,
            floor,
        } => {
            let extent = control::Extent {
                prefix: &prefix,
                count,
                nodes,
                floor,
            };
            control::lead(&server, phase, extent).await?
        }
        Work::Crowd {
            idle,
            stuck,
            rounds,
            count,
        } => watchers::crowd(&server, (idle, stuck), (rounds, count)).await?,
    };
    let used = usage::of([std::process::id()])?;
    figures.set("client processor", used.processor.as_secs_f64());
    println!("{}", figures.to_line());
    Ok(ExitCode::SUCCESS)
}

/// Runs a benchmark and prints its table.
pub(crate) async fn run(what: What) -> Result<ExitCode> {
    match what {
        What::Apiserver { brief, only, crowd } => apiserver(brief, only, crowd).await,
        What::Sidecars(wanted) => sidecars::run(&wanted).await,
        What::Control(wanted) => control::run(&wanted).await,
        What::Node(wanted) => node::run(&wanted).await,
    }
}

async fn apiserver(brief: bool, only: Option<Side>, crowd: bool) -> Result<ExitCode> {
    let programs = build()?;
    let size = if brief { BRIEF } else { FULL };
    let mut columns = Vec::new();
    for side in [Side::Ours, Side::Theirs] {
        if only.is_some_and(|only| only != side) {
            continue;
        }
        let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
        let (heading, mut running) = match side {
            Side::Ours => {
                let ours = servers::ours(folder.path(), &programs.join("orlop")).await?;
                ("orlop", ours)
            }
            Side::Theirs => {
                let Some(binaries) = kube::build_all()? else {
                    continue;
                };
                let theirs = servers::theirs(folder.path(), &binaries, &[]).await?;
                ("etcd + kube-apiserver", theirs)
            }
        };
        let mut bench = Bench {
            program: programs.join("xtask"),
            size,
            running: &mut running,
            figures: Figures::default(),
        };
        let measured = bench.measure(crowd).await;
        let figures = bench.figures;
        running.end().await?;
        measured?;
        columns.push((heading, figures));
    }
    let ratios: &[report::Ratio<'_>] = match columns.len() {
        2 => &[("better by", 0, 1)],
        _ => &[],
    };
    let table = report::table(&columns, ratios, &report::API_SERVER);
    print!("\n{table}\n{}\n", report::machine());
    Ok(ExitCode::SUCCESS)
}

/// Builds what is measured and what measures as they are shipped; answers with their folder.
pub(crate) fn build() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let target = this.parent().and_then(Path::parent);
    let target = target.context("this program lies in no target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    eprintln!("building orlop and its client for release");
    let status = std::process::Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--release",
            "--package=orlop",
            "--package=xtask",
        ])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"))
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        bail!("orlop does not build");
    }
    Ok(target.join("release"))
}

/// One server, being measured.
struct Bench<'r> {
    program: PathBuf,
    size: Size,
    running: &'r mut Running,
    figures: Figures,
}

impl Bench<'_> {
    async fn measure(&mut self, crowd: bool) -> Result<()> {
        let size = self.size;
        self.figures
            .set("start", self.running.start.as_secs_f64() * 1e3);
        self.memory("empty").await?;
        let server = Server::of(&self.running.kubeconfig).await?;
        let namespace = objects::namespace(objects::NAMESPACE);
        server
            .connect()
            .await?
            .ask(Method::POST, "/api/v1/namespaces", namespace)
            .await?;
        self.create(Kind::Configmap, "warm", size.objects / 5)
            .await?;
        for kind in [Kind::Configmap, Kind::Claim, Kind::Volume] {
            self.create(kind, "item", size.objects).await?;
        }
        self.memory("full").await?;
        let objects = size.objects.to_string();
        let gets = [
            "get",
            "claim",
            "item",
            &objects,
            &size.gets.to_string(),
            "16",
        ];
        self.client("get", size.gets, &gets).await?;
        let lists = size.lists.to_string();
        self.client("list", size.lists, &["list", "claim", &lists])
            .await?;
        let paged = ["list", "claim", &lists, "500"];
        self.client("list paged", size.lists, &paged).await?;
        let latency = ["latency", &size.events.to_string()];
        self.client("latency", size.events, &latency).await?;
        let fan_out = [
            "fan-out",
            &size.watchers.to_string(),
            &size.singles.to_string(),
            &size.burst.to_string(),
        ];
        let delivered = size.watchers * (size.burst + size.singles);
        self.client("fan-out", delivered, &fan_out).await?;
        if crowd {
            let (idle, stuck) = (size.watchers * 10, size.watchers / 10);
            let (idle, stuck) = (idle.to_string(), stuck.to_string());
            let count = size.events.to_string();
            let crowd = ["crowd", &idle, &stuck, "3", &count];
            self.client("crowd", 1, &crowd).await?;
        }
        let usage = self.running.usage()?;
        self.figures.set("memory peak", mebibytes(usage.peak));
        Ok(())
    }

    async fn create(&mut self, kind: Kind, prefix: &str, count: usize) -> Result<()> {
        let name = if prefix == "warm" {
            "warm".to_owned()
        } else {
            format!("create {}", kind.word())
        };
        let work = ["create", kind.word(), prefix, &count.to_string(), "16"];
        self.client(&name, count, &work).await
    }

    async fn memory(&mut self, when: &str) -> Result<()> {
        tokio::time::sleep(REST).await;
        let usage = self.running.usage()?;
        self.figures
            .set(&format!("memory {when}"), mebibytes(usage.memory));
        Ok(())
    }

    /// Lets a client do its work of so many things; takes down its figures and what the work cost.
    async fn client(&mut self, name: &str, count: usize, work: &[&str]) -> Result<()> {
        let before = self.running.usage()?;
        let mut told = client(&self.program, self.running, work).await?;
        let used = self.running.usage()?.processor - before.processor;
        told.set("processor", used.as_secs_f64() / count as f64 * 1e3);
        if let Some(client) = told.get("client processor") {
            told.set("client processor", client / count as f64 * 1e3);
        }
        self.figures.add(&format!("{name}: "), &told);
        Ok(())
    }
}

/// Lets a client do its work on a server; answers with what it tells.
async fn client(program: &Path, running: &mut Running, work: &[&str]) -> Result<Figures> {
    let name = work.join(" ");
    eprintln!("  {name}");
    let output = Command::new(program)
        .args(["kube", "bench-client", "--kubeconfig"])
        .arg(&running.kubeconfig)
        .args(work)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(BOUND, output)
        .await
        .with_context(|| format!("{name} took more than {} s", BOUND.as_secs()))?
        .context("could not start the client")?;
    running.check()?;
    if !output.status.success() {
        // One that failed by itself has said why above.
        bail!("the client of {name:?} failed ({})", output.status);
    }
    Figures::from_line(String::from_utf8_lossy(&output.stdout).trim())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

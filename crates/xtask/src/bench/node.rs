//! Our node beside the kubelet: the same API server, driver, pods and disk, one node after the other
//! under one name and in one folder.

mod attaching;
mod cast;
mod mounts;
mod pods;
mod rows;

use std::{
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::{
    attaching::{Decider, PAUSE},
    cast::{Running, Way, claim_name},
    mounts::Mounts,
    pods::{Ground, Wanted as Pod},
};
use super::{
    Side, build,
    client::Server,
    figures::Figures,
    mebibytes,
    report::{self, Better, Ratio, Row},
};
use crate::{
    kube::{self, folder::Folder},
    stage::Stage,
};

/// How long a node rests before it is watched doing nothing.
const REST: Duration = Duration::from_secs(15);

/// What is to be measured.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// A tenth of everything, for a first look.
    #[arg(long)]
    brief: bool,
    /// Only ours, or only the kubelet.
    #[arg(long)]
    only: Option<Side>,
    /// How many pods are on the node at once, with two volumes each.
    #[arg(long, value_name = "COUNT")]
    pods: Option<usize>,
    /// How many pods come and go one after the other.
    #[arg(long, value_name = "COUNT")]
    singles: Option<usize>,
    /// For how many seconds the nodes are watched doing nothing.
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Take orlop and xtask from this folder instead of building them for release.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// What is measured inside of a cluster.
#[derive(Debug, Args)]
pub(crate) struct Inside {
    /// The cluster's folder.
    folder: PathBuf,
    #[arg(long)]
    pods: usize,
    #[arg(long)]
    singles: usize,
    #[arg(long)]
    idle: u64,
    /// Who.
    #[arg(long, value_delimiter = ',')]
    sets: Vec<Set>,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Set {
    /// The kubelet with containerd, at its defaults.
    Kubelet,
    /// Ours with the same containerd.
    Runtime,
    /// Ours with containers as host processes.
    Own,
}

impl Set {
    fn heading(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Runtime => "orlop node --cri",
            Self::Own => "orlop node",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Runtime => "runtime",
            Self::Own => "own",
        }
    }

    /// A kubelet takes half a minute for one volume that is attached and detached.
    fn attached(self, singles: usize) -> usize {
        match self {
            Self::Kubelet => singles.div_ceil(4),
            Self::Runtime | Self::Own => singles,
        }
    }
}

/// Starts a cluster, and measures in it.
pub(super) async fn run(wanted: &Wanted) -> Result<ExitCode> {
    let programs = match &wanted.programs {
        Some(folder) => std::path::absolute(folder)?,
        None => build()?,
    };
    let Some(mut binaries) = kube::build_all()? else {
        return Ok(ExitCode::SUCCESS);
    };
    binaries.push(programs.join("orlop"));
    let (pods, singles, idle) = match wanted.brief {
        true => (10, 4, 10),
        false => (100, 20, 60),
    };
    let sets: &[Set] = match wanted.only {
        None => &[Set::Own, Set::Runtime, Set::Kubelet],
        Some(Side::Ours) => &[Set::Own, Set::Runtime],
        Some(Side::Theirs) => &[Set::Kubelet],
    };
    let sets: Vec<&str> = sets.iter().map(|set| set.word()).collect();
    let words = [
        "kube".to_owned(),
        "bench-node".to_owned(),
        format!("--pods={}", wanted.pods.unwrap_or(pods)),
        format!("--singles={}", wanted.singles.unwrap_or(singles)),
        format!("--idle={}", wanted.idle.unwrap_or(idle)),
        format!("--sets={}", sets.join(",")),
    ];
    let arguments = |folder: &Folder| {
        let folder = folder.path().as_os_str().to_owned();
        let words = words.into_iter().map(OsString::from);
        words.chain([folder]).collect()
    };
    let program = programs.join("xtask");
    kube::inside(("bench", binaries), false, &program, arguments).await
}

/// Measures, and prints the table.
pub(crate) async fn measure(inside: &Inside) -> Result<ExitCode> {
    let begin = Instant::now();
    let cluster = Folder::at(inside.folder.clone());
    let plain = Stage::open(&cluster, "plain").await?;
    let attached = Stage::open(&cluster, "attached").await?;
    cast::restore_defaults(&plain, cluster.path()).await?;
    eprintln!("{} volumes", inside.pods * 2);
    tokio::try_join!(
        cast::furnish(&plain, false, inside.pods * 2),
        cast::furnish(&attached, true, 1)
    )?;
    let server = Server::of(&cluster.admin()).await?;
    let kubelet = cast::kubelet(&cluster).await?;
    let mounts = Mounts::follow()?;
    let rows = rows::all(inside.pods);
    let rows: Vec<Row<'_>> = rows
        .iter()
        .map(|(label, unit, name)| (label.as_str(), *unit, *name, Better::Less))
        .collect();
    let mut columns = Vec::new();
    let mut warm = true;
    for set in inside.sets.iter().copied() {
        eprintln!("{}", set.heading());
        let running = cast::start(&plain, set).await?;
        let mut bench = Bench {
            plain: &plain,
            attached: &attached,
            server: &server,
            kubelet: &kubelet,
            mounts: &mounts,
            set,
            running: &running,
            figures: Figures::default(),
        };
        if std::mem::take(&mut warm) {
            // Volumes get their file systems when they are used first.
            let all = bench.crowd(inside.pods);
            let (raised, _) = bench.ground(false).raise(&all).await?;
            bench.ground(false).take_down(&raised).await?;
        }
        bench.measure(inside).await?;
        let figures = bench.figures;
        running.end(&plain).await?;
        let column = (set.heading(), figures);
        // Should a later one fail, this one was measured.
        eprintln!(
            "{}",
            report::table(std::slice::from_ref(&column), &[], &rows)
        );
        columns.push(column);
    }
    // The kubelet is the one that others are compared with.
    columns.sort_by_key(|(heading, _)| *heading != Set::Kubelet.heading());
    let ratios: &[Ratio<'_>] = match columns.len() {
        3 => &[("host processes by", 1, 0), ("containerd by", 2, 0)],
        _ => &[],
    };
    println!("\n{}", report::table(&columns, ratios, &rows));
    let took = begin.elapsed().as_secs();
    println!("{}, {took} s", report::machine());
    tokio::try_join!(cast::clear(&plain), cast::clear(&attached))?;
    tokio::try_join!(plain.close(), attached.close())?;
    Ok(ExitCode::SUCCESS)
}

/// One node, being measured.
struct Bench<'b> {
    plain: &'b Stage,
    attached: &'b Stage,
    server: &'b Server,
    kubelet: &'b Server,
    mounts: &'b Mounts,
    set: Set,
    running: &'b Running,
    figures: Figures,
}

impl<'b> Bench<'b> {
    fn ground(&self, attaches: bool) -> Ground<'b> {
        let stage = if attaches { self.attached } else { self.plain };
        Ground {
            server: self.server,
            namespace: stage.namespace(),
            mounts: self.mounts,
            attaches,
        }
    }

    /// As many pods as there are pairs of volumes.
    fn crowd(&self, pods: usize) -> Vec<Pod> {
        let pod = |n: usize| Pod {
            name: format!("{}-{n}", self.set.word()),
            claims: vec![claim_name(n * 2), claim_name(n * 2 + 1)],
        };
        (0..pods).map(pod).collect()
    }

    async fn measure(&mut self, size: &Inside) -> Result<()> {
        let attached = self.set.attached(size.singles);
        self.singles("none", (size.singles, 0), false).await?;
        self.singles("one", (size.singles, 1), false).await?;
        self.singles("attached", (attached, 1), true).await?;
        // Without kube-controller-manager's waits the node's own part is seen.
        let decider = Decider::ours(self.plain).await?;
        self.singles("by ours", (attached, 1), true).await?;
        decider.end(self.plain).await?;
        for (name, of, way) in [
            ("one: added", "one: ready p50", "none: ready p50"),
            ("one: added down", "one: gone p50", "none: gone p50"),
            ("attached: added", "attached: ready p50", "none: ready p50"),
            ("by ours: added", "by ours: ready p50", "none: ready p50"),
        ] {
            if let (Some(with), Some(without)) = (self.figures.get(of), self.figures.get(way)) {
                self.figures.set(name, with - without);
            }
        }
        self.all(size).await
    }

    /// Pods one after the other.
    async fn singles(
        &mut self,
        step: &str,
        (count, volumes): (usize, usize),
        attaches: bool,
    ) -> Result<()> {
        eprintln!("  {count} times {step}");
        let ground = self.ground(attaches);
        let mut samples = Samples::default();
        // The first one only warms up.
        for n in 0..=count {
            let pod = Pod {
                name: format!("{}-{}-{n}", self.set.word(), step.replace(' ', "-")),
                claims: (0..volumes).map(claim_name).collect(),
            };
            if attaches {
                tokio::time::sleep(PAUSE).await;
            }
            let before = self.calls(&ground, Way::Up).await?;
            let (raised, up) = ground.raise(&[pod]).await?;
            let calls = self.calls(&ground, Way::Up).await? - before;
            let down = ground.take_down(&raised).await?;
            if n == 0 {
                continue;
            }
            samples.take(&up);
            samples.take(&down);
            if volumes > 0 {
                let mounted = raised[0].mounted(self.mounts)?;
                samples.add("calls", calls);
                samples.add("over", mounted.saturating_sub(calls));
            }
        }
        let told = samples.summed_up();
        self.figures.add(&format!("{step}: "), &told);
        Ok(())
    }

    /// All pods at once; then nothing; then all go.
    async fn all(&mut self, size: &Inside) -> Result<()> {
        eprintln!("  {} pods at once", size.pods);
        let ground = self.ground(false);
        let each = |time: Duration| time.as_secs_f64() * 1e3 / size.pods as f64;
        let calls = self.calls(&ground, Way::Up).await?;
        let before = self.running.usage(self.plain)?;
        let (raised, mut told) = ground.raise(&self.crowd(size.pods)).await?;
        let after = self.running.usage(self.plain)?;
        told.set("processor", each(after.processor - before.processor));
        let calls = self.calls(&ground, Way::Up).await? - calls;
        told.set("calls", each(calls));
        anyhow::ensure!(
            self.mounts.published() == size.pods * 2,
            "{} volumes are mounted, not {}",
            self.mounts.published(),
            size.pods * 2
        );
        self.figures.add("all: ", &told);

        eprintln!("  {} s at rest", size.idle);
        tokio::time::sleep(REST).await;
        let before = self.running.fine_processor(self.plain)?;
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(size.idle)).await;
        let used = self.running.fine_processor(self.plain)?;
        // Of a thread that ended meanwhile nothing is told.
        let share = used.saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64();
        self.figures.set("idle: processor", share * 1e2);
        let memory = self.running.usage(self.plain)?.memory;
        self.figures.set("idle: memory", mebibytes(memory));

        eprintln!("  all deleted");
        let calls = self.calls(&ground, Way::Down).await?;
        let before = self.running.usage(self.plain)?;
        let mut told = ground.take_down(&raised).await?;
        let after = self.running.usage(self.plain)?;
        told.set("processor down", each(after.processor - before.processor));
        let calls = self.calls(&ground, Way::Down).await? - calls;
        told.set("calls down", each(calls));
        self.figures.add("all: ", &told);
        Ok(())
    }

    async fn calls(&self, ground: &Ground<'_>, way: Way) -> Result<Duration> {
        let stage = if ground.attaches {
            self.attached
        } else {
            self.plain
        };
        let driver = stage.driver_name();
        self.running.calls(self.kubelet, &driver, way).await
    }
}

/// What single pods took.
#[derive(Default)]
struct Samples(std::collections::BTreeMap<String, Vec<Duration>>);

impl Samples {
    fn add(&mut self, name: &str, time: Duration) {
        self.0.entry(name.to_owned()).or_default().push(time);
    }

    /// Takes down the times of one pod, which are its own median.
    fn take(&mut self, told: &Figures) {
        let steps = attaching::STEPS;
        for name in ["ready", "mounted", "gone", "unmounted", "detached"]
            .into_iter()
            .chain(steps)
        {
            if let Some(millis) = told.get(&format!("{name} p50")) {
                self.add(name, Duration::from_secs_f64(millis / 1e3));
            }
        }
    }

    fn summed_up(self) -> Figures {
        let mut figures = Figures::default();
        for (name, sample) in self.0 {
            figures.sample(&name, sample);
        }
        figures
    }
}

//! `cargo xtask kube …`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use super::{
    cleanup,
    cluster::{Cluster, END, failure},
    component,
    fitness::{build_all, build_orlop},
    folder::Folder,
    init, keeper, logs, namespaces, sanity, supervisor,
};
use crate::{bench, scenarios};

/// What to do with the test cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build Kubernetes and its friends into the cache, where they aren't yet.
    Build,
    /// Run scenarios on a cluster of their own.
    Test {
        /// Which ones; all without a name.
        names: Vec<String>,
        /// Say which ones there are, and run none.
        #[arg(long)]
        list: bool,
        /// Leave the cluster running afterwards, for `enter`, `logs` and `down`.
        #[arg(long)]
        keep: bool,
        /// How many run at once.
        #[arg(long, default_value_t = 3)]
        jobs: usize,
    },
    /// Run csi-sanity on the local driver, without a cluster: many times, on pools of several kinds.
    Sanity {
        /// How many times on each.
        #[arg(long, default_value_t = 20)]
        runs: u32,
        /// The pools' file systems.
        #[arg(default_values_t = ["ext4".to_owned(), "xfs".to_owned(), "btrfs".to_owned()])]
        pools: Vec<String>,
    },
    /// Be the part of `sanity` that is apart from the machine; started by it.
    #[command(hide = true)]
    SanityInside {
        /// How many times on each.
        #[arg(long)]
        runs: u32,
        /// Our binary.
        orlop: PathBuf,
        /// The suite.
        sanity: PathBuf,
        /// The pools' file systems.
        pools: Vec<String>,
    },
    /// Start a cluster and leave it running.
    Up,
    /// End the clusters that `up` and `test --keep` left to this checkout, and remove what failed
    /// ones left to look at.
    Down {
        /// Those of running tests and of other checkouts as well.
        #[arg(long)]
        all: bool,
    },
    /// Run a command, or a shell, inside the running cluster.
    Enter {
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Say which clusters there are.
    Status,
    /// Print a component's log, or the ends of all.
    Logs {
        /// The component.
        component: Option<String>,
    },
    /// Measure something of ours beside the original.
    Bench {
        /// What.
        #[command(subcommand)]
        what: bench::What,
    },
    /// Be the client of a benchmark; started by `bench`.
    #[command(hide = true)]
    BenchClient(bench::Client),
    /// Measure nodes inside a cluster; started by `bench node`.
    #[command(hide = true)]
    BenchNode(bench::Inside),
    /// Hold a cluster; started by `up` and `test`.
    #[command(hide = true)]
    Keep {
        /// What the cluster is for.
        purpose: String,
        /// What runs in it.
        binaries: Vec<PathBuf>,
    },
    /// Be the first process inside; started by `keep`.
    #[command(hide = true)]
    Init {
        /// The namespaces it must not be in.
        #[arg(long)]
        outside: String,
        /// The cluster's folder.
        folder: PathBuf,
    },
    /// Start the components; started by `init`.
    #[command(hide = true)]
    Supervise {
        /// The cluster's folder.
        folder: PathBuf,
    },
    /// Run scenarios inside; started by `test`.
    #[command(hide = true)]
    Scenarios {
        /// How many run at once.
        #[arg(long)]
        jobs: usize,
        /// The cluster's folder.
        folder: PathBuf,
        /// Which scenarios.
        names: Vec<String>,
    },
}

/// Runs one command.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    if let Command::Init { outside, folder } = command {
        return init::run(&Folder::at(folder), &outside);
    }
    let mut runtime = match &command {
        // One that times single events is not to wait for its own threads besides.
        Command::BenchClient(client) if client.is_alone() => {
            tokio::runtime::Builder::new_current_thread()
        }
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(async {
        match command {
            Command::Build => build_all().map(|_| ExitCode::SUCCESS),
            Command::Test {
                names,
                list,
                keep,
                jobs,
            } => {
                let chosen = scenarios::choose(&names)?;
                if list {
                    for scenario in chosen {
                        println!("{:<14}{}", scenario.name, scenario.law);
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                test(&names, keep, jobs).await
            }
            Command::Sanity { runs, pools } => sanity::run(runs, &pools),
            Command::SanityInside {
                runs,
                orlop,
                sanity,
                pools,
            } => sanity::inside(runs, &orlop, &sanity, &pools),
            Command::Up => up().await,
            Command::Down { all } => down(all).await,
            Command::Enter { command } => enter(&command),
            Command::Status => status(),
            Command::Logs { component } => print_logs(component.as_deref()),
            Command::Bench { what } => bench::run(what).await,
            Command::BenchClient(client) => bench::be_client(client).await,
            Command::BenchNode(inside) => bench::measure_nodes(&inside).await,
            Command::Keep { purpose, binaries } => keeper::run(&purpose, &binaries).await,
            Command::Supervise { folder } => supervisor::run(&Folder::at(folder)).await,
            Command::Scenarios {
                jobs,
                folder,
                names,
            } => scenarios::run(&Folder::at(folder), &names, jobs).await,
            Command::Init { .. } => bail!("handled above"),
        }
    });
    // A read of standard input can't be cancelled, and must not hold up the end.
    runtime.shutdown_background();
    code
}

async fn test(names: &[String], keep: bool, jobs: usize) -> Result<ExitCode> {
    let Some(mut binaries) = build_all()? else {
        return Ok(ExitCode::SUCCESS);
    };
    binaries.push(build_orlop()?);
    let this = std::env::current_exe()?;
    let arguments = |folder: &Folder| {
        let words = ["kube", "scenarios", "--jobs", &jobs.to_string()].map(OsString::from);
        let folder = folder.path().as_os_str().to_owned();
        let names = names.iter().map(OsString::from);
        words.into_iter().chain([folder]).chain(names).collect()
    };
    inside(("test", binaries), keep, &this, arguments).await
}

/// Starts a cluster, runs a program in it, and ends the cluster with it.
pub(crate) async fn inside(
    (purpose, binaries): (&str, Vec<PathBuf>),
    keep: bool,
    program: &Path,
    arguments: impl FnOnce(&Folder) -> Vec<OsString>,
) -> Result<ExitCode> {
    let cluster = tokio::select! {
        cluster = Cluster::start(purpose, binaries) => cluster?,
        // The pipe to the keeper goes with this command, and the cluster with the pipe.
        _ = tokio::signal::ctrl_c() => bail!("interrupted; the cluster is being removed"),
    };
    let folder = cluster.folder.clone();
    let status = cluster.run(program, &arguments(&folder)).await?;
    let passed = status.is_some_and(|status| status.success());
    // A runner that didn't live to say so was taken along by a dying cluster.
    let reported = status.is_some_and(|status| matches!(status.code(), Some(0..=2)));
    if keep && reported {
        let folder = cluster.stay().await?;
        println!(
            "the cluster {} stays; `cargo xtask kube down` ends it",
            folder.id()
        );
        return Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    if !passed && status.is_some() {
        // With a killed keeper there may be no folder any more.
        let _ = folder.note("keep", "");
    }
    let left = cluster.end().await?;
    if !left.is_empty() {
        bail!("the cluster is gone, but not all of it:{left}");
    }
    if !passed {
        match status {
            None => bail!("interrupted; the cluster is gone"),
            Some(_) if !reported || folder.join("failure").exists() => {
                bail!("{}", failure(&folder))
            }
            Some(_) => bail!(
                "{purpose} failed; all logs are in {}",
                folder.join("log").display()
            ),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn up() -> Result<ExitCode> {
    let Some(mut binaries) = build_all()? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(folder) = running(ours()?)?
        .into_iter()
        .find(|folder| folder.noted("purpose").as_deref() == Some("up"))
    {
        bail!(
            "the cluster {} is up already; `cargo xtask kube down` ends it",
            folder.id()
        );
    }
    binaries.push(build_orlop()?);
    let cluster = tokio::select! {
        cluster = Cluster::start("up", binaries) => cluster?,
        _ = tokio::signal::ctrl_c() => bail!("interrupted; the cluster is being removed"),
    };
    cluster.stay().await?;
    println!(
        "`cargo xtask kube enter kubectl get nodes` talks to it, `cargo xtask kube down` ends it"
    );
    Ok(ExitCode::SUCCESS)
}

/// This checkout's folders: others work on this machine too, with clusters of their own.
fn ours() -> Result<Vec<Folder>> {
    let mut folders = Folder::all()?;
    folders
        .retain(|folder| folder.noted("checkout").as_deref() == Some(env!("CARGO_MANIFEST_DIR")));
    Ok(folders)
}

/// The clusters among them that somebody holds.
fn running(folders: Vec<Folder>) -> Result<Vec<Folder>> {
    let mut running = Vec::new();
    for folder in folders {
        if folder.hold()?.is_none() {
            running.push(folder);
        }
    }
    Ok(running)
}

async fn down(all: bool) -> Result<ExitCode> {
    let folders = || if all { Folder::all() } else { ours() };
    for folder in running(folders()?)? {
        if !all && !folder.join(keeper::STAYS).exists() {
            continue;
        }
        let keeper = folder
            .noted("keeper.pid")
            .and_then(|id| id.trim().parse().ok());
        let Some(keeper) = keeper.and_then(rustix::process::Pid::from_raw) else {
            continue;
        };
        rustix::process::kill_process(keeper, rustix::process::Signal::TERM)
            .with_context(|| format!("could not end the keeper of {}", folder.id()))?;
        let deadline = Instant::now() + END;
        while folder.path().exists() && folder.hold()?.is_none() {
            if Instant::now() > deadline {
                bail!(
                    "the cluster {} did not end within {} s",
                    folder.id(),
                    END.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("cluster {} ended", folder.id());
    }
    for folder in folders()? {
        let Some(_hold) = folder.hold()? else {
            continue;
        };
        let _ = std::fs::remove_file(folder.join("keep"));
        let left = cleanup::clean(&folder);
        if !left.is_empty() {
            bail!("left behind: {}", left.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn newest() -> Result<Folder> {
    running(ours()?)?
        .pop()
        .context("no cluster is up; `cargo xtask kube up` starts one")
}

fn enter(command: &[String]) -> Result<ExitCode> {
    let folder = newest()?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => (shell.as_str(), [].as_slice()),
    };
    let status = namespaces::enter(&folder, program)?
        .args(arguments)
        .status()
        .context("could not run nsenter")?;
    Ok(ExitCode::from(
        u8::try_from(status.code().unwrap_or(1)).unwrap_or(1),
    ))
}

fn status() -> Result<ExitCode> {
    let all = Folder::all()?;
    if all.is_empty() {
        println!("no cluster is up; `cargo xtask kube up` starts one");
    }
    for folder in all {
        let state = if folder.hold()?.is_none() {
            match folder.noted("ready") {
                Some(seconds) => format!("up, was ready in {seconds} s"),
                None => "starting".to_owned(),
            }
        } else if folder.join("kept").exists() {
            "ended, its logs are kept".to_owned()
        } else {
            "left behind by a killed keeper; the next start removes it".to_owned()
        };
        println!("{}  {state}  {}", folder.id(), folder.path().display());
    }
    Ok(ExitCode::SUCCESS)
}

fn print_logs(component: Option<&str>) -> Result<ExitCode> {
    let folder = newest().or_else(|none| ours()?.pop().ok_or(none))?;
    match component {
        Some(name) => {
            let path = folder.log(name);
            let Ok(text) = std::fs::read(&path) else {
                bail!(
                    "no log at {}; components are {}",
                    path.display(),
                    component::NAMES.join(", ")
                );
            };
            print!("{}", String::from_utf8_lossy(&text));
        }
        None => {
            for name in component::NAMES {
                print!("--- {name}\n{}", logs::end(&folder.log(name), 10));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

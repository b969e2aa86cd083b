//! orlop: the whole Kubernetes storage stack as one binary.

mod api;
mod bench;
mod cli;
mod cluster;
mod conformance;
mod controllers;
mod demo;
mod down;
mod driver;
mod dropin;
mod endpoint;
mod flex;
mod identity;
mod leaks;
mod life;
mod local_static;
mod logs;
mod nodes;
mod proof;
mod settle;
mod theirs;
mod up;
mod voice;

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use cli::{Cli, Command};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

fn main() -> ExitCode {
    // One for every few calls of the NFS driver: no flags to understand, no runtime, no log of its own.
    // Before names are looked at: a worker has the name of its driver's file, be that `nfsplugin`.
    if std::env::args_os().skip(1).eq(["driver", "nfs-worker"]) {
        return orlop_drivers::nfs::worker_main();
    }
    if let Some(code) = dropin::called() {
        return code;
    }
    let cli = Cli::parse();
    // The shim runs beside every container: no runtime, no threads, no log of its own.
    if let Command::ContainerShim { state_dir } = &cli.command {
        return orlop_host::sandbox::shim_main(state_dir);
    }
    // These have flags or exit codes of their own.
    let cli = match cli {
        Cli {
            command: Command::Conformance(args),
            ..
        } => return conformance::main(*args),
        Cli {
            command: Command::Leaks(args),
            ..
        } => return leaks::main(args),
        Cli {
            command: Command::Controller(cli::Words { words }),
            log,
        } => return dropin::controller(&words, log.as_deref()),
        Cli {
            command: Command::NodeRegistrar(cli::Words { words }),
            log,
        } => return dropin::node_registrar(&words, log.as_deref()),
        other => other,
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let filter: Targets = match &cli.command {
        Command::Driver(
            cli::Driver::Local(cli::DriverLocal { v: Some(v), .. })
            | cli::Driver::Nfs(cli::DriverNfs { v: Some(v), .. }),
        ) => dropin::as_loud_as(*v),
        _ => {
            let filter = cli.log.as_deref().unwrap_or("warn");
            let parsed = filter.parse();
            parsed.map_err(|e| anyhow::anyhow!("--log {filter:?} is no filter: {e}"))?
        }
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(
            tracing_subscriber::fmt::layer()
                .with_ansi(std::io::stderr().is_terminal())
                .with_writer(std::io::stderr),
        )
        .init();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Command::Driver(_) = &cli.command {
        driver::frugal(&mut runtime);
    } else {
        // The API server's clients may send megabytes.
        orlop_host::memory::give_back_large();
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            Command::Up(args) => up::run(args).await,
            Command::Apiserver(args) => up::apiserver(args).await,
            Command::Down(args) => down::run(args).await,
            Command::Demo(args) => demo::run(args).await,
            Command::Bench(args) => bench::run(args).await,
            Command::Driver(cli::Driver::Local(args)) => driver::local(args).await,
            Command::Driver(cli::Driver::Nfs(args)) => driver::nfs(args).await,
            Command::Control(args) => cluster::control(args).await,
            Command::Scheduler(args) => cluster::scheduler(args).await,
            Command::Node(args) => cluster::node(args).await,
            Command::LocalStaticProvisioner(args) => local_static::run(args).await,
            Command::LocalVolumeNodeCleanup(args) => local_static::clean_up(args).await,
            Command::Conformance(_)
            | Command::Leaks(_)
            | Command::Controller(_)
            | Command::NodeRegistrar(_) => {
                unreachable!("handled before")
            }
            Command::ContainerShim { .. } | Command::Driver(cli::Driver::NfsWorker) => {
                unreachable!("handled before there are threads")
            }
        }
    })
}

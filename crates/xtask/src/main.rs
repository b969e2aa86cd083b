//! Chores of the repository, run as `cargo xtask …`.
//!
//! `kube` is the tier of tests that run against the real Kubernetes, built from its Go modules, and
//! what is measured beside it: `docs/development/real-kubernetes.md` and `docs/benchmarks.md` are its
//! manuals. `vm` is the tier of tests that need a kernel of their own. `image` makes container images.

mod bench;
mod image;
mod kube;
mod scenarios;
mod stage;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Chores of the repository",
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// The real Kubernetes as a test tier.
    #[command(subcommand)]
    Kube(kube::Command),
    /// Make the container images of orlop, as an archive for ctr or docker.
    Image(image::Image),
    /// A virtual machine as a test tier, for what needs a kernel of its own.
    #[command(subcommand)]
    Vm(vm::Command),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Kube(command) => kube::run(command),
        Chore::Image(image) => image::run(&image),
        Chore::Vm(command) => vm::run(command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! Chores of the repository, run as `cargo xtask …`.
//!
//! The one chore so far is `kube`: the tier of tests that run against the real Kubernetes, built
//! from its Go modules, and what is measured beside it. `docs/development/real-kubernetes.md` and
//! `docs/benchmarks.md` are its manuals.

mod bench;
mod kube;
mod scenarios;
mod stage;

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
}

fn main() -> ExitCode {
    let Chore::Kube(command) = Cli::parse().chore;
    match kube::run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! What the local driver costs: `cargo bench -p orlop-drivers --bench local -- life|cut|fio|expand`.
//!
//! Each measures the real driver, a process of its own behind its socket, as root on real disks. The
//! folder for pools and mounts is chosen by `--dir` and is the one that is measured.

use std::path::PathBuf;
use std::process::ExitCode;

mod cut;
mod disk;
mod expand;
mod fio;
mod life;
mod served;

const USAGE: &str =
    "usage: local (life|cut|fio|expand) [--dir DIR] [--volumes N] [--at-once N] [--seconds N]
  life    volumes from creation to deletion: rate and times per call, memory, leaks
  cut     snapshots and clones of a 10 GiB volume on a reflink pool
  fio     fio through a volume against fio on the pool's file system
  expand  online growth while a writer runs";

/// What to measure, and how much of it.
#[derive(Debug)]
struct Plan {
    dir: PathBuf,
    volumes: usize,
    at_once: usize,
    seconds: u32,
}

fn main() -> ExitCode {
    // `cargo bench` and `cargo test` add words of their own.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let Some(what) = words.next().filter(|word| !word.starts_with("--")) else {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    };
    let mut plan = Plan {
        dir: std::env::temp_dir(),
        volumes: 1000,
        at_once: 32,
        seconds: 5,
    };
    while let Some(flag) = words.next() {
        let value = words.next().unwrap_or_default();
        let number = || value.parse::<usize>().expect("a number");
        match flag.as_str() {
            "--dir" => plan.dir = PathBuf::from(&value),
            "--volumes" => plan.volumes = number(),
            "--at-once" => plan.at_once = number(),
            "--seconds" => plan.seconds = u32::try_from(number()).expect("a number of seconds"),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::FAILURE;
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let sound = runtime.block_on(async {
        match what.as_str() {
            "life" => life::run(&plan).await,
            "cut" => cut::run(&plan).await,
            "fio" => fio::run(&plan).await,
            "expand" => expand::run(&plan).await,
            _ => {
                eprintln!("{USAGE}");
                false
            }
        }
    });
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

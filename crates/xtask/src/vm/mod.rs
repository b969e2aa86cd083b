//! The guest: tests that need a kernel with an NFS client and server, in a virtual machine.
//!
//! ```text
//! xtask vm test
//!   virtiofsd ×2        this machine's root, read-only, and the guest's packages
//!   qemu                Debian's cloud kernel on emulated processors
//!     init              puts an overlay over both in place of the root, and runs the test program
//! ```
//!
//! The guest's root is an overlay: the test binaries are those that were built here, and what they
//! write goes to the guest's memory. So nothing has to be copied, installed or cleaned up.

mod fitness;
mod guest;
mod initramfs;
mod modules;
mod programs;
mod share;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Subcommand;

use fitness::Fitness;
use guest::Guest;

/// What to do in the guest.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the tests that need the guest.
    Test {
        /// A telling selection, in a few minutes.
        #[arg(long)]
        brief: bool,
        /// Arguments of the test program, such as a part of a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
        /// How long all of it may take, in seconds.
        #[arg(long, default_value_t = 2400)]
        bound: u64,
    },
    /// Measure the NFS driver beside csi-driver-nfs.
    Bench {
        /// A tenth of the files.
        #[arg(long)]
        brief: bool,
        /// How many files the tree has; 100,000 unless told, or a tenth of it.
        #[arg(long, conflicts_with = "brief")]
        files: Option<u32>,
        /// Only the tree of files and the memory at rest.
        #[arg(long)]
        tree: bool,
        /// How long all of it may take, in seconds.
        #[arg(long, default_value_t = 3600)]
        bound: u64,
    },
    /// Run any command in the guest.
    Run {
        /// The command.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
        /// How long it may take, in seconds.
        #[arg(long, default_value_t = 600)]
        bound: u64,
    },
}

/// What is tried before every change: each way in which the driver meets a server, once. What takes
/// minutes on emulated processors is left to the whole run.
const BRIEF: [&str; 8] = [
    "life::",
    "trouble::",
    "two_nodes::",
    "quota::",
    "stack::",
    "in_tree::",
    "a_server_that_is_started_anew",
    "a_volume_is_unpublished_though",
];

/// Does it; the exit code is that of the guest's program.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let packages = match fitness::look()? {
        Fitness::Fit(packages) => packages,
        Fitness::Skip(why) => {
            println!("SKIPPED: the tests in a guest: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    // The servers of all tests are those of one kernel.
    let tests = |arguments: &[String]| -> Result<_> {
        let programs = programs::build()?;
        let mut words = vec![programs.tests.display().to_string()];
        words.push("--test-threads=1".to_owned());
        words.extend_from_slice(arguments);
        Ok((words, programs.environment()))
    };
    let (words, environment, bound) = match command {
        Command::Test {
            brief,
            mut arguments,
            bound,
        } => {
            if brief {
                arguments.extend(BRIEF.map(str::to_owned));
            }
            let (words, environment) = tests(&arguments)?;
            (words, environment, bound)
        }
        Command::Bench {
            brief,
            files,
            tree,
            bound,
        } => {
            let arguments = ["--ignored", "--nocapture", "beside_the_original"];
            let (words, mut environment) = tests(&arguments.map(str::to_owned))?;
            let files = files.unwrap_or(if brief { 10_000 } else { 100_000 });
            environment.push(("ORLOP_FILES".to_owned(), files.to_string()));
            if tree {
                environment.push(("ORLOP_TREE".to_owned(), "1".to_owned()));
            }
            (words, environment, bound)
        }
        Command::Run { command, bound } => (command, Vec::new(), bound),
    };
    let guest = Guest {
        packages,
        words,
        environment,
        bound: Duration::from_secs(bound),
    };
    let ended = guest.run()?;
    ensure!(
        ended.code.is_some(),
        "the guest ended without a word of its program; its kernel said:\n{}",
        ended.kernel
    );
    Ok(match ended.code {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    })
}

//! The first process inside: reaps what others leave, and ends with the keeper.

use std::{
    fs::File,
    io::Read as _,
    process::{Command, ExitCode, Stdio},
    thread,
};

use anyhow::{Context as _, Result};
use rustix::process::{WaitOptions, wait};

use super::{folder::Folder, namespaces};

/// Runs until the supervisor or the keeper ends. When this process ends the kernel kills every
/// other one inside.
pub(super) fn run(folder: &Folder, outside: &str) -> Result<ExitCode> {
    namespaces::demand_others_than(outside)?;
    let log = File::options()
        .append(true)
        .create(true)
        .open(folder.log("supervisor"))?;
    let supervisor = Command::new(std::env::current_exe()?)
        .args(["kube", "supervise"])
        .arg(folder.path())
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .context("could not start the supervisor")?;
    thread::spawn(|| {
        // Nothing is ever written to this pipe: it ends when the keeper does.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_nonzero().get().unsigned_abs() == supervisor.id() => {
                return Ok(ExitCode::FAILURE);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("could not wait for processes"),
        }
    }
}

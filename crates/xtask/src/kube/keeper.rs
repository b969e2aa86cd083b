//! The keeper: holds a cluster, and cleans up after it.

use std::{
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::{cgroups, cleanup, folder::Folder, namespaces};

/// The word with which the command lets the cluster outlive it.
pub(super) const STAY: &str = "stay";
/// The note that it does.
pub(super) const STAYS: &str = "stays";
/// The line with which the supervisor says that the cluster is ready.
pub(super) const READY: &str = "ready";

/// Runs a cluster until the command's pipe closes (unless it said [`STAY`]), until `down`, or
/// until the cluster ends by itself; then removes all that is left. On standard output: the
/// folder, then [`READY`] from inside, then a line for each thing that could not be removed.
pub(super) async fn run(purpose: &str, binaries: &[PathBuf]) -> Result<ExitCode> {
    // Ctrl-C is for the command; the keeper learns of it by the pipe.
    rustix::process::setsid().context("could not leave the command's session")?;
    let (folder, _hold) = Folder::create()?;
    folder.note("keeper.pid", &std::process::id().to_string())?;
    folder.note("purpose", purpose)?;
    folder.note("checkout", env!("CARGO_MANIFEST_DIR"))?;
    say(&folder.path().display().to_string());
    if let Err(error) = keep(&folder, binaries).await {
        let _ = folder.note("failure", &format!("{error:#}"));
        let _ = folder.note("keep", "");
    }
    let left = cleanup::clean(&folder);
    for left in &left {
        say(left);
    }
    Ok(if left.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn keep(folder: &Folder, binaries: &[PathBuf]) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    for binary in binaries {
        place(binary, &folder.join("bin"))?;
    }
    cgroups::create(&folder.cgroup())?;
    let log = std::fs::File::create(folder.log("init"))?;
    let mut command = namespaces::make();
    command
        .arg(std::env::current_exe()?)
        .args(["kube", "init", "--outside", &namespaces::current()?])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stderr(log);
    let mut unshare = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .context("could not run unshare")?;
    let pipe = unshare.stdin.take();
    let outcome = tokio::select! {
        biased;
        () = hung_up(folder) => Ok(()),
        _ = term.recv() => Ok(()),
        ended = async {
            let first = namespaces::first_process(unshare.id().context("unshare ended before it began")?)?;
            folder.note("init.pid", &first.to_string())?;
            anyhow::Ok(unshare.wait().await?)
        } => match ended {
            Err(error) => Err(error),
            Ok(status) => match folder.noted("failure") {
                Some(failure) => Err(anyhow::anyhow!(failure)),
                None => Err(anyhow::anyhow!("the cluster ended by itself ({status}):\n{}", super::logs::end(&folder.log("init"), 20))),
            },
        },
    };
    // The first process ends with its pipe, and everything inside with the first process.
    drop(pipe);
    if tokio::time::timeout(Duration::from_secs(10), unshare.wait())
        .await
        .is_err()
    {
        unshare.kill().await.context("could not end the cluster")?;
    }
    outcome
}

/// Resolves when the command is gone without having said that the cluster may stay.
async fn hung_up(folder: &Folder) {
    let first_line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    if let Ok(Ok(line)) = first_line.await
        && line.trim_end() == STAY
        && folder.note(STAYS, "").is_ok()
    {
        std::future::pending::<()>().await;
    }
}

/// Puts a binary into the cluster's folder. Ours is copied: it may be built anew meanwhile.
fn place(binary: &Path, folder: &Path) -> Result<()> {
    let name = binary.file_name().context("a binary without a name")?;
    let target = folder.join(name);
    let placed = if name == "orlop" {
        std::fs::copy(binary, &target).map(drop)
    } else {
        symlink(binary, &target)
    };
    placed.with_context(|| {
        format!(
            "could not put {} into {}",
            binary.display(),
            folder.display()
        )
    })
}

/// Tells the command, if it is still there to listen.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

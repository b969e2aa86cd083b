//! A cluster, as the command that started it has it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

use super::{cleanup, folder::Folder, keeper, namespaces};

/// How long a cluster may take to go.
pub(super) const END: Duration = Duration::from_secs(40);

/// A cluster that goes when this does.
pub(super) struct Cluster {
    pub(super) folder: Folder,
    keeper: Child,
    pipe: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    /// Starts one with these programs, ours among them, and waits until it is ready.
    pub(super) async fn start(purpose: &str, binaries: Vec<PathBuf>) -> Result<Self> {
        cleanup::sweep()?;
        let mut keeper = tokio::process::Command::new(std::env::current_exe()?)
            .args(["kube", "keep", purpose])
            .args(binaries)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("could not start the keeper")?;
        let (Some(pipe), Some(out)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            bail!("the keeper has no pipes");
        };
        let mut lines = BufReader::new(out).lines();
        let Some(path) = lines.next_line().await? else {
            bail!(
                "the keeper could not make a folder; is there room in {}?",
                std::env::temp_dir().display()
            );
        };
        let mut cluster = Self {
            folder: Folder::at(PathBuf::from(path)),
            keeper,
            pipe,
            lines,
        };
        let begin = Instant::now();
        match cluster.lines.next_line().await? {
            Some(line) if line == keeper::READY => {
                println!(
                    "cluster {} ready in {:.1} s",
                    cluster.folder.id(),
                    begin.elapsed().as_secs_f64()
                );
                Ok(cluster)
            }
            _ => {
                let folder = cluster.folder.clone();
                let left = cluster.end().await?;
                bail!("{}{}", failure(&folder), left);
            }
        }
    }

    /// Runs a program inside until it ends; none if that was interrupted.
    pub(super) async fn run(
        &self,
        program: &Path,
        arguments: &[OsString],
    ) -> Result<Option<ExitStatus>> {
        let mut inside = namespaces::enter(&self.folder, program)?;
        inside.args(arguments);
        let mut inside = tokio::process::Command::from(inside)
            .kill_on_drop(true)
            .spawn()
            .context("could not run nsenter")?;
        tokio::select! {
            status = inside.wait() => Ok(Some(status?)),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    }

    /// Lets it outlive this command.
    pub(super) async fn stay(mut self) -> Result<Folder> {
        self.pipe
            .write_all(format!("{}\n", keeper::STAY).as_bytes())
            .await?;
        self.pipe.flush().await?;
        Ok(self.folder)
    }

    /// Ends it; answers with what is left of it, which should be nothing.
    pub(super) async fn end(self) -> Result<String> {
        let Self {
            mut keeper,
            pipe,
            mut lines,
            ..
        } = self;
        drop(pipe);
        let ended = tokio::time::timeout(END, async {
            let mut left = String::new();
            while let Some(line) = lines.next_line().await? {
                left.push_str("\nleft behind: ");
                left.push_str(&line);
            }
            keeper.wait().await?;
            // A keeper that was killed has not cleaned up.
            cleanup::sweep()?;
            anyhow::Ok(left)
        });
        ended
            .await
            .context("the keeper did not end in time; see `cargo xtask kube status`")?
    }
}

/// What a cluster that ended by itself said, and where its logs are.
pub(super) fn failure(folder: &Folder) -> String {
    if !folder.path().exists() {
        return "the cluster's keeper was killed; the cluster is gone".to_owned();
    }
    let said = folder.noted("failure");
    format!(
        "{}\nits logs are in {}",
        said.as_deref()
            .unwrap_or("the cluster ended by itself")
            .trim_end(),
        folder.join("log").display()
    )
}

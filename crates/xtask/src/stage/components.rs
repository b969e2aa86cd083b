//! The cluster's own components: ended, paused and started again. Only for scenarios that run alone.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::Stage;
use crate::kube::COMPONENTS;

/// How often it is asked whether a component has done what it was asked for.
const AGAIN: Duration = Duration::from_millis(50);

impl Stage {
    /// Restarts a component of the cluster with further arguments, which win over its own; with
    /// none it is as it was.
    pub(crate) async fn restart_component(&self, name: &str, more: &[&str]) -> Result<()> {
        let before = self.process_of(name)?;
        std::fs::write(self.file_of(name, "more"), more.join("\n"))?;
        self.end_component(name)?;
        self.bounded(&format!("{name} restarts"), async {
            while self.process_of(name).ok().is_none_or(|now| now == before) {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        })
        .await
    }

    /// Ends a component until it is asked to go on.
    pub(crate) async fn pause_component(&self, name: &str) -> Result<()> {
        std::fs::write(self.file_of(name, "pause"), "")?;
        self.end_component(name)?;
        self.bounded(&format!("{name} ends"), async {
            while self.file_of(name, "pid").exists() {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        })
        .await
    }

    /// Starts a component again that was paused.
    pub(crate) async fn resume_component(&self, name: &str) -> Result<()> {
        std::fs::remove_file(self.file_of(name, "pause"))
            .with_context(|| format!("{name} does not pause"))?;
        self.bounded(&format!("{name} starts"), async {
            while self.process_of(name).is_err() {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        })
        .await
    }

    /// Lets all go on that were paused.
    pub(super) fn resume_components(&self) {
        for name in COMPONENTS {
            // Most don't pause.
            let _ = std::fs::remove_file(self.file_of(name, "pause"));
        }
    }

    /// A component's process.
    pub(crate) fn process_of(&self, name: &str) -> Result<Pid> {
        let text = std::fs::read_to_string(self.file_of(name, "pid"))
            .with_context(|| format!("there is no component {name}"))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        pid.with_context(|| format!("the process of {name} is unknown"))
    }

    fn end_component(&self, name: &str) -> Result<()> {
        std::fs::write(self.file_of(name, "restart"), "")?;
        kill_process(self.process_of(name)?, Signal::TERM)?;
        Ok(())
    }

    fn file_of(&self, name: &str, kind: &str) -> PathBuf {
        self.cluster.join(format!("components/{name}.{kind}"))
    }
}

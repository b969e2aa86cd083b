//! FlexVolume drivers on this machine, for attach-detach: programs that are run with a deadline and
//! trusted in nothing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use orlop_control::attach_detach::flex::{Ability, Call, FlexDrivers, Trouble, is_node_name};
use orlop_host::{
    flex::{Answer, Found, OUTPUT, Programs, Refusal, Stamp, find, judge, time_for},
    foreign::{self, ForeignError, Limits, Note, Said},
};
use orlop_model::flex;
use orlop_runtime::Process;
use tokio::sync::Notify;

#[cfg(test)]
mod tests;

/// Where kube-controller-manager looks for drivers.
pub(crate) const PLUGIN_DIR: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/";

/// What is on file of a call while it runs, so that the next process can end it.
const CALLS: &str = "/run/orlop/flexvolume";

/// How long a call may take; five times that to attach.
const DEADLINE: Duration = Duration::from_mins(2);

/// Why a call was of no use.
enum CallError {
    NotSupported,
    Trouble(Trouble),
}

impl CallError {
    fn failed(text: String) -> Self {
        Self::Trouble(Trouble::Failed(text))
    }
}

/// The drivers of a folder.
#[derive(Debug)]
pub(crate) struct Drivers {
    programs: Programs,
    calls: PathBuf,
    deadline: Duration,
    came: Notify,
}

impl Drivers {
    /// Drivers of this folder, noticed as they come for as long as the process lives.
    pub(crate) fn watched(folder: PathBuf, process: &Process) -> Arc<Self> {
        let drivers = Arc::new(Self::new(folder, CALLS.into(), DEADLINE));
        let watched = drivers.clone();
        process.spawn("flexvolume-drivers", async move { watched.watch().await });
        drivers
    }

    fn new(folder: PathBuf, calls: PathBuf, deadline: Duration) -> Self {
        Self {
            programs: Programs::new(folder),
            calls,
            deadline,
            came: Notify::new(),
        }
    }

    async fn watch(&self) {
        self.programs.watch(|| self.came.notify_one()).await;
    }

    fn program(&self, driver: &str) -> Result<(PathBuf, Stamp), Trouble> {
        let bad = || {
            Trouble::Missing(format!(
                "{driver:?} can't be the name of a FlexVolume driver"
            ))
        };
        let at = flex::program(driver).ok_or_else(bad)?;
        let path = self.programs.path((&at.0, at.1));
        let shown = path.display();
        match find(&path) {
            Found::Program(stamp) => Ok((path, stamp)),
            Found::NotExecutable => Err(Trouble::Missing(format!(
                "FlexVolume driver {driver} can't be run where attach-detach runs: {shown} is not \
                 executable"
            ))),
            Found::Nothing => Err(Trouble::Missing(format!(
                "FlexVolume driver {driver} is not installed where attach-detach runs: {shown} is \
                 missing"
            ))),
        }
    }

    /// What is on file of a call: one at a time for a volume on a node, and for the driver itself. A call
    /// may be for what anybody wrote: no name in it leads out of the folder.
    fn note(&self, driver: &str, of: Option<&Call>) -> Result<Note, Trouble> {
        let folder = self.calls.join(driver.replace('/', "~"));
        let Some(Call { node, volume, .. }) = of else {
            // No node's name begins like that.
            return Ok(Note::at(folder.join(".init")).dying_with_us());
        };
        let plain = !volume.starts_with('.') && !volume.contains(['/', '\0']);
        if !plain || volume.is_empty() || !is_node_name(node) {
            return Err(Trouble::Failed(format!(
                "FlexVolume driver {driver} is not called: there can't be a volume {volume:?} on a \
                 node {node:?}"
            )));
        }
        // The next leader may be on another machine.
        Ok(Note::at(folder.join(node).join(volume)).dying_with_us())
    }

    async fn call(
        &self,
        driver: &str,
        command: &'static str,
        arguments: &[&str],
        of: Option<&Call>,
    ) -> Result<Answer, CallError> {
        let (program, _) = self.program(driver).map_err(CallError::Trouble)?;
        let note = self.note(driver, of).map_err(CallError::Trouble)?;
        let said = self.run(&program, command, arguments, &note).await;
        let said = said.map_err(|error| {
            let why = anyhow::Error::from(error);
            CallError::failed(format!(
                "FlexVolume driver {driver}, {command} command: {why:#}"
            ))
        })?;
        judge(command, &said, &[]).map_err(|refusal| match refusal {
            Refusal::NotSupported => CallError::NotSupported,
            other => CallError::failed(format!("FlexVolume driver {driver}: {other}")),
        })
    }

    async fn run(
        &self,
        program: &Path,
        command: &'static str,
        arguments: &[&str],
        note: &Note,
    ) -> Result<Said, ForeignError> {
        let words = std::iter::once(command).chain(arguments.iter().copied());
        let words: Vec<String> = words.map(str::to_owned).collect();
        let limits = Limits {
            deadline: time_for(command, self.deadline),
            output: OUTPUT,
        };
        foreign::run(program, &words, limits, note).await
    }

    /// The same, where a driver need not have the command.
    async fn try_call(
        &self,
        command: &'static str,
        arguments: &[&str],
        of: &Call,
    ) -> Result<Option<Answer>, Trouble> {
        match self.call(&of.driver, command, arguments, Some(of)).await {
            Ok(answer) => Ok(Some(answer)),
            Err(CallError::NotSupported) => Ok(None),
            Err(CallError::Trouble(trouble)) => Err(trouble),
        }
    }

    async fn ask(&self, driver: &str) -> Result<Ability, Trouble> {
        let (_, stamp) = self.program(driver)?;
        let capabilities = match self.programs.known(driver, stamp) {
            Some(known) => known,
            None => {
                let told = match self.call(driver, "init", &[], None).await {
                    Ok(answer) => answer.capabilities(),
                    Err(CallError::NotSupported) => {
                        let text = format!("FlexVolume driver {driver} does not support init");
                        return Err(Trouble::Failed(text));
                    }
                    Err(CallError::Trouble(trouble)) => return Err(trouble),
                };
                self.programs.learn(driver, stamp, told.clone());
                told
            }
        };
        Ok(match capabilities.attach {
            true => Ability::Attaches,
            false => Ability::LeftToNodes,
        })
    }

    async fn bring(&self, call: &Call) -> Result<String, Trouble> {
        let options = call.options.as_deref().unwrap_or("{}");
        // The original takes no other name than the volume's, but asks; so do drivers expect it.
        self.try_call("getvolumename", &[options], call).await?;
        let attached = self
            .try_call("attach", &[options, &call.node], call)
            .await?;
        Ok(attached.map(|answer| answer.device).unwrap_or_default())
    }

    async fn take(&self, call: &Call) -> Result<(), Trouble> {
        let words = [call.volume.as_str(), &call.node];
        let Err(error) = self.try_call("detach", &words, call).await else {
            return Ok(());
        };
        // Something that is not attached can't be detached, which is no reason to stay.
        if let Some(options) = &call.options {
            let words = [options, call.node.as_str()];
            let asked = self.try_call("isattached", &words, call).await;
            if matches!(asked, Ok(Some(answer)) if !answer.attached) {
                return Ok(());
            }
        }
        Err(error)
    }
}

impl FlexDrivers for Drivers {
    fn ability<'a>(&'a self, driver: &'a str) -> BoxFuture<'a, Result<Ability, Trouble>> {
        self.ask(driver).boxed()
    }

    fn attach<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<String, Trouble>> {
        self.bring(call).boxed()
    }

    fn detach<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), Trouble>> {
        self.take(call).boxed()
    }

    fn came(&self) -> BoxFuture<'_, ()> {
        self.came.notified().boxed()
    }
}

//! What the cluster consists of: a file for each component's arguments and configuration.

mod apiserver;
mod containerd;
mod controller_manager;
mod etcd;
mod kubelet;
mod scheduler;

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, Result};
use tokio::process::{Child, Command};

pub(super) use self::{
    apiserver::apiserver, containerd::containerd, controller_manager::controller_manager,
    etcd::etcd, kubelet::kubelet, scheduler::scheduler,
};
use super::folder::Folder;
pub(super) use containerd::import;
pub(crate) use containerd::{import_ours, socket as containerd_socket};

/// The components' names, in the order in which they start.
pub(crate) const NAMES: [&str; 6] = [
    "etcd",
    "containerd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
];

/// A program of the cluster.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Component {
    /// One that was built from a module.
    fn built(
        folder: &Folder,
        name: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            name,
            program: folder.binary(name),
            arguments: arguments.into_iter().collect(),
        }
    }

    /// Starts it, with its output in its log. Arguments in the file `components/NAME.more` come
    /// last, so that they win over ours.
    pub(super) fn start(&self, folder: &Folder) -> Result<Child> {
        let log = File::options()
            .append(true)
            .create(true)
            .open(folder.log(self.name))?;
        let more = fs::read_to_string(folder.join(format!("components/{}.more", self.name)))
            .unwrap_or_default();
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .args(more.lines())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("could not start {}", self.program.display()))?;
        let id = child.id().unwrap_or_default().to_string();
        fs::write(folder.join(format!("components/{}.pid", self.name)), id)?;
        Ok(child)
    }
}

/// Writes a configuration file; answers with its path.
fn configure(folder: &Folder, name: &str, text: &str) -> Result<String> {
    let path = folder.join("config").join(name);
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
    Ok(path.display().to_string())
}

/// A file of the cluster's certificates.
fn pki(folder: &Folder, name: &str) -> String {
    folder.join("pki").join(name).display().to_string()
}

//! The namespaces that a cluster lives in: making them, knowing them, entering them.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::mount::{MountFlags, MountPropagationFlags};

use super::{ADDRESS, KUBELET_ROOT, NODE, folder::Folder};

/// The kinds of namespaces that a cluster has of its own.
const KINDS: [&str; 5] = ["pid", "mnt", "net", "ipc", "uts"];

/// The namespaces that this process is in, as one word.
pub(super) fn current() -> Result<String> {
    let names = KINDS.map(|kind| fs::read_link(format!("/proc/self/ns/{kind}")));
    let mut all = Vec::new();
    for name in names {
        all.push(
            name.context("could not read this process's namespaces")?
                .to_string_lossy()
                .into_owned(),
        );
    }
    Ok(all.join(","))
}

/// Refuses to go on in any of these namespaces: what follows would take this machine apart.
pub(super) fn demand_others_than(outside: &str) -> Result<()> {
    let inside = current()?;
    let shared = outside
        .split(',')
        .any(|one| inside.split(',').any(|other| one == other));
    if shared || outside.split(',').count() != KINDS.len() || std::process::id() != 1 {
        bail!(
            "this is the first process of a test cluster's namespaces, and not for people; use `cargo xtask kube up`"
        );
    }
    Ok(())
}

/// A command that makes the namespaces and starts its arguments as their first process.
pub(super) fn make() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--mount"]);
    command.args(["--net", "--ipc", "--uts", "--propagation", "private", "--"]);
    command
}

/// The first process's id, as seen from outside.
pub(super) fn first_process(unshare: u32) -> Result<u32> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let path = format!("/proc/{unshare}/task/{unshare}/children");
    while Instant::now() < deadline {
        let children = fs::read_to_string(&path).context("unshare ended before it began")?;
        if let Some(child) = children.split_whitespace().next() {
            return child
                .parse()
                .context("could not read the first process's id");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("unshare started nothing within 10 s")
}

/// A command that runs its arguments inside a running cluster.
pub(super) fn enter(folder: &Folder, program: impl AsRef<OsStr>) -> Result<Command> {
    let first = folder
        .noted("init.pid")
        .context("the cluster has not started")?;
    let mut command = Command::new("nsenter");
    command.args(["--target", first.trim()]);
    command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--"]);
    command.arg(program);
    command.env("KUBECONFIG", folder.admin());
    Ok(command)
}

/// Furnishes the namespaces: an address, and private places for what programs write at fixed paths.
pub(super) fn furnish(folder: &Folder) -> Result<()> {
    for arguments in [
        vec!["link", "set", "lo", "up"],
        vec!["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"],
    ] {
        let output = Command::new("ip")
            .args(&arguments)
            .output()
            .context("could not run ip; run scripts/setup-kube")?;
        if !output.status.success() {
            bail!(
                "ip {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    rustix::system::sethostname(NODE.as_bytes()).context("could not set the host name")?;

    let overlay = format!(
        "lowerdir=/var,upperdir={},workdir={}",
        folder.join("var").display(),
        folder.join("work").display()
    );
    mount("overlay", "/var", "overlay", &overlay)?;
    mount("tmpfs", "/run", "tmpfs", "mode=755")?;
    let root = Path::new(KUBELET_ROOT);
    fs::create_dir_all(root).with_context(|| format!("could not make {KUBELET_ROOT}"))?;
    rustix::mount::mount_bind(folder.join("kubelet"), root)
        .and_then(|()| {
            rustix::mount::mount_change(
                root,
                MountPropagationFlags::SHARED | MountPropagationFlags::REC,
            )
        })
        .with_context(|| format!("could not mount {KUBELET_ROOT}"))
}

fn mount(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    let options = std::ffi::CString::new(options)?;
    rustix::mount::mount(
        source,
        target,
        kind,
        MountFlags::empty(),
        options.as_c_str(),
    )
    .with_context(|| format!("could not mount a private {target}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_inner_entry_refuses_to_run_outside() {
        assert!(demand_others_than(&current().unwrap()).is_err());
        assert!(demand_others_than("").is_err());
    }
}

//! Whether this machine can run the tier, and what has to be built for it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::binaries;

/// What a machine must have, or why the tier can't run on it.
enum Fitness {
    Fit { go: PathBuf },
    Skip(String),
}

fn fitness() -> Result<Fitness> {
    let Some(go) = binaries::go() else {
        return Ok(Fitness::Skip(
            "Go is not installed, and Kubernetes is built from its Go modules".to_owned(),
        ));
    };
    if !rustix::process::geteuid().is_root() {
        return Ok(Fitness::Skip(
            "only root can make the cluster's namespaces and mounts".to_owned(),
        ));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing: BTreeSet<&str> = [
        "containerd",
        "ctr",
        "runc",
        "unshare",
        "nsenter",
        "ip",
        "losetup",
        "busybox",
    ]
    .into_iter()
    .filter(|name| {
        !std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
            .any(|folder| folder.join(name).is_file())
    })
    .collect();
    if !missing.is_empty() {
        let missing = Vec::from_iter(missing).join(", ");
        bail!("not installed: {missing}; scripts/setup-kube installs them from Debian");
    }
    Ok(Fitness::Fit { go })
}

/// Builds what isn't in the cache; says so where the tier can't run.
pub(crate) fn build_all() -> Result<Option<Vec<PathBuf>>> {
    match fitness()? {
        Fitness::Fit { go } => binaries::build(&go).map(Some),
        Fitness::Skip(why) => {
            println!("SKIPPED: the real-Kubernetes tier: {why}");
            Ok(None)
        }
    }
}

/// Builds our own binary in the profile that this one was built in; answers with its path.
pub(super) fn build_orlop() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let profile = this.parent().context("this program lies in no folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["build", "--quiet", "--package", "orlop"]);
    command
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    // Minutes on a fresh machine.
    eprintln!("building orlop");
    if !command.status().context("could not run cargo")?.success() {
        bail!("orlop does not build");
    }
    Ok(profile.join("orlop"))
}

//! Whether this machine can run a guest.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// QEMU's share of folders; the package of QEMU brings it.
pub(super) const VIRTIOFSD: &str = "/usr/lib/qemu/virtiofsd";
pub(super) const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// What a machine must have, or why there is no guest on it.
pub(super) enum Fitness {
    /// The guest's packages are unpacked in this folder.
    Fit(PathBuf),
    Skip(String),
}

pub(super) fn look() -> Result<Fitness> {
    let skip = |why: &str| Ok(Fitness::Skip(why.to_owned()));
    for program in [QEMU, VIRTIOFSD] {
        if !Path::new(program).is_file() {
            return skip(&format!("{program} is missing; scripts/setup-vm brings it"));
        }
    }
    if !rustix::process::geteuid().is_root() {
        return skip("only root can share this machine's root with it");
    }
    let root = cache().join("root-1");
    if !root.join("complete").is_file() {
        return skip("its packages are not unpacked; run scripts/setup-vm");
    }
    Ok(Fitness::Fit(root.join("tree")))
}

/// Where the guest's packages are kept.
pub(super) fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|path| path.is_absolute()).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
        Path::new(&home).join(".cache")
    });
    cache.join("orlop/vm")
}

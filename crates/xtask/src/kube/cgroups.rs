//! The cluster's cgroups: one of its name in every hierarchy that this machine mounts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// The hierarchies' roots: one with cgroup v2, many with v1 and the hybrid of both.
fn hierarchies() -> Vec<PathBuf> {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return vec![PathBuf::from(ROOT)];
    }
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Makes the cgroup in every hierarchy.
pub(super) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        let group = hierarchy.join(name);
        fs::create_dir_all(&group)
            .with_context(|| format!("could not make the cgroup {}", group.display()))?;
        // Version 1 starts a cpuset empty, and no process can enter an empty one.
        for file in ["cpuset.mems", "cpuset.cpus"] {
            if let Ok(parents) = fs::read_to_string(hierarchy.join(file)) {
                let path = group.join(file);
                fs::write(&path, parents.trim())
                    .with_context(|| format!("could not write {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// Removes the cgroup and all below it; answers with what could not be removed.
pub(super) fn remove(name: &str) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(name), &mut left);
    }
    left
}

fn remove_tree(group: &Path, left: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(group) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path(), left);
        }
    }
    if fs::remove_dir(group).is_err() && group.exists() {
        left.push(group.to_owned());
    }
}

//! Taking back what outlives a cluster's processes, and saying what could not be.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{cgroups, folder::Folder};

/// How long the kernel may take to let go of what dead processes held.
const PATIENCE: Duration = Duration::from_secs(10);

/// Removes loop devices, cgroups and the folder of a cluster whose processes are gone. With the
/// note `keep` in the folder its logs stay. Answers with what is left against our will.
pub(super) fn clean(folder: &Folder) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut left = loop {
        for (device, _) in loop_devices(folder.path()) {
            let _ = Command::new("losetup").arg("-d").arg(&device).output();
        }
        let mut left: Vec<String> = loop_devices(folder.path())
            .into_iter()
            .map(|(device, file)| format!("loop device {} on {}", device.display(), file.display()))
            .collect();
        left.extend(
            cgroups::remove(&folder.cgroup())
                .iter()
                .map(|group| format!("cgroup {}", group.display())),
        );
        if left.is_empty() || Instant::now() > deadline {
            break left;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let removed = if folder.join("keep").exists() {
        let kept = ["log", "failure", "keep", "checkout"];
        folder
            .remove_all_but(&kept)
            .and_then(|()| fs::rename(folder.join("keep"), folder.join("kept")))
    } else {
        folder.remove_all_but(&[])
    };
    if let Err(error) = removed {
        left.push(format!("folder {}: {error}", folder.path().display()));
    }
    left
}

/// Cleans up after clusters whose keeper was killed. Kept logs stay.
pub(super) fn sweep() -> Result<()> {
    for folder in Folder::all()? {
        // What a keeper was killed at the very end of removing is an empty folder.
        if folder.join("kept").exists() || fs::remove_dir(folder.path()).is_ok() {
            continue;
        }
        let Some(_hold) = folder.hold()? else {
            continue;
        };
        eprintln!("removing what was left of the cluster {}", folder.id());
        for left in clean(&folder) {
            eprintln!("still left: {left}");
        }
    }
    Ok(())
}

/// The loop devices on files below a folder, with their files.
pub(crate) fn loop_devices(below: &Path) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            let file = PathBuf::from(file.trim_end().trim_end_matches(" (deleted)"));
            file.starts_with(below)
                .then(|| (Path::new("/dev").join(entry.file_name()), file))
        })
        .collect()
}

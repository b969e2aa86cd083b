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
        remove_all_but_logs(folder)
    } else {
        fs::remove_dir_all(folder.path())
    };
    if let Err(error) = removed {
        left.push(format!("folder {}: {error}", folder.path().display()));
    }
    left
}

/// Cleans up after clusters whose keeper was killed. Kept logs stay.
pub(super) fn sweep() -> Result<()> {
    for folder in Folder::all()? {
        if folder.join("kept").exists() {
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

fn remove_all_but_logs(folder: &Folder) -> std::io::Result<()> {
    for entry in fs::read_dir(folder.path())? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Some("log" | "failure" | "lock" | "keep" | "checkout") => {}
            _ if entry.file_type()?.is_dir() => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    fs::rename(folder.join("keep"), folder.join("kept"))
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

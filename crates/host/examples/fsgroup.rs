//! What giving a volume to a group costs, against one hand that goes by paths as the kubelet does.
//!
//! `cargo run --release -p orlop-host --example fsgroup -- FOLDER FILES`, as root, on the file
//! system that is to be measured. Makes the files, 100 to a folder, and removes them again.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;
use std::time::{Duration, Instant};

use orlop_host::group::{Access, Progress, Wanted, When, apply, usual_threads};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(folder), Some(files)) = (args.next(), args.next()) else {
        return Err("usage: fsgroup FOLDER FILES".into());
    };
    let files: u32 = files.parse()?;
    let root = Path::new(&folder).join(format!("fsgroup-{}", std::process::id()));
    for n in 0..files {
        let folder = root.join((n / 10_000).to_string());
        let folder = folder.join((n / 100 % 100).to_string());
        if n % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        std::fs::write(folder.join(n.to_string()), "")?;
    }
    println!("{files} files, {} threads", usual_threads());
    let timed = |what: &str, group: u32, work: &dyn Fn(u32) -> io::Result<u64>| {
        // Whatever was written before is not this one's to write.
        rustix::fs::sync();
        let (began, used) = (Instant::now(), processor());
        let seen = work(group)?;
        let took = began.elapsed();
        println!(
            "{what:<44} {:>8.3} s  {seen} entries, processor {:.3} s",
            took.as_secs_f64(),
            (processor() - used).as_secs_f64()
        );
        Ok::<Duration, io::Error>(took)
    };
    let ours = |threads: usize| {
        let root = root.clone();
        move |group| {
            let wanted = Wanted {
                group,
                access: Access::ReadWrite,
            };
            let progress = Progress::default();
            apply(&root, (wanted, When::Always), threads, &progress)?;
            Ok(progress.seen())
        }
    };
    // As a volume is when a group gets it first: modes have to change as well.
    timed("modes too, by paths, one thread", 1990, &|group| {
        by_paths(&root, group)
    })?;
    forget_modes(&root)?;
    timed(
        "modes too, by descriptors, all threads",
        1991,
        &ours(usual_threads()),
    )?;
    let mut best = [Duration::MAX; 2];
    for round in 0..3 {
        let group = 2000 + round * 10;
        let slow = timed(
            "by paths, one thread (the kubelet's way)",
            group,
            &|group| by_paths(&root, group),
        )?;
        timed("by descriptors, one thread", group + 1, &ours(1))?;
        let fast = timed(
            "by descriptors, all threads",
            group + 2,
            &ours(usual_threads()),
        )?;
        timed(
            "again, when all is right",
            group + 2,
            &ours(usual_threads()),
        )?;
        best = [best[0].min(slow), best[1].min(fast)];
    }
    let [slow, fast] = best.map(|time| time.as_secs_f64());
    println!(
        "best of three: {slow:.3} s against {fast:.3} s, {:.1} times",
        slow / fast
    );
    orlop_host::remove_tree_one_fs(&root)?;
    Ok(())
}

/// Gives all files the mode with which they were made.
fn forget_modes(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let mode = if entry.file_type()?.is_dir() {
            forget_modes(&entry.path())?;
            0o755
        } else {
            0o644
        };
        std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// What this process has used of all cores.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Folders' entries first, each by its whole path: lstat, lchown, chmod.
fn by_paths(path: &Path, group: u32) -> io::Result<u64> {
    let mut seen = 1;
    let found = std::fs::symlink_metadata(path)?;
    if found.is_dir() {
        let names: io::Result<Vec<_>> = std::fs::read_dir(path)?.collect();
        for entry in names? {
            seen += by_paths(&entry.path(), group)?;
        }
    }
    lchown(path, None, Some(group))?;
    if !found.is_symlink() {
        let mask = if found.is_dir() { 0o2770 } else { 0o660 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(found.mode() | mask))?;
    }
    Ok(seen)
}

use std::{fs, os::unix::fs::FileExt};

use orlop_host::{
    LoopDevice,
    loopdev::{Access, Lifetime},
    testing::ScratchFs,
};

use super::*;

const SIZE: u64 = 192 << 20;

/// A sparse device with a word at the start of each 64 MiB.
fn device() -> Option<(tempfile::NamedTempFile, LoopDevice)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(SIZE).unwrap();
    for at in [0, 64 << 20, 128 << 20] {
        image.as_file().write_all_at(b"secret", at).unwrap();
    }
    let device = LoopDevice::attach(
        &image.reopen().unwrap(),
        Access::ReadWrite,
        Lifetime::LastClose,
    );
    Some((image, device.unwrap()))
}

fn words(device: &LoopDevice) -> Vec<bool> {
    let file = fs::File::open(device.path()).unwrap();
    let there = |at: u64| {
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, at).unwrap();
        &bytes == b"secret"
    };
    vec![there(0), there(64 << 20), there(128 << 20)]
}

/// A disk, how it is cleaned and what of.
struct Order {
    path: PathBuf,
    cleaner: BlockCleaner,
    job: Job,
}

fn order(path: PathBuf, cleaner: BlockCleaner) -> Order {
    let job = Job {
        claim: "uid".into(),
        ..Job::default()
    };
    Order { path, cleaner, job }
}

fn clean(order: &Order, told: impl FnMut(&Record)) -> Result<Cleaned, CleanError> {
    take(&order.path, &order.cleaner)?.clean(&order.job, told)
}

#[test]
fn a_wipe_that_was_stopped_goes_on_where_it_was_on_the_same_disk_only() {
    let Some((_image, device)) = device() else {
        return;
    };
    let mut order = order(device.path(), BlockCleaner::Wipe(Wipe::Zero));
    let mut last = Record::default();
    let stopped = clean(&order, |record| {
        last = record.clone();
        order.job.stop.store(true, Ordering::Relaxed);
    });
    order.job.stop = Arc::default();
    assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
    assert_eq!((last.done, last.of), (64 << 20, SIZE));
    assert_eq!(words(&device), [false, true, true]);

    // What was done is not done again: a word written since then stays.
    let file = fs::OpenOptions::new().write(true).open(device.path());
    file.unwrap().write_all_at(b"secret", 0).unwrap();
    order.job.before = Some(last.clone());
    let cleaned = clean(&order, |_| {}).unwrap();
    assert_eq!(words(&device), [true, false, false]);
    assert!(cleaned.record.clean && cleaned.record.percent() == 100);

    // Another disk, another claim or another way begins anew.
    for change in [
        |record: &mut Record| record.disk.push('x'),
        |record: &mut Record| record.claim.push('x'),
        |record: &mut Record| record.how.push('x'),
    ] {
        let file = fs::OpenOptions::new().write(true).open(device.path());
        file.unwrap().write_all_at(b"secret", 0).unwrap();
        let mut other = last.clone();
        change(&mut other);
        order.job.before = Some(other);
        clean(&order, |_| {}).unwrap();
        assert_eq!(words(&device), [false, false, false]);
    }
}

#[test]
fn a_command_finds_the_device_and_its_failure_is_told() {
    let Some((_image, device)) = device() else {
        return;
    };
    let script = "dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=512 count=1 conv=notrunc,fsync";
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    clean(&order(device.path(), BlockCleaner::Command(argv)), |_| {}).unwrap();
    assert_eq!(words(&device), [false, true, true]);
    let argv = ["/bin/sh", "-c", "echo worn out; exit 1"].map(str::to_owned);
    let failed = clean(
        &order(device.path(), BlockCleaner::Command(argv.to_vec())),
        |_| {},
    );
    assert!(
        failed
            .unwrap_err()
            .to_string()
            .ends_with("exit status: 1: worn out")
    );
}

#[test]
fn a_link_that_is_exchanged_meanwhile_leads_the_cleaning_to_no_other_disk() {
    let Some((_image, mine)) = device() else {
        return;
    };
    let Some((_other_image, other)) = device() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("disk");
    let exchange = || {
        let new = folder.path().join("new");
        std::os::unix::fs::symlink(other.path(), &new).unwrap();
        fs::rename(new, &link).unwrap();
    };
    let script = "dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=512 count=1 conv=notrunc,fsync";
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    for cleaner in [BlockCleaner::Command(argv), BlockCleaner::Wipe(Wipe::Quick)] {
        std::os::unix::fs::symlink(mine.path(), &link).unwrap();
        let order = order(link.clone(), cleaner);
        let taken = take(&link, &order.cleaner).unwrap();
        exchange();
        let refused = taken.clean(&order.job, |_| {});
        assert!(
            matches!(refused, Err(CleanError::Exchanged { .. })),
            "{refused:?}"
        );
        assert_eq!(words(&other), [true, true, true]);
        assert!(!words(&mine)[0]);
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn a_command_that_says_nothing_ends_when_nobody_waits_for_it() {
    let Some((_image, device)) = device() else {
        return;
    };
    let argv = ["/bin/sleep", "60"].map(str::to_owned).to_vec();
    let order = order(device.path(), BlockCleaner::Command(argv));
    order.job.stop.store(true, Ordering::Relaxed);
    let started = std::time::Instant::now();
    let stopped = clean(&order, |_| {});
    assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
    assert!(started.elapsed().as_secs() < 10);
    take(&order.path, &order.cleaner).unwrap();
}

#[test]
fn a_folder_that_lost_its_disk_is_not_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), "").unwrap();
    let path = folder.path().to_owned();
    let refused = clean(&order(path, BlockCleaner::Wipe(Wipe::Zero)), |_| {});
    assert!(
        matches!(refused, Err(CleanError::NotMounted { .. })),
        "{refused:?}"
    );
    assert!(folder.path().join("x").exists());
}

#[test]
fn a_disk_that_is_mounted_for_a_pod_is_not_touched() {
    let Some(scratch) = ScratchFs::new("ext4", 16 << 20) else {
        return;
    };
    fs::write(scratch.path().join("x"), "").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = folder
        .path()
        .join("pods/u/volumes/kubernetes.io~local-volume/v");
    fs::create_dir_all(&at).unwrap();
    bind(&scratch.path(), &at);
    let order = order(scratch.path(), BlockCleaner::Wipe(Wipe::Zero));
    let refused = clean(&order, |_| {});
    let there = scratch.path().join("x").exists();
    unmount(&at);
    assert!(
        matches!(refused, Err(CleanError::InUse { .. })),
        "{refused:?}"
    );
    assert!(there);
    let cleaned = clean(&order, |_| {}).unwrap();
    assert_eq!(cleaned.mode, VolumeMode::Filesystem);
    assert!(!scratch.path().join("x").exists());
}

fn bind(from: &Path, at: &Path) {
    let (source, target) = (fs::File::open(from).unwrap(), fs::File::open(at).unwrap());
    let depth = orlop_host::mount::Depth::One;
    let bound = orlop_host::mount::bind(source, target, depth, orlop_host::Restrictions::default());
    bound.unwrap();
}

fn unmount(at: &Path) {
    orlop_host::mount::unmount(&orlop_host::Place::at(at).unwrap()).unwrap();
}

/// Whoever gets the disk next finds it by its path.
#[test]
fn a_disk_is_not_clean_if_another_was_mounted_over_it_meanwhile() {
    let disks = [(); 2].map(|()| ScratchFs::new("ext4", 16 << 20));
    let [Some(scratch), Some(other)] = disks else {
        return;
    };
    for number in 0..=FILES {
        fs::write(scratch.path().join(number.to_string()), "secret").unwrap();
    }
    fs::write(other.path().join("x"), "secret").unwrap();
    let order = order(scratch.path(), BlockCleaner::Wipe(Wipe::Zero));
    let exchanged = clean(&order, |_| {
        bind(&other.path(), &scratch.path());
    });
    unmount(&scratch.path());
    let exchanged = exchanged.unwrap_err();
    assert!(
        matches!(exchanged, CleanError::Exchanged { .. }),
        "{exchanged:?}"
    );
    assert!(other.path().join("x").exists());
}

/// A process that has a device open to write to it; gone when dropped.
struct Writing(std::process::Child);

impl Writing {
    fn to(device: &Path) -> Self {
        use std::process::{Command, Stdio};
        let mut child = Command::new("sh")
            .args(["-c", "exec 3<>\"$0\" && echo && exec sleep 60"])
            .arg(device)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(said, &mut [0]).unwrap();
        Self(child)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_device_that_a_pod_has_is_not_touched() {
    let Some((_image, device)) = device() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pod = "pods/u/volumeDevices/kubernetes.io~local-volume";
    fs::create_dir_all(folder.path().join(pod)).unwrap();
    let at = orlop_host::Place::at(&folder.path().join(pod).join("v")).unwrap();
    at.make_file(0o600).unwrap();
    let source = orlop_host::Place::at(&device.path()).unwrap();
    orlop_host::mount::bind(
        source.open().unwrap(),
        at.open().unwrap(),
        orlop_host::mount::Depth::One,
        orlop_host::Restrictions::default(),
    )
    .unwrap();
    let command = BlockCleaner::Command(vec!["/bin/true".into()]);
    let orders = [BlockCleaner::Wipe(Wipe::Zero), command].map(|how| order(device.path(), how));
    let bound: Vec<_> = orders.iter().map(|o| clean(o, |_| {})).collect();
    let offered = is_free(&device.path());
    orlop_host::mount::unmount(&at).unwrap();
    for refused in bound.into_iter().map(|r| r.map(drop)).chain([offered]) {
        assert!(
            matches!(refused, Err(CleanError::InUse { .. })),
            "{refused:?}"
        );
    }
    let writing = Writing::to(&device.path());
    for order in &orders {
        let refused = clean(order, |_| {});
        assert!(
            matches!(&refused, Err(CleanError::Written { pid, .. }) if *pid == writing.0.id()),
            "{refused:?}"
        );
    }
    assert_eq!(words(&device), [true, true, true]);
    drop(writing);
    clean(&orders[0], |_| {}).unwrap();
    assert_eq!(words(&device), [false, false, false]);
}

#[test]
fn a_device_that_somebody_opened_to_write_while_it_was_wiped_is_not_clean() {
    let Some((_image, device)) = device() else {
        return;
    };
    let order = order(device.path(), BlockCleaner::Wipe(Wipe::Zero));
    let mut writing = None;
    let refused = clean(&order, |_| {
        writing.get_or_insert_with(|| Writing::to(&device.path()));
    });
    assert!(
        matches!(refused, Err(CleanError::Written { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_commands_words_are_read_for_how_far_it_is() {
    for (line, percent_done) in [
        ("12%", Some(12)),
        (
            "shred: /dev/x: pass 1/3 (random)...2.0GiB/100GiB 2%",
            Some(2),
        ),
        ("  99.9 % done", Some(99)),
        ("about 7 % of 100 %", Some(100)),
        ("1000%", None),
        ("sda 5", None),
        ("%", None),
        ("100.x%", None),
    ] {
        assert_eq!(percent(line), percent_done, "{line}");
    }
}

/// Stopped at every step there is, and gone on with from whatever was on record by then.
#[test]
fn a_wipe_that_is_stopped_at_any_step_leaves_nothing_in_the_end() {
    let Some((image, device)) = device() else {
        return;
    };
    for wipe in [Wipe::Zero, Wipe::Quick] {
        let mut steps = 0;
        let cleaner = BlockCleaner::Wipe(wipe);
        let mut order = order(device.path(), cleaner);
        clean(&order, |_| {
            steps += 1;
        })
        .unwrap();
        for stop_at in 1..=steps {
            // On record is what was told last, or what was told first, or nothing.
            for on_record in [stop_at, 1, 0] {
                for at in [0, 64 << 20, 128 << 20] {
                    image.as_file().write_all_at(b"secret", at).unwrap();
                }
                let mut records = vec![None];
                order.job.before = None;
                let stopped = clean(&order, |record| {
                    records.push(Some(record.clone()));
                    let stop = records.len() > stop_at;
                    order.job.stop.store(stop, Ordering::Relaxed);
                });
                order.job.stop = Arc::default();
                assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
                order.job.before = records[on_record].clone();
                clean(&order, |_| {}).unwrap();
                let case = format!("{wipe:?}, stopped at {stop_at}, record {on_record}");
                assert_eq!(words(&device), [false, false, false], "{case}");
            }
        }
    }
}

#[test]
fn a_scrub_that_is_stopped_at_any_step_is_finished_by_the_next() {
    let Some(scratch) = ScratchFs::new("ext4", 16 << 20) else {
        return;
    };
    let mut order = order(scratch.path(), BlockCleaner::Wipe(Wipe::Zero));
    for stop_at in 1..=3 {
        for number in 0..FILES * 3 + 7 {
            let folder = scratch
                .path()
                .join(format!("{}/{}", number % 5, number % 7));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(number.to_string()), "secret").unwrap();
        }
        let mut steps = 0;
        let stopped = clean(&order, |_| {
            steps += 1;
            order.job.stop.store(steps == stop_at, Ordering::Relaxed);
        });
        order.job.stop = Arc::default();
        assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
        clean(&order, |_| {}).unwrap();
        let left = fs::read_dir(scratch.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lost+found"], "stopped at {stop_at}");
    }
}

#[test]
fn a_disk_that_is_taken_is_nobody_elses_until_it_is_let_go() {
    let Some((_image, device)) = device() else {
        return;
    };
    let Some(scratch) = ScratchFs::new("ext4", 16 << 20) else {
        return;
    };
    let wipe = BlockCleaner::Wipe(Wipe::Zero);
    let command = BlockCleaner::Command(vec!["/bin/true".into()]);
    for (path, cleaner) in [
        (device.path(), &wipe),
        (device.path(), &command),
        (scratch.path(), &wipe),
    ] {
        let taken = take(&path, cleaner).unwrap();
        taken.clean(&Job::default(), |_| {}).unwrap();
        take(&path, cleaner).expect_err("it is taken, though it is clean");
        drop(taken);
        take(&path, cleaner).unwrap();
    }
}

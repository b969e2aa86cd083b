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

fn job(path: PathBuf, cleaner: BlockCleaner) -> Job {
    Job {
        path,
        cleaner,
        claim: "uid".into(),
        before: None,
    }
}

#[test]
fn a_wipe_that_was_stopped_goes_on_where_it_was_on_the_same_disk_only() {
    let Some((_image, device)) = device() else {
        return;
    };
    let mut job = job(device.path(), BlockCleaner::Wipe(Wipe::Zero));
    let mut last = Record::default();
    let stopped = clean(&job, |record| {
        last = record.clone();
        Go::Stop
    });
    assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
    assert_eq!((last.done, last.of), (64 << 20, SIZE));
    assert_eq!(words(&device), [false, true, true]);

    // What was done is not done again: a word written since then stays.
    let file = fs::OpenOptions::new().write(true).open(device.path());
    file.unwrap().write_all_at(b"secret", 0).unwrap();
    job.before = Some(last.clone());
    let cleaned = clean(&job, |_| Go::On).unwrap();
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
        job.before = Some(other);
        clean(&job, |_| Go::On).unwrap();
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
    clean(&job(device.path(), BlockCleaner::Command(argv)), |_| Go::On).unwrap();
    assert_eq!(words(&device), [false, true, true]);
    let argv = ["/bin/sh", "-c", "echo worn out; exit 1"].map(str::to_owned);
    let failed = clean(
        &job(device.path(), BlockCleaner::Command(argv.to_vec())),
        |_| Go::On,
    );
    assert!(
        failed
            .unwrap_err()
            .to_string()
            .ends_with("exit status: 1: worn out")
    );
}

#[test]
fn a_folder_that_lost_its_disk_is_not_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), "").unwrap();
    let path = folder.path().to_owned();
    let refused = clean(&job(path, BlockCleaner::Wipe(Wipe::Zero)), |_| Go::On);
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
    let (source, target) = (
        fs::File::open(scratch.path()).unwrap(),
        fs::File::open(&at).unwrap(),
    );
    orlop_host::mount::bind(
        source,
        target,
        orlop_host::mount::Depth::One,
        orlop_host::Restrictions::default(),
    )
    .unwrap();
    let job = job(scratch.path(), BlockCleaner::Wipe(Wipe::Zero));
    let refused = clean(&job, |_| Go::On);
    let there = scratch.path().join("x").exists();
    orlop_host::mount::unmount(&orlop_host::Place::at(&at).unwrap()).unwrap();
    assert!(
        matches!(refused, Err(CleanError::InUse { .. })),
        "{refused:?}"
    );
    assert!(there);
    let cleaned = clean(&job, |_| Go::On).unwrap();
    assert_eq!(cleaned.mode, VolumeMode::Filesystem);
    assert!(!scratch.path().join("x").exists());
}

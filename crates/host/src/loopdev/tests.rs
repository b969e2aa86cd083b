use std::fs;

use super::*;
use crate::filesystem::{self, FsKind, Signature};
use crate::mount::{self, NewMount, Restrictions};
use crate::mountinfo::MountTable;
use crate::place::Place;

/// A sparse image in a directory of its own; whatever is left of it goes when this does.
struct Image {
    dir: tempfile::TempDir,
    file: File,
}

impl Image {
    fn new(size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(size).unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        Self { dir, file }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    fn place(&self) -> Place {
        Place::at(&self.dir.path().join("mnt")).unwrap()
    }

    fn mount(&self, kind: FsKind, device: &LoopDevice, restrictions: Restrictions) {
        let source = device.path();
        let new = NewMount {
            fs_type: kind.name(),
            source: &source,
            restrictions,
            options: &[],
        };
        mount::mount(&new, self.place().open().unwrap()).unwrap();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = mount::unmount(&self.place());
        for device in LoopDevice::find(&self.file).unwrap_or_default() {
            let _ = device.detach();
        }
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: loop devices need root");
    }
    root
}

#[test]
fn a_device_is_found_by_its_file_and_gone_after_detach() {
    if !is_root() {
        return;
    }
    let image = Image::new(16 << 20);
    assert!(LoopDevice::find(&image.file).unwrap().is_empty());
    let device =
        LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::UntilDetached).unwrap();
    assert_eq!(device.size().unwrap(), 16 << 20);
    let status = device.status().unwrap().unwrap();
    assert_eq!(status.access, Access::ReadWrite);
    assert_eq!(status.lifetime, Lifetime::UntilDetached);
    let number = device.number;
    drop(device);
    // Renamed while attached: the file's identity counts, not its first name.
    fs::rename(image.path(), image.dir.path().join("other.img")).unwrap();
    let found = LoopDevice::find(&image.file).unwrap();
    assert_eq!(
        found.iter().map(|device| device.number).collect::<Vec<_>>(),
        [number]
    );
    for device in found {
        device.detach().unwrap();
    }
    assert!(LoopDevice::find(&image.file).unwrap().is_empty());
}

#[test]
fn a_device_that_lives_until_its_last_close_vanishes_with_a_crash_before_the_mount() {
    if !is_root() {
        return;
    }
    let image = Image::new(16 << 20);
    let device = LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap();
    assert_eq!(LoopDevice::find(&image.file).unwrap().len(), 1);
    drop(device);
    assert!(LoopDevice::find(&image.file).unwrap().is_empty());
}

#[test]
fn a_read_only_device_refuses_writes() {
    if !is_root() {
        return;
    }
    let image = Image::new(16 << 20);
    let device =
        LoopDevice::attach(&image.file, Access::ReadOnly, Lifetime::UntilDetached).unwrap();
    let written = OpenOptions::new()
        .write(true)
        .open(device.path())
        .and_then(|mut node| {
            io::Write::write_all(&mut node, &[1; 512])?;
            node.sync_all()
        });
    assert!(written.is_err());
    device.detach().unwrap();
}

#[test]
fn devices_taken_in_parallel_are_all_different() {
    if !is_root() {
        return;
    }
    let images: Vec<_> = (0..12).map(|_| Image::new(1 << 20)).collect();
    let devices: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = images
            .iter()
            .map(|image| {
                scope.spawn(|| {
                    LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut numbers: Vec<_> = devices.iter().map(|device| device.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 12);
}

#[test]
fn each_file_system_is_made_mounted_grown_online_and_leaves_no_device() {
    if !is_root() {
        return;
    }
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let image = Image::new(kind.smallest().max(64 << 20));
        assert_eq!(filesystem::probe(&image.file).unwrap(), Signature::Hole);
        filesystem::make(kind, &image.path(), &[]).unwrap();
        let made = Signature::Known {
            kind,
            damaged: false,
        };
        assert_eq!(filesystem::probe(&image.file).unwrap(), made);

        let device =
            LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap();
        image.mount(
            kind,
            &device,
            Restrictions {
                no_suid: true,
                ..Restrictions::default()
            },
        );
        let number = device.device_number();
        drop(device);
        let point = image.dir.path().join("mnt");
        let table = MountTable::read().unwrap();
        let mounted = table.at(&point).unwrap();
        // A Btrfs has a number of its own, and tells its device by name.
        if kind == FsKind::Btrfs {
            assert_eq!(
                mounted.source,
                format!("/dev/loop{}", number.minor).as_str()
            );
        } else {
            assert_eq!(mounted.device, number);
        }
        assert!(mounted.options.iter().any(|option| option == "nosuid"));
        fs::write(point.join("hello"), "there").unwrap();

        let before = filesystem::usage(&point).unwrap();
        image.file.set_len(512 << 20).unwrap();
        let [device] = &LoopDevice::find(&image.file).unwrap()[..] else {
            panic!("no device")
        };
        device.refresh_size().unwrap();
        assert_eq!(device.size().unwrap(), 512 << 20);
        let grown = filesystem::grow(kind, &device.path(), &point);
        if kind == FsKind::Ext4 && !filesystem::may_grow(kind).unwrap() {
            assert!(matches!(
                grown,
                Err(filesystem::GrowError::NotAllowed { .. })
            ));
            eprintln!("growing ext4 skipped: this process lacks CAP_SYS_RESOURCE");
            continue;
        }
        grown.unwrap();
        filesystem::grow(kind, &device.path(), &point).unwrap();
        assert!(filesystem::usage(&point).unwrap().total_bytes > before.total_bytes + (100 << 20));
        assert_eq!(fs::read(point.join("hello")).unwrap(), b"there");

        mount::unmount(&image.place()).unwrap();
        mount::unmount(&image.place()).unwrap();
        assert_eq!(MountTable::read().unwrap().at(&point), None);
    }
}

#[test]
fn a_file_system_made_in_an_image_is_sound_and_takes_little_of_the_disk() {
    if !is_root() {
        return;
    }
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let image = Image::new(1 << 30);
        filesystem::make_image(kind, &image.path(), &[]).unwrap();
        let taken = image.file.metadata().unwrap().blocks() * 512;
        // XFS' log takes 64 MiB.
        assert!(taken < 72 << 20, "{kind} takes {taken} bytes");
        let (checker, arguments) = match kind {
            FsKind::Ext4 => ("/usr/sbin/e2fsck", ["-fn", "--"]),
            FsKind::Xfs => ("/usr/sbin/xfs_repair", ["-n", "-f"]),
            FsKind::Btrfs => ("/usr/bin/btrfs", ["check", "--readonly"]),
        };
        let checked = std::process::Command::new(checker)
            .args(arguments)
            .arg(image.path())
            .output()
            .unwrap();
        assert!(checked.status.success(), "{kind}: {checked:?}");
        let device =
            LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap();
        image.mount(kind, &device, Restrictions::default());
        fs::write(image.dir.path().join("mnt/f"), vec![1; 10 << 20]).unwrap();
        mount::unmount(&image.place()).unwrap();
    }
}

#[test]
fn a_read_only_mount_and_a_read_only_bind_refuse_writes() {
    if !is_root() {
        return;
    }
    let image = Image::new(64 << 20);
    filesystem::make(FsKind::Ext4, &image.path(), &[]).unwrap();
    let device = LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap();
    image.mount(
        FsKind::Ext4,
        &device,
        Restrictions {
            read_only: true,
            ..Restrictions::default()
        },
    );
    let point = image.dir.path().join("mnt");
    let error = fs::write(point.join("x"), "x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    mount::unmount(&image.place()).unwrap();

    image.mount(FsKind::Ext4, &device, Restrictions::default());
    fs::write(point.join("x"), "x").unwrap();
    let second = image.dir.path().join("second");
    fs::create_dir(&second).unwrap();
    let target = Place::at(&second).unwrap();
    let read_only = Restrictions {
        read_only: true,
        ..Restrictions::default()
    };
    let source = image.place().open().unwrap();
    mount::bind(source, target.open().unwrap(), mount::Depth::One, read_only).unwrap();
    let refused = fs::write(second.join("x"), "y").map_err(|error| error.kind());
    let seen = MountTable::read()
        .unwrap()
        .at(&second)
        .unwrap()
        .is_read_only();
    mount::unmount(&target).unwrap();
    assert_eq!(refused, Err(io::ErrorKind::ReadOnlyFilesystem));
    assert!(seen);
    fs::write(point.join("x"), "z").unwrap();
}

#[test]
fn an_image_without_a_file_system_is_refused_with_the_kernels_words() {
    if !is_root() {
        return;
    }
    let image = Image::new(16 << 20);
    let device = LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap();
    let source = device.path();
    let new = |fs_type, options| NewMount {
        fs_type,
        source: &source,
        restrictions: Restrictions::default(),
        options,
    };
    let target = || image.place().open().unwrap();
    let error = mount::mount(&new("ext4", &[]), target()).unwrap_err();
    assert!(matches!(error, mount::MountError::Open { .. }), "{error:?}");
    let error = mount::mount(&new("nosuchfs", &[]), target()).unwrap_err();
    assert!(
        matches!(error, mount::MountError::UnknownType { .. }),
        "{error:?}"
    );
    let odd = [mount::FsOption {
        key: "nosuchoption".to_owned(),
        value: None,
    }];
    let error = mount::mount(&new("ext4", &odd), target()).unwrap_err();
    assert!(
        matches!(error, mount::MountError::Option { .. }),
        "{error:?}"
    );
    fs::write(image.path(), vec![7; 8192]).unwrap();
    assert_eq!(filesystem::probe(&image.file).unwrap(), Signature::Other);
}

#[test]
fn a_mount_that_is_busy_for_a_moment_is_waited_for_and_a_used_one_is_refused() {
    if !is_root() {
        return;
    }
    let image = Image::new(64 << 20);
    filesystem::make_image(FsKind::Ext4, &image.path(), &[]).unwrap();
    let device = LoopDevice::attach(&image.file, Access::ReadWrite, Lifetime::LastClose).unwrap();
    image.mount(FsKind::Ext4, &device, Restrictions::default());
    let user = File::open(image.dir.path().join("mnt")).unwrap();
    let busy = mount::unmount(&image.place()).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            drop(user);
        });
        mount::unmount(&image.place()).unwrap();
    });
}

#[test]
fn a_name_is_known_by_its_end_from_a_folder_on() {
    let whole = b"/mnt/disk/pool/v/v.img";
    for end in [
        &b"/mnt/disk/pool/v/v.img"[..],
        b"/pool/v/v.img",
        b"/v/v.img",
    ] {
        assert!(is_end_of(end, whole));
    }
    for other in [
        &b"v.img"[..],
        b"ool/v/v.img",
        b"/x/v.img",
        b"/a/mnt/disk/pool/v/v.img",
        b"",
    ] {
        assert!(!is_end_of(other, whole));
    }
}

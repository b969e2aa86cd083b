use std::os::unix::fs::FileExt;

use super::*;
use crate::LoopDevice;
use crate::loopdev::{Access, Lifetime};
use crate::testing::ScratchFs;

const SIZE: u64 = 8 << 20;

/// A device on an image full of sevens; gone when dropped.
fn device() -> Option<(tempfile::NamedTempFile, LoopDevice)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let image = tempfile::NamedTempFile::new().expect("an image");
    let sevens = vec![7; SIZE as usize];
    image.as_file().write_all_at(&sevens, 0).expect("sevens");
    let file = image.reopen().expect("the image");
    let device = LoopDevice::attach(&file, Access::ReadWrite, Lifetime::LastClose);
    Some((image, device.expect("a device")))
}

fn bytes(path: &Path, at: u64) -> [u8; 512] {
    let mut bytes = [1; 512];
    let file = File::open(path).expect("the device");
    file.read_exact_at(&mut bytes, at).expect("bytes");
    bytes
}

#[test]
fn a_zeroed_range_reads_as_zeros_and_its_neighbours_stay() {
    let Some((_image, loop_device)) = device() else {
        return;
    };
    let path = loop_device.path();
    assert_eq!(size_of(&path).expect("a size"), Some(SIZE));
    let alone = BlockDevice::open_alone(&path).expect("alone");
    assert_eq!(alone.size().expect("a size"), SIZE);
    alone.zero(1 << 20, 1 << 20).expect("zeros");
    alone.randomise(4 << 20, 1 << 20).expect("noise");
    drop(alone);
    assert_eq!(bytes(&path, 0), [7; 512]);
    assert_eq!(bytes(&path, 1 << 20), [0; 512]);
    assert_eq!(bytes(&path, 2 << 20), [7; 512]);
    assert_ne!(bytes(&path, (5 << 20) - 512), [7; 512]);
}

#[test]
fn a_device_is_had_by_one_and_not_while_it_is_mounted() {
    let Some((_image, loop_device)) = device() else {
        return;
    };
    let path = loop_device.path();
    let alone = BlockDevice::open_alone(&path).expect("alone");
    let again = BlockDevice::open_alone(&path);
    assert!(matches!(again, Err(OpenError::InUse)), "{again:?}");
    let mark = alone.into_mark().expect("a mark");
    let same = number(&mark.path().expect("a path")).expect("a number");
    assert_eq!(same, number(&path).expect("a number"));
    let again = BlockDevice::open_alone(&path);
    assert!(matches!(again, Err(OpenError::InUse)), "{again:?}");
    drop(mark);
    let alone = BlockDevice::open_alone(&path).expect("alone after all");
    let identity = alone.identity().expect("an identity");
    drop(alone);
    let alone = BlockDevice::open_alone(&path).expect("alone");
    assert_eq!(alone.identity().expect("an identity"), identity);

    let Some(scratch) = ScratchFs::new("ext4", SIZE) else {
        return;
    };
    let table = crate::MountTable::read().expect("mounts");
    let mount = table.at(&scratch.path()).expect("the mount");
    let mounted = BlockDevice::open_alone(Path::new(&mount.source));
    assert!(matches!(mounted, Err(OpenError::InUse)), "{mounted:?}");
}

#[test]
fn what_is_no_device_is_told_so() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    assert_eq!(size_of(file.path()).expect("a look"), None);
    let opened = BlockDevice::open_alone(file.path());
    assert!(matches!(opened, Err(OpenError::NoDevice)), "{opened:?}");
}

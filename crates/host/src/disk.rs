//! Disks by what they are, whatever they are called: and who has one besides us.
//!
//! Whoever is in a container sees there what was mounted before it came, and what is handed on to it.
//! What kubelets mount for pods stands in the mount table of the machine's first process: where that
//! can be seen, it is asked as well.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use crate::{DeviceNumber, Mount, MountTable, block};

/// A disk, known by the same as long as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskId {
    /// A block device.
    Device(DeviceNumber),
    /// A mounted file system, or a part of one.
    Files {
        /// The file system's device.
        device: DeviceNumber,
        /// Which part of it: `/` for all.
        root: PathBuf,
    },
}

impl DiskId {
    /// The device at a path, links followed.
    pub fn of_device(path: &Path) -> io::Result<Self> {
        block::number(path).map(Self::Device)
    }

    /// What is mounted at exactly this path, which has no links.
    #[must_use]
    pub fn of_mount(path: &Path, table: &MountTable) -> Option<Self> {
        table.at(path).map(|mount| Self::Files {
            device: mount.device,
            root: mount.root.clone(),
        })
    }

    /// Whether what is written to one is found in the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device(one), Self::Device(other)) => one == other,
            (
                Self::Files { device, root },
                Self::Files {
                    device: on,
                    root: part,
                },
            ) => device == on && (root.starts_with(part) || part.starts_with(root)),
            (Self::Device(one), Self::Files { device, .. })
            | (Self::Files { device, .. }, Self::Device(one)) => one == device,
        }
    }
}

/// Where in a folder of this name a disk is mounted, in our mount table or the first process's: a file
/// system or a part of it, or the device itself on a file.
pub fn mounted_below(name: &str, disk: &DiskId) -> io::Result<Option<PathBuf>> {
    let own = MountTable::read()?;
    let first = first_process()?;
    let mut below = own
        .iter()
        .chain(first.iter())
        .filter(|mount| mount.point.iter().any(|part| part == name));
    let found = below.find(|mount| {
        let files = DiskId::Files {
            device: mount.device,
            root: mount.root.clone(),
        };
        match disk {
            DiskId::Files { .. } => disk.overlaps(&files),
            DiskId::Device(number) => {
                disk.overlaps(&files) || bound_device(mount, &own) == Some(*number)
            }
        }
    });
    Ok(found.map(|mount| mount.point.clone()))
}

/// The device that a mount shows, which may be in another's table. It is looked for where we have the
/// file system that its node is on: in most containers that is `/dev`, as it is on the host.
fn bound_device(mount: &Mount, own: &MountTable) -> Option<DeviceNumber> {
    own.of_device(mount.device).find_map(|seen| {
        let within = mount.root.strip_prefix(&seen.root).ok()?;
        match within.as_os_str().is_empty() {
            true => device_at(&seen.point),
            false => device_at(&seen.point.join(within)),
        }
    })
}

/// Whether the first process that we see has mounts of its own. A container in which it hasn't sees no
/// processes but its own.
pub fn sees_first_process() -> io::Result<bool> {
    let id = |table: MountTable| table.iter().next().map(|mount| mount.id);
    // No two mounts have the same number.
    Ok(id(first_process()?) != id(MountTable::read()?))
}

fn first_process() -> io::Result<MountTable> {
    MountTable::parse(&std::fs::read("/proc/1/mountinfo")?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A process that has a device open to write to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub program: String,
}

/// Another process that has a device open to write to it, among those that we see. Who only reads is
/// passed over: so do the many that look what a disk is.
pub fn writer(device: DeviceNumber) -> io::Result<Option<Writer>> {
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if pid == own {
            continue;
        }
        let process = Path::new("/proc").join(&name);
        // It may have ended since, or end now.
        let Ok(files) = std::fs::read_dir(process.join("fd")) else {
            continue;
        };
        let writes = files.flatten().any(|file| {
            device_at(&file.path()) == Some(device)
                && is_for_writing(&process.join("fdinfo").join(file.file_name()))
        });
        if writes {
            let program = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
            let program = program.trim().to_owned();
            return Ok(Some(Writer { pid, program }));
        }
    }
    Ok(None)
}

/// The number of the device at a path, links followed. A server that is gone is not waited for.
fn device_at(path: &Path) -> Option<DeviceNumber> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE).ok()?;
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    (kind == FileType::BlockDevice).then_some(DeviceNumber {
        major: found.stx_rdev_major,
        minor: found.stx_rdev_minor,
    })
}

fn is_for_writing(info: &Path) -> bool {
    let text = std::fs::read_to_string(info).unwrap_or_default();
    let mut flags = text.lines().filter_map(|line| line.strip_prefix("flags:"));
    let flags = flags
        .next()
        .map(|flags| i32::from_str_radix(flags.trim(), 8));
    matches!(flags, Some(Ok(flags)) if flags & libc::O_ACCMODE != libc::O_RDONLY)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::LoopDevice;
    use crate::loopdev::{Access, Lifetime};

    fn files(minor: u32, root: &str) -> DiskId {
        let device = DeviceNumber { major: 8, minor };
        let root = root.into();
        DiskId::Files { device, root }
    }

    #[test]
    fn disks_are_told_apart_by_what_they_hold() {
        let device = |minor| DiskId::Device(DeviceNumber { major: 8, minor });
        for (one, other, same) in [
            (device(1), device(1), true),
            (device(1), device(2), false),
            (device(1), files(1, "/"), true),
            (device(1), files(2, "/"), false),
            (files(1, "/"), files(1, "/"), true),
            (files(1, "/a"), files(1, "/"), true),
            (files(1, "/a"), files(1, "/a/b"), true),
            (files(1, "/a"), files(1, "/ab"), false),
            (files(1, "/a"), files(2, "/a"), false),
        ] {
            assert_eq!(one.overlaps(&other), same, "{one:?} {other:?}");
            assert_eq!(other.overlaps(&one), same, "{other:?} {one:?}");
        }
    }

    #[test]
    fn who_writes_to_a_device_is_known_and_who_reads_it_is_passed_over() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let image = tempfile::tempfile().expect("an image");
        image.set_len(1 << 20).expect("its size");
        let device = LoopDevice::attach(&image, Access::ReadWrite, Lifetime::LastClose);
        let device = device.expect("a device");
        let number = block::number(&device.path()).expect("a number");
        for (opened, seen) in [("3<", false), ("3<>", true)] {
            let script = format!("exec {opened}{} && echo && cat", device.path().display());
            let mut child = Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process");
            let mut said = child.stdout.take().expect("its output");
            io::Read::read_exact(&mut said, &mut [0]).expect("it has it open");
            let found = writer(number).expect("a look");
            drop(child.stdin.take());
            let pid = child.id();
            child.wait().expect("its end");
            assert_eq!(
                found.is_some_and(|found| found.pid == pid),
                seen,
                "{opened}"
            );
        }
        assert_eq!(writer(number).expect("a look"), None);
    }
}

//! The kernel's mount table as values.
//!
//! Owns the reading of `/proc/self/mountinfo` and nothing else: parsing is pure and total (a line
//! that cannot be understood is an error, never skipped), because a mount that goes unseen here is
//! a mount that somebody deletes through.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustix::fs::{AtFlags, StatxFlags};

/// A device number, as `major:minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device's number within its driver.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The kernel's number for one mount, unique among the mounts that exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountId(pub u64);

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// This mount.
    pub id: MountId,
    /// The mount that it sits on.
    pub parent: MountId,
    /// The file system's device.
    pub device: DeviceNumber,
    /// Which part of the file system is shown: `/` for all of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Options of this mount (`ro`, `nosuid`, ...).
    pub options: Vec<OsString>,
    /// Propagation and the like (`shared:1`).
    pub propagation: Vec<OsString>,
    /// The file system's type.
    pub fs_type: OsString,
    /// What was mounted: a device path for disk file systems.
    pub source: OsString,
    /// Options of the file system itself.
    pub super_options: Vec<OsString>,
}

impl Mount {
    /// Whether writes through this mount are refused, by the mount or by its file system.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let ro = |options: &[OsString]| options.iter().any(|option| option == "ro");
        ro(&self.options) || ro(&self.super_options)
    }
}

/// Why a mount table could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the mount table is not understood: {what}")]
pub struct ParseError {
    line: usize,
    what: &'static str,
}

/// All mounts of one mount namespace at one moment, in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// Reads the table of the calling process' mount namespace.
    pub fn read() -> io::Result<Self> {
        Self::parse(&std::fs::read("/proc/self/mountinfo")?)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Understands the text of a `mountinfo` file.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let mounts = text
            .split(|byte| *byte == b'\n')
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
            .map(|(index, line)| {
                parse_line(line).map_err(|what| ParseError {
                    line: index + 1,
                    what,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { mounts })
    }

    /// Every mount, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// The mount with this number.
    #[must_use]
    pub fn get(&self, id: MountId) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// The mount that something held is on. A server or device that is gone is not waited for.
    pub fn holding(&self, held: impl AsFd) -> io::Result<Option<&Mount>> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(held, c"", flags, StatxFlags::MNT_ID)?;
        Ok(self.get(MountId(found.stx_mnt_id)))
    }

    /// The topmost mount at exactly this path.
    #[must_use]
    pub fn at(&self, point: &Path) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.point == point)
    }

    /// The mounts at this path or anywhere below it.
    pub fn beneath<'a>(&'a self, path: &'a Path) -> impl DoubleEndedIterator<Item = &'a Mount> {
        self.mounts
            .iter()
            .filter(move |mount| mount.point.starts_with(path))
    }

    /// The mounts of one device.
    pub fn of_device(&self, device: DeviceNumber) -> impl DoubleEndedIterator<Item = &Mount> {
        self.mounts
            .iter()
            .filter(move |mount| mount.device == device)
    }
}

fn parse_line(line: &[u8]) -> Result<Mount, &'static str> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |what| fields.next().filter(|field| !field.is_empty()).ok_or(what);
    let id = MountId(number(next("no mount id")?)?);
    let parent = MountId(number(next("no parent id")?)?);
    let device = device(next("no device")?)?;
    let root = PathBuf::from(unescape(next("no root")?));
    let point = PathBuf::from(unescape(next("no mount point")?));
    let options = list(next("no options")?);
    let mut propagation = Vec::new();
    loop {
        match next("no separator")? {
            b"-" => break,
            tag => propagation.push(OsString::from_vec(tag.to_vec())),
        }
    }
    let fs_type = unescape(next("no file system type")?);
    // An empty source is written as an empty field.
    let source = unescape(fields.next().ok_or("no source")?);
    let super_options = list(fields.next().ok_or("no file system options")?);
    Ok(Mount {
        id,
        parent,
        device,
        root,
        point,
        options,
        propagation,
        fs_type,
        source,
        super_options,
    })
}

fn number(field: &[u8]) -> Result<u64, &'static str> {
    std::str::from_utf8(field)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or("not a number")
}

fn device(field: &[u8]) -> Result<DeviceNumber, &'static str> {
    let wrong = "device is not major:minor";
    let (major, minor) = std::str::from_utf8(field)
        .ok()
        .and_then(|t| t.split_once(':'))
        .ok_or(wrong)?;
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => Ok(DeviceNumber { major, minor }),
        _ => Err(wrong),
    }
}

fn list(field: &[u8]) -> Vec<OsString> {
    field.split(|byte| *byte == b',').map(unescape).collect()
}

/// Undoes the kernel's `\ooo` for space, tab, newline, backslash and `#`.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, octal(tail)) {
            (b'\\', Some(value)) => {
                out.push(value);
                rest = &tail[3..];
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.get(..3)?;
    digits.iter().try_fold(0u8, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

/// The text of an option list as the kernel prints it.
#[must_use]
pub fn joined(options: &[OsString]) -> OsString {
    options.join(OsStr::from_bytes(b","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
98 27 7:3 / /var/lib/my\\040pods/a\\134b ro,nosuid - xfs /dev/loop3 rw,attr2
99 27 0:40 /sub /mnt/x rw shared:7 master:2 - tmpfs  rw,size=4k
100 98 7:3 /inner /var/lib/my\\040pods/a\\134b/c rw - xfs /dev/loop3 rw
";

    #[test]
    fn a_line_becomes_its_fields_with_escapes_undone() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        let mount = table.get(MountId(98)).unwrap();
        assert_eq!(mount.point, Path::new("/var/lib/my pods/a\\b"));
        assert_eq!(mount.device, DeviceNumber { major: 7, minor: 3 });
        assert_eq!(mount.fs_type, "xfs");
        assert_eq!(mount.source, "/dev/loop3");
        assert!(mount.is_read_only());
        assert_eq!(joined(&mount.super_options), "rw,attr2");
    }

    #[test]
    fn optional_fields_and_an_empty_source_are_understood() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        let mount = table.at(Path::new("/mnt/x")).unwrap();
        assert_eq!(mount.propagation, ["shared:7", "master:2"]);
        assert_eq!(mount.source, "");
        assert_eq!(mount.root, Path::new("/sub"));
        assert!(!mount.is_read_only());
    }

    #[test]
    fn mounts_are_found_beneath_a_path_and_by_device() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        let ids = |mounts: Vec<&Mount>| mounts.iter().map(|mount| mount.id.0).collect::<Vec<_>>();
        assert_eq!(
            ids(table.beneath(Path::new("/var/lib/my pods")).collect()),
            [98, 100]
        );
        assert_eq!(
            ids(table.beneath(Path::new("/var/lib/my")).collect()),
            Vec::<u64>::new()
        );
        assert_eq!(
            ids(table
                .of_device(DeviceNumber { major: 7, minor: 3 })
                .collect()),
            [98, 100]
        );
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error_with_its_number() {
        for bad in [
            "x 1 0:1 / / rw - t s o",
            "1 1 01 / / rw - t s o",
            "1 1 0:1 / / rw t s o",
            "1",
        ] {
            let text = format!("27 1 254:0 / / rw - ext4 /dev/vda rw\n{bad}\n");
            let error = MountTable::parse(text.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("line 2 "), "{bad}: {error}");
        }
    }

    #[test]
    fn a_lone_backslash_stays_as_it_is() {
        assert_eq!(unescape(b"a\\b\\04"), "a\\b\\04");
        assert_eq!(unescape(b"\\777"), "\\777");
        assert_eq!(unescape(b"\\011x"), "\tx");
    }

    #[test]
    fn this_machines_table_is_understood() {
        let table = MountTable::read().unwrap();
        assert!(table.at(Path::new("/")).is_some());
    }
}

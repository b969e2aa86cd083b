//! The forms in which a volume can be used, out of the protocol's words.
//!
//! Pure. Mount options come from an allow-list: an option that is not on it is refused, because
//! options reach the kernel and some of them reach out of the volume.

use orlop_csi::proto;
use orlop_csi::proto::volume_capability::AccessType as WireAccess;
use orlop_csi::proto::volume_capability::access_mode::Mode as WireMode;
use orlop_host::FsKind;
use orlop_host::mount::{AccessTimes, FsOption, Restrictions};
use serde::{Deserialize, Serialize};

/// One form of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capability {
    /// As files or as a device.
    pub access: Access,
    /// By how many.
    pub mode: Mode,
}

/// How a workload sees the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// A mounted file system.
    Mount(FsKind),
    /// A raw block device.
    Block,
}

/// By how many a volume is used at once. A local volume is on one node, so there are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// One node writes; the old name, which leaves open by how many workloads.
    SingleNodeWriter,
    /// One node reads.
    SingleNodeReader,
    /// One workload writes.
    SingleWriter,
    /// Workloads of one node write.
    MultiWriter,
}

impl Mode {
    /// Whether more than one target path may be published at once.
    #[must_use]
    pub fn allows_many_targets(self) -> bool {
        match self {
            Self::MultiWriter => true,
            Self::SingleNodeWriter | Self::SingleNodeReader | Self::SingleWriter => false,
        }
    }
}

/// Why a capability cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// Required and not there.
    #[error("{0} is missing from the volume capability")]
    Missing(&'static str),
    /// Not a local volume's.
    #[error(
        "access mode {0} needs a volume that several nodes can reach; a local volume is on one"
    )]
    ManyNodes(&'static str),
    /// A mode of a later version of the protocol.
    #[error("access mode {0} is not known")]
    UnknownMode(i32),
    /// A file system that we do not make.
    #[error("file system {0:?} is not supported; use ext4, xfs or btrfs")]
    FileSystem(String),
    /// We do not change ownership.
    #[error("volume_mount_group is not supported")]
    MountGroup,
    /// A mount option that it may not have.
    #[error(transparent)]
    Option(#[from] OptionRefused),
}

impl Capability {
    /// Understands one capability; `default` is the file system where none is named.
    pub fn parse(wire: &proto::VolumeCapability, default: FsKind) -> Result<Self, CapabilityError> {
        let access = match &wire.access_type {
            None => return Err(CapabilityError::Missing("access_type")),
            Some(WireAccess::Block(_)) => Access::Block,
            Some(WireAccess::Mount(mount)) => {
                if !mount.volume_mount_group.is_empty() {
                    return Err(CapabilityError::MountGroup);
                }
                Access::Mount(file_system(&mount.fs_type, default)?)
            }
        };
        let mode = wire
            .access_mode
            .ok_or(CapabilityError::Missing("access_mode"))?
            .mode;
        let mode = match WireMode::try_from(mode) {
            Ok(WireMode::SingleNodeWriter) => Mode::SingleNodeWriter,
            Ok(WireMode::SingleNodeReaderOnly) => Mode::SingleNodeReader,
            Ok(WireMode::SingleNodeSingleWriter) => Mode::SingleWriter,
            Ok(WireMode::SingleNodeMultiWriter) => Mode::MultiWriter,
            Ok(
                mode @ (WireMode::MultiNodeReaderOnly
                | WireMode::MultiNodeSingleWriter
                | WireMode::MultiNodeMultiWriter),
            ) => return Err(CapabilityError::ManyNodes(mode.as_str_name())),
            Ok(WireMode::Unknown) => return Err(CapabilityError::Missing("access_mode")),
            Err(_) => return Err(CapabilityError::UnknownMode(mode)),
        };
        Ok(Self { access, mode })
    }

    /// The same, with its mount options: what staging would refuse is refused now.
    pub(super) fn parse_whole(
        wire: &proto::VolumeCapability,
        default: FsKind,
    ) -> Result<Self, CapabilityError> {
        let parsed = Self::parse(wire, default)?;
        if let (Access::Mount(kind), Some(WireAccess::Mount(mount))) =
            (parsed.access, &wire.access_type)
        {
            MountOptions::parse(&mount.mount_flags, kind)?;
        }
        Ok(parsed)
    }
}

/// The file system with this name, or the default for no name.
pub(super) fn file_system(name: &str, default: FsKind) -> Result<FsKind, CapabilityError> {
    match name {
        "" => Ok(default),
        name => FsKind::by_name(name).ok_or_else(|| CapabilityError::FileSystem(name.to_owned())),
    }
}

/// How a file system is mounted at its staging path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountOptions {
    /// Flags of the mount.
    pub restrictions: Restrictions,
    /// Options of the file system.
    pub file_system: Vec<FsOption>,
}

/// A mount option that is not on the list. Its value may be sensitive, so only its name is told, or
/// its place if it has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mount option {option} is not allowed for {kind}; take it out of mountOptions")]
pub struct OptionRefused {
    option: String,
    kind: FsKind,
}

impl OptionRefused {
    fn new(word: &str, place: usize, kind: FsKind) -> Self {
        /// No file system has an option with a longer name.
        const LONGEST: usize = 32;
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        let plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-' | b'.');
        let is_name = name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.len() <= LONGEST
            && name
                .bytes()
                .all(|byte| plain(byte) || byte.is_ascii_digit());
        let option = match is_name {
            true => format!("{name:?}"),
            false => format!("number {place}"),
        };
        Self { option, kind }
    }
}

impl MountOptions {
    /// Understands mount flags; devices and set-user-id programs are off unless asked for.
    pub(super) fn parse(flags: &[String], kind: FsKind) -> Result<Self, OptionRefused> {
        let mut restrictions = Restrictions {
            no_suid: true,
            no_dev: true,
            ..Restrictions::default()
        };
        let mut file_system = Vec::new();
        let words = flags
            .iter()
            .flat_map(|flag| flag.split(','))
            .filter(|word| !word.is_empty());
        for (index, word) in words.enumerate() {
            match word {
                "defaults" | "rw" | "relatime" => {}
                "ro" => restrictions.read_only = true,
                "suid" => restrictions.no_suid = false,
                "nosuid" => restrictions.no_suid = true,
                "dev" => restrictions.no_dev = false,
                "nodev" => restrictions.no_dev = true,
                "exec" => restrictions.no_exec = false,
                "noexec" => restrictions.no_exec = true,
                "noatime" => restrictions.access_times = AccessTimes::Never,
                "nodiratime" => restrictions.access_times = AccessTimes::NeverForDirectories,
                "strictatime" => restrictions.access_times = AccessTimes::Always,
                word if is_harmless(word, kind) => file_system.push(fs_option(word)),
                _ => return Err(OptionRefused::new(word, index + 1, kind)),
            }
        }
        Ok(Self {
            restrictions,
            file_system,
        })
    }
}

/// Options that change how a file system works, and nothing outside of it.
fn is_harmless(word: &str, kind: FsKind) -> bool {
    const ANY: &[&str] = &["discard", "nodiscard", "sync", "dirsync", "lazytime"];
    const EXT4: &[&str] = &[
        "errors=remount-ro",
        "errors=continue",
        "data=ordered",
        "data=journal",
        "data=writeback",
        "barrier",
        "nobarrier",
        "delalloc",
        "nodelalloc",
        "noinit_itable",
        "user_xattr",
        "acl",
    ];
    const XFS: &[&str] = &[
        "inode64",
        "largeio",
        "nolargeio",
        "swalloc",
        "noquota",
        "uquota",
        "gquota",
        "pquota",
    ];
    const BTRFS: &[&str] = &[
        "compress",
        "compress=zlib",
        "compress=lzo",
        "compress=zstd",
        "compress-force=zstd",
        "discard=async",
        "nodatacow",
        "nodatasum",
        "ssd",
        "nossd",
        "autodefrag",
    ];
    ANY.contains(&word)
        || match kind {
            FsKind::Ext4 => EXT4.contains(&word),
            FsKind::Xfs => XFS.contains(&word),
            FsKind::Btrfs => BTRFS.contains(&word),
        }
}

fn fs_option(word: &str) -> FsOption {
    match word.split_once('=') {
        Some((key, value)) => FsOption {
            key: key.to_owned(),
            value: Some(value.to_owned()),
        },
        None => FsOption {
            key: word.to_owned(),
            value: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(access: Option<WireAccess>, mode: WireMode) -> proto::VolumeCapability {
        proto::VolumeCapability {
            access_type: access,
            access_mode: Some(proto::volume_capability::AccessMode { mode: mode.into() }),
        }
    }

    fn files(fs_type: &str) -> Option<WireAccess> {
        Some(WireAccess::Mount(proto::volume_capability::MountVolume {
            fs_type: fs_type.to_owned(),
            ..Default::default()
        }))
    }

    #[test]
    fn the_file_system_is_the_default_unless_one_is_named() {
        let of =
            |name| Capability::parse(&wire(files(name), WireMode::SingleNodeWriter), FsKind::Ext4);
        assert_eq!(of("").unwrap().access, Access::Mount(FsKind::Ext4));
        assert_eq!(of("xfs").unwrap().access, Access::Mount(FsKind::Xfs));
        assert_eq!(
            of("ntfs"),
            Err(CapabilityError::FileSystem("ntfs".to_owned()))
        );
    }

    #[test]
    fn modes_of_several_nodes_are_refused() {
        for mode in [
            WireMode::MultiNodeReaderOnly,
            WireMode::MultiNodeSingleWriter,
            WireMode::MultiNodeMultiWriter,
        ] {
            let parsed = Capability::parse(&wire(files(""), mode), FsKind::Ext4);
            assert!(
                matches!(parsed, Err(CapabilityError::ManyNodes(_))),
                "{mode:?}"
            );
        }
    }

    #[test]
    fn what_is_required_is_missed() {
        let parse = |wire| Capability::parse(&wire, FsKind::Ext4);
        assert_eq!(
            parse(wire(None, WireMode::SingleNodeWriter)),
            Err(CapabilityError::Missing("access_type"))
        );
        assert_eq!(
            parse(proto::VolumeCapability {
                access_type: files(""),
                access_mode: None
            }),
            Err(CapabilityError::Missing("access_mode"))
        );
        assert_eq!(
            parse(wire(files(""), WireMode::Unknown)),
            Err(CapabilityError::Missing("access_mode"))
        );
    }

    #[test]
    fn mount_flags_become_flags_and_options() {
        let flags = ["noatime".to_owned(), "discard,errors=remount-ro".to_owned()];
        let options = MountOptions::parse(&flags, FsKind::Ext4).unwrap();
        assert!(options.restrictions.no_suid && options.restrictions.no_dev);
        assert_eq!(options.restrictions.access_times, AccessTimes::Never);
        let keys: Vec<_> = options
            .file_system
            .iter()
            .map(|option| option.key.as_str())
            .collect();
        assert_eq!(keys, ["discard", "errors"]);
    }

    #[test]
    fn an_option_that_reaches_out_of_the_volume_is_refused_by_name_and_without_its_value() {
        for (flag, told) in [
            ("journal_path=/dev/sda1", "option \"journal_path\""),
            ("logdev=/dev/sda", "option \"logdev\""),
            ("context=foo", "option \"context\""),
            ("bind", "option \"bind\""),
            ("x\0y", "option number 1"),
            ("-o", "option number 1"),
            ("S3cret", "option number 1"),
            ("=hidden", "option number 1"),
        ] {
            for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
                let error = MountOptions::parse(&[flag.to_owned()], kind).unwrap_err();
                let error = error.to_string();
                assert!(error.contains(told), "{error}");
                let value = flag.split_once('=').map_or("S3cret", |(_, value)| value);
                assert!(!error.contains(value), "{error}");
            }
        }
    }
}

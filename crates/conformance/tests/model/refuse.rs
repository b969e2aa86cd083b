//! The model's refusals, and the checks of fields that all calls share.

use std::path::{Component, Path, PathBuf};

use orlop_csi::limits::{self, LimitError};
use orlop_csi::proto::volume_capability::AccessType;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use orlop_csi::proto::{CapacityRange, VolumeCapability};
use tonic::{Code, Status};

use super::store::Form;

/// The smallest volume, and the unit of all sizes.
pub(crate) const UNIT: i64 = 4096;
/// The largest volume.
pub(crate) const LARGEST: i64 = 1 << 40;
/// What there is in all.
pub(crate) const POOL: i64 = 1 << 42;
/// A volume's size where nothing is asked for.
const USUAL: i64 = 16 << 20;

pub(crate) fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(message)
}

pub(crate) fn internal(what: &str, error: &dyn std::error::Error) -> Status {
    Status::internal(format!("could not {what}: {error}"))
}

pub(crate) fn no_volume(id: &str) -> Status {
    Status::not_found(format!("there is no volume {id:?}"))
}

pub(crate) fn limit(error: &LimitError) -> Status {
    invalid(error.to_string())
}

/// A required id or other short string.
pub(crate) fn required(field: &'static str, value: &str) -> Result<(), Status> {
    limits::required(field, value).map_err(|error| limit(&error))
}

pub(crate) fn present(field: &'static str, value: &str) -> Result<(), Status> {
    if value.is_empty() {
        return Err(invalid(format!("{field} is missing")));
    }
    Ok(())
}

/// An absolute path of plain names.
pub(crate) fn path(field: &'static str, value: &str) -> Result<PathBuf, Status> {
    limits::path(field, value).map_err(|error| limit(&error))?;
    let path = Path::new(value);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !plain || path.parent().is_none() {
        return Err(invalid(format!("{field} must be made of plain names")));
    }
    Ok(path.components().collect())
}

/// A capability's mode, if it exists.
pub(crate) fn mode(capability: &VolumeCapability) -> Option<Mode> {
    let mode = Mode::try_from(capability.access_mode.as_ref()?.mode).ok()?;
    (mode != Mode::Unknown).then_some(mode)
}

/// A complete capability, in the form that it stands for.
pub(crate) fn capability(wire: &VolumeCapability) -> Result<Form, Status> {
    limits::volume_capability(wire).map_err(|error| limit(&error))?;
    if mode(wire).is_none() {
        return Err(invalid("the access mode is not known"));
    }
    match &wire.access_type {
        Some(AccessType::Block(_)) => Ok(Form::Block),
        Some(AccessType::Mount(mount)) => {
            if !matches!(
                mount.fs_type.as_str(),
                "" | "ext4" | "xfs" | "btrfs" | "tmpfs"
            ) {
                return Err(invalid("the file system is not supported"));
            }
            if !mount.volume_mount_group.is_empty() {
                return Err(invalid("volume_mount_group is not supported"));
            }
            let known = [
                "ro", "rw", "noatime", "nosuid", "nodev", "noexec", "discard",
            ];
            // A flag may be sensitive, so it isn't repeated.
            match mount
                .mount_flags
                .iter()
                .all(|flag| known.contains(&flag.as_str()))
            {
                true => Ok(Form::Mount),
                false => Err(invalid("a mount flag is not supported")),
            }
        }
        None => Err(invalid("the capability has no access type")),
    }
}

/// The bytes for a range; `least` is what a source needs.
pub(crate) fn size(range: Option<&CapacityRange>, least: i64) -> Result<i64, Status> {
    let Some(range) = range else {
        return Ok(least.max(USUAL));
    };
    limits::capacity_range(range).map_err(|error| limit(&error))?;
    let (required, limit) = (range.required_bytes, range.limit_bytes);
    let most = if limit == 0 {
        LARGEST
    } else {
        limit.min(LARGEST)
    };
    let wanted = match required {
        0 => least.max(USUAL.min(most / UNIT * UNIT)),
        some => least.max(some),
    };
    let rounded = wanted
        .div_euclid(UNIT)
        .saturating_add(i64::from(wanted % UNIT != 0));
    let bytes = rounded.saturating_mul(UNIT).max(UNIT);
    if bytes > most {
        return Err(Status::new(
            Code::OutOfRange,
            format!("{bytes} bytes are needed, but at most {most} are possible"),
        ));
    }
    Ok(bytes)
}

//! The bounds that the specification sets for what goes over the wire.
//!
//! One function per kind of field, for drivers that parse requests, callers
//! that build them and suites that check both. Only sizes and forms: whether a
//! volume exists is not known here.

use std::collections::BTreeMap;

use tonic::Code;

use crate::proto::{CapacityRange, VolumeCapability};
use crate::server::CsiError;

/// Bytes of a string, unless its field says otherwise.
pub const STRING: usize = 128;
/// Bytes of all keys and values of a map together.
pub const MAP: usize = 4096;
/// Bytes of all mount flags together.
pub const MOUNT_FLAGS: usize = 4096;
/// Bytes of a node's id.
pub const NODE_ID: usize = 256;
/// Bytes of a path: the most that the kernel takes, without the closing NUL.
pub const PATH: usize = 4095;
/// Bytes of a plugin's name, and of each part of a topology's keys and values.
pub const LABEL: usize = 63;

/// A field that is out of bounds. It answers a call with `INVALID_ARGUMENT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A required field is empty.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// It is too long.
    #[error("{field} has {length} bytes; at most {limit} are allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// The specification bans the character from names.
    #[error("{field} contains the control character U+{:04X}", u32::from(*character))]
    ControlCharacter {
        /// The field.
        field: &'static str,
        /// The first of them.
        character: char,
    },
    /// A path must not depend on the driver's working folder.
    #[error("{field} is not an absolute path")]
    RelativePath {
        /// The field.
        field: &'static str,
    },
    /// A count is below zero.
    #[error("{field} is {value}; it must not be negative")]
    Negative {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// Neither bound is set.
    #[error("capacity_range sets neither required_bytes nor limit_bytes")]
    EmptyRange,
    /// Nothing lies between the bounds.
    #[error("capacity_range requires {required} bytes but allows only {limit}")]
    InvertedRange {
        /// The lower bound.
        required: i64,
        /// The upper bound.
        limit: i64,
    },
    /// It is not in the form of its kind.
    #[error("{field} {value:?} is not {form}")]
    Malformed {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The form.
        form: &'static str,
    },
}

impl CsiError for LimitError {
    fn code(&self) -> Code {
        Code::InvalidArgument
    }
}

/// A string that may be empty.
pub fn string(field: &'static str, value: &str) -> Result<(), LimitError> {
    at_most(field, value.len(), STRING)
}

/// A string that must be there, such as an id.
pub fn required(field: &'static str, value: &str) -> Result<(), LimitError> {
    present(field, value)?;
    string(field, value)
}

/// The name of something to be created. Slashes, dots, dashes, tabs and line
/// ends are legal: never use a name as a path or an argument.
pub fn name(field: &'static str, value: &str) -> Result<(), LimitError> {
    required(field, value)?;
    match value.chars().find(|character| is_banned(*character)) {
        Some(character) => Err(LimitError::ControlCharacter { field, character }),
        None => Ok(()),
    }
}

fn is_banned(character: char) -> bool {
    matches!(character,
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// A node's id.
pub fn node_id(field: &'static str, value: &str) -> Result<(), LimitError> {
    present(field, value)?;
    at_most(field, value.len(), NODE_ID)
}

/// A path on the node that must be there.
pub fn path(field: &'static str, value: &str) -> Result<(), LimitError> {
    present(field, value)?;
    at_most(field, value.len(), PATH)?;
    if value.contains('\0') {
        return Err(LimitError::ControlCharacter {
            field,
            character: '\0',
        });
    }
    if !value.starts_with('/') {
        return Err(LimitError::RelativePath { field });
    }
    Ok(())
}

/// A map, all of it.
pub fn map(field: &'static str, value: &BTreeMap<String, String>) -> Result<(), LimitError> {
    let length = value
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    at_most(field, length, MAP)
}

/// The flags of a mount, all of them.
pub fn mount_flags(flags: &[String]) -> Result<(), LimitError> {
    at_most(
        "mount_flags",
        flags.iter().map(String::len).sum(),
        MOUNT_FLAGS,
    )
}

/// A count.
pub fn count(field: &'static str, value: i64) -> Result<(), LimitError> {
    if value < 0 {
        Err(LimitError::Negative { field, value })
    } else {
        Ok(())
    }
}

/// Bounds of a size that make sense: zero stands for no bound, but not twice.
pub fn capacity_range(range: &CapacityRange) -> Result<(), LimitError> {
    count("required_bytes", range.required_bytes)?;
    count("limit_bytes", range.limit_bytes)?;
    match (range.required_bytes, range.limit_bytes) {
        (0, 0) => Err(LimitError::EmptyRange),
        (required, limit) if limit != 0 && limit < required => {
            Err(LimitError::InvertedRange { required, limit })
        }
        _ => Ok(()),
    }
}

/// A way to use a volume that says both what as and by how many.
pub fn volume_capability(capability: &VolumeCapability) -> Result<(), LimitError> {
    use crate::proto::volume_capability::AccessType;
    match &capability.access_type {
        None => {
            return Err(LimitError::Missing {
                field: "volume_capability.access_type",
            });
        }
        Some(AccessType::Block(_)) => {}
        Some(AccessType::Mount(mount)) => {
            string("volume_capability.mount.fs_type", &mount.fs_type)?;
            string(
                "volume_capability.mount.volume_mount_group",
                &mount.volume_mount_group,
            )?;
            mount_flags(&mount.mount_flags)?;
        }
    }
    match &capability.access_mode {
        Some(mode) if mode.mode != 0 => Ok(()),
        _ => Err(LimitError::Missing {
            field: "volume_capability.access_mode",
        }),
    }
}

/// A plugin's name: as a domain name is written, at most 63 characters.
pub fn plugin_name(value: &str) -> Result<(), LimitError> {
    present("name", value)?;
    at_most("name", value.len(), LABEL)?;
    if !is_label(value, "-.") {
        return Err(LimitError::Malformed {
            field: "name",
            value: value.to_owned(),
            form: "a plugin name: letters, digits, '-' and '.', letter or digit at both ends",
        });
    }
    Ok(())
}

/// The segments of a topology: keys and values in the form of labels, no two
/// keys alike but for their case.
pub fn topology(segments: &BTreeMap<String, String>) -> Result<(), LimitError> {
    let malformed = |field, value: &str, form| {
        Err(LimitError::Malformed {
            field,
            value: value.to_owned(),
            form,
        })
    };
    let mut seen = std::collections::BTreeSet::new();
    for (key, value) in segments {
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, key.as_str()),
        };
        if let Some(prefix) = prefix {
            let lower = !prefix.bytes().any(|byte| byte.is_ascii_uppercase());
            if prefix.len() > LABEL || !lower || !is_label(prefix, "-.") {
                return malformed("topology key", key, "prefixed by a lower-case domain name");
            }
        }
        if name.len() > LABEL || !is_label(name, "-_.") {
            return malformed(
                "topology key",
                key,
                "a label's key of at most 63 characters",
            );
        }
        if value.len() > LABEL || !is_label(value, "-_.") {
            return malformed(
                "topology value",
                value,
                "a label's value of at most 63 characters",
            );
        }
        if !seen.insert(key.to_ascii_lowercase()) {
            return malformed("topology key", key, "unique without regard to case");
        }
    }
    map("topology", segments)
}

/// Letters and digits at both ends, and also `inside` characters between.
fn is_label(value: &str, inside: &str) -> bool {
    let bytes = value.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_end(bytes.first())
        && is_end(bytes.last())
        && value
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || inside.contains(letter))
}

fn present(field: &'static str, value: &str) -> Result<(), LimitError> {
    if value.is_empty() {
        Err(LimitError::Missing { field })
    } else {
        Ok(())
    }
}

fn at_most(field: &'static str, length: usize, limit: usize) -> Result<(), LimitError> {
    if length > limit {
        Err(LimitError::TooLong {
            field,
            length,
            limit,
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! The checks that every request's fields go through.
//!
//! Pure. Presence and size come first, before anything is looked up: what is missing is told even
//! for a volume that does not exist.

use std::path::{Path, PathBuf};

use orlop_csi::limits::{self, LimitError};
use orlop_host::place::is_plain_absolute;

/// A field that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Missing, too long or malformed.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Not a path that we follow.
    #[error("{0} is not an absolute path without `..`")]
    Path(&'static str),
    /// Not where paths of callers must be.
    #[error("{field} is not below {}, the kubelet's folder (--kubelet-dir)", folder.display())]
    Outside {
        /// The field.
        field: &'static str,
        /// Where it should be.
        folder: PathBuf,
    },
}

impl FieldError {
    /// Required and not there.
    pub(crate) fn missing(field: &'static str) -> Self {
        Self::Limit(LimitError::Missing { field })
    }
}

/// A volume's id, which must be there.
pub(crate) fn volume_id(value: &str) -> Result<&str, FieldError> {
    limits::required("volume_id", value)?;
    Ok(value)
}

/// A path that must be there; its form is for [`absolute`], once the volume is known to exist.
pub(crate) fn path<'a>(field: &'static str, value: &'a str) -> Result<&'a str, FieldError> {
    match value.len() {
        0 => Err(FieldError::missing(field)),
        length if length > limits::PATH => Err(LimitError::TooLong {
            field,
            length,
            limit: limits::PATH,
        }
        .into()),
        _ => Ok(value),
    }
}

/// A path in the one form that we follow.
pub(crate) fn absolute(field: &'static str, value: &str) -> Result<PathBuf, FieldError> {
    let path = Path::new(value);
    if is_plain_absolute(path) && path.parent().is_some() {
        // Without doubled slashes and dots, so that equal places are equal paths.
        Ok(path.components().collect())
    } else {
        Err(FieldError::Path(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_too_long_is_told() {
        assert_eq!(
            volume_id("").unwrap_err().to_string(),
            "volume_id is missing"
        );
        assert!(volume_id(&"x".repeat(128)).is_ok());
        assert!(volume_id(&"x".repeat(129)).is_err());
        assert_eq!(
            path("target_path", "").unwrap_err().to_string(),
            "target_path is missing"
        );
        assert!(path("target_path", "some/path").is_ok());
        assert!(path("target_path", &"x".repeat(4096)).is_err());
    }

    #[test]
    fn equal_places_are_equal_paths() {
        assert_eq!(absolute("p", "/a//b/./c/").unwrap(), Path::new("/a/b/c"));
        for wrong in ["a/b", "/a/../b", "/", "/a\0b"] {
            assert_eq!(
                absolute("p", wrong),
                Err(FieldError::Path("p")),
                "{wrong:?}"
            );
        }
    }
}

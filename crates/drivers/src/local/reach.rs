//! Which paths callers may name.
//!
//! Staging and target paths come from outside. They lie below the kubelet's folder, and are reached
//! from there by descriptor, without a link on the way: whoever can write to a pod's folder cannot
//! lead us anywhere else.

use std::io;
use std::path::{Path, PathBuf};

use orlop_host::Place;

use super::fields::{self, FieldError};

/// Where the paths that callers name must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere: for tests, and for callers that are trusted like ourselves.
    #[default]
    Anywhere,
    /// Below this folder.
    Below(PathBuf),
}

impl Reach {
    /// Below a folder; below `/` is anywhere.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        match folder.parent() {
            None => Self::Anywhere,
            Some(_) => Self::Below(folder.components().collect()),
        }
    }

    /// A path in the one form that we follow, and in reach.
    pub(crate) fn absolute(&self, field: &'static str, value: &str) -> Result<PathBuf, FieldError> {
        let path = fields::absolute(field, value)?;
        match self {
            Self::Below(folder) if path == *folder || !path.starts_with(folder) => {
                Err(FieldError::Outside {
                    field,
                    folder: folder.clone(),
                })
            }
            Self::Below(_) | Self::Anywhere => Ok(path),
        }
    }

    /// The place at a path, held.
    pub(crate) fn place(&self, path: &Path) -> io::Result<Place> {
        match self {
            Self::Anywhere => Place::at(path),
            Self::Below(folder) => Place::beneath(folder, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_folder_is_in_reach() {
        let reach = Reach::below(Path::new("/var/lib/kubelet/"));
        assert!(reach.absolute("p", "/var/lib/kubelet/pods/x").is_ok());
        for path in [
            "/var/lib/kubelet",
            "/var/lib/kubelet-too/x",
            "/var/lib/kubelet/../x",
            "/etc",
            "pods/x",
        ] {
            assert!(reach.absolute("p", path).is_err(), "{path}");
        }
        assert_eq!(Reach::below(Path::new("/")), Reach::Anywhere);
    }
}

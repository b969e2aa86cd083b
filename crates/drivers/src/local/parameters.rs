//! The class' parameters that this driver knows.
//!
//! Pure. An unknown parameter is refused: it was meant to do something, and would not.

use std::collections::BTreeMap;

use orlop_host::FsKind;

/// Parameters under this prefix are the provisioner's own words to the driver.
const PROVISIONER_PREFIX: &str = "csi.storage.k8s.io/";

/// The file system, where the capability names none. Read in any case, as Kubernetes does.
const FILE_SYSTEM: &str = "fstype";

/// A parameter that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// We know no such parameter.
    #[error("class parameter {0:?} is not known")]
    Unknown(String),
    /// Its value is not one that we know.
    #[error("class parameter {key:?} cannot be {value:?}; use ext4 or xfs")]
    Value {
        /// The parameter.
        key: String,
        /// What it was set to.
        value: String,
    },
}

/// Understands parameters; what is left defines the volume.
pub(super) fn parse(
    wire: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut parameters = BTreeMap::new();
    for (key, value) in wire {
        if key.starts_with(PROVISIONER_PREFIX) {
            continue;
        }
        if !key.eq_ignore_ascii_case(FILE_SYSTEM) {
            return Err(ParameterError::Unknown(key.clone()));
        }
        if FsKind::by_name(value).is_none() {
            return Err(ParameterError::Value {
                key: key.clone(),
                value: value.clone(),
            });
        }
        parameters.insert(FILE_SYSTEM.to_owned(), value.clone());
    }
    Ok(parameters)
}

/// The file system that the class asks for.
pub(super) fn file_system(parameters: &BTreeMap<String, String>) -> Option<FsKind> {
    parameters
        .get(FILE_SYSTEM)
        .and_then(|name| FsKind::by_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<BTreeMap<String, String>, ParameterError> {
        parse(
            &pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn the_file_system_is_known_in_any_case() {
        let parameters = of(&[("fsType", "xfs"), ("csi.storage.k8s.io/pvc/name", "x")]).unwrap();
        assert_eq!(file_system(&parameters), Some(FsKind::Xfs));
        assert_eq!(parameters.len(), 1);
    }

    #[test]
    fn what_we_do_not_know_is_refused() {
        assert!(matches!(
            of(&[("replicas", "3")]),
            Err(ParameterError::Unknown(_))
        ));
        assert!(matches!(
            of(&[("fstype", "zfs")]),
            Err(ParameterError::Value { .. })
        ));
    }
}

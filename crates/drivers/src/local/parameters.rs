//! The class' parameters that this driver knows.
//!
//! Pure. An unknown parameter is refused by name: it was meant to do something, and would not.

use std::collections::BTreeMap;

use orlop_host::FsKind;

use super::home::PoolName;
use super::mkfs::{self, MkfsError};
use super::room::Allocation;
use super::volume::VolumeRecord;

/// Parameters under this prefix are the provisioner's own words to the driver.
const PROVISIONER_PREFIX: &str = "csi.storage.k8s.io/";

/// The file system, where the capability names none. Read in any case, as Kubernetes does.
const FILE_SYSTEM: &str = "fstype";
const POOL: &str = "pool";
const ALLOCATION: &str = "allocation";
const MKFS_OPTIONS: &str = "mkfsOptions";
const READ_AHEAD: &str = "readAheadKiB";

/// The furthest that reading ahead makes sense: a gibibyte.
const FURTHEST_KIB: u32 = 1 << 20;

/// A parameter that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// We know no such parameter.
    #[error("parameter {key:?} is not known; this driver knows {}", known.join(", "))]
    Unknown {
        /// The parameter.
        key: String,
        /// Those that there are.
        known: &'static [&'static str],
    },
    /// Its value is not one that we know.
    #[error("parameter {key:?} cannot be {value:?}; use {usable}")]
    Value {
        /// The parameter.
        key: String,
        /// What it was set to.
        value: String,
        /// What it could be.
        usable: &'static str,
    },
    /// An option of mkfs is not allowed.
    #[error("parameter {MKFS_OPTIONS:?} cannot be used")]
    Mkfs(#[from] MkfsError),
}

const CLASS: &[&str] = &[POOL, ALLOCATION, "fsType", MKFS_OPTIONS];
const MUTABLE: &[&str] = &[ALLOCATION, READ_AHEAD];

fn wrong(key: &str, value: &str, usable: &'static str) -> ParameterError {
    ParameterError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        usable,
    }
}

/// Understands a class' parameters; what is left defines the volume, under the names used here.
pub(super) fn parse(
    wire: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut parameters = BTreeMap::new();
    for (key, value) in wire {
        let plain = key.strip_prefix(PROVISIONER_PREFIX);
        let name = match (plain, key.as_str()) {
            (Some(plain), _) if plain.eq_ignore_ascii_case(FILE_SYSTEM) => FILE_SYSTEM,
            (Some(_), _) => continue,
            (None, key) if key.eq_ignore_ascii_case(FILE_SYSTEM) => FILE_SYSTEM,
            (None, POOL) => POOL,
            (None, ALLOCATION) => ALLOCATION,
            (None, MKFS_OPTIONS) => MKFS_OPTIONS,
            (None, _) => {
                return Err(ParameterError::Unknown {
                    key: key.clone(),
                    known: CLASS,
                });
            }
        };
        match name {
            FILE_SYSTEM if FsKind::by_name(value).is_none() => {
                return Err(wrong(key, value, "ext4, xfs or btrfs"));
            }
            POOL if PoolName::parse(value).is_none() => {
                return Err(wrong(
                    key,
                    value,
                    "the name of a pool, as in --pool NAME=DIR",
                ));
            }
            ALLOCATION if Allocation::by_name(value).is_none() => {
                return Err(wrong(key, value, "thin or thick"));
            }
            _ => {}
        }
        parameters.insert(name.to_owned(), value.clone());
    }
    Ok(parameters)
}

/// The file system that the class asks for.
pub(super) fn file_system(parameters: &BTreeMap<String, String>) -> Option<FsKind> {
    FsKind::by_name(parameters.get(FILE_SYSTEM)?)
}

/// The pool that the class asks for; without a word, any.
pub(super) fn pool(parameters: &BTreeMap<String, String>) -> Option<PoolName> {
    PoolName::parse(parameters.get(POOL)?)
}

/// The allocation that the class asks for.
pub(super) fn allocation(parameters: &BTreeMap<String, String>) -> Allocation {
    let named = parameters.get(ALLOCATION);
    named
        .and_then(|name| Allocation::by_name(name))
        .unwrap_or_default()
}

/// The options for mkfs that the class asks for, each an argument; refused if this file system's
/// mkfs may not have them.
pub(super) fn mkfs_options(
    parameters: &BTreeMap<String, String>,
    kind: FsKind,
) -> Result<Vec<String>, ParameterError> {
    let text = parameters.get(MKFS_OPTIONS).map_or("", String::as_str);
    Ok(mkfs::parse(text, kind)?)
}

/// The parameters that can be changed while a volume lives, as far as they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mutable {
    pub allocation: Option<Allocation>,
    pub read_ahead_kib: Option<u32>,
}

impl Mutable {
    /// Whether a volume is as these say. What they do not speak of may have been changed since it
    /// was made, and its making may still be repeated.
    pub(super) fn holds_for(self, record: &VolumeRecord) -> bool {
        self.allocation.is_none_or(|it| it == record.allocation)
            && self
                .read_ahead_kib
                .is_none_or(|it| Some(it) == record.read_ahead_kib)
    }

    /// Understands mutable parameters.
    pub(super) fn parse(wire: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let mut parsed = Self::default();
        for (key, value) in wire {
            match key.as_str() {
                ALLOCATION => {
                    let allocation = Allocation::by_name(value)
                        .ok_or_else(|| wrong(key, value, "thin or thick"))?;
                    parsed.allocation = Some(allocation);
                }
                READ_AHEAD => {
                    let kib = value.parse().ok().filter(|kib| *kib <= FURTHEST_KIB);
                    let kib = kib.ok_or_else(|| wrong(key, value, "a number from 0 to 1048576"))?;
                    parsed.read_ahead_kib = Some(kib);
                }
                _ => {
                    return Err(ParameterError::Unknown {
                        key: key.clone(),
                        known: MUTABLE,
                    });
                }
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn of(pairs: &[(&str, &str)]) -> Result<BTreeMap<String, String>, ParameterError> {
        parse(&map(pairs))
    }

    #[test]
    fn the_file_system_is_known_in_any_case_and_with_the_provisioners_prefix() {
        for key in ["fsType", "fstype", "csi.storage.k8s.io/fstype"] {
            let parameters = of(&[(key, "xfs"), ("csi.storage.k8s.io/pvc/name", "x")]).unwrap();
            assert_eq!(file_system(&parameters), Some(FsKind::Xfs), "{key}");
            assert_eq!(parameters.len(), 1);
        }
    }

    #[test]
    fn what_the_class_says_is_understood() {
        let parameters = of(&[("pool", "nvme"), ("allocation", "thick")]).unwrap();
        assert_eq!(pool(&parameters), PoolName::parse("nvme"));
        assert_eq!(allocation(&parameters), Allocation::Thick);
        let silent = of(&[]).unwrap();
        assert_eq!(
            (pool(&silent), allocation(&silent)),
            (None, Allocation::Thin)
        );
        assert_eq!(mkfs_options(&silent, FsKind::Ext4), Ok(vec![]));
    }

    #[test]
    fn what_we_do_not_know_is_refused_by_name() {
        let error = of(&[("replicas", "3")]).unwrap_err();
        assert!(matches!(error, ParameterError::Unknown { .. }));
        assert!(error.to_string().contains("\"replicas\""), "{error}");
        for (key, value) in [("fstype", "zfs"), ("pool", "../x"), ("allocation", "thicc")] {
            let error = of(&[(key, value)]).unwrap_err();
            assert!(matches!(error, ParameterError::Value { .. }), "{key}");
        }
    }

    #[test]
    fn what_can_change_is_a_list_of_its_own() {
        let parsed = Mutable::parse(&map(&[("allocation", "thick"), ("readAheadKiB", "512")]));
        assert_eq!(
            parsed,
            Ok(Mutable {
                allocation: Some(Allocation::Thick),
                read_ahead_kib: Some(512)
            })
        );
        let record = VolumeRecord {
            allocation: Allocation::Thick,
            ..VolumeRecord::blank("a", 1, 1 << 30)
        };
        assert!(Mutable::default().holds_for(&record));
        assert!(!parsed.unwrap().holds_for(&record));
        for (key, value) in [("pool", "a"), ("readAheadKiB", "-1"), ("allocation", "")] {
            assert!(Mutable::parse(&map(&[(key, value)])).is_err(), "{key}");
        }
    }
}

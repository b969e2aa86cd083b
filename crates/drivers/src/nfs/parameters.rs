//! What classes and volumes may say.
//!
//! Pure. Keys are compared without regard to case, as the original does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::export::{Export, ExportError};
use super::sub_dir::{self, SubDir, SubDirError, Told, Untold};

/// What happens to the folder of a deleted volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDelete {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays.
    Retain,
    /// It is renamed.
    Archive,
}

impl OnDelete {
    /// Understands a policy, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Delete, Self::Retain, Self::Archive]
            .into_iter()
            .find(|policy| policy.name().eq_ignore_ascii_case(text))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Retain => "retain",
            Self::Archive => "archive",
        }
    }

    /// How it stands in an id: what is deleted needs no word.
    pub(crate) fn in_id(self) -> &'static str {
        match self {
            Self::Delete => "",
            Self::Retain | Self::Archive => self.name(),
        }
    }
}

/// Why parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParameterError {
    #[error(
        "parameter {0:?} is not known; there are server, share, subDir, onDelete and mountPermissions"
    )]
    Unknown(String),
    #[error("parameter {0:?} is not known; a snapshot class has server, share and mountOptions")]
    UnknownOfSnapshots(String),
    #[error("attribute {0:?} is not known; did you mean {1}?")]
    Misspelt(String, &'static str),
    #[error("parameter {0:?} is there twice")]
    Twice(String),
    #[error("parameter {0:?} is missing")]
    Missing(&'static str),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("subDir {text:?} cannot be used: {source}")]
    SubDir { text: String, source: SubDirError },
    #[error("onDelete {0:?} is none of delete, retain and archive")]
    OnDelete(String),
    #[error("mountPermissions {0:?} is not an octal number up to 7777")]
    Permissions(String),
}

/// Parameters by their names in lower case.
#[derive(Debug)]
struct Words<'a>(BTreeMap<String, &'a str>);

impl<'a> Words<'a> {
    fn of(map: &'a BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let mut words = BTreeMap::new();
        for (key, value) in map {
            if words
                .insert(key.to_ascii_lowercase(), value.as_str())
                .is_some()
            {
                return Err(ParameterError::Twice(key.clone()));
            }
        }
        Ok(Self(words))
    }

    /// An empty value is as good as none.
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied().filter(|value| !value.is_empty())
    }

    fn told(&self) -> Told<'a> {
        Told {
            claim: self.get("csi.storage.k8s.io/pvc/name"),
            namespace: self.get("csi.storage.k8s.io/pvc/namespace"),
            volume: self.get("csi.storage.k8s.io/pv/name"),
        }
    }

    fn export(&self) -> Result<Export, ParameterError> {
        let server = self
            .get("server")
            .ok_or(ParameterError::Missing("server"))?;
        let share = self.get("share").ok_or(ParameterError::Missing("share"))?;
        Ok(Export::parse(server, share)?)
    }

    fn sub_dir(&self, untold: Untold) -> Result<Option<SubDir>, ParameterError> {
        let Some(text) = self.get("subdir") else {
            return Ok(None);
        };
        let refused = |source| ParameterError::SubDir {
            text: text.to_owned(),
            source,
        };
        let expanded = sub_dir::expand(text, self.told(), untold).map_err(refused)?;
        SubDir::parse(&expanded).map(Some).map_err(refused)
    }

    fn permissions(&self) -> Result<Option<u32>, ParameterError> {
        let Some(text) = self.get("mountpermissions") else {
            return Ok(None);
        };
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o7777 => Ok(Some(mode)),
            _ => Err(ParameterError::Permissions(text.to_owned())),
        }
    }
}

/// A class, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) export: Export,
    pub(crate) folder: Option<SubDir>,
    pub(crate) on_delete: Option<OnDelete>,
    pub(crate) permissions: Option<u32>,
}

impl Class {
    pub(crate) fn parse(map: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        const KNOWN: [&str; 8] = [
            "server",
            "share",
            "subdir",
            "ondelete",
            "mountpermissions",
            "csi.storage.k8s.io/pvc/name",
            "csi.storage.k8s.io/pvc/namespace",
            "csi.storage.k8s.io/pv/name",
        ];
        let words = Words::of(map)?;
        let unknown = map
            .keys()
            .find(|key| !KNOWN.contains(&key.to_ascii_lowercase().as_str()));
        if let Some(key) = unknown {
            return Err(ParameterError::Unknown(key.clone()));
        }
        let on_delete = words.get("ondelete");
        let policy = |text: &str| {
            OnDelete::parse(text).ok_or_else(|| ParameterError::OnDelete(text.to_owned()))
        };
        Ok(Self {
            export: words.export()?,
            folder: words.sub_dir(Untold::Refused)?,
            on_delete: on_delete.map(policy).transpose()?,
            permissions: words.permissions()?,
        })
    }
}

/// Attributes that nodes read, and those of a class that are handed to them.
const ATTRIBUTES: [&str; 6] = [
    "server",
    "share",
    "subDir",
    "mountOptions",
    "mountPermissions",
    "onDelete",
];

/// The attribute that was probably meant, of those that are not there: who misspells one gets another
/// folder, or other options, than the one he wrote down.
fn meant(key: &str, words: &Words<'_>) -> Option<&'static str> {
    let key = key.to_ascii_lowercase().replace(['-', '_', '.'], "");
    let near = |known: &&str| {
        let known = known.to_ascii_lowercase();
        let most = if known.len() < 6 { 1 } else { 2 };
        words.get(&known).is_none() && distance(key.as_bytes(), known.as_bytes()) <= most
    };
    ATTRIBUTES.into_iter().find(near)
}

/// How many letters differ, are missing, are too many, or have changed places.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let width = other.len() + 1;
    let mut rows = vec![(0..width).collect::<Vec<usize>>()];
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, known) in other.iter().enumerate() {
            let same = usize::from(letter != known);
            let mut least = (rows[i][j] + same).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *known {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// What a volume's attributes say to a node. Keys that it does not need are not its business, unless
/// they look like one that it would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) export: Option<Export>,
    pub(crate) folder: Option<SubDir>,
    pub(crate) permissions: Option<u32>,
    pub(crate) mount_options: Option<String>,
}

impl Attributes {
    pub(crate) fn parse(map: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let words = Words::of(map)?;
        let known = |key: &str| {
            ATTRIBUTES
                .iter()
                .any(|known| known.eq_ignore_ascii_case(key))
        };
        for key in map.keys().filter(|key| !key.contains('/') && !known(key)) {
            if let Some(meant) = meant(key, &words) {
                return Err(ParameterError::Misspelt(key.clone(), meant));
            }
            tracing::warn!(attribute = key, "an attribute of a volume is not known");
        }
        let named = words.get("server").is_some() || words.get("share").is_some();
        Ok(Self {
            export: named.then(|| words.export()).transpose()?,
            folder: words.sub_dir(Untold::Left)?,
            permissions: words.permissions()?,
            mount_options: words.get("mountoptions").map(str::to_owned),
        })
    }
}

/// The class of a snapshot: where its archive goes, if not beside its volume, and how to mount that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotClass {
    pub(crate) export: Export,
    pub(crate) mount_options: Option<String>,
}

impl SnapshotClass {
    pub(crate) fn parse(
        map: &BTreeMap<String, String>,
        volume: &Export,
    ) -> Result<Self, ParameterError> {
        let words = Words::of(map)?;
        let known = ["server", "share", "mountoptions"];
        let unknown = map.keys().find(|key| {
            let key = key.to_ascii_lowercase();
            !known.contains(&key.as_str()) && !key.starts_with("csi.storage.k8s.io/")
        });
        if let Some(key) = unknown {
            return Err(ParameterError::UnknownOfSnapshots(key.clone()));
        }
        let server = words.get("server").unwrap_or(&volume.server);
        let share = words.get("share").unwrap_or(&volume.share);
        Ok(Self {
            export: Export::parse(server, share)?,
            mount_options: words.get("mountoptions").map(str::to_owned),
        })
    }
}

/// The mount options that a secret names, for calls that bring none of their own.
pub(crate) fn options_in_secret(secrets: &BTreeMap<String, String>) -> Option<&str> {
    let named = |key: &&String| key.eq_ignore_ascii_case("mountOptions");
    let key = secrets.keys().find(named)?;
    secrets
        .get(key)
        .map(String::as_str)
        .filter(|text| !text.is_empty())
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

    #[test]
    fn a_class_is_read_in_any_case() {
        let class = Class::parse(&map(&[
            ("SERVER", "s"),
            ("Share", "/x"),
            ("subDir", "${pvc.metadata.name}"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("onDelete", "Archive"),
            ("mountPermissions", "02770"),
        ]))
        .unwrap();
        assert_eq!(class.export.source(), "s:/x");
        assert_eq!(class.folder.unwrap().as_str(), "data");
        assert_eq!(class.on_delete, Some(OnDelete::Archive));
        assert_eq!(class.permissions, Some(0o2770));
    }

    #[test]
    fn what_a_class_must_not_say_is_named() {
        for (more, told) in [
            (("colour", "red"), "\"colour\" is not known"),
            (("onDelete", "burn"), "onDelete \"burn\""),
            (("mountPermissions", "rwx"), "mountPermissions \"rwx\""),
            (("mountPermissions", "77777"), "mountPermissions \"77777\""),
            (("subDir", "../x"), "subDir \"../x\""),
            (
                ("subDir", "${pvc.metadata.name}"),
                "--extra-create-metadata",
            ),
        ] {
            let error = Class::parse(&map(&[("server", "s"), ("share", "/"), more])).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
        let error = Class::parse(&map(&[("server", "s")])).unwrap_err();
        assert_eq!(error, ParameterError::Missing("share"));
        let twice = Class::parse(&map(&[("server", "s"), ("Server", "t"), ("share", "/")]));
        assert!(matches!(twice, Err(ParameterError::Twice(_))));
    }

    #[test]
    fn attributes_may_have_keys_that_are_not_for_us() {
        let attributes = Attributes::parse(&map(&[
            ("server", "s"),
            ("share", "/"),
            ("storage.kubernetes.io/csiProvisionerIdentity", "x"),
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("onDelete", "retain"),
            ("team", "storage"),
            ("source", "x"),
            ("shared", "true"),
            ("servers", "s, t"),
            ("mountOptions", "nfsvers=3,nolock"),
        ]))
        .unwrap();
        assert_eq!(
            attributes.mount_options.as_deref(),
            Some("nfsvers=3,nolock")
        );
        assert_eq!(attributes.folder, None);
    }

    #[test]
    fn a_misspelt_attribute_is_refused_with_what_was_meant() {
        for (key, meant) in [
            ("subdri", "subDir"),
            ("sub-dir", "subDir"),
            ("mountOption", "mountOptions"),
            ("mountPermission", "mountPermissions"),
            ("sever", "server"),
        ] {
            let server = if meant == "server" { "" } else { "s" };
            let map = map(&[("server", server), ("share", "/"), (key, "x")]);
            let refused = Attributes::parse(&map).unwrap_err().to_string();
            assert!(refused.contains(&format!("{key:?}")), "{refused}");
            assert!(
                refused.ends_with(&format!("did you mean {meant}?")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_snapshot_class_is_told_what_it_may_say() {
        let volume = Export::parse("s", "/").unwrap();
        let refused = SnapshotClass::parse(&map(&[("subDir", "x")]), &volume).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("has server, share and mountOptions"),
            "{refused}"
        );
    }

    #[test]
    fn a_volume_whose_folder_has_a_templates_name_is_found_by_it() {
        // The original makes such folders where its provisioner tells it nothing about claims.
        let attributes = Attributes::parse(&map(&[
            ("server", "s"),
            ("share", "/"),
            ("subDir", "${pvc.metadata.namespace}/x"),
        ]))
        .unwrap();
        let folder = attributes.folder.unwrap();
        assert_eq!(folder.as_str(), "${pvc.metadata.namespace}/x");
    }
}

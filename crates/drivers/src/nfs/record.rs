//! What is written down about a volume, in the share itself.
//!
//! The original keeps no record: a folder is all there is. So its volumes have none, and are taken as
//! they are; ours have one, so that a repeated call can be told from another one under the same name,
//! and a folder that two volumes share is not deleted with the first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::sub_dir::SubDir;

/// An exbibyte. A size is a label, which may be more than a share has today, but not what none can have.
pub(crate) const LARGEST: i64 = 1 << 60;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// What names it on its share.
    pub(crate) key: String,
    pub(crate) folder: SubDir,
    /// What was asked for; a label unless the server has a quota.
    pub(crate) capacity_bytes: i64,
    /// The id of what it was filled from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// What is to be its folder, until it is in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) placing: Option<Placing>,
    /// What was told about it to nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) context: BTreeMap<String, String>,
}

/// A folder whose content is whole, though it may not be in its place yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placing {
    /// Its name among what is being made.
    pub(crate) attempt: String,
    /// Its number, by which it is known in its place.
    pub(crate) inode: u64,
}

impl Record {
    /// Whether it can be the record of this volume, and not something that merely reads like one.
    pub(crate) fn is_of(&self, folder: &SubDir, key: &str) -> bool {
        let sound = (0..=LARGEST).contains(&self.capacity_bytes);
        self.key == key && self.folder == *folder && sound
    }

    /// In what a wish under the same name differs.
    pub(crate) fn difference(
        &self,
        required: i64,
        limit: i64,
        wanted: &Record,
    ) -> Option<&'static str> {
        let small = self.capacity_bytes < required;
        let large = limit > 0 && self.capacity_bytes > limit;
        if small || large {
            Some("size")
        } else if self.folder != wanted.folder {
            Some("folder")
        } else if self.source != wanted.source {
            Some("source")
        } else {
            None
        }
    }
}

/// A name for a file that any text can be told by.
pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest[..20]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_wish_fits_and_another_one_does_not() {
        let record = Record {
            key: "pvc-1".into(),
            folder: SubDir::parse("pvc-1").unwrap(),
            capacity_bytes: 10,
            source: None,
            placing: None,
            context: BTreeMap::new(),
        };
        assert_eq!(record.difference(10, 0, &record), None);
        assert_eq!(record.difference(5, 10, &record), None);
        assert_eq!(record.difference(11, 0, &record), Some("size"));
        assert_eq!(record.difference(1, 9, &record), Some("size"));
        let cloned = Record {
            source: Some("x".into()),
            ..record.clone()
        };
        assert_eq!(record.difference(10, 0, &cloned), Some("source"));
    }
}

//! The ids of volumes and snapshots, in the original's form.
//!
//! Pure. `server#share#folder#name#onDelete` for a volume, where the name is there if the class
//! chose the folder, and `server#share#snapshot#snapshot#source` for a snapshot. The oldest volumes
//! have `server/share/folder`.

use std::fmt;

use orlop_csi::limits;
use sha2::{Digest, Sha256};

use super::export::{Export, ExportError};
use super::parameters::OnDelete;
use super::sub_dir::{SubDir, SubDirError};

/// The longest id that is read. The specification's 128 bytes are too few for some that the
/// original made.
const LONGEST: usize = 1024;

/// A volume's id, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeId {
    pub(crate) export: Export,
    pub(crate) folder: SubDir,
    /// The volume's name, if the folder has another.
    pub(crate) name: Option<String>,
    pub(crate) on_delete: Option<OnDelete>,
    text: String,
}

/// A snapshot's id, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotId {
    pub(crate) export: Export,
    /// The folder of its archive.
    pub(crate) folder: SubDir,
    /// What the archive is named after.
    pub(crate) source: SubDir,
    text: String,
}

/// Why a text is no id of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdError {
    #[error("it is not server#share#folder")]
    Form,
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    #[error("a \"#\" stands in one of its parts, which are told apart by that")]
    Mark,
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("its folder is no path below the share: {0}")]
    Folder(#[from] SubDirError),
    #[error("its name {0:?} cannot be one")]
    Name(String),
    #[error("{0:?} is no policy for deleted volumes")]
    OnDelete(String),
}

impl VolumeId {
    /// The id of a new volume.
    pub(crate) fn new(
        export: Export,
        folder: SubDir,
        name: Option<String>,
        on_delete: OnDelete,
    ) -> Result<Self, IdError> {
        let policy = on_delete.in_id();
        let text = format!(
            "{}#{}#{folder}#{}#{policy}",
            export.server,
            export.share,
            name.as_deref().unwrap_or_default(),
        );
        let id = Self {
            export,
            folder,
            name,
            on_delete: (!policy.is_empty()).then_some(on_delete),
            text,
        };
        // One that is not read back names a volume that could never be deleted.
        match Self::parse(&id.text) {
            Ok(read) if read == id => Ok(id),
            Ok(_) | Err(IdError::Form) => Err(IdError::Mark),
            Err(error) => Err(error),
        }
    }

    /// Understands an id.
    pub(crate) fn parse(text: &str) -> Result<Self, IdError> {
        if text.len() > LONGEST {
            return Err(IdError::Long);
        }
        let parts: Vec<&str> = text.split('#').collect();
        let (server, share, folder, rest) = match parts.as_slice() {
            [server, share, folder, rest @ ..] if rest.len() <= 2 => {
                (*server, *share, *folder, rest)
            }
            [old] => {
                let (server, rest) = old.split_once('/').ok_or(IdError::Form)?;
                let (share, folder) = rest.rsplit_once('/').ok_or(IdError::Form)?;
                (server, share, folder, &[][..])
            }
            _ => return Err(IdError::Form),
        };
        let name = rest.first().copied().filter(|name| !name.is_empty());
        if let Some(name) = name {
            SubDir::parse(name).map_err(|_| IdError::Name(name.to_owned()))?;
        }
        let on_delete = match rest.get(1).copied().filter(|policy| !policy.is_empty()) {
            None => None,
            Some(policy) => {
                Some(OnDelete::parse(policy).ok_or_else(|| IdError::OnDelete(policy.to_owned()))?)
            }
        };
        Ok(Self {
            export: Export::parse(server, share)?,
            folder: SubDir::parse(folder)?,
            name: name.map(str::to_owned),
            on_delete,
            text: text.to_owned(),
        })
    }

    /// What names the volume on its share.
    pub(crate) fn key(&self) -> &str {
        self.name.as_deref().unwrap_or(self.folder.as_str())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl SnapshotId {
    /// The id of a new snapshot of a volume.
    pub(crate) fn new(export: Export, name: SubDir, volume: &VolumeId) -> Result<Self, IdError> {
        let source = SubDir::parse(volume.key())?;
        let text = format!("{}#{}#{name}#{name}#{source}", export.server, export.share);
        let id = Self {
            export,
            folder: name,
            source,
            text,
        };
        match Self::parse(&id.text) {
            Ok(read) if read == id => Ok(id),
            Ok(_) | Err(IdError::Form) => Err(IdError::Mark),
            Err(error) => Err(error),
        }
    }

    /// Understands an id.
    pub(crate) fn parse(text: &str) -> Result<Self, IdError> {
        let parts: Vec<&str> = text.split('#').collect();
        let [server, share, folder, _, source] = parts.as_slice() else {
            return Err(IdError::Form);
        };
        if text.len() > LONGEST {
            return Err(IdError::Long);
        }
        Ok(Self {
            export: Export::parse(server, share)?,
            folder: SubDir::parse(folder)?,
            source: SubDir::parse(source)?,
            text: text.to_owned(),
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A name that can stand in an id and be a folder's: the one asked for if it can, else one that
/// is made of it. `room` is what an id has left for it.
pub(crate) fn safe_name(prefix: &str, asked: &str, room: usize) -> String {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let plain = asked.bytes().all(letter) && !asked.starts_with('.') && asked.len() <= room;
    if plain && !asked.is_empty() {
        return asked.to_owned();
    }
    let digest = Sha256::digest(asked.as_bytes());
    let hex: String = digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{prefix}-{hex}")
}

/// How many bytes of an id are left beside these.
pub(crate) fn room(others: usize) -> usize {
    limits::STRING.saturating_sub(others).max(40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_original_are_read_and_written_back() {
        for text in [
            "nfs.example#share#pvc-1##",
            "nfs.example#share/deep#ns/claim#pvc-1#retain",
            "nfs.example#share#ns/claim#pvc-1#archive",
            "10.0.0.1##pvc-1##",
        ] {
            let id = VolumeId::parse(text).unwrap();
            assert_eq!(id.as_str(), text);
            let made = VolumeId::new(
                id.export.clone(),
                id.folder.clone(),
                id.name.clone(),
                id.on_delete.unwrap_or(OnDelete::Delete),
            )
            .unwrap();
            assert_eq!(made, id);
        }
        let old = VolumeId::parse("nfs.example/share/deep/pvc-1").unwrap();
        assert_eq!(
            (old.export.path(), old.folder.as_str()),
            ("/share/deep".into(), "pvc-1")
        );
        let short = VolumeId::parse("s#share#sub#").unwrap();
        assert_eq!((short.key(), short.on_delete), ("sub", None));
    }

    #[test]
    fn ids_that_name_the_root_or_lead_out_are_none() {
        for text in [
            "",
            "x",
            "s#share",
            "s#share#",
            "s#share##pvc-1#",
            "s#share##archive#",
            "s#share#..##",
            "s#share#a/..##",
            "s#../x#pvc##",
            "s#share#a#..#",
            "s#share#/#x#",
            "#share#a##",
            "s#share#a#b#delete#more",
            "s#share#a#b#burn",
            "s/share/..",
            "s#share#..\\..##",
            "s#share#.orlop-csi##",
            "s#share#a/.orlop-csi/volumes##",
            "s#share/.orlop-csi#volumes##",
        ] {
            assert!(VolumeId::parse(text).is_err(), "{text:?}");
        }
        for text in [
            "",
            "s#share#a#a",
            "s#share#..#..#v",
            "s#share#a#a#..",
            "s#share###v",
        ] {
            assert!(SnapshotId::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_snapshot_is_named_after_the_volume_not_its_folder() {
        let volume = VolumeId::parse("s#share#ns/claim#pvc-1#").unwrap();
        let name = SubDir::parse("snapshot-1").unwrap();
        let id = SnapshotId::new(volume.export.clone(), name, &volume).unwrap();
        assert_eq!(id.as_str(), "s#share#snapshot-1#snapshot-1#pvc-1");
        assert_eq!(SnapshotId::parse(id.as_str()).unwrap(), id);
    }

    #[test]
    fn names_that_could_be_more_than_a_name_are_replaced() {
        assert_eq!(safe_name("pvc", "pvc-1", 40), "pvc-1");
        for odd in ["a/b", "..", "a#b", ".x", "ü", "a b", "", &"x".repeat(41)] {
            let name = safe_name("pvc", odd, 40);
            assert!(
                name.starts_with("pvc-") && name.len() == 36,
                "{odd:?}: {name}"
            );
        }
        assert_ne!(safe_name("pvc", "a/b", 40), safe_name("pvc", "a/c", 40));
    }
}

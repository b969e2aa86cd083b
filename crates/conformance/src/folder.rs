//! The run's own folders: where staging and target paths are, and what is left there.

use std::io;
use std::path::{Path, PathBuf};

use orlop_host::{MountTable, Place, mount, remove_tree_one_fs};

use crate::remains::{Remain, Remains};

/// Folders that the run made and removes.
#[derive(Debug)]
pub(crate) struct RunFolder {
    staging: tempfile::TempDir,
    targets: tempfile::TempDir,
}

impl RunFolder {
    pub(crate) fn make(staging: &Path, targets: &Path) -> io::Result<Self> {
        let make = |parent: &Path| {
            std::fs::create_dir_all(parent)?;
            // By its real name, as mount tables show it.
            let parent = parent.canonicalize()?;
            let mut dir = tempfile::Builder::new()
                .prefix("orlop-conformance-")
                .tempdir_in(parent)?;
            // Removing it is ours: a mount that is left below must never be emptied.
            dir.disable_cleanup(true);
            Ok::<_, io::Error>(dir)
        };
        Ok(Self {
            staging: make(staging)?,
            targets: make(targets)?,
        })
    }

    /// Whether a path is in the run's folders.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.starts_with(self.staging.path()) || path.starts_with(self.targets.path())
    }

    /// A case's own folders.
    pub(crate) fn for_case(&self, number: u64) -> io::Result<CaseFolder> {
        let folder = CaseFolder {
            staging: self.staging.path().join(number.to_string()),
            targets: self.targets.path().join(number.to_string()),
        };
        std::fs::create_dir_all(&folder.staging)?;
        std::fs::create_dir_all(&folder.targets)?;
        Ok(folder)
    }

    /// Removes the folders; says what could not be removed.
    pub(crate) fn remove(&self) -> Vec<Remain> {
        [self.staging.path(), self.targets.path()]
            .into_iter()
            .filter_map(|path| {
                let error = remove_tree_one_fs(path).err()?;
                let words = format!("folder {}: {error}", path.display());
                path.exists().then(|| Remain::at_path(path, words))
            })
            .collect()
    }
}

/// A case's own folders.
#[derive(Debug, Clone)]
pub(crate) struct CaseFolder {
    staging: PathBuf,
    targets: PathBuf,
}

impl CaseFolder {
    /// A staging path; the folder exists, as the CO must see to.
    pub(crate) fn staging(&self, tag: &str) -> io::Result<PathBuf> {
        let path = self.staging.join(format!("staging-{tag}"));
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// A target path; its parent exists, itself it is the driver's to make.
    pub(crate) fn target(&self, tag: &str) -> io::Result<PathBuf> {
        let parent = self.targets.join(format!("pod-{tag}"));
        std::fs::create_dir_all(&parent)?;
        Ok(parent.join("mount"))
    }

    /// A place for a case's own files.
    pub(crate) fn aside(&self, tag: &str) -> io::Result<PathBuf> {
        let path = self.targets.join(format!("aside-{tag}"));
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Mounts that are left below, which are taken away, newest first.
    pub(crate) fn unmount_all(&self) -> Remains {
        let mut remains = Remains::default();
        let Ok(table) = MountTable::read() else {
            return remains;
        };
        let below = table
            .beneath(&self.staging)
            .chain(table.beneath(&self.targets));
        let points: Vec<PathBuf> = below.map(|mount| mount.point.clone()).collect();
        for point in points.into_iter().rev() {
            let undone = Place::at(&point).and_then(|place| mount::unmount(&place));
            let shown = point.display();
            match undone {
                Ok(()) => remains
                    .taken_away
                    .push(format!("a mount at {shown} (the suite has taken it away)")),
                Err(error) => {
                    let words = format!("a mount at {shown}, which can't be undone: {error}");
                    remains.left.push(Remain::at_path(&point, words));
                }
            }
        }
        remains
    }

    /// Removes everything; says what could not be removed.
    pub(crate) fn remove(&self) -> Vec<Remain> {
        [&self.staging, &self.targets]
            .into_iter()
            .filter_map(|path| {
                let error = remove_tree_one_fs(path).err()?;
                let words = format!("folder {}: {error}", path.display());
                path.exists().then(|| Remain::at_path(path, words))
            })
            .collect()
    }
}

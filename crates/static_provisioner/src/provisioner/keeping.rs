//! Nodes may be of one machine, and a disk is one node's.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use orlop_host::keeper::{self, KeepError, Kept};

use super::{Me, Provisioner, blocking};
use crate::config::ClassConfig;

/// The folders that this node keeps, each with the name in which that was begun.
#[derive(Default)]
pub(super) struct Keeping(Mutex<BTreeMap<PathBuf, (String, Kept)>>);

impl Keeping {
    /// Keeps a folder, if it is not kept yet. What is at its path may be another by now, so it is
    /// taken anew each time; the same keeper may come twice.
    fn keep(&self, folder: PathBuf, name: String) -> Result<(), KeepError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The node may have been made anew, with another name for us.
        all.retain(|_, (kept_as, _)| *kept_as == name);
        match keeper::keep(&folder, &name) {
            Ok(kept) => {
                all.insert(folder, (name, kept));
                Ok(())
            }
            Err(error) => {
                all.remove(&folder);
                Err(error)
            }
        }
    }
}

impl Provisioner {
    /// Keeps a class's folder from other nodes of this machine, or says who has it.
    pub(super) async fn keep(&self, me: &Me, class: &ClassConfig) -> Result<(), String> {
        let (keeping, name) = (self.keeping.clone(), me.identity.name());
        let folder = class.mount_dir.clone();
        let kept = blocking(move || Ok(keeping.keep(folder, name))).await;
        let folder = class.host_dir.display();
        match kept {
            Ok(Ok(())) => Ok(()),
            Ok(Err(KeepError::Another(by))) => Err(format!(
                "the disks in {folder} are offered by {by}, on this machine, too; give each node a \
                 folder of its own"
            )),
            Ok(Err(KeepError::Io(error))) | Err(error) => {
                Err(format!("the folder {folder} can't be locked: {error}"))
            }
        }
    }
}

//! The drivers' folder: which programs there are, what they can do, and who waits for one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use orlop_host::folder_watch::{FolderEvent, FolderWatch};
use orlop_runtime::Queue;
use tokio::sync::mpsc;
use tracing::warn;

use super::answer::Capabilities;
use super::{FlexError, lock};
use crate::layout::{Layout, PodUid};

/// Which file a program is: one that took its place is asked anew what it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// `None` if there is no program.
pub(super) fn stamp(program: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(program).ok()?;
    let runs = found.is_file() && found.permissions().mode() & 0o111 != 0;
    runs.then(|| Stamp {
        inode: found.ino(),
        size: found.size(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

pub(super) struct Programs {
    folder: PathBuf,
    known: Mutex<BTreeMap<String, (Stamp, Capabilities)>>,
    waiting: Mutex<BTreeSet<PodUid>>,
    pods: Queue<PodUid>,
}

impl Programs {
    pub(super) fn new(folder: PathBuf, pods: Queue<PodUid>) -> Self {
        Self {
            folder,
            known: Mutex::default(),
            waiting: Mutex::default(),
            pods,
        }
    }

    /// `<folder>/<vendor>~<driver>/<driver>`.
    pub(super) fn path(&self, driver: &str) -> Result<PathBuf, FlexError> {
        let escaped = Layout::flex_name(driver);
        let escaped = escaped.ok_or_else(|| FlexError::BadName(driver.to_owned()))?;
        let program = driver.rsplit('/').next().unwrap_or(driver);
        Ok(self.folder.join(escaped).join(program))
    }

    pub(super) fn known(&self, driver: &str, stamp: Stamp) -> Option<Capabilities> {
        let known = lock(&self.known);
        let (of, capabilities) = known.get(driver)?;
        (*of == stamp).then(|| capabilities.clone())
    }

    pub(super) fn learn(&self, driver: &str, stamp: Stamp, capabilities: Capabilities) {
        lock(&self.known).insert(driver.to_owned(), (stamp, capabilities));
    }

    /// A pod waits for a driver.
    pub(super) fn miss(&self, pod: &PodUid) {
        lock(&self.waiting).insert(pod.clone());
    }

    fn something_came(&self) {
        for pod in std::mem::take(&mut *lock(&self.waiting)) {
            self.pods.add(pod);
        }
    }

    /// Watches the folder and those of the drivers in it. Without the folder there is nothing to
    /// watch, and pods that wait are tried again from time to time.
    pub(super) async fn watch(&self) {
        let Ok(mut top) = FolderWatch::new(&self.folder) else {
            return;
        };
        let (came, mut told) = mpsc::channel::<()>(1);
        let mut folders = tokio::task::JoinSet::new();
        let follow = |folders: &mut tokio::task::JoinSet<()>, folder: PathBuf| {
            let Ok(mut watch) = FolderWatch::new(&folder) else {
                return;
            };
            let came = came.clone();
            folders.spawn(async move {
                while let Ok(event) = watch.next().await {
                    if event == FolderEvent::Gone || came.send(()).await.is_err() {
                        return;
                    }
                }
            });
        };
        for entry in std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
        {
            follow(&mut folders, entry.path());
        }
        loop {
            tokio::select! {
                event = top.next() => match event {
                    Ok(FolderEvent::Came(name)) => {
                        follow(&mut folders, self.folder.join(name));
                        self.something_came();
                    }
                    Ok(FolderEvent::Overrun) => self.something_came(),
                    Ok(FolderEvent::Left(_)) => {}
                    Ok(FolderEvent::Gone) | Err(_) => {
                        warn!(folder = %self.folder.display(), "the FlexVolume drivers' folder is gone");
                        return;
                    }
                },
                Some(()) = told.recv() => self.something_came(),
                Some(_) = folders.join_next() => {}
            }
        }
    }
}

//! The drivers' folder: which programs there are, what they can do, and who waits for one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
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

/// What is where a program should be.
pub(super) enum Found {
    Program(Stamp),
    /// Somebody has put it there, and has not finished.
    NotExecutable,
    Nothing,
}

pub(super) fn find(program: &Path) -> Found {
    match std::fs::metadata(program) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
            Found::Program(Stamp {
                inode: found.ino(),
                size: found.size(),
                changed: (found.ctime(), found.ctime_nsec()),
            })
        }
        Ok(_) => Found::NotExecutable,
        Err(_) => Found::Nothing,
    }
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

    /// Watches the folder and those of the drivers in it, from when there is one. As the kubelet does,
    /// it makes the folder if it can.
    pub(super) async fn watch(&self) {
        if let Err(error) = std::fs::create_dir_all(&self.folder) {
            let folder = self.folder.display();
            warn!(%folder, %error, "could not make the FlexVolume drivers' folder");
        }
        loop {
            let watched = async {
                appears(&self.folder).await?;
                self.watch_once().await
            };
            if let Err(error) = watched.await {
                // Pods that wait are tried again from time to time.
                let folder = self.folder.display();
                warn!(%folder, %error, "could not watch the FlexVolume drivers' folder");
                return;
            }
        }
    }

    /// Watches until the folder is gone.
    async fn watch_once(&self) -> io::Result<()> {
        let mut top = match FolderWatch::new(&self.folder) {
            Err(error) if is_gone(&error) => return Ok(()),
            watch => watch?,
        };
        let (came, mut told) = mpsc::channel::<()>(1);
        let mut folders = tokio::task::JoinSet::new();
        let follow = |folders: &mut tokio::task::JoinSet<()>, folder: PathBuf| {
            let Ok(mut watch) = FolderWatch::on_modes(&folder) else {
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
        for (_, folder) in Layout::entries(&self.folder) {
            follow(&mut folders, folder);
        }
        self.something_came();
        loop {
            tokio::select! {
                event = top.next() => match event? {
                    FolderEvent::Came(name) => {
                        follow(&mut folders, self.folder.join(name));
                        self.something_came();
                    }
                    FolderEvent::Overrun => self.something_came(),
                    FolderEvent::Left(_) => {}
                    FolderEvent::Gone => return Ok(()),
                },
                Some(()) = told.recv() => self.something_came(),
                Some(_) = folders.join_next() => {}
            }
        }
    }
}

/// Waits for a folder to be there, at the nearest of those above it that is.
async fn appears(folder: &Path) -> io::Result<()> {
    while !folder.is_dir() {
        let above = folder.ancestors().skip(1).find(|above| above.is_dir());
        let above = above.ok_or(io::ErrorKind::NotFound)?;
        let mut watch = match FolderWatch::new(above) {
            Err(error) if is_gone(&error) => continue,
            watch => watch?,
        };
        // It may have come before the watch was set up, or the next of those above it.
        let rest = folder.strip_prefix(above).unwrap_or(folder);
        let next = rest.iter().next().map(|name| above.join(name));
        if !next.is_some_and(|next| next.is_dir()) {
            watch.next().await?;
        }
    }
    Ok(())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orlop_runtime::Backoff;

    use super::*;

    /// Whether a pod that waits is woken, by what is done.
    async fn wakes(folder: &Path, what: impl FnOnce()) {
        let queue: Queue<PodUid> = Queue::new(Backoff::default());
        let programs = Programs::new(folder.to_owned(), queue.clone());
        let watch = programs.watch();
        tokio::pin!(watch);
        let soon = Duration::from_millis(200);
        assert!(tokio::time::timeout(soon, &mut watch).await.is_err());
        programs.miss(&PodUid::new("u1").expect("a uid"));
        what();
        let woken = async {
            while queue.depth() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = &mut watch => panic!("it watches for ever"),
            woken = tokio::time::timeout(Duration::from_secs(10), woken) => woken.expect("woken"),
        }
    }

    fn install(folder: &Path, mode: u32) -> PathBuf {
        let driver = folder.join("example.org~disk");
        std::fs::create_dir_all(&driver).expect("a folder");
        let program = driver.join("disk");
        std::fs::write(&program, "").expect("a file");
        chmod(&program, mode);
        program
    }

    fn chmod(program: &Path, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(program, mode).expect("a mode");
    }

    #[tokio::test]
    async fn a_folder_that_is_missing_is_made() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("a/b/exec");
        wakes(&folder, || {
            assert!(folder.is_dir());
            install(&folder, 0o755);
        })
        .await;
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_waited_for() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("a/b/exec");
        std::fs::write(root.path().join("a"), "in the way").expect("a file");
        wakes(&folder, || {
            std::fs::remove_file(root.path().join("a")).expect("removed");
            install(&folder, 0o755);
        })
        .await;
    }

    #[tokio::test]
    async fn a_folder_that_takes_the_place_of_another_is_watched_too() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("exec");
        wakes(&folder, || {
            std::fs::rename(&folder, root.path().join("old")).expect("renamed");
            install(&root.path().join("new"), 0o755);
            std::fs::rename(root.path().join("new"), &folder).expect("renamed");
        })
        .await;
    }

    #[tokio::test]
    async fn a_program_that_is_made_executable_wakes_who_waits_for_it() {
        let root = tempfile::tempdir().expect("a folder");
        let program = install(root.path(), 0o644);
        assert!(matches!(find(&program), Found::NotExecutable));
        wakes(root.path(), || chmod(&program, 0o755)).await;
        assert!(matches!(find(&program), Found::Program(_)));
    }
}

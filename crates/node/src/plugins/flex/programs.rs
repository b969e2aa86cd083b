//! The node's drivers: where each is, and which pods wait for one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

use orlop_host::flex;
use orlop_model::flex::program;
use orlop_runtime::Queue;

use super::{FlexError, lock};
use crate::layout::PodUid;

pub(super) struct Programs {
    pub(super) folder: flex::Programs,
    waiting: Mutex<BTreeSet<PodUid>>,
    pods: Queue<PodUid>,
}

impl Programs {
    pub(super) fn new(folder: PathBuf, pods: Queue<PodUid>) -> Self {
        Self {
            folder: flex::Programs::new(folder),
            waiting: Mutex::default(),
            pods,
        }
    }

    /// `<folder>/<vendor>~<driver>/<driver>`.
    pub(super) fn path(&self, driver: &str) -> Result<PathBuf, FlexError> {
        let at = program(driver).ok_or_else(|| FlexError::BadName(driver.to_owned()))?;
        Ok(self.folder.path((&at.0, at.1)))
    }

    /// A pod waits for a driver.
    pub(super) fn miss(&self, pod: &PodUid) {
        lock(&self.waiting).insert(pod.clone());
    }

    /// Wakes pods whose drivers may have come, for ever. As the kubelet does, it makes the folder if it can.
    pub(super) async fn watch(&self) {
        self.folder.make();
        let wake = || {
            for pod in std::mem::take(&mut *lock(&self.waiting)) {
                self.pods.add(pod);
            }
        };
        self.folder.watch(wake).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::Duration;

    use orlop_host::flex::{Found, find};
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

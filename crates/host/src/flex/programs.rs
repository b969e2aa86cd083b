//! The drivers' folder: which programs there are, and what they can do.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tracing::warn;

use super::Capabilities;
use crate::folder_watch::{FolderEvent, FolderWatch};

/// Which file a program is: one that took its place is asked anew what it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// What is where a program should be.
pub enum Found {
    /// One that can be run.
    Program(Stamp),
    /// Somebody has put it there, and has not finished.
    NotExecutable,
    /// Nothing.
    Nothing,
}

/// Looks for a program.
pub fn find(program: &Path) -> Found {
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

/// The drivers of a folder, each as `VENDOR~DRIVER/DRIVER`.
#[derive(Debug)]
pub struct Programs {
    folder: PathBuf,
    known: Mutex<BTreeMap<String, (Stamp, Capabilities)>>,
}

impl Programs {
    /// Nothing is looked at yet.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            known: Mutex::default(),
        }
    }

    /// Where a driver's program is, by its folder's name and its own, which lead nowhere else.
    pub fn path(&self, (folder, program): (&str, &str)) -> PathBuf {
        self.folder.join(folder).join(program)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Stamp, Capabilities)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a driver can do, if this very program has said.
    pub fn known(&self, driver: &str, stamp: Stamp) -> Option<Capabilities> {
        let known = self.lock();
        let (of, capabilities) = known.get(driver)?;
        (*of == stamp).then(|| capabilities.clone())
    }

    /// A driver has said what it can do.
    pub fn learn(&self, driver: &str, stamp: Stamp, capabilities: Capabilities) {
        self.lock().insert(driver.to_owned(), (stamp, capabilities));
    }

    /// Makes the folder, if it can be made and isn't there.
    pub fn make(&self) {
        if let Err(error) = std::fs::create_dir_all(&self.folder) {
            let folder = self.folder.display();
            warn!(%folder, %error, "could not make the FlexVolume drivers' folder");
        }
    }

    /// Watches the folder and those of the drivers in it, from when there is one. Tells at once, and again
    /// whenever something may have come or changed.
    pub async fn watch(&self, came: impl Fn()) {
        loop {
            let watched = async {
                appears(&self.folder).await?;
                self.watch_once(&came).await
            };
            if let Err(error) = watched.await {
                // Who waits for a driver is tried again from time to time.
                let folder = self.folder.display();
                warn!(%folder, %error, "could not watch the FlexVolume drivers' folder");
                return;
            }
        }
    }

    /// Watches until the folder is gone, or something was missed: then all is to be looked at anew.
    async fn watch_once(&self, something_came: &impl Fn()) -> io::Result<()> {
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
        // One that is gone by now tells so itself.
        let found = std::fs::read_dir(&self.folder).into_iter().flatten();
        for folder in found.flatten() {
            follow(&mut folders, folder.path());
        }
        something_came();
        loop {
            tokio::select! {
                event = top.next() => match event? {
                    FolderEvent::Came(name) => {
                        follow(&mut folders, self.folder.join(name));
                        something_came();
                    }
                    FolderEvent::Left(_) => {}
                    FolderEvent::Overrun | FolderEvent::Gone => return Ok(()),
                },
                Some(()) = told.recv() => something_came(),
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
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_driver_whose_folder_came_unseen_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = Programs::new(folder.path().to_owned());
        let (came, told) = (
            Arc::new(tokio::sync::Notify::new()),
            Duration::from_secs(20),
        );
        let watching = tokio::spawn({
            let came = Arc::clone(&came);
            async move { programs.watch(|| came.notify_one()).await }
        });
        tokio::time::timeout(told, came.notified())
            .await
            .expect("at once");
        // More than the kernel keeps for who doesn't listen.
        let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
        let most: usize = most.expect("a limit").trim().parse().expect("a number");
        for number in 0..=most {
            let name = folder.path().join((number % 2).to_string());
            std::fs::write(&name, "").expect("a file");
            std::fs::remove_file(&name).expect("a file");
        }
        let driver = folder.path().join("v~d");
        std::fs::create_dir(&driver).expect("a folder");
        tokio::time::timeout(told, came.notified())
            .await
            .expect("it is missed");
        // Until nothing is told any more of what was before.
        while tokio::time::timeout(Duration::from_millis(300), came.notified())
            .await
            .is_ok()
        {}
        std::fs::write(driver.join("d"), "").expect("a program");
        tokio::time::timeout(told, came.notified())
            .await
            .expect("it came");
        watching.abort();
    }
}

//! Hears of disks that come and go, and of a new configuration.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use orlop_host::{
    MountWatch,
    folder_watch::{FolderEvent, FolderWatch},
};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};
use tracing::{info, warn};

use super::{Item, Provisioner, chain};
use crate::{config::Config, disks};

/// Before a folder that could not be watched is tried again.
const REST: Duration = Duration::from_secs(10);

/// While a person's editor has the configuration in two files, or in half of one.
const SETTLED: Duration = Duration::from_millis(200);

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Folder,
    Mounts,
    Config,
}

impl Provisioner {
    /// Listens for ever.
    pub(super) async fn watch(self) {
        let (send, mut heard) = mpsc::channel(16);
        let mut fixed = JoinSet::new();
        fixed.spawn(hear_mounts(send.clone()));
        let config = match self.config_path.is_dir() {
            true => Some(self.config_path.clone()),
            false => self.config_path.parent().map(Path::to_owned),
        };
        if let Some(folder) = config {
            fixed.spawn(hear_folder(folder, Heard::Config, send.clone()));
        }
        let mut folders = self.hear_folders(&send);
        let mut mounts = self.mounts();
        while let Some(news) = heard.recv().await {
            match news {
                Heard::Folder => self.queue.add(Item::Folders),
                Heard::Mounts => {
                    // A node mounts all the time, and seldom here.
                    let now = self.mounts();
                    if now != mounts {
                        mounts = now;
                        self.queue.add(Item::Folders);
                    }
                    let stuck = std::mem::take(&mut self.shared().stuck);
                    for name in stuck {
                        self.queue.add(Item::Volume(name));
                    }
                }
                Heard::Config => {
                    sleep(SETTLED).await;
                    if self.reload() {
                        folders = self.hear_folders(&send);
                        mounts = self.mounts();
                        self.queue.add(Item::Folders);
                    }
                }
            }
        }
        drop(folders);
    }

    fn hear_folders(&self, send: &mpsc::Sender<Heard>) -> JoinSet<()> {
        let mut folders = JoinSet::new();
        for class in self.shared().config.classes.values() {
            let folder = class.mount_dir.clone();
            folders.spawn(hear_folder(folder, Heard::Folder, send.clone()));
        }
        folders
    }

    fn mounts(&self) -> Vec<(u64, PathBuf)> {
        let classes = self.shared().config.classes.clone();
        let folders: Vec<_> = classes.into_values().map(|c| c.mount_dir).collect();
        disks::mounts_in(&folders).unwrap_or_default()
    }

    /// Reads the configuration again; says whether there is anything new. A class that can't be
    /// used stays as it was.
    fn reload(&self) -> bool {
        let loaded = Config::load(&self.config_path);
        let mut shared = self.shared();
        let unreadable = match loaded {
            Ok(mut config) => {
                for class in config.unusable.keys() {
                    if let Some(before) = shared.config.classes.get(class) {
                        config.classes.insert(class.clone(), before.clone());
                    }
                }
                if config != shared.config {
                    info!("the configuration has changed");
                    shared.config = config;
                    shared.unreadable = None;
                    return true;
                }
                None
            }
            Err(error) => Some(chain(&error)),
        };
        let new = unreadable != shared.unreadable;
        if let Some(error) = unreadable.as_deref().filter(|_| new) {
            warn!(
                error,
                "the new configuration can't be used; the old one stays"
            );
        }
        shared.unreadable = unreadable;
        new
    }
}

async fn hear_mounts(send: mpsc::Sender<Heard>) {
    loop {
        match MountWatch::new() {
            Ok(mut watch) => {
                while watch.changed().await.is_ok() {
                    if send.send(Heard::Mounts).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => warn!(%error, "mounts can't be watched"),
        }
        sleep(REST).await;
    }
}

/// Tells of a folder's names. One that isn't there, or went away, is tried again after a rest.
async fn hear_folder(folder: PathBuf, heard: Heard, send: mpsc::Sender<Heard>) {
    loop {
        let watch = match heard {
            // A file may be written over.
            Heard::Config => FolderWatch::on_contents(&folder),
            Heard::Folder | Heard::Mounts => FolderWatch::new(&folder),
        };
        if let Ok(mut watch) = watch {
            // What came before the watch did was told by nobody.
            if send.send(heard).await.is_err() {
                return;
            }
            while let Ok(event) = watch.next().await {
                if send.send(heard).await.is_err() {
                    return;
                }
                if event == FolderEvent::Gone {
                    break;
                }
            }
        }
        sleep(REST).await;
    }
}

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

use super::{Item, Provisioner};
use crate::{config::Config, disks};

/// Before a folder that could not be watched is tried again.
const REST: Duration = Duration::from_secs(10);

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

    /// Reads the configuration again; says whether it is another one.
    fn reload(&self) -> bool {
        match Config::load(&self.config_path) {
            Ok(config) if config == self.shared().config => false,
            Ok(config) => {
                info!("the configuration has changed");
                self.shared().config = config;
                true
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(
                    error,
                    "the new configuration can't be used; the old one stays"
                );
                false
            }
        }
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

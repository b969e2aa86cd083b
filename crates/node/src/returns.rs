//! Tells when a server is back at its socket: by the socket's name, which comes into its folder
//! again, and not by asking again and again.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use orlop_host::folder_watch::{FolderEvent, FolderWatch};
use tracing::warn;

/// Looks out for a socket, for as long as this is asked.
pub(crate) struct Returns {
    folder: PathBuf,
    name: OsString,
    watch: Option<Lookout>,
}

/// What is watched now.
struct Lookout {
    watch: FolderWatch,
    /// The next name on the way to the socket, or the socket's own.
    waits_for: OsString,
    is_socket: bool,
}

impl Returns {
    /// Looks out from now on, even before it is asked. Must be called within a tokio runtime.
    pub(crate) fn of(socket: &Path) -> Option<Self> {
        let mut this = Self {
            folder: socket.parent()?.to_owned(),
            name: socket.file_name()?.to_owned(),
            watch: None,
        };
        match this.look_out() {
            Ok(watch) => this.watch = Some(watch),
            Err(error) => {
                warn!(socket = %socket.display(), %error, "nobody will notice when its server is back");
                return None;
            }
        }
        Some(this)
    }

    /// Waits until the socket has come. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        loop {
            let Some(lookout) = &mut self.watch else {
                let lookout = self.look_out()?;
                let came = lookout.is_socket && self.folder.join(&self.name).exists();
                self.watch = Some(lookout);
                // It came together with its folder.
                if came {
                    return Ok(());
                }
                continue;
            };
            match lookout.watch.next().await? {
                FolderEvent::Came(name) if name == lookout.waits_for => {
                    if lookout.is_socket {
                        return Ok(());
                    }
                    self.watch = None;
                }
                FolderEvent::Overrun if lookout.is_socket => return Ok(()),
                FolderEvent::Overrun | FolderEvent::Gone => self.watch = None,
                FolderEvent::Came(_) | FolderEvent::Left(_) => {}
            }
        }
    }

    /// The socket's folder, or the nearest one on the way to it.
    fn look_out(&self) -> io::Result<Lookout> {
        let mut at = self.folder.as_path();
        let mut waits_for = self.name.clone();
        loop {
            match FolderWatch::new(at) {
                Ok(watch) => {
                    // What came while the watch was being made is found on the way down.
                    let below = at.join(&waits_for);
                    if at != self.folder && below.is_dir() {
                        (at, waits_for) = (&self.folder, self.name.clone());
                        continue;
                    }
                    return Ok(Lookout {
                        watch,
                        waits_for,
                        is_socket: at == self.folder,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
                        return Err(error);
                    };
                    (at, waits_for) = (parent, name.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn soon(returns: &mut Returns) {
        let told = tokio::time::timeout(Duration::from_secs(20), returns.next()).await;
        told.expect("in time").expect("told");
    }

    #[tokio::test]
    async fn a_socket_that_comes_again_is_told_even_with_its_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("plugin/a");
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join("s");
        std::fs::write(&socket, "").expect("a socket");
        let mut returns = Returns::of(&socket).expect("a lookout");
        let early = tokio::time::timeout(Duration::from_millis(50), returns.next()).await;
        assert!(early.is_err(), "it was there before");
        std::fs::remove_file(&socket).expect("removed");
        std::fs::write(folder.join("other"), "").expect("a file");
        std::fs::write(&socket, "").expect("a socket");
        soon(&mut returns).await;
        std::fs::remove_dir_all(root.path().join("plugin")).expect("removed");
        std::fs::create_dir_all(&folder).expect("a folder");
        let asked = tokio::spawn(async move {
            soon(&mut returns).await;
            returns
        });
        tokio::task::yield_now().await;
        std::fs::write(&socket, "").expect("a socket");
        asked.await.expect("told");
    }
}

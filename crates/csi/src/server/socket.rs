//! The unix socket that a driver listens at.
//!
//! Owns its file: made with mode 0600, never in the place of something that is
//! not a dead socket, and removed at the end if it is still ours. Creates
//! nothing else beside it, as the specification demands.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use tokio::net::{UnixListener, UnixSocket};
use tokio_stream::wrappers::UnixListenerStream;

use super::{ServeError, Services};
use crate::client::{EndpointError, socket_path};

/// Calls that wait to be accepted.
const BACKLOG: u32 = 128;

/// Why a socket could not be listened at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The endpoint is none.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The folder must be made by whoever deploys the driver.
    #[error("the folder of the socket {} cannot be opened; create it first", path.display())]
    Folder {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody answers there.
    #[error("another process listens at {}; stop it or choose another socket", path.display())]
    InUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// It is a file of somebody else's.
    #[error("{} exists and is not a socket; remove it or choose another path", path.display())]
    NotASocket {
        /// The socket's path.
        path: PathBuf,
    },
    /// Whether it is dead could not be told, or it could not be removed.
    #[error("the old socket {} cannot be replaced", path.display())]
    Replace {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system refused.
    #[error("could not listen at {}", path.display())]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A unix socket that accepts connections; they are served once
/// [`Socket::serve`] runs. Dropping it removes the file.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

impl Socket {
    /// Listens at `unix:///path` or `/path`, in the place of a socket that
    /// nobody listens at any more. Must be called within a tokio runtime.
    pub fn bind(endpoint: &str) -> Result<Self, BindError> {
        let path = socket_path(endpoint)?;
        // Two drivers that start at once would both find the old socket dead,
        // and the slower one would remove the faster one's. A lock on the
        // folder itself makes them take turns without leaving a file.
        let _turn = lock_folder(&path).map_err(|source| BindError::Folder {
            path: path.clone(),
            source,
        })?;
        remove_dead(&path)?;
        let (listener, file) = listen(&path).map_err(|source| BindError::Listen {
            path: path.clone(),
            source,
        })?;
        Ok(Self { listener, file })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Serves until `shutdown`, then lets running calls end and removes the
    /// socket.
    pub async fn serve(
        self,
        services: Services,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let Self { listener, file } = self;
        let outcome = services
            .run(UnixListenerStream::new(listener), shutdown)
            .await;
        drop(file);
        outcome
    }
}

fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn remove_dead(path: &Path) -> Result<(), BindError> {
    let replace = |source| BindError::Replace {
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(replace(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(BindError::InUse {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(replace)
        }
        // Gone between the two looks.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Its queue is full: somebody is there, if only slow.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::InUse {
            path: path.to_owned(),
        }),
        Err(error) => Err(replace(error)),
    }
}

fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let socket = UnixSocket::new_stream()?;
    // Linux gives the file the mode of the unbound socket, less the umask: it
    // is never open to others, not even for a moment, and the umask, which
    // belongs to every thread of the process, is left alone.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path)?;
    let file = SocketFile::just_made(path)?;
    let listener = socket.listen(BACKLOG)?;
    Ok((listener, file))
}

/// The socket's file, removed on drop unless another has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Keeps the inode in being, so that its number cannot be a successor's.
    inode: File,
}

impl SocketFile {
    fn just_made(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inode = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self {
            path: path.to_owned(),
            inode: inode.into(),
        })
    }

    fn is_still_ours(&self) -> io::Result<bool> {
        let (ours, found) = (self.inode.metadata()?, fs::symlink_metadata(&self.path)?);
        Ok((ours.dev(), ours.ino()) == (found.dev(), found.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = self.is_still_ours().unwrap_or(false);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the socket");
        }
    }
}

#[cfg(test)]
mod tests;

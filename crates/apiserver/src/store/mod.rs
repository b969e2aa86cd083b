//! The store: every object at its newest revision, and the recent past of each resource.
//!
//! It owns the one global revision. A write is checked, given the next revision, made
//! durable, made visible and acknowledged, in this order; all reads come from memory and
//! see durable writes only. It must never know what a kind means, and never wait for a
//! reader.

mod appended;
mod audience;
mod backup;
mod batch;
mod bell;
mod contents;
mod direct;
mod feed;
mod frame;
mod fresh;
#[cfg(test)]
mod full;
mod health;
mod key;
mod log;
mod medium;
mod meta;
mod object;
#[cfg(test)]
mod outage;
mod page;
#[cfg(test)]
mod power;
mod record;
mod state;
#[cfg(test)]
mod tests;
mod turn;
mod writer;

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

pub use backup::{BackupError, REVISION_GAP, Summary, backup, restore};
pub use batch::{Change, Expect, Write};
pub use bell::Listener;
pub use feed::{Feed, Scope};
pub use health::Health;
pub use key::Key;
pub use log::LogError;
pub use meta::Meta;
pub(crate) use object::line;
pub use object::{Draft, MalformedObject, Sort, Stored};
pub use page::{Page, Place, Wanted};
pub use state::{Event, Expired, Matters, State};

use crate::poise::give_way;
use medium::Directory;
use turn::Tried;

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In the files of a folder, durably.
    Disk(PathBuf),
    /// In memory only: synchronous and without a thread, for simulation and tests.
    Memory,
}

/// Why a write did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The object exists already.
    #[error("{0} exists already")]
    Exists(Key),
    /// The object doesn't exist.
    #[error("{0} doesn't exist")]
    Gone(Key),
    /// The object is at another revision than the write expects.
    #[error("{0} was changed meanwhile")]
    Changed(Key),
    /// The object that the write requires is absent or being deleted.
    #[error("{0} doesn't exist or is being deleted")]
    Required(Key),
    /// The file can't be written, for want of room perhaps. Nothing changed.
    #[error("{0}")]
    Unwritten(Health),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder can't be made or used.
    #[error("could not use {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the store open.
    #[error("{} is in use by another process; stop that one first", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// Its files can't be used.
    #[error("could not read the store in {}", path.display())]
    Log {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: LogError,
    },
}

/// How long the remains of a process that was killed may keep its lock.
const REMAINS: Duration = Duration::from_millis(500);
/// How often to look whether they are gone; the kernel has no event for it that can't block for good.
const LOOK: Duration = Duration::from_millis(5);

/// Keeps every other process out until the file is dropped.
fn claim(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("lock");
    let failed = |source| OpenError::Folder {
        path: path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if since.elapsed() < REMAINS => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                let path = folder.to_owned();
                return Err(OpenError::InUse { path });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
}

/// A handle on the store; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    state: Arc<RwLock<State>>,
    health: Arc<watch::Sender<Health>>,
    backend: Arc<Backend>,
}

#[derive(Debug)]
enum Backend {
    Memory,
    Disk {
        queue: Mutex<Option<mpsc::Sender<writer::Task>>>,
        turn: Arc<turn::Turn>,
        thread: Mutex<Option<JoinHandle<()>>>,
    },
}

impl Store {
    /// Opens the store and reads it into memory. Blocks while reading.
    pub fn open(storage: &Storage) -> Result<Self, OpenError> {
        match storage {
            Storage::Memory => Ok(Self {
                state: Arc::new(RwLock::new(State::new(1))),
                health: Arc::default(),
                backend: Arc::new(Backend::Memory),
            }),
            Storage::Disk(path) => {
                let failed = |source| OpenError::Folder {
                    path: path.clone(),
                    source,
                };
                let directory = Directory::open(path.clone()).map_err(failed)?;
                let known = path.join("lock").exists();
                let lock = claim(path)?;
                let folder: Arc<dyn medium::Folder> = Arc::new(directory);
                if known && contents::newest(&*folder).map_err(failed)?.is_none() {
                    tracing::warn!(
                        folder = %path.display(),
                        "there was a store in this folder and its files are gone, and all objects \
                         with them: a new one begins, empty. To get them back, stop the server, \
                         move the folder away, and restore a backup (orlop apiserver restore)"
                    );
                }
                let opened = log::Log::open(&folder);
                let (log, state) = opened.map_err(|source| OpenError::Log {
                    path: path.clone(),
                    source,
                })?;
                Self::on(log, state, Some(lock)).map_err(failed)
            }
        }
    }

    /// A store on a log that was read already.
    fn on(log: log::Log, state: State, lock: Option<File>) -> std::io::Result<Self> {
        let state = Arc::new(RwLock::new(state));
        let health = Arc::default();
        let shared = writer::Shared {
            state: Arc::clone(&state),
            health: Arc::clone(&health),
        };
        let started = writer::start(log, shared, lock)?;
        let backend = Backend::Disk {
            queue: Mutex::new(Some(started.queue)),
            turn: started.turn,
            thread: Mutex::new(Some(started.thread)),
        };
        Ok(Self {
            state,
            health,
            backend: Arc::new(backend),
        })
    }

    /// How the store is, as far as the last write has shown.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// How the store is. If the last write failed, what it failed for is looked at again.
    pub async fn look(&self) -> Health {
        let now = self.health.borrow().clone();
        if now.is_well() {
            return now;
        }
        let (answer, answered) = oneshot::channel();
        if let Ok(Some(place)) = self.place().await {
            place.send(writer::Task::Look(answer));
            drop(answered.await);
        }
        self.health.borrow().clone()
    }

    /// A place in the writer's queue, if there is one.
    async fn place(&self) -> Result<Option<mpsc::OwnedPermit<writer::Task>>, WriteError> {
        let Backend::Disk { queue, .. } = &*self.backend else {
            return Ok(None);
        };
        let queue = queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = queue.ok_or(WriteError::Closed)?;
        let place = queue.reserve_owned().await;
        place.map(Some).map_err(|_| WriteError::Closed)
    }

    /// Carries a write out. When this returns `Ok`, the write is durable and visible.
    ///
    /// Cancelling the future doesn't cancel the write.
    pub async fn write(&self, write: Write) -> Result<Arc<Stored>, WriteError> {
        match &*self.backend {
            Backend::Memory => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                let mut batch = batch::Batch::on(&state);
                let object = batch.stage(&state, write)?;
                let news = state.apply(&batch);
                drop(state);
                news.tell();
                Ok(object)
            }
            Backend::Disk { turn, .. } => {
                let write = match turn.at_once(write) {
                    Tried::Done { answer, told } => {
                        if told {
                            // They run on this thread: first those who watch, who have further to go.
                            give_way().await;
                        }
                        return answer;
                    }
                    Tried::Queue(write) => write,
                };
                let place = self.place().await?.ok_or(WriteError::Closed)?;
                let (answer, answered) = oneshot::channel();
                turn.enter();
                place.send(writer::Task::Write { write, answer });
                answered.await.map_err(|_| WriteError::Closed)?
            }
        }
    }

    /// A consistent look at everything. Hold it briefly: it keeps the next commit from
    /// becoming visible.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object under this key.
    pub fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.read().get(key).cloned()
    }

    /// The changes of a resource after a revision.
    pub fn feed(&self, resource: &str, scope: Scope, after: u64) -> Result<Feed, Expired> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        drop(state.events_after(resource, after)?);
        let changes = state.changes(resource, &scope);
        drop(state);
        Ok(Feed::new(self.clone(), resource, scope, after, changes))
    }

    /// Tells when something has changed that matters, and now and then besides. Asked for every
    /// change while nobody can read: it must be quick.
    pub fn alarm(&self, matters: Matters) -> Listener {
        let state = self.state.write();
        state.unwrap_or_else(PoisonError::into_inner).alarm(matters)
    }

    /// Tells when the newest revision changes.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.read().revisions()
    }

    /// Writes what is queued and closes the file. Later writes fail, reads go on.
    pub async fn close(&self) {
        let Backend::Disk { queue, thread, .. } = &*self.backend else {
            return;
        };
        queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the writer was reported by the panic hook already.
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
    }
}

impl Drop for Backend {
    /// Waits for the writer, so that the file is free once the last handle is gone.
    fn drop(&mut self) {
        if let Self::Disk { queue, thread, .. } = self {
            queue
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let thread = thread
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(thread) = thread {
                drop(thread.join());
            }
        }
    }
}

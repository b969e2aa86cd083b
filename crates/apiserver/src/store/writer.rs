//! The one writer of a store on disk: takes what is queued, commits it as one group,
//! makes it visible, acknowledges it, has the readers woken.
//!
//! While a group waits for the medium, the next one gathers in the queue: the more load,
//! the more writes share one flush. The thread never waits for a reader, nor for the file
//! that is being written anew beside it.

use std::fs::File;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::WriteError;
use super::audience::Herald;
use super::batch::{Batch, Write};
use super::log::{CommitError, Fresh, Log, LogError, write_new};
use super::object::Stored;
use super::state::State;

/// The most writes that share one flush; bounds the latency of the first of them.
const GROUP: usize = 512;
/// The most writes that wait for their turn before callers have to wait to queue theirs.
const QUEUE: usize = 4096;

type Answer = Result<Arc<Stored>, WriteError>;

pub(super) struct Queued {
    pub(super) write: Write,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What the writer shares with the readers.
pub(super) struct Shared {
    pub(super) state: Arc<RwLock<State>>,
    /// Why nothing can be written any more. After a failed flush nobody knows what is on
    /// the medium, so no later write may claim to follow it. Reads go on; a restart reads
    /// the truth from the file.
    pub(super) broken: Arc<OnceLock<Arc<str>>>,
}

/// Starts the writer's thread, which ends when all senders are gone and the queue is empty.
pub(super) fn start(
    log: Log,
    shared: Shared,
    lock: Option<File>,
) -> std::io::Result<(mpsc::Sender<Queued>, JoinHandle<()>)> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let herald = Herald::start()?;
    let thread = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || {
            Writer::new(log, shared, herald).run(receiver);
            // Held as long as the file may be written.
            drop(lock);
        })?;
    Ok((sender, thread))
}

struct Writer {
    log: Log,
    shared: Shared,
    herald: Herald,
    rewriting: Option<Rewriting>,
}

/// A new file that another thread writes, and the groups it doesn't have.
struct Rewriting {
    thread: JoinHandle<Result<Fresh, LogError>>,
    since: Vec<Vec<u8>>,
}

impl Writer {
    fn new(log: Log, shared: Shared, herald: Herald) -> Self {
        Self {
            log,
            shared,
            herald,
            rewriting: None,
        }
    }

    fn run(mut self, mut queue: mpsc::Receiver<Queued>) {
        let mut group = Vec::new();
        while queue.blocking_recv_many(&mut group, GROUP) > 0 {
            self.commit(&mut group);
            self.rewrite();
        }
        if let Some(rewriting) = self.rewriting {
            // Its file is removed at the next start.
            drop(rewriting.thread.join());
        }
    }

    fn commit(&mut self, group: &mut Vec<Queued>) {
        let Shared { state, broken } = &self.shared;
        let mut answers: Vec<(oneshot::Sender<Answer>, Answer)> = Vec::with_capacity(group.len());
        let batch = {
            let state = state.read().unwrap_or_else(PoisonError::into_inner);
            let mut batch = Batch::on(&state);
            for Queued { write, answer } in group.drain(..) {
                let staged = match broken.get() {
                    Some(why) => Err(WriteError::Broken(Arc::clone(why))),
                    None => batch.stage(&state, write),
                };
                answers.push((answer, staged));
            }
            batch
        };
        let mut news = None;
        if !batch.events().is_empty() {
            let failure = match self.log.commit(&batch) {
                Ok(()) => {
                    if let Some(rewriting) = &mut self.rewriting {
                        rewriting.since.push(self.log.last_group().to_vec());
                    }
                    let mut state = state.write().unwrap_or_else(PoisonError::into_inner);
                    news = Some(state.apply(batch));
                    None
                }
                Err(CommitError::Undone(error)) => {
                    tracing::error!(%error, "the store could not be written");
                    Some(WriteError::Unwritten(error.to_string().into()))
                }
                Err(CommitError::Uncertain(error)) => {
                    tracing::error!(%error, "the store could not be written; restart to go on");
                    let why = broken.get_or_init(|| error.to_string().into());
                    Some(WriteError::Broken(Arc::clone(why)))
                }
            };
            if let Some(failure) = failure {
                for (_, staged) in answers.iter_mut().filter(|(_, staged)| staged.is_ok()) {
                    *staged = Err(failure.clone());
                }
            }
        }
        // Refusals too wait for the commit: a retry must see what it collided with.
        for (answer, staged) in answers {
            // The caller may be gone; its write stands all the same.
            drop(answer.send(staged));
        }
        if let Some(news) = news {
            self.herald.spread(news);
        }
    }

    /// Begins a new file when the old one has grown long, and goes over to it once written.
    fn rewrite(&mut self) {
        if self.shared.broken.get().is_some() {
            return;
        }
        match self.rewriting.take() {
            None if self.log.wants_rewriting() => self.rewriting = self.begin(),
            Some(rewriting) if rewriting.thread.is_finished() => self.finish(rewriting),
            unfinished => self.rewriting = unfinished,
        }
    }

    fn begin(&self) -> Option<Rewriting> {
        let folder = Arc::clone(self.log.folder());
        let (revision, objects) = {
            let state = self.shared.state.read();
            state.unwrap_or_else(PoisonError::into_inner).all()
        };
        let spawned = std::thread::Builder::new()
            .name("store-rewriter".to_owned())
            .spawn(move || write_new(&folder, revision, &objects));
        match spawned {
            Ok(thread) => Some(Rewriting {
                thread,
                since: Vec::new(),
            }),
            Err(error) => {
                tracing::warn!(%error, "the store's file could not be written anew");
                None
            }
        }
    }

    fn finish(&mut self, rewriting: Rewriting) {
        let fresh = match rewriting.thread.join() {
            Ok(Ok(fresh)) => fresh,
            // The old file goes on.
            Ok(Err(error)) => {
                self.log.postpone_rewriting();
                let error: &dyn std::error::Error = &error;
                return tracing::warn!(error, "the store's file could not be written anew");
            }
            Err(_) => return self.log.postpone_rewriting(),
        };
        if let Err(error) = self.log.replace(fresh, &rewriting.since) {
            // Which of the two files a restart finds isn't known.
            let error: &dyn std::error::Error = &error;
            tracing::error!(
                error,
                "the store's new file could not be put in place; restart to go on"
            );
            self.shared.broken.get_or_init(|| error.to_string().into());
        }
    }
}

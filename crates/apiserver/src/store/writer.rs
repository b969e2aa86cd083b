//! The one writer of a store on disk: takes what is queued, commits it as one group,
//! makes it visible, acknowledges it.
//!
//! While a group waits for the medium, the next one gathers in the queue: the more load,
//! the more writes share one flush. The thread never waits for a reader.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::WriteError;
use super::batch::{Batch, Write};
use super::disk::Disk;
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
    /// Why nothing can be written any more. After a failed commit nobody knows what is on
    /// the medium, so no later write may claim to follow it. Reads go on; a restart reads
    /// the truth from the file.
    pub(super) broken: Arc<OnceLock<Arc<str>>>,
}

/// Starts the writer's thread, which ends when all senders are gone and the queue is empty.
pub(super) fn start(
    disk: Disk,
    shared: Shared,
) -> std::io::Result<(mpsc::Sender<Queued>, JoinHandle<()>)> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || run(&disk, &shared, receiver))?;
    Ok((sender, thread))
}

fn run(disk: &Disk, shared: &Shared, mut queue: mpsc::Receiver<Queued>) {
    let Shared { state, broken } = shared;
    let mut group = Vec::new();
    while queue.blocking_recv_many(&mut group, GROUP) > 0 {
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
        if !batch.events().is_empty() {
            match disk.commit(&batch) {
                Ok(()) => state
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .apply(batch),
                Err(error) => {
                    tracing::error!(%error, "the store could not be written; restart to go on");
                    let why = broken.get_or_init(|| error.to_string().into());
                    for (_, staged) in answers.iter_mut().filter(|(_, staged)| staged.is_ok()) {
                        *staged = Err(WriteError::Broken(Arc::clone(why)));
                    }
                }
            }
        }
        // Refusals too wait for the commit: a retry must see what it collided with.
        for (answer, staged) in answers {
            // The caller may be gone; its write stands all the same.
            drop(answer.send(staged));
        }
    }
}

//! The one writer of a store on disk: takes what is queued, commits it as one group,
//! makes it visible, acknowledges it, has the readers woken.
//!
//! While a group waits for the medium, the next one gathers in the queue: the more load,
//! the more writes share one flush. The thread never waits for a reader, nor for the file
//! that is being written anew beside it. Who comes alone need not go through it
//! ([`super::turn`]).

use std::fs::File;
use std::sync::mpsc::{self as handover, TryRecvError};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

use super::audience::Herald;
use super::batch::{Batch, Write};
use super::fresh::{Fresh, write_new};
use super::health::is_full;
use super::log::{CommitError, Log, LogError};
use super::object::Stored;
use super::state::State;
use super::turn::Turn;
use super::{Health, WriteError};

/// The most writes that share one flush; bounds the latency of the first of them.
const GROUP: usize = 512;
/// The most writes that wait for their turn before callers have to wait to queue theirs.
const QUEUE: usize = 4096;
/// How long a flush takes at most that a thread with other work may wait for.
const QUICK: Duration = Duration::from_millis(1);
/// Who comes sooner than this after another is one of many, who may share a flush: perhaps they
/// are of one task, and come one after the other only because each waits on its thread.
const PAUSE: Duration = Duration::from_micros(100);

pub(super) type Answer = Result<Arc<Stored>, WriteError>;

/// What the writer is asked for.
pub(super) enum Task {
    /// To carry out a write.
    Write {
        write: Write,
        answer: oneshot::Sender<Answer>,
    },
    /// To see whether what failed would succeed now, and what became of a new file.
    Look(oneshot::Sender<()>),
}

/// What the writer shares with the readers.
pub(super) struct Shared {
    pub(super) state: Arc<RwLock<State>>,
    pub(super) health: Arc<watch::Sender<Health>>,
}

/// A running writer.
pub(super) struct Started {
    pub(super) queue: mpsc::Sender<Task>,
    pub(super) turn: Arc<Turn>,
    pub(super) thread: JoinHandle<()>,
}

/// Starts the writer's thread, which ends when all senders are gone and the queue is empty.
pub(super) fn start(log: Log, shared: Shared, lock: Option<File>) -> std::io::Result<Started> {
    let (queue, receiver) = mpsc::channel(QUEUE);
    let writer = Writer {
        log,
        shared,
        herald: Herald::start()?,
        rewriting: None,
        itself: queue.downgrade(),
        last: None,
        closed: false,
    };
    let turn = Arc::new(Turn::of(writer));
    let shared = Arc::clone(&turn);
    let thread = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || {
            run(&shared, receiver);
            if let Some(mut writer) = shared.take() {
                writer.close();
            }
            // Held as long as the file may be written.
            drop(lock);
        })?;
    Ok(Started {
        queue,
        turn,
        thread,
    })
}

fn run(turn: &Turn, mut queue: mpsc::Receiver<Task>) {
    if let Some(mut writer) = turn.take() {
        writer.keep_spare();
    }
    let mut tasks = Vec::new();
    while queue.blocking_recv_many(&mut tasks, GROUP) > 0 {
        let Some(mut writer) = turn.take() else {
            return;
        };
        // Others may have come while somebody else had the turn.
        while tasks.len() < GROUP
            && let Ok(task) = queue.try_recv()
        {
            tasks.push(task);
        }
        let writes = writer.work(&mut tasks);
        turn.leave(writes);
    }
}

pub(super) struct Writer {
    log: Log,
    shared: Shared,
    herald: Herald,
    rewriting: Option<Rewriting>,
    /// The queue, for a new file to tell that it is there.
    itself: mpsc::WeakSender<Task>,
    pub(super) last: Option<Last>,
    closed: bool,
}

/// The last commit.
pub(super) struct Last {
    pub(super) writes: usize,
    pub(super) took: Duration,
    pub(super) ended: Instant,
}

/// A new file that another thread writes, and the groups it doesn't have.
struct Rewriting {
    outcome: handover::Receiver<Result<Fresh, LogError>>,
    since: Vec<Vec<u8>>,
}

impl Writer {
    /// Does what was asked for; answers how many writes that was.
    fn work(&mut self, tasks: &mut Vec<Task>) -> usize {
        let mut group = Vec::with_capacity(tasks.len());
        let mut callers = Vec::with_capacity(tasks.len());
        let mut looking = Vec::new();
        for task in tasks.drain(..) {
            match task {
                Task::Write { write, answer } => {
                    group.push(write);
                    callers.push(answer);
                }
                Task::Look(answer) => looking.push(answer),
            }
        }
        // A new file may have the room that the old one lacks.
        self.take_over();
        if !looking.is_empty() {
            self.look();
        }
        let (answers, _) = self.commit(group);
        let writes = callers.len();
        for (caller, answer) in callers.into_iter().zip(answers) {
            // The caller may be gone; its write stands all the same.
            drop(caller.send(answer));
        }
        self.rewrite();
        for answer in looking.drain(..) {
            // Whoever asked may be gone.
            let _ = answer.send(());
        }
        writes
    }

    /// Whether a write would be alone and through soon, as far as the last one has shown.
    pub(super) fn is_quick(&self) -> bool {
        let quick = self.last.as_ref().is_some_and(|last| {
            last.writes == 1 && last.took <= QUICK && last.ended.elapsed() >= PAUSE
        });
        quick && !self.closed && self.shared.health.borrow().is_well()
    }

    /// Carries one write out for whoever has the turn; answers whether anybody was woken, too.
    pub(super) fn write_at_once(&mut self, write: Write) -> (Answer, bool) {
        let (mut answers, told) = self.commit(vec![write]);
        // What takes longer is left to the thread.
        if self.has_chores() {
            ask_for_look(&self.itself);
        }
        (answers.pop().unwrap_or(Err(WriteError::Closed)), told)
    }

    fn close(&mut self) {
        self.closed = true;
        if let Some(rewriting) = self.rewriting.take() {
            // Its file is removed at the next start.
            drop(rewriting.outcome.recv());
        }
    }

    fn health(&self) -> Health {
        self.shared.health.borrow().clone()
    }

    fn weight(&self) -> u64 {
        let state = self.shared.state.read();
        state.unwrap_or_else(PoisonError::into_inner).weight()
    }

    /// The store turned out to be so.
    fn found(&self, now: Health) {
        self.shared.health.send_if_modified(|health| {
            if *health == now || matches!(health, Health::Broken(_)) {
                return false;
            }
            match &now {
                Health::Well => tracing::info!("the store takes writes again"),
                unwell => tracing::error!("{unwell}"),
            }
            *health = now;
            true
        });
    }

    /// Sees whether what failed would succeed now.
    fn look(&mut self) {
        let unwell = matches!(self.health(), Health::Full(_) | Health::Failing(_));
        if unwell {
            match self.log.probe() {
                Ok(()) => self.found(Health::Well),
                Err(error) => self.found(Health::after(&error)),
            }
        }
    }

    /// Sees to room for these writes; tells how the store is then.
    fn prepare(&mut self, group: &[Write]) -> Health {
        if !matches!(self.health(), Health::Broken(_)) {
            let bytes = group.iter().map(Write::len).sum();
            match self.log.reserve(bytes) {
                Err(error) if is_full(&error) => self.found(Health::after(&error)),
                Ok(()) if matches!(self.health(), Health::Full(_)) => self.look(),
                // What else may be wrong, the write itself will tell.
                _ => {}
            }
        }
        self.health()
    }

    /// Commits a group; answers each write of it, and whether anybody was woken.
    fn commit(&mut self, group: Vec<Write>) -> (Vec<Answer>, bool) {
        if group.is_empty() {
            return (Vec::new(), false);
        }
        let health = self.prepare(&group);
        let state = &self.shared.state;
        let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
        let batch = {
            let state = state.read().unwrap_or_else(PoisonError::into_inner);
            let mut batch = Batch::on(&state);
            for write in group {
                let taken = match &health {
                    Health::Well | Health::Failing(_) => true,
                    Health::Full(_) => write.frees(),
                    Health::Broken(_) => false,
                };
                answers.push(if taken {
                    batch.stage(&state, write)
                } else {
                    Err(WriteError::Unwritten(health.clone()))
                });
            }
            batch
        };
        let mut told = false;
        // Refusals too wait for the commit: a retry must see what it collided with.
        if !batch.events().is_empty() {
            let begin = Instant::now();
            let committed = self.log.commit(&batch);
            let ended = Instant::now();
            self.last = Some(Last {
                writes: answers.len(),
                took: ended - begin,
                ended,
            });
            match committed {
                Ok(()) => {
                    if let Some(rewriting) = &mut self.rewriting {
                        rewriting.since.push(self.log.last_group().to_vec());
                    }
                    let news = {
                        let mut state = state.write().unwrap_or_else(PoisonError::into_inner);
                        state.apply(&batch)
                    };
                    // Those who watch have further to go than those who wrote.
                    told = self.herald.spread(news);
                    if matches!(health, Health::Failing(_)) {
                        self.found(Health::Well);
                    }
                }
                Err(error) => {
                    self.found(match error {
                        CommitError::Undone(error) => Health::after(&error),
                        CommitError::Uncertain(error) => Health::Broken(error.to_string().into()),
                    });
                    let failure = WriteError::Unwritten(self.health());
                    for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                        *answer = Err(failure.clone());
                    }
                }
            }
        }
        (answers, told)
    }

    /// Whether there is something to do that [`Writer::rewrite`] does.
    fn has_chores(&self) -> bool {
        let weight = self.weight();
        self.rewriting.is_none()
            && (self.log.wants_rewriting(weight, false) || self.log.wants_spare(weight))
    }

    fn keep_spare(&mut self) {
        self.log.keep_spare(self.weight());
    }

    /// Begins a new file when the old one has grown long, or when there is no room but some to be
    /// gained.
    fn rewrite(&mut self) {
        let health = self.health();
        if self.rewriting.is_some() || matches!(health, Health::Broken(_)) {
            return;
        }
        let weight = self.weight();
        let full = matches!(health, Health::Full(_));
        if self.log.wants_rewriting(weight, full) {
            self.rewriting = self.begin();
        } else {
            self.log.keep_spare(weight);
        }
    }

    fn begin(&self) -> Option<Rewriting> {
        let folder = Arc::clone(self.log.folder());
        let (revision, objects) = {
            let state = self.shared.state.read();
            state.unwrap_or_else(PoisonError::into_inner).all()
        };
        let itself = self.itself.clone();
        let (sender, outcome) = handover::sync_channel(1);
        let spawned = std::thread::Builder::new()
            .name("store-rewriter".to_owned())
            .spawn(move || {
                let written = write_new(&folder, revision, &objects);
                // The writer waits for it.
                drop(sender.send(written));
                // While writes are refused nobody else may come to see that it is there.
                ask_for_look(&itself);
            });
        match spawned {
            Ok(_) => Some(Rewriting {
                outcome,
                since: Vec::new(),
            }),
            Err(error) => {
                tracing::warn!(%error, "the store's file could not be written anew");
                None
            }
        }
    }

    /// Goes over to a new file once it is written.
    fn take_over(&mut self) {
        let Some(rewriting) = self.rewriting.take() else {
            return;
        };
        match rewriting.outcome.try_recv() {
            Ok(written) => self.finish(written, &rewriting.since),
            Err(TryRecvError::Empty) => self.rewriting = Some(rewriting),
            // A panic was reported by the panic hook already.
            Err(TryRecvError::Disconnected) => self.log.postpone_rewriting(self.weight()),
        }
    }

    fn finish(&mut self, written: Result<Fresh, LogError>, since: &[Vec<u8>]) {
        if matches!(self.health(), Health::Broken(_)) {
            return;
        }
        let folder = Arc::clone(self.log.folder());
        let whole = written.and_then(|fresh| fresh.complete(&*folder, since));
        match whole {
            Ok(whole) => {
                if let Err(error) = self.log.replace(whole) {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "the store's new file could not be put in place");
                    self.found(Health::Broken(error.to_string().into()));
                }
            }
            // The old file goes on.
            Err(error) => {
                self.log.postpone_rewriting(self.weight());
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "the store's file could not be written anew");
            }
        }
    }
}

/// Has the writer's thread look around. A full queue needs no more to move on.
fn ask_for_look(queue: &mpsc::WeakSender<Task>) {
    if let Some(queue) = queue.upgrade() {
        drop(queue.try_send(Task::Look(oneshot::channel().0)));
    }
}

//! Workers: the processes that touch servers.
//!
//! A thread that waits for a server that is gone cannot be ended; a process can. So every call that
//! may touch one is done by a process: it gets its [`Order`] on its standard input, which also tells
//! it that the driver lives, and says what it does on its standard output. It lives as long as it
//! says something. The call's caller leaves at its own deadline; work that goes well goes on, and
//! keeps the volume's turn, so that a repeated call meets it running or done, never half begun.
//!
//! An order may go to a worker that has the share mounted from an earlier one. Whatever it fails at is
//! tried once more by a new one, so what a caller is told never depends on an old mount.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Code;

use super::crew::{Crew, Worker};
use super::failure::Failure;
use super::order::{Answer, Order, Word, Work};
use super::signs::Signs;
use super::{diagnosis, work};

/// How long a worker may be silent once it has reached its server.
const SILENCE: Duration = Duration::from_secs(30);

/// How many halves of that it may be silent in while its server answers: the node's mounts of a share on
/// the same folder count as well.
const QUIET: u32 = 40;

/// What a call leaves itself to answer before its caller gives up.
const MARGIN: Duration = Duration::from_millis(500);

/// Who does the work.
#[derive(Clone, Debug)]
pub enum Hands {
    /// Processes.
    Processes(Crew),
    /// A thread for each call, on a folder that stands for all servers: `server/share` below it. For
    /// tests on machines without an NFS client.
    StandIn(PathBuf),
}

/// How an order went.
enum Outcome {
    Done(Answer),
    /// The worker says so, or has ended.
    Failed(Failure),
    /// The caller has to leave.
    Late(Failure),
}

impl Hands {
    pub(super) fn stand_in(&self) -> Option<PathBuf> {
        match self {
            Self::Processes(_) => None,
            Self::StandIn(folder) => Some(folder.clone()),
        }
    }

    /// Whether an order shall delete what others left in the trash: what workers of this driver do is
    /// deleted by themselves, so only what was left by those who were ended before.
    pub(super) fn sweeps(&self, work: &Work) -> bool {
        let export = work.throws_away_in();
        export.is_some_and(|export| match self {
            Self::StandIn(_) => true,
            Self::Processes(crew) => !crew.is_swept(export),
        })
    }

    /// Has it done; `held` is kept until there is an answer, however long its caller waits.
    pub(super) async fn run<T: Send + Sync + 'static>(
        &self,
        order: Order,
        patience: Duration,
        held: T,
    ) -> Result<Answer, Failure> {
        let deadline = Instant::now() + patience.saturating_sub(MARGIN).max(MARGIN);
        let place = match self {
            Self::StandIn(_) => None,
            Self::Processes(crew) => {
                let place = tokio::time::timeout_at(deadline, crew.place(&order)).await;
                place.map_err(|_| match order.work.copies_in() {
                    Some(export) => {
                        let told = format!(
                            "other copies are made in share {export} first; the call can be repeated"
                        );
                        Failure::new(Code::DeadlineExceeded, told)
                    }
                    None => {
                        let doing = "answer calls that came before this one";
                        diagnosis::silent(order.work.export(), doing, patience.as_secs())
                    }
                })?
            }
        };
        let call = Call {
            order: Arc::new(order),
            held: Arc::new((held, place)),
            patience,
            deadline,
        };
        let crew = match self {
            Self::StandIn(_) => return call.by_thread().await.into(),
            Self::Processes(crew) => crew,
        };
        if let Some(worker) = crew.rested(&call.order) {
            let outcome = call.by(worker, crew).await;
            if !matches!(outcome, Outcome::Failed(_)) {
                return outcome.into();
            }
        }
        let worker = crew.start().map_err(|error| {
            Failure::new(Code::Internal, format!("could not start a worker: {error}"))
        })?;
        call.by(worker, crew).await.into()
    }
}

impl From<Outcome> for Result<Answer, Failure> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done(answer) => Ok(answer),
            Outcome::Failed(failure) | Outcome::Late(failure) => Err(failure),
        }
    }
}

/// An order, and who waits for it.
struct Call<T> {
    order: Arc<Order>,
    held: Arc<T>,
    patience: Duration,
    deadline: Instant,
}

impl<T: Send + Sync + 'static> Call<T> {
    async fn by(&self, mut worker: Worker, crew: &Crew) -> Outcome {
        if let Err(error) = worker.give(&self.order).await {
            let told = format!("a worker takes no order: {error}");
            return Outcome::Failed(Failure::new(Code::Internal, told));
        }
        let (words, said) = mpsc::channel(64);
        let (order, held, crew) = (
            Arc::clone(&self.order),
            Arc::clone(&self.held),
            crew.clone(),
        );
        tokio::spawn(async move {
            let free = follow(&mut worker, words, held, &order, SILENCE).await;
            match &order.work {
                // What it found or left half made may lie in the trash now.
                Work::Create(create) if create.content.is_some() => {
                    crew.note(&create.on.export, false, false);
                }
                Work::Pack { to, .. } => crew.note(&to.export, false, false),
                work => {
                    if let Some(export) = work.throws_away_in() {
                        crew.note(export, free, order.sweep);
                    }
                }
            }
            match order.work.only() {
                Some(on) if free => crew.rest(worker, on.clone()),
                _ => worker.dismiss().await,
            }
        });
        self.wait(said).await
    }

    async fn by_thread(&self) -> Outcome {
        let (words, said) = mpsc::channel(64);
        let (order, held) = (Arc::clone(&self.order), Arc::clone(&self.held));
        tokio::task::spawn_blocking(move || {
            let held = Mutex::new(Some(held));
            work::carry_out(&order, &work::Kept::default(), &|word| {
                if is_answer(&word) {
                    held.lock().unwrap_or_else(PoisonError::into_inner).take();
                }
                drop(words.blocking_send(word));
            });
        });
        self.wait(said).await
    }

    async fn wait(&self, mut said: mpsc::Receiver<Word>) -> Outcome {
        let mut doing = "begin".to_owned();
        let mut files = 0;
        loop {
            match tokio::time::timeout_at(self.deadline, said.recv()).await {
                Ok(Some(Word::Doing(what))) => doing = what,
                Ok(Some(Word::Beat(count))) => files = count,
                Ok(Some(Word::Done(answer))) => return Outcome::Done(answer),
                Ok(Some(Word::Failed(failure))) => return Outcome::Failed(failure),
                Ok(Some(Word::Free) | None) => {
                    let export = self.order.work.export();
                    return Outcome::Failed(diagnosis::ended(export, &doing, None));
                }
                Err(_) if files > 0 => {
                    let told = format!(
                        "still busy to {doing}, {files} files done; the work goes on, repeat the \
                         call to see how it ends"
                    );
                    return Outcome::Late(Failure::new(Code::DeadlineExceeded, told));
                }
                Err(_) => {
                    let export = self.order.work.export();
                    let patience = self.patience.as_secs();
                    return Outcome::Late(diagnosis::silent(export, &doing, patience));
                }
            }
        }
    }
}

/// What comes after it is tidying up, which is in nobody's way.
fn is_answer(word: &Word) -> bool {
    matches!(word, Word::Done(_) | Word::Failed(_))
}

/// Passes on what a worker says until it is free, or ends, or gets nowhere for too long, or its caller
/// has left before it reached its server. Whether it is free.
async fn follow<T>(
    worker: &mut Worker,
    words: mpsc::Sender<Word>,
    held: T,
    order: &Order,
    silence: Duration,
) -> bool {
    let mut held = Some(held);
    let mut reached = false;
    let mut progress = Progress::new(order);
    let mut doing = "begin".to_owned();
    let (mut signs, mut quiet) = (Signs::default(), 0);
    loop {
        let patience = if reached { silence / 2 } else { silence * 4 };
        let word = tokio::select! {
            word = tokio::time::timeout(patience, worker.listen()) => word,
            () = words.closed(), if !reached => return false,
        };
        match &word {
            Ok(Some(word)) => {
                progress.hear(word);
                quiet = 0;
            }
            Ok(None) => {}
            Err(_) => {
                let before = std::mem::replace(&mut signs, worker.signs(order));
                quiet += 1;
                if reached && quiet < QUIET && (quiet == 1 || signs != before) {
                    continue;
                }
                let seconds = Some(if reached { silence } else { patience }.as_secs());
                let ended = diagnosis::ended(order.work.export(), &doing, seconds);
                tracing::warn!("{ended}");
                drop(held.take());
                let _ = words.send(Word::Failed(ended)).await;
            }
        }
        if let Ok(Some(Word::Doing(what))) = &word {
            doing.clone_from(what);
        }
        match word {
            Ok(Some(Word::Free)) => return true,
            Ok(Some(word)) => {
                reached |= matches!(word, Word::Beat(_));
                if is_answer(&word) {
                    held.take();
                }
                // Nobody may listen any more; the work goes on.
                let _ = words.send(word).await;
            }
            Ok(None) | Err(_) => return false,
        }
    }
}

/// What the log is told of work that takes long: nobody may wait for it any more.
struct Progress {
    /// What is worked on.
    on: String,
    files: u64,
    told: Instant,
    /// Whether it was told that it takes long, so that its end is told as well.
    long: bool,
}

impl Progress {
    /// How often the log hears of it.
    const PAUSE: Duration = Duration::from_secs(10);

    fn new(order: &Order) -> Self {
        let export = order.work.export();
        Self {
            on: export.map_or_else(String::new, ToString::to_string),
            files: 0,
            told: Instant::now(),
            long: false,
        }
    }

    fn hear(&mut self, word: &Word) {
        match word {
            Word::Beat(files) => self.files = *files,
            Word::Free if self.long => {
                tracing::info!(share = self.on, files = self.files, "done");
            }
            _ => {}
        }
        if self.told.elapsed() >= Self::PAUSE {
            (self.told, self.long) = (Instant::now(), true);
            tracing::info!(share = self.on, files = self.files, "still at work");
        }
    }
}

#[cfg(test)]
mod tests;

//! Worker processes, and those of them that wait for another order.
//!
//! To start a process and to mount a share takes longer than most calls' work itself. So a worker that
//! has done its work well keeps its share for a while, and gets the next order on it. It is the only
//! one who sees that mount, and takes it along when it ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::export::Export;
use super::order::{Mounting, Order, Word};
use super::signs::Signs;

/// How long a worker is kept that has nothing to do.
const REST: Duration = Duration::from_secs(10);

/// How many such there are at most.
const RESTING: usize = 8;

/// How many quick calls on a share are worked on at once: more of them are no quicker, and each takes
/// the memory of a process.
const AT_ONCE: usize = 4;

/// How many copies are made in a share at once. Each has a process, and what it writes in memory.
const COPIES: usize = 4;

/// More shares than anybody works on at once.
const SHARES: usize = 256;

/// How long one may take to end before it is left to the kernel.
const FAREWELL: Duration = Duration::from_secs(30);

/// All workers of a driver.
#[derive(Clone, Debug)]
pub struct Crew(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// This program, with the arguments that make it a worker.
    program: Vec<OsString>,
    resting: Mutex<Resting>,
    /// How many more calls a share can have worked on.
    places: Mutex<BTreeMap<(Export, Length), Arc<Semaphore>>>,
    /// Shares with nothing in their trash but what somebody deletes right now.
    swept: Mutex<BTreeSet<Export>>,
    /// How many workers there are, at work or at rest.
    present: watch::Sender<usize>,
}

/// One worker's place in the count of those who are there.
#[derive(Debug)]
struct Presence(watch::Sender<usize>);

impl Presence {
    fn new(present: &watch::Sender<usize>) -> Self {
        present.send_modify(|count| *count += 1);
        Self(present.clone())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[derive(Debug, Default)]
struct Resting {
    /// Who rests, the last to come last.
    workers: VecDeque<(u64, Worker)>,
    /// How many have come, ever: what tells one rest from another.
    came: u64,
}

/// Who would have to wait for whom: what is quick doesn't for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Length {
    Short,
    Long,
}

/// A process that works, or could.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    /// What it has mounted, if it has worked before.
    on: Option<Mounting>,
    _present: Presence,
}

impl Crew {
    /// Workers are processes of this program with these arguments.
    #[must_use]
    pub fn new(program: Vec<OsString>) -> Self {
        Self(Arc::new(Inner {
            program,
            resting: Mutex::default(),
            places: Mutex::default(),
            swept: Mutex::default(),
            present: watch::Sender::default(),
        }))
    }

    /// Waits until a worker has gone and none is left: all that was asked for is done, and nothing more
    /// was for a while.
    pub async fn over(&self) {
        let mut present = self.0.present.subscribe();
        // By changes, not by the count alone: who comes and goes between two looks has been here as well.
        while present.changed().await.is_ok() {
            if *present.borrow_and_update() == 0 {
                return;
            }
        }
    }

    /// Whether nothing is left in a share's trash that nobody deletes.
    pub(super) fn is_swept(&self, export: &Export) -> bool {
        let swept = self.0.swept.lock().unwrap_or_else(PoisonError::into_inner);
        swept.contains(export)
    }

    /// Notes how an order ended that threw something away: `free` if it was carried out to its end,
    /// `all` if that was to sweep the trash.
    pub(super) fn note(&self, export: &Export, free: bool, all: bool) {
        let mut swept = self.0.swept.lock().unwrap_or_else(PoisonError::into_inner);
        match (free, all) {
            (false, _) => {
                swept.remove(export);
            }
            (true, true) if swept.len() < SHARES => {
                swept.insert(export.clone());
            }
            (true, _) => {}
        }
    }

    /// Waits until an order can be worked on, first come, first served; what keeps its place until
    /// there is an answer. Copies take as long as they take, and wait for each other alone.
    pub(super) async fn place(&self, order: &Order) -> Option<OwnedSemaphorePermit> {
        let share = {
            let (export, length, most) = match order.work.copies_in() {
                Some(export) => (export, Length::Long, COPIES),
                None => (&order.work.only()?.export, Length::Short, AT_ONCE),
            };
            let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
            if places.len() > SHARES {
                places.retain(|_, share| Arc::strong_count(share) > 1);
            }
            let share = places.entry((export.clone(), length));
            Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(most))))
        };
        share.acquire_owned().await.ok()
    }

    /// One who has what the order needs, if one rests.
    pub(super) fn rested(&self, order: &Order) -> Option<Worker> {
        let only = order.work.only()?;
        let mut resting = self.lock();
        let at = resting
            .workers
            .iter()
            .rposition(|(_, worker)| worker.on.as_ref() == Some(only))?;
        resting.workers.remove(at).map(|(_, worker)| worker)
    }

    /// A new one.
    pub(super) fn start(&self) -> io::Result<Worker> {
        let Some((name, arguments)) = self.0.program.split_first() else {
            return Err(io::Error::other("no program is set"));
        };
        let mut child = Command::new(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take();
        let stdout = stdout.ok_or_else(|| io::Error::other("it has no output"))?;
        Ok(Worker {
            child,
            said: BufReader::new(stdout).lines(),
            on: None,
            _present: Presence::new(&self.0.present),
        })
    }

    /// Lets one rest that waits for another order on this share.
    pub(super) fn rest(&self, mut worker: Worker, on: Mounting) {
        worker.on = Some(on);
        let mut resting = self.lock();
        resting.came += 1;
        let number = resting.came;
        resting.workers.push_back((number, worker));
        let surplus = match resting.workers.len() > RESTING {
            true => resting.workers.pop_front(),
            false => None,
        };
        drop(resting);
        if let Some((_, worker)) = surplus {
            tokio::spawn(worker.dismiss());
        }
        let crew = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            let Some(inner) = crew.upgrade() else { return };
            let rested = Self(inner).take(number);
            if let Some(worker) = rested {
                worker.dismiss().await;
            }
        });
    }

    fn take(&self, number: u64) -> Option<Worker> {
        let mut resting = self.lock();
        let at = resting.workers.iter().position(|(it, _)| *it == number)?;
        resting.workers.remove(at).map(|(_, worker)| worker)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Resting> {
        self.0
            .resting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Gives it an order.
    pub(super) async fn give(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        match &mut self.child.stdin {
            Some(stdin) => stdin.write_all(&line).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// What it says next; none if it has ended.
    pub(super) async fn listen(&mut self) -> Option<Word> {
        loop {
            let line = self.said.next_line().await.ok()??;
            match serde_json::from_str(&line) {
                Ok(word) => return Some(word),
                Err(_) => tracing::warn!(line, "a worker said something strange"),
            }
        }
    }

    /// What is counted of it. Not what it says, which it may have no time for.
    pub(super) fn signs(&self, order: &Order) -> Signs {
        let signs = |id| Signs::of(id, &order.working_dir);
        self.child.id().map(signs).unwrap_or_default()
    }

    /// Ends it. One that waits for its server is in the kernel's hands, and goes when that lets it go.
    pub(super) async fn dismiss(mut self) {
        let _ = self.child.start_kill();
        let _ = tokio::time::timeout(FAREWELL, self.child.wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_over_when_the_last_of_those_who_came_has_gone() {
        let crew = Crew::new(vec!["/bin/cat".into()]);
        let over = tokio::spawn({
            let crew = crew.clone();
            async move { crew.over().await }
        });
        // Nobody has come yet.
        tokio::task::yield_now().await;
        assert!(!over.is_finished());
        let (first, second) = (crew.start().unwrap(), crew.start().unwrap());
        first.dismiss().await;
        tokio::task::yield_now().await;
        assert!(!over.is_finished());
        second.dismiss().await;
        tokio::time::timeout(FAREWELL, over).await.unwrap().unwrap();
    }
}

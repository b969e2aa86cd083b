//! Whose turn it is to write: the writer's thread's, or that of one who finds nobody before them.
//!
//! To hand a write to another thread and to be woken by it costs two switches of threads, as long
//! as half a flush. Whoever comes alone therefore writes on its own thread and waits for the flush
//! there. As soon as some come together, all go through the queue and share flushes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::batch::Write;
use super::writer::{Answer, Writer};

/// The longest write that is waited for on the caller's thread.
const SMALL: u64 = 64 << 10;

/// The writer, for whoever has its turn.
pub(super) struct Turn {
    writer: Mutex<Writer>,
    /// How many are in the queue or in the hands of the writer's thread.
    queued: AtomicUsize,
}

/// What became of a write.
pub(super) enum Tried {
    /// It found nobody before it.
    Done {
        answer: Answer,
        /// Whether anybody was woken by it, who waits for this thread perhaps.
        told: bool,
    },
    /// It is to wait in the queue.
    Queue(Write),
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queued = self.queued.load(Ordering::Relaxed);
        f.debug_struct("Turn").field("queued", &queued).finish()
    }
}

impl Turn {
    pub(super) fn of(writer: Writer) -> Self {
        Self {
            writer: Mutex::new(writer),
            queued: AtomicUsize::new(0),
        }
    }

    /// One more goes to the queue.
    pub(super) fn enter(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// So many of the queue are done.
    pub(super) fn leave(&self, count: usize) {
        self.queued.fetch_sub(count, Ordering::Relaxed);
    }

    /// Waits for the turn, on the writer's own thread. None if somebody panicked during theirs:
    /// nobody knows then what is in the file.
    pub(super) fn take(&self) -> Option<std::sync::MutexGuard<'_, Writer>> {
        self.writer.lock().ok()
    }

    /// Carries a write out on this thread, unless it has to wait for others, or others would have
    /// to wait for it longer than for a quick flush.
    pub(super) fn at_once(&self, write: Write) -> Tried {
        if self.queued.load(Ordering::Relaxed) > 0 || write.len() > SMALL || !others_go_on() {
            return Tried::Queue(write);
        }
        match self.writer.try_lock() {
            Ok(mut writer) if writer.is_quick() => {
                let (answer, told) = writer.write_at_once(write);
                Tried::Done { answer, told }
            }
            Ok(_) | Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {
                Tried::Queue(write)
            }
        }
    }
}

/// Whether there are threads besides this one that serve requests.
fn others_go_on() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::super::batch::{Change, Expect};
    use super::super::log::Log;
    use super::super::power::Cuttable;
    use super::super::writer::Last;
    use super::super::{Backend, Draft, Key, Store, WriteError};
    use super::*;

    fn create(name: &str) -> Write {
        let object = json!({ "kind": "Pod", "metadata": { "name": name } });
        Write {
            key: Key::new("pods", "default", name),
            change: Change::Put(Draft::new(&object)),
            expect: Expect::Absent,
            requires: None,
        }
    }

    fn store() -> Store {
        let (log, state) = Log::open(&Cuttable::default().shared()).unwrap();
        Store::on(log, state, None).unwrap()
    }

    fn queues(turn: &Turn, name: &str) -> bool {
        matches!(turn.at_once(create(name)), Tried::Queue(_))
    }

    /// Has the last commit be one of so many writes, a while ago, that took so long.
    fn remember(turn: &Turn, writes: usize, took: Duration) {
        let ended = Instant::now() - Duration::from_secs(1);
        turn.take().unwrap().last = Some(Last {
            writes,
            took,
            ended,
        });
    }

    fn turn(store: &Store) -> &Turn {
        match &*store.backend {
            Backend::Disk { turn, .. } => turn,
            Backend::Memory => unreachable!("it is on a disk"),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_comes_alone_to_a_quick_disk_does_not_queue() {
        let store = store();
        let turn = turn(&store);
        assert!(queues(turn, "a"), "nobody knows the disk");
        store.write(create("a")).await.unwrap();
        remember(turn, 1, Duration::ZERO);
        let Tried::Done { answer, told } = turn.at_once(create("b")) else {
            panic!("it was to queue");
        };
        assert_eq!(answer.unwrap().revision, store.read().revision());
        assert!(!told, "nobody watches");
        remember(turn, 1, Duration::ZERO);
        let Tried::Done { answer, .. } = turn.at_once(create("b")) else {
            panic!("it was to queue");
        };
        assert!(matches!(answer, Err(WriteError::Exists(_))));
        remember(turn, 1, Duration::from_millis(20));
        assert!(queues(turn, "c"), "the disk is slow");
        remember(turn, 2, Duration::ZERO);
        assert!(queues(turn, "c"), "there were others");
        remember(turn, 1, Duration::ZERO);
        turn.take().unwrap().last.as_mut().unwrap().ended = Instant::now() + Duration::from_secs(1);
        assert!(queues(turn, "c"), "one has just been");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_does_not_come_alone_queues_and_all_are_written() {
        let store = store();
        let turn = turn(&store);
        remember(turn, 1, Duration::ZERO);
        let writer = turn.take().unwrap();
        assert!(queues(turn, "a"), "somebody has the turn");
        let others: Vec<_> = (0..20)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move { store.write(create(&format!("p{n}"))).await })
            })
            .collect();
        while turn.queued.load(Ordering::Relaxed) < 20 {
            std::thread::yield_now();
        }
        let before = store.read().revision();
        drop(writer);
        for other in others {
            other.await.unwrap().unwrap();
        }
        assert_eq!(store.read().revision(), before + 20);
        // Answers are given before the writer's thread counts what it is done with.
        let bound = Instant::now() + Duration::from_secs(30);
        while turn.queued.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < bound, "somebody is still counted");
            std::thread::yield_now();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_was_closed_takes_nothing_at_once() {
        let store = store();
        store.write(create("a")).await.unwrap();
        store.close().await;
        let turn = turn(&store);
        remember(turn, 1, Duration::ZERO);
        assert!(queues(turn, "b"));
        let refused = store.write(create("b")).await;
        assert!(matches!(refused, Err(WriteError::Closed)));
    }

    #[tokio::test]
    async fn where_one_thread_serves_all_it_never_waits_for_a_disk() {
        let store = store();
        store.write(create("a")).await.unwrap();
        let turn = turn(&store);
        remember(turn, 1, Duration::ZERO);
        assert!(queues(turn, "b"));
    }
}

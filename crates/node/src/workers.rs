//! Work on files that somebody else answers for: a server that is gone, a disk that died, a driver
//! that never replies can make any of it hang, for ever and beyond any signal.
//!
//! So it is done by workers that can be left behind. A worker that makes no progress for as long
//! as its errand allows is given up, and its volume is put under quarantine: nobody else is sent
//! there before that worker has come back. The other volumes go on. There are only so many workers
//! that may hang; beyond that, errands are refused rather than begun.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlop_runtime::Queue;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::layout::PodUid;

/// So many workers may hang at the same time.
const MOST_HUNG: usize = 64;

/// Something to be done on a volume.
pub(crate) struct Errand {
    /// Whose files: errands to the same volume are done one after the other.
    pub(crate) volume: String,
    /// What is done, for people.
    pub(crate) doing: &'static str,
    /// How long nothing may happen.
    pub(crate) patience: Duration,
    /// Tells whether something happens: a number that then changes.
    pub(crate) pulse: Option<Pulse>,
    /// Called when a worker that was given up has come back.
    pub(crate) back: Box<dyn FnOnce() + Send>,
}

/// A number that changes while something happens.
pub(crate) type Pulse = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Why an errand was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Hung {
    #[error(
        "to {doing} hangs, since {seconds} s without progress; the volume is left alone until it \
         answers: look at its server or disk"
    )]
    Late { doing: &'static str, seconds: u64 },
    #[error(
        "the volume is left alone, since to {doing} still hangs there; look at its server or disk"
    )]
    Still { doing: &'static str },
    #[error("{MOST_HUNG} operations hang on other volumes, so none is begun on this one")]
    TooMany,
    #[error("to {doing} failed in a way that must not happen; the log tells how")]
    Broken { doing: &'static str },
}

/// The workers of a node. Clones share them.
#[derive(Clone)]
pub(crate) struct Workers {
    out: Arc<Out>,
}

struct Out {
    errands: Mutex<BTreeMap<String, Begun>>,
    /// Something has ended, or was given up.
    changed: Notify,
    hung: Gauge,
    given_up: Family<Vec<(&'static str, &'static str)>, Counter>,
}

struct Begun {
    doing: &'static str,
    since: Instant,
    hung: Option<Back>,
}

/// Whom to tell that a worker has come back.
type Back = Box<dyn FnOnce() + Send>;

impl Workers {
    /// Several nodes may share a registry.
    pub(crate) fn new(registry: &mut Registry, node: &str) -> Self {
        let label = ("node".into(), node.to_owned().into());
        let registry = registry.sub_registry_with_label(label);
        let hung = Gauge::default();
        registry.register(
            "orlop_node_hung_volumes",
            "Volumes that nothing is done on because an operation hangs there",
            hung.clone(),
        );
        let given_up = Family::default();
        registry.register(
            "orlop_node_hung_operations",
            "Operations on volumes that were given up because they hung",
            given_up.clone(),
        );
        let out = Out {
            errands: Mutex::default(),
            changed: Notify::new(),
            hung,
            given_up,
        };
        Self { out: Arc::new(out) }
    }

    /// Does something on a volume's files, unless it hangs.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        errand: Errand,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hung> {
        let Errand {
            volume,
            doing,
            patience,
            pulse,
            back,
        } = errand;
        self.begin(&volume, doing).await?;
        let home = Home {
            out: self.out.clone(),
            volume: volume.clone(),
        };
        let mut worker = tokio::task::spawn_blocking(move || {
            let _home = home;
            work()
        });
        let beat = || pulse.as_ref().map_or(0, |pulse| pulse());
        loop {
            let before = beat();
            match tokio::time::timeout(patience, &mut worker).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(broken)) => {
                    error!(volume, doing, error = %broken, "a worker broke");
                    return Err(Hung::Broken { doing });
                }
                Err(_) if beat() != before => {}
                Err(_) => break,
            }
        }
        if self.out.give_up(&volume, back) {
            warn!(
                volume,
                doing, "an operation hangs; the volume is left alone"
            );
            return Err(Hung::Late {
                doing,
                seconds: patience.as_secs(),
            });
        }
        // It came back in the very last moment.
        worker.await.map_err(|_| Hung::Broken { doing })
    }

    /// Something that others do hangs, until the answer is dropped.
    pub(crate) fn hangs(&self) -> Hangs {
        self.out.hung.inc();
        Hangs {
            hung: self.out.hung.clone(),
        }
    }

    /// Something that others did was given up.
    pub(crate) fn gave_up(&self, doing: &'static str) {
        self.out.gave_up(doing);
    }

    /// Waits for the volume's turn; not for one that hangs.
    async fn begin(&self, volume: &str, doing: &'static str) -> Result<(), Hung> {
        loop {
            let changed = self.out.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut errands = self.out.errands();
                match errands.get(volume) {
                    Some(begun) if begun.hung.is_some() => {
                        let doing = begun.doing;
                        return Err(Hung::Still { doing });
                    }
                    Some(_) => {}
                    None => {
                        let hung = errands.values().filter(|begun| begun.hung.is_some());
                        if hung.count() >= MOST_HUNG {
                            return Err(Hung::TooMany);
                        }
                        let begun = Begun {
                            doing,
                            since: Instant::now(),
                            hung: None,
                        };
                        errands.insert(volume.to_owned(), begun);
                        return Ok(());
                    }
                }
            }
            changed.await;
        }
    }
}

/// Sends workers to what a pod has beside its CSI volumes. One after the other, whatever volume it is
/// about: what hangs for a pod may still come to be, so nothing of the pod is taken away before.
#[derive(Clone)]
pub(crate) struct ForPods {
    pub(crate) workers: Workers,
    pub(crate) patience: Duration,
    /// Pods are looked at again when a worker that hung has come back.
    pub(crate) queue: Queue<PodUid>,
}

impl ForPods {
    /// Does something on files that a pod uses, unless it hangs.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        pod: &PodUid,
        doing: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hung> {
        self.workers.run(self.errand(pod, doing, None), work).await
    }

    /// Gives all files of a volume to the pod's group.
    pub(crate) async fn give(
        &self,
        pod: &PodUid,
        path: PathBuf,
        group: u32,
    ) -> Result<io::Result<()>, Hung> {
        use orlop_host::group::{Access, Progress, Wanted, When, apply, usual_threads};
        let progress = Arc::new(Progress::default());
        let seen = progress.clone();
        let pulse: Pulse = Arc::new(move || seen.seen());
        let errand = self.errand(pod, "give a volume's files to the pod's group", Some(pulse));
        let access = Access::ReadWrite;
        let wanted = (Wanted { group, access }, When::Always);
        let work = move || apply(&path, wanted, usual_threads(), &progress).map(drop);
        self.workers.run(errand, work).await
    }

    fn errand(&self, pod: &PodUid, doing: &'static str, pulse: Option<Pulse>) -> Errand {
        let (queue, again) = (self.queue.clone(), pod.clone());
        Errand {
            volume: format!("pod {pod}"),
            doing,
            patience: self.patience,
            pulse,
            back: Box::new(move || queue.add(again)),
        }
    }
}

impl Out {
    fn errands(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gave_up(&self, doing: &'static str) {
        let labels = vec![("operation", doing)];
        self.given_up.get_or_create(&labels).inc();
    }

    /// False if the worker has come back.
    fn give_up(&self, volume: &str, back: Back) -> bool {
        {
            let mut errands = self.errands();
            let Some(begun) = errands.get_mut(volume) else {
                return false;
            };
            begun.hung = Some(back);
            self.hung.inc();
            self.gave_up(begun.doing);
        }
        self.changed.notify_waiters();
        true
    }
}

/// Counts a volume that hangs.
pub(crate) struct Hangs {
    hung: Gauge,
}

impl Drop for Hangs {
    fn drop(&mut self) {
        self.hung.dec();
    }
}

/// Where a worker comes back to, however its work ends.
struct Home {
    out: Arc<Out>,
    volume: String,
}

impl Drop for Home {
    fn drop(&mut self) {
        let begun = self.out.errands().remove(&self.volume);
        self.out.changed.notify_waiters();
        if let Some(Begun {
            doing,
            since,
            hung: Some(back),
        }) = begun
        {
            self.out.hung.dec();
            let seconds = since.elapsed().as_secs();
            info!(
                volume = self.volume,
                doing, seconds, "an operation that hung has ended"
            );
            back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    use super::*;

    fn errand(volume: &str, back: impl FnOnce() + Send + 'static) -> Errand {
        Errand {
            volume: volume.to_owned(),
            doing: "look",
            patience: Duration::from_secs(30),
            pulse: None,
            back: Box::new(back),
        }
    }

    fn hung(workers: &Workers) -> i64 {
        workers.out.hung.get()
    }

    #[tokio::test]
    async fn a_volume_that_hangs_is_left_alone_until_it_answers_and_others_go_on() {
        let workers = Workers::new(&mut Registry::default(), "n");
        let (answer, answered) = mpsc::channel::<()>();
        let (came, mut back) = tokio::sync::mpsc::unbounded_channel();
        let told = Errand {
            patience: Duration::from_millis(20),
            ..errand("a", move || came.send(()).expect("heard"))
        };
        let late = workers.run(told, move || answered.recv()).await;
        assert!(
            matches!(late, Err(Hung::Late { doing: "look", .. })),
            "{late:?}"
        );
        assert_eq!(hung(&workers), 1);
        let again = workers.run(errand("a", || {}), || 1).await;
        assert_eq!(again, Err(Hung::Still { doing: "look" }));
        assert_eq!(workers.run(errand("b", || {}), || 2).await, Ok(2));
        answer.send(()).expect("it waits");
        let waited = tokio::time::timeout(Duration::from_secs(30), back.recv()).await;
        assert_eq!(waited, Ok(Some(())));
        assert_eq!(hung(&workers), 0);
        assert_eq!(workers.run(errand("a", || {}), || 3).await, Ok(3));
    }

    #[tokio::test]
    async fn what_is_slow_but_gets_on_is_not_given_up() {
        let workers = Workers::new(&mut Registry::default(), "n");
        let beats = Arc::new(AtomicU64::new(0));
        let seen = beats.clone();
        let errand = Errand {
            patience: Duration::from_millis(200),
            pulse: Some(Arc::new(move || seen.load(Ordering::Relaxed))),
            ..errand("a", || panic!("it never hung"))
        };
        let work = move || {
            for _ in 0..30 {
                beats.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
            7
        };
        assert_eq!(workers.run(errand, work).await, Ok(7));
    }

    #[tokio::test]
    async fn errands_to_one_volume_wait_for_each_other() {
        let workers = Workers::new(&mut Registry::default(), "n");
        let inside = Arc::new(AtomicU64::new(0));
        let each = (0..8).map(|_| {
            let (workers, inside) = (workers.clone(), inside.clone());
            tokio::spawn(async move {
                let errand = errand("a", || {});
                let work = move || {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::sleep(Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                };
                workers.run(errand, work).await
            })
        });
        for one in each.collect::<Vec<_>>() {
            assert_eq!(one.await.expect("it ended"), Ok(()));
        }
    }

    #[tokio::test]
    async fn only_so_many_may_hang() {
        let workers = Workers::new(&mut Registry::default(), "n");
        let mut answers = Vec::new();
        let mut all = tokio::task::JoinSet::new();
        for n in 0..MOST_HUNG {
            let (answer, answered) = mpsc::channel::<()>();
            answers.push(answer);
            let workers = workers.clone();
            all.spawn(async move {
                let work = move || answered.recv().is_ok();
                let errand = Errand {
                    patience: Duration::from_millis(20),
                    ..errand(&n.to_string(), || {})
                };
                workers.run(errand, work).await
            });
        }
        all.join_all().await;
        assert_eq!(hung(&workers), 64);
        let refused = workers.run(errand("one more", || {}), || ()).await;
        assert_eq!(refused, Err(Hung::TooMany));
        drop(answers);
    }

    #[tokio::test]
    async fn a_worker_that_breaks_does_not_keep_its_volume() {
        let workers = Workers::new(&mut Registry::default(), "n");
        let broken = workers
            .run(errand("a", || {}), || panic!("as the test wants"))
            .await;
        assert_eq!(broken, Err::<(), _>(Hung::Broken { doing: "look" }));
        assert_eq!(workers.run(errand("a", || {}), || 1).await, Ok(1));
    }
}

//! Attaching and detaching, each with workers of its own: a node that is gone and whose
//! volumes don't come off must not keep other volumes from being attached.
//!
//! An attachment moves from one lane to the other once, when it is deleted. It is never
//! worked on in both at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use orlop_model::VolumeAttachment;
use orlop_runtime::{Backoff, Metrics, Outcome, Queue, work};

/// Which way a volume goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Attach,
    Detach,
}

/// The two queues.
#[derive(Clone)]
pub(super) struct Lanes {
    attach: Queue<String>,
    detach: Queue<String>,
    busy: Arc<Mutex<Busy>>,
}

#[derive(Default)]
struct Busy {
    working: BTreeSet<String>,
    /// Came up in their lane while the other lane had them.
    wanted: BTreeMap<String, Lane>,
}

impl Lanes {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            attach: Queue::new(backoff),
            detach: Queue::new(backoff),
            busy: Arc::default(),
        }
    }

    /// With metrics, both lanes by one name.
    pub(super) fn measured(self, metrics: &Metrics, name: &str) -> Self {
        Self {
            attach: self.attach.measured(metrics, name),
            detach: self.detach.measured(metrics, name),
            ..self
        }
    }

    /// Asks for a look at an attachment, in the lane that it is in.
    pub(super) fn add(&self, attachment: &VolumeAttachment) {
        let lane = if attachment.metadata.is_deleting() {
            Lane::Detach
        } else {
            Lane::Attach
        };
        self.queue(lane).add(attachment.metadata.name.clone());
    }

    /// Ends all waits.
    pub(super) fn hurry(&self) {
        self.attach.hurry();
        self.detach.hurry();
    }

    fn queue(&self, lane: Lane) -> &Queue<String> {
        match lane {
            Lane::Attach => &self.attach,
            Lane::Detach => &self.detach,
        }
    }

    /// Works a lane off for ever.
    pub(super) async fn work<Turn>(&self, lane: Lane, at_once: usize, turn: impl Fn(String) -> Turn)
    where
        Turn: Future<Output = Outcome>,
    {
        work(self.queue(lane).clone(), at_once, |name| {
            // Begun before the turn's future exists, so that its guard is always dropped.
            let guard = self.begin(&name, lane);
            let turn = guard.is_some().then(|| turn(name));
            async move {
                let outcome = match turn {
                    Some(turn) => turn.await,
                    None => Outcome::Done,
                };
                drop(guard);
                outcome
            }
        })
        .await;
    }

    fn begin(&self, name: &str, lane: Lane) -> Option<Working<'_>> {
        let mut busy = lock(&self.busy);
        if !busy.working.insert(name.to_owned()) {
            busy.wanted.insert(name.to_owned(), lane);
            return None;
        }
        Some(Working {
            lanes: self,
            name: name.to_owned(),
        })
    }
}

fn lock(busy: &Mutex<Busy>) -> MutexGuard<'_, Busy> {
    busy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attachment that is worked on. Whoever wanted it meanwhile gets it afterwards.
struct Working<'a> {
    lanes: &'a Lanes,
    name: String,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut busy = lock(&self.lanes.busy);
        busy.working.remove(&self.name);
        let wanted = busy.wanted.remove(&self.name);
        drop(busy);
        if let Some(lane) = wanted {
            self.lanes.queue(lane).add(std::mem::take(&mut self.name));
        }
    }
}

#[cfg(test)]
mod tests;

//! One call at a time for a volume.
//!
//! The protocol makes the caller answer for that. Drivers say `ABORTED` to what overlaps, and a wait
//! follows that serves nobody; so the roles of one process stand in line here instead. What another
//! process has under way, or one that has died, is not known here: there `ABORTED` has its place.
//!
//! Attaching a volume to one node and to another may overlap, as each is a call about one node, and
//! volumes that many share would else come up node by node. Snapshots and clones are not in line: they
//! are known by their own names, and may take long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::Method;

/// The lines before one driver's volumes; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    /// Only of volumes that somebody stands in line for.
    lines: Arc<Mutex<Lines>>,
}

type Lines = BTreeMap<String, Arc<RwLock<()>>>;

/// Whom a call goes along with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// Calls for other nodes.
    Nodes,
    /// Nobody.
    Alone,
}

/// The right to call. It ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    // Let go of before the place, in this order.
    _held: Held,
    _place: Place,
}

#[derive(Debug)]
enum Held {
    Shared(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>),
    Alone(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>),
}

/// A place in a line, which is there as long as somebody has one.
#[derive(Debug)]
struct Place {
    turns: Turns,
    volume: String,
    line: Arc<RwLock<()>>,
}

impl Turns {
    /// Waits for the turn of a call about this volume, first come, first served; `None` if the call
    /// needs none. Cancel-safe: who waits no more gives up its place.
    pub(super) async fn take(&self, method: Method, volume: Option<&str>) -> Option<Turn> {
        let company = company(method)?;
        let place = self.place(volume.filter(|volume| !volume.is_empty())?);
        let line = Arc::clone(&place.line);
        let held = match company {
            Company::Nodes => Held::Shared(line.read_owned().await),
            Company::Alone => Held::Alone(line.write_owned().await),
        };
        Some(Turn {
            _held: held,
            _place: place,
        })
    }

    fn place(&self, volume: &str) -> Place {
        let line = Arc::clone(self.lines().entry(volume.to_owned()).or_default());
        Place {
            turns: self.clone(),
            volume: volume.to_owned(),
            line,
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.turns.lines();
        // One is the map's, one our own; more are only made under this lock.
        if Arc::strong_count(&self.line) == 2 {
            lines.remove(&self.volume);
        }
    }
}

fn company(method: Method) -> Option<Company> {
    match method {
        Method::ControllerPublishVolume | Method::ControllerUnpublishVolume => Some(Company::Nodes),
        Method::ControllerExpandVolume | Method::ControllerModifyVolume | Method::DeleteVolume => {
            Some(Company::Alone)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Method::{ControllerExpandVolume as Expand, ControllerPublishVolume as Publish};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const VOLUME: Option<&str> = Some("v");

    /// Whether it is somebody's turn now, who else stands in line.
    fn now<T>(turn: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn calls_for_one_volume_wait_for_each_other_in_the_order_in_which_they_came() {
        let turns = Turns::default();
        let first = turns.take(Expand, VOLUME).await;
        let mut attach = Box::pin(turns.take(Publish, VOLUME));
        assert!(now(&mut attach).is_none(), "one is under way");
        let mut delete = Box::pin(turns.take(Method::DeleteVolume, VOLUME));
        assert!(now(&mut delete).is_none());
        drop(first);
        assert!(now(&mut delete).is_none(), "not its turn");
        let second = attach.await;
        assert!(second.is_some());
        drop(second);
        drop(delete.await);
        assert!(turns.lines().is_empty(), "nothing is kept of it");
    }

    #[tokio::test]
    async fn who_gives_up_makes_nobody_wait_and_leaves_nothing_behind() {
        let turns = Turns::default();
        let first = turns.take(Publish, VOLUME).await;
        let mut given_up = Box::pin(turns.take(Expand, VOLUME));
        assert!(now(&mut given_up).is_none());
        drop(given_up);
        let mut next = Box::pin(turns.take(Publish, VOLUME));
        drop(now(&mut next).expect("a turn"));
        drop(next);
        let mut last = Box::pin(turns.take(Expand, VOLUME));
        assert!(now(&mut last).is_none());
        drop(first);
        drop(last);
        assert!(turns.lines().is_empty());
    }

    #[tokio::test]
    async fn other_volumes_other_nodes_and_other_calls_are_not_waited_for() {
        let turns = Turns::default();
        let _attach = turns.take(Publish, VOLUME).await;
        for (method, volume) in [
            (Publish, VOLUME),
            (Expand, Some("another")),
            (Method::CreateSnapshot, VOLUME),
            (Method::NodeStageVolume, VOLUME),
            (Expand, None),
        ] {
            let mut turn = Box::pin(turns.take(method, volume));
            assert!(now(&mut turn).is_some(), "{method}");
        }
    }
}

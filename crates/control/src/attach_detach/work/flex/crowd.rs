//! What a crowd of volumes may not do: fill the machine with processes of their drivers, or have volumes
//! taken for attached that nobody has attached.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_model::Node;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::attach_detach::flex;

/// How many calls of one driver run at once, to attach and to detach each.
const AT_ONCE: usize = 32;

/// How long a driver may take before that is news.
pub(super) const NEWS: Duration = Duration::from_secs(10);

/// A place for each call that runs, by its driver.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>);

impl Places {
    /// Waits for a place.
    pub(super) async fn enter(&self, driver: &str) -> Place {
        let places = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Drivers are as many as pods name.
            all.retain(|_, places| Arc::strong_count(places) > 1);
            let places = all.entry(driver.to_owned());
            places
                .or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)))
                .clone()
        };
        // It is never closed.
        Place(places.acquire_owned().await.ok())
    }
}

/// A call's place.
pub(super) struct Place(Option<OwnedSemaphorePermit>);

impl Place {
    /// Lets a call run. One that hangs keeps its own volume waiting, and soon no other's.
    pub(super) async fn run<T>(self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        if let Ok(ended) = timeout(NEWS, &mut call).await {
            return ended;
        }
        drop(self.0);
        call.await
    }
}

/// What nodes were told to have when they were first seen. Whatever comes onto a list later, and isn't on
/// record, we have not attached: it is the node's claim alone.
#[derive(Clone, Default)]
pub(super) struct FirstSight(Arc<Mutex<BTreeMap<String, Seen>>>);

struct Seen {
    uid: String,
    told: BTreeSet<String>,
}

impl FirstSight {
    /// What a node was told to have when it was first seen, which may be now.
    pub(super) fn of(&self, node: &Node) -> BTreeSet<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let meta = &node.metadata;
        let seen = all.get(&meta.name).filter(|seen| seen.uid == meta.uid);
        if let Some(seen) = seen {
            return seen.told.clone();
        }
        let told: BTreeSet<String> = flex::told(node).map(|told| told.name.clone()).collect();
        let seen = Seen {
            uid: meta.uid.clone(),
            told: told.clone(),
        };
        all.insert(meta.name.clone(), seen);
        told
    }

    /// A node isn't ours to look at for now.
    pub(super) fn forget(&self, node: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(node);
    }
}
